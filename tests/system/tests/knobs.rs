//! Knobs that prices turn, on a real machine with real clients: what costs more than it brings is given back.

use nom_proto::prices::Resource;
use nom_proto::status::Status;
use nom_provider::{Config, Provider};
use nom_system_tests::{Guest, Vm, tap_is_possible};
use nom_vmm::{Namespace, namespace};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// How long anything may take to come about: on a quiet computer it takes 10 s.
const PATIENCE: Duration = Duration::from_secs(240);
/// As good as nothing, and more than a few clients pay.
const CHEAP: f64 = 0.01;
const DEAR: f64 = 100.0;

/// A machine with memcached and `priced`, and the provider that it pays.
struct Market {
    _vm: Vm,
    provider: Provider,
    namespace: Namespace,
}

impl Market {
    /// memcached on so many cores, which turns this knob. Nothing without the rights for a TAP device.
    fn open(knob: &str, cores: u32) -> Option<Market> {
        if !tap_is_possible("memcached") {
            return None;
        }
        let namespace = Namespace::create(&format!("knob-{knob}"), cores).expect("a namespace");
        let provider = inside(&namespace, || {
            let listen = (Ipv4Addr::LOCALHOST, 0).into();
            Provider::start(Config { listen, ..Config::default() }).expect("the provider starts")
        });
        provider.set_prices(&[(Resource::NetworkOut, 1.0), (Resource::Core, CHEAP)]).expect("good prices");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let write = |file: &str, text: String| {
            std::fs::write(directory.path().join(file), text).expect("it is written");
        };
        write(
            "app.toml",
            format!(
                "inherit = [\"{ROOT}/apps/memcached/app.toml\"]\nenvironment = {{ knobs = \"{knob}\" }}\n\
                 [utility]\nunit = \"Gbit\"\nterm = [{{ function = \"value\", alpha = 20.0 }}]\n"
            ),
        );
        write(
            "bundle.toml",
            format!(
                "[[applications]]\nfile = \"{ROOT}/apps/priced/app.toml\"\n\
                 environment = {{ provider = \"10.0.2.2:{}\", network = \"1\", key = \"{}\" }}\n\n\
                 [[applications]]\nfile = \"app.toml\"\npeers = [{{ name = \"priced\" }}]\n",
                provider.address().port(),
                provider.register("nom", None).expect("a fresh provider").machine_key,
            ),
        );
        let bundle = directory.path().join("bundle.toml");
        let bundle = bundle.to_str().expect("UTF-8");
        let mut vm = Guest::bundle(bundle).cpus(cores).memory("256M").tap(&namespace).network().boot();
        vm.wait_for("its prices come by events");
        Some(Market { _vm: vm, provider, namespace })
    }

    fn price(&self, resource: Resource, dollars: f64) {
        self.provider.set_prices(&[(resource, dollars)]).expect("a good price");
    }

    /// Waits for a report of which this is true.
    fn wait_until(&self, what: &str, is_so: impl Fn(&Status) -> bool) {
        let start = Instant::now();
        let reported = || self.provider.statuses().into_iter().find(|status| is_so(status));
        while reported().is_none() {
            let last = self.provider.statuses();
            assert!(start.elapsed() < PATIENCE, "it is not reported that {what}: {last:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Ends what clients do, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn inside<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let work = || {
            namespace.enter().expect("entered");
            work()
        };
        scope.spawn(work).join().expect("no panic")
    })
}

/// Connects to memcached.
fn connect() -> TcpStream {
    let (address, start) = (SocketAddr::new(namespace::GUEST.into(), 11211), Instant::now());
    let stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{address}: {error}"),
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream
}

/// Asks something; panics if the answer is another one.
fn exchange(stream: &mut TcpStream, request: &str, expected: &str) {
    stream.write_all(request.as_bytes()).expect("the connection is open");
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

/// Waits until memcached may take no more than so many bytes for what it keeps.
fn wait_for_limit(bytes: u64) {
    let (start, mut stream) = (Instant::now(), connect());
    loop {
        stream.write_all(b"stats\r\n").expect("the connection is open");
        let mut answer = Vec::new();
        while !answer.ends_with(b"END\r\n") {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).expect("an answer");
            assert!(count > 0, "the connection was closed");
            answer.extend_from_slice(&bytes[..count]);
        }
        let answer = String::from_utf8_lossy(&answer);
        let limit = answer.lines().find_map(|line| line.strip_prefix("STAT limit_maxbytes "));
        let limit: u64 = limit.expect("a limit").parse().expect("a number");
        if limit <= bytes {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "it may still take {limit} bytes");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Stores so many values of 1,000 bytes.
fn fill(values: u32) {
    let (mut stream, value) = (connect(), "v".repeat(1000));
    for first in (0..values).step_by(20) {
        let request = |number| format!("set much{number} 0 0 1000\r\n{value}\r\n");
        let requests: String = (first..first + 20).map(request).collect();
        exchange(&mut stream, &requests, &"STORED\r\n".repeat(20));
    }
}

/// Looks for the first so many of the values that [`fill`] stored, again and again, until it `is_over`. What
/// is found must be right; what is not was given up.
fn look_for(values: u32, is_over: &AtomicBool) {
    let (mut stream, value) = (connect(), "v".repeat(1000));
    for number in (0..values).cycle().take_while(|_| !is_over.load(Relaxed)) {
        stream.write_all(format!("get much{number}\r\n").as_bytes()).expect("the connection is open");
        let mut answer = Vec::new();
        while !answer.ends_with(b"END\r\n") {
            let mut bytes = [0; 2048];
            let count = stream.read(&mut bytes).expect("an answer");
            assert!(count > 0, "the connection was closed");
            answer.extend_from_slice(&bytes[..count]);
        }
        let found = format!("VALUE much{number} 0 1000\r\n{value}\r\nEND\r\n");
        assert!(answer == b"END\r\n" || answer == found.as_bytes(), "{}", answer.escape_ascii());
    }
}

/// Asks over `connections` connections, on each one thing after the other, until it `is_over`. Whoever is
/// not answered, or wrongly, panics.
fn ask(connections: u32, is_over: &AtomicBool, answered: &AtomicU64) {
    let mut clients: Vec<(u32, TcpStream)> = (0..connections).map(|number| (number, connect())).collect();
    let value = "v".repeat(500);
    for (number, stream) in &mut clients {
        exchange(stream, &format!("set key{number} 0 0 500\r\n{value}\r\n"), "STORED\r\n");
    }
    while !is_over.load(Relaxed) {
        for (number, stream) in &mut clients {
            let answer = format!("VALUE key{number} 0 500\r\n{value}\r\nEND\r\n");
            exchange(stream, &format!("get key{number}\r\n"), &answer);
            answered.fetch_add(1, Relaxed);
        }
    }
}

#[test]
fn a_core_that_costs_more_than_it_brings_is_given_back() {
    let Some(market) = Market::open("cores", 2) else { return };
    market.wait_until("one core waits while nobody asks anything", |status| status.cores == 1);
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            market.namespace.enter().expect("entered");
            ask(12, &is_over, &answered);
        });
        let over = Over(&is_over);
        market.wait_until("both serve", |status| status.cores == 2 && status.requests > 0);
        for _ in 0..5 {
            market.price(Resource::Core, DEAR);
            market.wait_until("the second is given back", |status| status.cores == 1 && status.requests > 0);
            market.price(Resource::Core, CHEAP);
            let before = answered.load(Relaxed);
            while answered.load(Relaxed) < before + 200 && !clients.is_finished() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        drop(over);
        clients.join().expect("every client had its answers");
    });
}

#[test]
fn memory_that_costs_more_than_it_brings_is_given_back() {
    let Some(market) = Market::open("memory", 1) else { return };
    inside(&market.namespace, || fill(20_000));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            market.namespace.enter().expect("entered");
            look_for(4_000, &is_over);
        });
        let over = Over(&is_over);
        market.wait_until("values are kept", |status| status.memory_bytes > 20 << 20 && status.requests > 0);
        // The first report may tell of a part of what was stored: a second apart, the third does not.
        std::thread::sleep(Duration::from_secs(2));
        let before = market.provider.statuses()[0].memory_bytes;
        market.price(Resource::Memory, DEAR);
        // What is looked for takes some 5 MiB, by then the rest was given up.
        inside(&market.namespace, || wait_for_limit(8 << 20));
        // How much the machine can do without then depends on where the rest lies (`memory_knob` holds that).
        market.wait_until("some of it is given back", |status| status.memory_bytes + (2 << 20) < before);
        drop(over);
        client.join().expect("what was found was right");
    });
}
