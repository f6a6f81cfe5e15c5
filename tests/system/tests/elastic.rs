//! Servers whose cores are given back to the kernel and taken again under load: on a TAP device, which takes
//! root.

use nom_system_tests::{Guest, Server};
use nom_vmm::qmp::Monitor;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The TCP port of the control port.
const CONTROL: u16 = 8080;
/// Clients, each with a connection that it keeps.
const CLIENTS: usize = 12;
/// How often a core of two is given back and taken again.
const ROUNDS: usize = 30;

fn connect(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
    BufReader::new(stream)
}

/// Keeps one connection to a server and asks again and again until `is_over`; the number of answers.
type Client = fn(address: SocketAddr, number: usize, is_over: &AtomicBool, answers: &AtomicU64);

/// Stores a value that nobody else knows, and asks for it.
fn store_and_ask(address: SocketAddr, number: usize, is_over: &AtomicBool, answers: &AtomicU64) {
    let mut connection = connect(address);
    for round in 0.. {
        if is_over.load(Relaxed) {
            return;
        }
        // Some values are copied, some stay in the buffers of the core that received them.
        let value = format!("{number}.{round}.").repeat(1 + round % 300);
        let length = value.len();
        let commands = format!("set {number} 7 0 {length}\r\n{value}\r\nget {number}\r\n");
        connection.get_mut().write_all(commands.as_bytes()).expect("sent");
        let expected = format!("STORED\r\nVALUE {number} 7 {length}\r\n{value}\r\nEND\r\n");
        let mut answer = vec![0; expected.len()];
        connection.read_exact(&mut answer).expect("an answer");
        assert!(answer == expected.as_bytes(), "client {number}: {}", answer.escape_ascii());
        answers.fetch_add(1, Relaxed);
    }
}

/// Asks for a file.
fn fetch(address: SocketAddr, number: usize, is_over: &AtomicBool, answers: &AtomicU64) {
    let mut connection = connect(address);
    while !is_over.load(Relaxed) {
        let page = http(&mut connection, "GET", "/", "");
        assert!(page.0 == 200 && page.1.contains("It earns."), "client {number}: {page:?}");
        answers.fetch_add(1, Relaxed);
    }
}

/// Asks by HTTP; status and body, without a line's end.
fn http(connection: &mut BufReader<TcpStream>, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}");
    connection.get_mut().write_all(request.as_bytes()).expect("sent");
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let start = head.len();
        assert!(connection.read_line(&mut head).expect("a line") > 0, "{path}: closed after `{head}`");
        if let Some(value) = head[start..].to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).expect("the body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, String::from_utf8(body).expect("text").trim_end().to_owned())
}

/// A metric without labels, or with those in `name`.
fn metric(control: &mut BufReader<TcpStream>, name: &str) -> f64 {
    let (_, page) = http(control, "GET", "/metrics", "");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
}

/// Waits until something is so that the machine says.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Has the server serve on so many cores, and waits until it does.
fn order(control: &mut BufReader<TcpStream>, cores: usize) {
    assert_eq!(http(control, "PUT", "/cores", &cores.to_string()), (200, cores.to_string()));
    wait_until("as many cores serve", || http(control, "GET", "/cores", "").1 == cores.to_string());
}

/// What the guest `held` says last.
fn held(server: &mut Server) -> String {
    server.vm.run_for(Duration::from_millis(2));
    let console = server.vm.console();
    let last = console.lines().rfind(|line| line.starts_with("change "));
    last.and_then(|line| line.split_once(": ")).map_or_else(String::new, |(_, held)| held.to_owned())
}

/// Has one number of cores after the other serve while clients ask; `at` looks at the server each time.
fn under_load(
    server: &mut Server,
    client: Client,
    orders: impl IntoIterator<Item = usize>,
    mut at: impl FnMut(&mut Server, usize),
) {
    let (is_over, answers, address) = (AtomicBool::new(false), AtomicU64::new(0), server.address);
    let mut control = connect(SocketAddr::new(address.ip(), CONTROL));
    std::thread::scope(|scope| {
        let (over, given) = (&is_over, &answers);
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || client(address, number, over, given))).collect();
        let change = || {
            for cores in orders {
                order(&mut control, cores);
                at(server, cores);
                // All are served by what there is, before it changes again.
                let before = answers.load(Relaxed);
                wait_until("answers", || {
                    assert!(clients.iter().all(|client| !client.is_finished()), "on {cores} cores");
                    answers.load(Relaxed) > before + CLIENTS as u64
                });
            }
        };
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(change));
        is_over.store(true, Relaxed);
        changed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let moved = metric(&mut control, "nom_flows_moved_total");
    let again = metric(&mut control, "nom_stack_total{event=\"retransmissions\"}");
    println!("{} answers, {moved} flows moved, {again} retransmissions", answers.load(Relaxed));
    assert!(moved >= CLIENTS as f64, "clients' connections go to the cores that come, and back");
}

/// A core of two is given back and taken again.
fn back_and_forth() -> impl Iterator<Item = usize> {
    [1, 2].into_iter().cycle().take(2 * ROUNDS)
}

#[test]
fn memcached_gives_a_core_back_and_takes_it_again_under_load() {
    let guest = Guest::bundle("tests/system/manifests/elastic-memcached.toml");
    Server::on_cores("elastic-memcached", guest, 11211, 2, |server| {
        under_load(server, store_and_ask, back_and_forth(), |server, cores| {
            let expected = if cores == 1 { "held [0], seen from 1" } else { "held [0, 1], seen from 1" };
            wait_until(expected, || held(server) == expected);
        });
    });
}

#[test]
fn nhttpd_gives_a_core_back_and_takes_it_again_under_load() {
    let guest = Guest::bundle("tests/system/manifests/elastic-nhttpd.toml");
    Server::on_cores("elastic-nhttpd", guest, 80, 2, |server| {
        under_load(server, fetch, back_and_forth(), |_, _| {});
    });
}

/// Cores that come back take any processor that is free.
#[test]
fn cores_come_and_go_in_any_number() {
    let guest = Guest::bundle("tests/system/manifests/elastic-nhttpd.toml");
    Server::on_cores("elastic-four", guest, 80, 4, |server| {
        let orders = [1, 4, 3, 1, 2, 4, 2, 3, 2, 1, 3, 4];
        under_load(server, fetch, orders.into_iter().cycle().take(24), |_, _| {});
    });
}

/// Frames go where a hash says, by a table that follows the cores that serve; the device says itself what the
/// driver has accepted.
#[test]
fn cores_come_and_go_where_the_device_spreads_by_a_hash() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let monitor = format!("-qmp unix:{}/asked.sock,server=on,wait=off", directory.path().display());
    let guest = Guest::bundle("tests/system/manifests/elastic-memcached.toml").qemu(&monitor);
    Server::on_card("elastic-hash", guest, 11211, (2, "mq=on,rss=on,hash=on"), |server| {
        let mut monitor = Monitor::connect(directory.path(), "asked.sock").expect("the monitor answers");
        let devices = monitor.execute("x-query-virtio", json!({})).expect("it knows its devices");
        let path = devices[0]["path"].as_str().expect("there is a device").to_owned();
        let status = monitor.execute("x-query-virtio-status", json!({ "path": path })).expect("its state");
        let accepted = status["guest-features"]["dev-features"].to_string();
        assert!(accepted.contains("VIRTIO_NET_F_RSS"), "{status}");
        under_load(server, store_and_ask, back_and_forth(), |_, _| {});
    });
}

#[test]
fn memcaslap_does_not_notice() {
    let guest = Guest::bundle("tests/system/manifests/elastic-memcached.toml");
    Server::on_cores("elastic-memcaslap", guest, 11211, 2, |server| {
        let is_over = AtomicBool::new(false);
        let mut control = connect(SocketAddr::new(server.address.ip(), CONTROL));
        let (changes, said) = std::thread::scope(|scope| {
            let over = &is_over;
            let changes = scope.spawn(move || {
                let orders = [1, 2].into_iter().cycle().take_while(|_| !over.load(Relaxed));
                orders.map(|cores| order(&mut control, cores)).count()
            });
            let said = server.load("memcaslap", "-s 10.0.2.15:{port} -T 1 -c 16 -t 4s -v 0.5");
            is_over.store(true, Relaxed);
            (changes.join().expect("every order is followed"), said)
        });
        let Some(said) = said else { return };
        println!("{changes} changes");
        for line in ["get_misses: 0", "verify_misses: 0", "verify_failed: 0"] {
            assert!(said.contains(line), "expected `{line}` after {changes} changes:\n{said}");
        }
    });
}

#[test]
fn orders_that_cannot_be_followed_are_refused_and_named() {
    let guest = Guest::bundle("tests/system/manifests/elastic-nhttpd.toml");
    Server::on_cores("elastic-orders", guest, 80, 2, |server| {
        let mut control = connect(SocketAddr::new(server.address.ip(), CONTROL));
        for nonsense in ["3", "-1", "", "two", "99999999999999999999"] {
            let (status, why) = http(&mut control, "PUT", "/cores", nonsense);
            assert_eq!(status, 400, "{nonsense}: {why}");
            assert_eq!(why, format!("cores `{nonsense}`: expected a number from 0 to 2"));
        }
        order(&mut control, 1);
        assert_eq!(metric(&mut control, "nom_cores_serving"), 1.0);
        // None means all.
        assert_eq!(http(&mut control, "PUT", "/cores", "0"), (200, "0".to_owned()));
        wait_until("all cores serve", || metric(&mut control, "nom_cores_serving") == 2.0);
    });
}
