//! What applications report of what they serve: without a contract, on sockets, and where a contract cannot
//! pay. Real machines, real clients.

use nom_proto::prices::Resource;
use nom_proto::status::{State, Status};
use nom_provider::{Config, Provider};
use nom_system_tests::{Guest, Server};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// How long anything may take to come about.
const PATIENCE: Duration = Duration::from_secs(60);
/// What users pay: nothing else counts.
const VALUE: &str = "[utility]\nunit = \"operation\"\nterm = [{ function = \"value\", alpha = 1.0 }]\n";

/// A server with `priced` beside it, and the provider that both hear of.
struct Shop {
    server: Server,
    provider: Provider,
    _bundle: TempDir,
}

impl Shop {
    /// `app` with these lines more in its manifest, at its TCP and UDP port.
    fn open(app: &str, port: u16, more: &str, network_out: f64) -> Shop {
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let provider = Provider::start(Config { listen, ..Config::default() }).expect("the provider starts");
        provider.set_prices(&[(Resource::NetworkOut, network_out)]).expect("a good price");
        let bundle = tempfile::tempdir().expect("a temporary directory");
        let write = |file: &str, text: String| {
            std::fs::write(bundle.path().join(file), text).expect("it is written");
        };
        write("app.toml", format!("inherit = [\"{ROOT}/apps/{app}/app.toml\"]\n{more}"));
        write(
            "bundle.toml",
            format!(
                "[[applications]]\nfile = \"app.toml\"\npeers = [{{ name = \"priced\" }}]\n\n\
                 [[applications]]\nfile = \"{ROOT}/apps/priced/app.toml\"\n\
                 environment = {{ provider = \"10.0.2.2:{}\", network = \"1\", key = \"{}\" }}\n",
                provider.address().port(),
                provider.register("nom", None).expect("a fresh provider").machine_key,
            ),
        );
        let path = bundle.path().join("bundle.toml");
        // Devices are counted in the order of their slots: the server's first.
        let second = "virtio-net-pci,disable-legacy=on,netdev=net1,addr=0x10";
        let guest = Guest::bundle(path.to_str().expect("UTF-8")).memory("256M");
        let mut server = Server::boot(guest.qemu("-netdev user,id=net1").device(second), port);
        server.vm.wait_for("its prices come by events");
        Shop { server, provider, _bundle: bundle }
    }

    /// Goes on with `work` until a report says so. What it says, then.
    fn until(&self, what: &str, mut work: impl FnMut(), is_so: impl Fn(&Status) -> bool) -> Status {
        let start = Instant::now();
        loop {
            work();
            let last = self.provider.statuses();
            if let Some(status) = last.iter().find(|status| is_so(status)) {
                return status.clone();
            }
            assert!(start.elapsed() < PATIENCE, "it is not reported that {what}: {last:?}");
        }
    }
}

/// Asks something, and hears something.
fn exchange(stream: &mut TcpStream, request: &[u8]) {
    stream.write_all(request).expect("the connection is open");
    assert!(stream.read(&mut [0; 4096]).expect("an answer") > 0, "the connection was closed");
}

#[test]
fn without_a_contract_what_is_served_and_its_cost_are_reported() {
    let shop = Shop::open("memcached", 11211, "", 100.0);
    let mut client = shop.server.connect();
    let work = || exchange(&mut client, b"version\r\n");
    let status = shop.until("somebody is served", work, |status| status.requests > 10);
    assert_eq!(status.solvency.state, State::NoContract);
    assert!(status.latency_mean_ns > 0 && status.latency_p99_ns > 0 && status.memory_bytes > 0, "{status:?}");
    assert!(status.cost_per_second > 0.0 && status.profit < 0.0, "{status:?}");
    assert_eq!((status.revenue_per_second, status.batching_delay_us), (0.0, 0));
}

fn echo_earns(style: &str) {
    let more = format!("arguments = [\"{style}\"]\n{VALUE}");
    let shop = Shop::open("echo", 7, &more, 1.0);
    let mut client = shop.server.connect();
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    datagrams.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
    let work = || {
        exchange(&mut client, b"echo this");
        datagrams.send_to(b"and this", shop.server.address).expect("it is sent");
        datagrams.recv(&mut [0; 100]).expect("an answer");
    };
    let status = shop.until("it earns", work, |status| status.requests > 10 && status.profit > 20.0);
    assert_eq!(status.solvency.state, State::Pays);
    assert!(status.latency_mean_ns > 0 && status.revenue_per_second > 0.0, "{status:?}");
}

#[test]
fn a_service_of_tasks_earns() {
    echo_earns("tasks");
}

#[test]
fn an_application_on_sockets_earns_with_threads() {
    echo_earns("threads");
}

#[test]
fn an_application_on_sockets_earns_by_readiness() {
    echo_earns("readiness");
}

#[test]
fn an_application_on_sockets_says_what_it_cannot_do() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("app.toml");
    let more = "arguments = [\"threads\"]\nenvironment = { knobs = \"cores\" }";
    let text = format!("inherit = [\"{ROOT}/apps/echo/app.toml\"]\n{more}\n{VALUE}");
    std::fs::write(&path, text).expect("it is written");
    let mut vm = Guest::bundle(path.to_str().expect("UTF-8")).memory("64M").network().boot();
    vm.wait_for("an application on sockets stays on its core with its memory");
}

/// Of `app` at a port, with these lines more in its manifest.
fn refuses_what_costs_more(app: &str, port: u16, more: &str) {
    let value = VALUE.replace("1.0", "1e-6");
    let more = format!("{more}\nenvironment = {{ refuse = \"loss\" }}\n{value}");
    let shop = Shop::open(app, port, &more, 1000.0);
    let is_served = || {
        let mut client = shop.server.connect();
        let served = client.write_all(b"version\r\n").and_then(|()| client.read(&mut [0; 100]));
        served.is_ok_and(|bytes| bytes > 0)
    };
    let mut client = Some(shop.server.connect());
    // Whoever is there is answered, and closed at last: then nobody is let in.
    let ask = || {
        let heard = client.as_mut().is_some_and(|stream| {
            let sent = stream.write_all(b"version\r\n");
            sent.and_then(|()| stream.read(&mut [0; 100])).is_ok_and(|bytes| bytes > 0)
        });
        if !heard {
            client = None;
        }
    };
    let refused = shop.until("all are refused", ask, |status| status.solvency.clients_max == Some(0));
    assert_eq!(refused.solvency.state, State::CostsMore);
    shop.until("it stays so", || (), |status| status.requests == 0);
    assert!((0..3).any(|_| !is_served()), "somebody is refused, if it is no trial just now");
    shop.provider.set_prices(&[(Resource::NetworkOut, 1e-2)]).expect("a good price");
    let admitted = |status: &Status| status.solvency.clients_max.is_none();
    shop.until("all are let in again", || (), admitted);
    assert!(is_served());
}

#[test]
fn what_costs_more_than_it_brings_is_said_refused_and_let_in_again() {
    refuses_what_costs_more("memcached", 11211, "");
}

#[test]
fn an_application_on_sockets_refuses_what_costs_more_and_lets_it_in_again() {
    refuses_what_costs_more("echo", 7, "arguments = [\"threads\"]");
}
