//! `priced` in a machine, against a provider on this computer that lives, dies, comes back and lies.

use nom_proto::prices::Resource;
use nom_provider::{Config, Provider};
use nom_system_tests::{Guest, Server, Vm, tap_is_possible};
use nom_vmm::Namespace;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// How long the provider may have to wait for a report.
const PATIENCE: Duration = Duration::from_secs(60);

/// A bundle of `priced` with this environment and `other`, whose first line is the name.
fn bundle(environment: &str, other: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let text = format!(
        "[[applications]]\n{other}\npeers = [{{ name = \"priced\" }}]\n\n\
         [[applications]]\nfile = \"{ROOT}/apps/priced/app.toml\"\n\
         [applications.environment]\n{environment}\n"
    );
    let path = directory.path().join("bundle.toml");
    std::fs::write(&path, text).expect("the bundle is written");
    let path = path.to_str().expect("UTF-8").to_owned();
    (directory, path)
}

/// The application that ends when outgoing data costs `last`.
fn watch(last: u32) -> String {
    format!("name = \"watch\"\nprogram = \"priced_watch\"\narguments = [\"{last}\"]\nessential = true")
}

/// A provider at `port`, or at any, that asks so much for outgoing data.
fn provider(port: u16, network_out: f64) -> Provider {
    let config = Config { listen: (Ipv4Addr::LOCALHOST, port).into(), ..Config::default() };
    let provider = Provider::start(config).expect("the provider starts");
    provider.set_prices(&[(Resource::NetworkOut, network_out), (Resource::Core, 1e-5)]).expect("good prices");
    provider
}

/// The key of a machine that is registered now.
fn key(provider: &Provider, machine: &str) -> String {
    provider.register(machine, None).expect("a fresh provider").machine_key
}

/// Answers every connection at an address with the same bytes, and then says nothing more.
struct Liar {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Liar {
    fn at(address: SocketAddr, answer: &'static str) -> Liar {
        let listener = TcpListener::bind(address).expect("the port is free");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let answer_all = move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                if over.load(Relaxed) {
                    return;
                }
                let mut stream = stream.expect("a connection");
                // Whoever gives up before the lie is told does no harm.
                let _ = stream.read(&mut [0; 1000]).and_then(|_| stream.write_all(answer.as_bytes()));
                open.push(stream);
            }
        };
        Liar { address, is_over, thread: Some(std::thread::spawn(answer_all)) }
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        drop(TcpStream::connect(self.address));
        self.thread.take().map(JoinHandle::join);
    }
}

const NETWORK: &str = "-netdev user,id=net0";
const DEVICE: &str = "virtio-net-pci,disable-legacy=on,netdev=net0";

/// Waits until the watch has reported a price, and returns how long it took.
fn await_report(provider: &Provider, price: f64) -> Duration {
    let start = Instant::now();
    while !provider.statuses().iter().any(|status| status.price_network_out == price) {
        assert!(start.elapsed() < PATIENCE, "no report of price {price}: {:?}", provider.statuses());
        std::thread::sleep(Duration::from_micros(200));
    }
    start.elapsed()
}

#[test]
fn prices_come_change_and_stay_whatever_the_provider_does() {
    let honest = provider(0, 1.0);
    let address = honest.address();
    let environment = format!(
        "provider = \"10.0.2.2:{}\"\nmachine = \"test-machine\"\nkey = \"{}\"",
        address.port(),
        key(&honest, "test-machine")
    );
    let (_directory, path) = bundle(&environment, &watch(99));
    let mut vm = Guest::bundle(&path).qemu(NETWORK).device(DEVICE).boot();
    vm.wait_for("watch revision=1 network_out=1 of 2 prices");

    for price in [10.0, 12.0, 14.0] {
        // Reports are rare: the one before must be long gone, so that this one goes at once.
        vm.run_for(Duration::from_millis(300));
        honest.set_prices(&[(Resource::NetworkOut, price)]).expect("a good price");
        let took = await_report(&honest, price);
        println!("price {price}: set, published, announced, and reported as noticed within {took:?}");
    }
    let status = honest.statuses().pop().expect("a status");
    assert_eq!((status.machine.as_str(), status.application.as_str()), ("test-machine", "watch"));
    assert!(status.cores == 1 && status.memory_bytes > 0, "{status:?}");

    honest.shutdown();
    vm.wait_for("the last prices stay");
    lies(&mut vm, address);
    let honest = provider(address.port(), 15.0);
    vm.wait_for("network_out=15");
    honest.set_prices(&[(Resource::NetworkOut, 99.0)]).expect("a good price");
    let life = vm.finish().expect_status(0).expect_no("FAILED").expect_no("panicked");
    life.serial.lines().filter(|line| line.contains("watch") || line.contains("priced")).for_each(|line| {
        println!("{line}");
    });
}

fn lies(vm: &mut Vm, address: SocketAddr) {
    let liar = Liar::at(
        address,
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: prices\ndata: {\"revision\":70,\
         \"source\":\"a liar\",\"age_seconds\":0,\"prices\":[{\"resource\":\"network_out\",\"dollars\":-5,\
         \"since_unix_ns\":0},{\"resource\":\"core\",\"dollars\":1e99,\"since_unix_ns\":0}]}\n\n",
    );
    vm.wait_for("(a liar): price of NetworkOut -5 $/Gbit refused: a price is not negative");
    vm.wait_for("(a liar): price of Core 1");
    vm.wait_for("watch revision=70 network_out=14 of 2 prices");
    vm.wait_for("its events fell silent; the last prices stay");
    drop(liar);
    let liar = Liar::at(address, "HTTP/1.1 500 Oh no\r\nContent-Type: text/html\r\n\r\n<html>sorry</html>");
    vm.wait_for("it answers with status 500; the last prices stay");
    drop(liar);
    let liar = Liar::at(address, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>hello</html>");
    vm.wait_for("it answers with `text/html`, expected `application/json`; the last prices stay");
    drop(liar);
}

#[test]
fn a_schedule_needs_neither_provider_nor_network() {
    let (_directory, path) =
        bundle("provider = \"fixed:network_out=1,core=2,network_out=99@500ms\"", &watch(99));
    for processors in [1, 2] {
        let life = Guest::bundle(&path).cpus(processors).run().expect_status(0).expect_no("FAILED");
        life.expect("watch revision=1 network_out=1 of 2 prices, 0 ms old")
            .expect("watch revision=2 network_out=99 of 2 prices");
    }
}

#[test]
fn a_server_and_priced_have_a_network_each() {
    let honest = provider(0, 1.0);
    let environment = format!("provider = \"10.0.2.2:{}\"\nnetwork = \"1\"", honest.address().port());
    let memcached = Path::new(ROOT).join("apps/memcached/app.toml");
    let (_directory, path) = bundle(&environment, &format!("file = \"{}\"", memcached.display()));
    // Devices are counted in the order of their slots: the server's first.
    let second = "virtio-net-pci,disable-legacy=on,netdev=net1,addr=0x10";
    let guest = Guest::bundle(&path).memory("160M").qemu("-netdev user,id=net1").device(second);
    let mut server = Server::boot(guest, 11211);
    server.vm.wait_for("its prices come by events");
    let mut stream = server.connect();
    stream.write_all(b"version\r\nquit\r\n").expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    assert!(answer.starts_with("VERSION"), "{answer}");
}

/// Sets prices one after the other while the server sleeps on all of its cores. If it heard of them only when
/// it reports that it is idle, once a second, there would be as much guest time between them.
#[test]
fn every_price_wakes_a_server_that_sleeps_on_two_cores() {
    if !tap_is_possible("memcached") {
        return;
    }
    let namespace = Namespace::create("priced", 2).expect("a namespace");
    let honest = std::thread::scope(|scope| {
        let start = || {
            namespace.enter().expect("entered");
            provider(0, 1.0)
        };
        scope.spawn(start).join().expect("no panic")
    });
    // `priced` begins first, and the server on what is left: the kernel wakes the lowest core that it holds.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("bundle.toml");
    let text = format!(
        "[[applications]]\nfile = \"{ROOT}/apps/priced/app.toml\"\n\
         environment = {{ provider = \"10.0.2.2:{}\", network = \"1\", key = \"{}\" }}\n\n\
         [[applications]]\nfile = \"{ROOT}/apps/memcached/penalty.toml\"\n\
         peers = [{{ name = \"priced\" }}]\n",
        honest.address().port(),
        key(&honest, "nom")
    );
    std::fs::write(&path, text).expect("the bundle is written");
    let path = path.to_str().expect("UTF-8").to_owned();
    let mut vm = Guest::bundle(&path).cpus(2).memory("256M").tap(&namespace).network().boot();
    vm.wait_for(", on 2 cores");
    vm.wait_for("its prices come by events");
    await_report(&honest, 1.0);
    let mut noticed_ns = Vec::new();
    for price in 2..14 {
        vm.run_for(Duration::from_millis(200));
        honest.set_prices(&[(Resource::NetworkOut, f64::from(price))]).expect("a good price");
        await_report(&honest, f64::from(price));
        let status = honest.statuses().pop().expect("it reported");
        assert_eq!((status.cores, status.requests), (2, 0), "{status:?}");
        noticed_ns.push(status.at_ns);
    }
    // Whatever else wakes it may let it see a price, and a busy computer may keep it from seeing one.
    let at_once = noticed_ns.windows(2).filter(|pair| pair[1] - pair[0] < 900_000_000).count();
    assert!(at_once >= 6, "{at_once} of 11 prices woke it: {noticed_ns:?}");
}

#[test]
fn a_setting_that_makes_no_sense_ends_priced_and_nothing_else() {
    for (setting, problem) in [
        ("fixed:core=0", "`core=0`: nothing is free"),
        ("example.com", "`example.com`: expected ADDRESS:PORT"),
        ("10.0.2.2:80", "no network device 0"),
    ] {
        let other = "name = \"board\"\nprogram = \"spinner\"\nessential = true";
        let (_directory, path) = bundle(&format!("provider = \"{setting}\""), other);
        let mut vm = Guest::bundle(&path).boot();
        vm.wait_for(problem);
        vm.wait_for_report("exited app=priced status=1");
    }
}
