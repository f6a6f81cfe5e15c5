//! The provider's meter at real machines: what is charged is what passed.

use nom_proto::prices::Resource;
use nom_provider::meter::{Bytes, Charge, Meter};
use nom_provider::{Config, Provider};
use nom_system_tests::{Guest, Vm};
use nom_vmm::{Namespace, namespace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const MEMCACHED: u16 = 11211;
const CONTROL: u16 = 8080;
/// Values are asked for so often, and are so long.
const ROUNDS: usize = 300;
const VALUE: usize = 8000;

fn guest() -> Guest {
    Guest::bundle("tests/system/manifests/metered.toml").memory("128M")
}

fn provider() -> Provider {
    let provider = Provider::start(Config::default()).expect("it starts");
    provider.set_prices(&[(Resource::NetworkOut, 1.0), (Resource::NetworkIn, 0.5)]).expect("good");
    provider
}

fn charge(provider: &Provider) -> Charge {
    let keys = provider.register("metered", None).expect("a fresh provider");
    Charge { provider: provider.url(), key: keys.meter_key, machine: keys.name, activity: "memcached".into() }
}

fn connect(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
    BufReader::new(stream)
}

/// Stores a value and asks for it many times.
fn load(address: SocketAddr) {
    let mut connection = connect(address);
    let mut line = String::new();
    let set = [format!("set a 0 0 {VALUE}\r\n").into_bytes(), vec![b'v'; VALUE], b"\r\n".to_vec()].concat();
    connection.get_mut().write_all(&set).expect("sent");
    connection.read_line(&mut line).expect("an answer");
    assert_eq!(line, "STORED\r\n");
    for _ in 0..ROUNDS {
        connection.get_mut().write_all(b"get a\r\n").expect("sent");
        let mut answer = vec![0; format!("VALUE a 0 {VALUE}\r\n\r\nEND\r\n").len() + VALUE];
        connection.read_exact(&mut answer).expect("the value");
    }
}

/// What the guest itself says that passed its device.
fn ask(control: &mut BufReader<TcpStream>) -> Bytes {
    control.get_mut().write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let (mut length, mut line) = (0, String::new());
    while line != "\r\n" {
        line.clear();
        control.read_line(&mut line).expect("a header");
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    control.read_exact(&mut body).expect("the body");
    let body = String::from_utf8(body).expect("text");
    let value = |name: &str| {
        let line = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {body}"))
    };
    Bytes { sent: value("nom_sent_bytes_total"), received: value("nom_received_bytes_total") }
}

/// Counts that do not change any more.
fn settled(meter: &Meter) -> Bytes {
    let mut last = meter.bytes();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let bytes = meter.bytes();
        if bytes == last {
            return bytes;
        }
        last = bytes;
    }
}

fn lies_between(bytes: Bytes, low: Bytes, high: Bytes) -> bool {
    let within = |value, low, high| (low..=high).contains(&value);
    within(bytes.sent, low.sent, high.sent) && within(bytes.received, low.received, high.received)
}

/// Loads a machine at two prices; the guest's own counts must lie between those of the meter before and after
/// they are asked for, which are one page apart.
fn load_and_compare(provider: &Provider, meter: &Meter, [server, control]: [SocketAddr; 2]) {
    load(server);
    provider.set_prices(&[(Resource::NetworkOut, 10.0)]).expect("good");
    load(server);
    let mut control = connect(control);
    ask(&mut control);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = settled(meter);
        let guest = ask(&mut control);
        let after = settled(meter);
        assert!(after.sent - before.sent < 20_000, "a page: {before:?}, {after:?}");
        if lies_between(guest, before, after) {
            assert!(guest.sent as usize > 2 * ROUNDS * VALUE, "{guest:?}");
            return;
        }
        assert!(Instant::now() < deadline, "{guest:?} is not between {before:?} and {after:?}");
    }
}

/// Ends the machine, then the meter: every byte that it saw is in the ledger, at the price of its time.
fn conclude(provider: &Provider, meter: Meter, vm: Vm) {
    drop(vm);
    let metered = meter.finish(PATIENCE);
    assert_eq!(metered.lost, 0);
    let get = |path: &str| -> serde_json::Value {
        let mut stream = TcpStream::connect(provider.address()).expect("connected");
        let key = provider.token();
        let head = format!("Host: localhost\r\nAuthorization: Bearer {key}");
        write!(stream, "GET /v1/ledger/{path} HTTP/1.0\r\n{head}\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("JSON")
    };
    let quantity =
        |resource: &str| get(&format!("summary?resource={resource}"))["sums"][0]["quantity"].as_u64();
    let (sent, received) = (quantity("network_out"), quantity("network_in"));
    assert_eq!((sent, received), (Some(metered.bytes.sent), Some(metered.bytes.received)));
    let page = get("records?resource=network_out&limit=10000");
    let records = page["records"].as_array().expect("records");
    let bytes = |price: f64| -> u64 {
        let at_price = |record: &&serde_json::Value| record["unit_price"] == price;
        records.iter().filter(at_price).filter_map(|record| record["quantity"].as_u64()).sum()
    };
    // The second load may have begun when the new price is heard of.
    assert!(bytes(1.0) as usize > ROUNDS * VALUE && bytes(10.0) > 0, "{} and {}", bytes(1.0), bytes(10.0));
    assert_eq!(bytes(1.0) + bytes(10.0), metered.bytes.sent);
    assert_eq!(page["next"], serde_json::Value::Null);
}

/// Two ports of this computer that nobody uses.
fn free_addresses() -> [SocketAddr; 2] {
    let bind = || TcpListener::bind("127.0.0.1:0").expect("a free port");
    [bind(), bind()].map(|listener| listener.local_addr().expect("bound"))
}

#[test]
fn on_the_user_mode_network_every_byte_is_charged() {
    let provider = provider();
    let directory = tempfile::tempdir().expect("a directory");
    let (meter, tapped) = Meter::user(directory.path(), "net0", charge(&provider)).expect("metered");
    let addresses = free_addresses();
    let forward = |address: SocketAddr, port: u16| format!(",hostfwd=tcp:{address}-:{port}");
    let forwards = forward(addresses[0], MEMCACHED) + &forward(addresses[1], CONTROL);
    let guest = guest().qemu(&format!("-netdev user,id=net0{forwards}"));
    let guest = guest.device("virtio-net-pci,disable-legacy=on,netdev=net0");
    let mut vm = guest.qemu(&tapped.arguments().join(" ")).boot();
    vm.wait_for("serves at");
    load_and_compare(&provider, &meter, addresses);
    conclude(&provider, meter, vm);
}

#[test]
fn on_a_tap_device_every_byte_is_charged() {
    let namespace = match Namespace::create("test-meter", 1) {
        Ok(namespace) => namespace,
        Err(error) => {
            eprintln!("skipped: {error:#}");
            return;
        }
    };
    let provider = provider();
    let meter = Meter::tap(&namespace, namespace::DEVICE, charge(&provider)).expect("metered");
    let mut vm = guest().tap(&namespace).boot();
    vm.wait_for("serves at");
    let addresses = [MEMCACHED, CONTROL].map(|port| (namespace::GUEST, port).into());
    let inside = || {
        namespace.enter().expect("entered");
        load_and_compare(&provider, &meter, addresses);
    };
    std::thread::scope(|scope| scope.spawn(inside).join()).expect("no panic");
    conclude(&provider, meter, vm);
}
