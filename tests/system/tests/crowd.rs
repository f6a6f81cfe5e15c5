//! More clients than memcached lets in: they are told so at once and counted, the others are served, and a
//! crowd that has gone leaves room for the next.

use nom_bench::serve::load::Exchange;
use nom_bench::serve::visits::{self, Visits};
use nom_system_tests::{Guest, MemcachedClient, Server};
use nom_vmm::namespace;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Sends a command, and reads the answer up to its `end`.
fn ask(stream: &mut TcpStream, command: &str, end: &str) -> String {
    stream.write_all(command.as_bytes()).expect("it is sent");
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(end.as_bytes()) {
        assert_eq!(stream.read(&mut byte).expect("an answer"), 1, "{}", String::from_utf8_lossy(&answer));
        answer.push(byte[0]);
    }
    String::from_utf8(answer).expect("text")
}

fn stat(stream: &TcpStream, name: &str) -> u64 {
    MemcachedClient::new(stream.try_clone().expect("another handle")).stat(name)
}

/// What a client is told without asking, until the server closes.
fn told(mut stream: TcpStream) -> String {
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("the server closes");
    said
}

/// Waits until so many connections are open.
fn settle(stream: &mut TcpStream, open: u64) {
    while stat(stream, "curr_connections") != open {
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn who_is_one_too_many_is_told_so_and_the_others_are_served() {
    const MOST: usize = 100;
    let guest = Guest::app("memcached").arguments(&["-c", "100"]).memory("128M");
    let server = Server::boot(guest, 11211);
    let mut old = server.connect();
    assert_eq!(ask(&mut old, "set a 0 0 1\r\nx\r\n", "\r\n"), "STORED\r\n");
    let crowd: Vec<TcpStream> = (1..MOST).map(|_| server.connect()).collect();
    settle(&mut old, MOST as u64);
    for _ in 0..30 {
        assert_eq!(told(server.connect()), "ERROR Too many open connections\r\n");
    }
    assert_eq!(stat(&old, "rejected_connections"), 30);
    assert_eq!(ask(&mut old, "get a\r\n", "END\r\n"), "VALUE a 0 1\r\nx\r\nEND\r\n");
    drop(crowd);
    settle(&mut old, 1);
    let mut new = server.connect();
    assert_eq!(ask(&mut new, "get a\r\n", "END\r\n"), "VALUE a 0 1\r\nx\r\nEND\r\n");
    assert_eq!(stat(&old, "total_connections"), MOST as u64 + 1);
}

/// Clients who vanish without a word, as those behind a router that is switched off, do not keep the places
/// of others: they are asked whether they are there.
#[test]
fn who_has_vanished_makes_room() {
    const AWAY: &str = "10.0.2.77";
    // A second of silence, and a second for each of six questions, on a busy computer.
    const PATIENCE: Duration = Duration::from_secs(120);
    let ip = |arguments: String| {
        let status = Command::new("ip").args(arguments.split(' ')).status().expect("`ip` runs");
        assert!(status.success(), "ip {arguments}");
    };
    let guest = Guest::bundle("tests/system/manifests/vanish.toml");
    Server::on_cores("vanish", guest, 11211, 1, |server| {
        let (nom, device) = (server.address.ip(), namespace::DEVICE);
        let mut old = server.connect();
        ip(format!("address add {AWAY}/32 dev {device}"));
        ip(format!("route add {nom} dev {device} src {AWAY}"));
        let gone = [server.connect(), server.connect()];
        settle(&mut old, 3);
        ip(format!("route del {nom} dev {device}"));
        ip(format!("address del {AWAY}/32 dev {device}"));
        assert_eq!(told(server.connect()), "ERROR Too many open connections\r\n");
        let end = Instant::now() + PATIENCE;
        while stat(&old, "curr_connections") > 1 {
            assert!(Instant::now() < end, "those who have vanished hold their places");
            sleep(Duration::from_secs(1));
        }
        let mut new = server.connect();
        assert_eq!(ask(&mut new, "get a\r\n", "END\r\n"), "END\r\n");
        drop(gone);
    });
}

/// nhttpd's refused connections, as its control port tells.
fn refused_by_nhttpd(server: &Server) -> u64 {
    const METRIC: &str = "\nnhttpd_connections_refused_total ";
    let mut control = TcpStream::connect((server.address.ip(), 9999)).expect("the control port");
    control.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n").expect("it is sent");
    let said = told(control);
    let (_, rest) = said.split_once(METRIC).unwrap_or_else(|| panic!("no {METRIC} in {said}"));
    rest.lines().next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn a_browser_that_is_one_too_many_is_told_so_and_the_others_are_served() {
    const MOST: usize = 100;
    let guest = Guest::bundle("tests/system/manifests/crowd-nhttpd.toml");
    Server::on_cores("crowd80", guest, 80, 1, |server| {
        let mut crowd = Vec::new();
        // Whoever looked whether the machine serves may not have gone yet.
        while crowd.len() < MOST {
            crowd.extend(browser(server));
        }
        let before = refused_by_nhttpd(server);
        for _ in 0..30 {
            let said = told(server.connect());
            assert!(said.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{said}");
        }
        assert_eq!(refused_by_nhttpd(server) - before, 30);
        // The others are served on, and their places are others' when they have gone.
        crowd.iter_mut().for_each(|one| assert!(is_served(one)));
        drop(crowd);
        while browser(server).is_none() {
            sleep(Duration::from_millis(50));
        }
    });
}

/// A client of nhttpd that was served.
fn browser(server: &Server) -> Option<TcpStream> {
    let mut one = server.connect();
    is_served(&mut one).then_some(one)
}

/// Whether a client asks for the head of a page, and gets it.
fn is_served(stream: &mut TcpStream) -> bool {
    // Who is one too many is told so without asking, and may hear of a reset when he asks.
    let mut said = Vec::new();
    let is_asked = stream.write_all(b"HEAD / HTTP/1.1\r\nHost: nom\r\n\r\n").is_ok();
    let mut byte = [0];
    while is_asked && !said.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        said.push(byte[0]);
    }
    said.starts_with(b"HTTP/1.1 200 OK\r\n")
}

/// Free memory after each of three crowds has come and gone.
fn free_after_crowds(server: &Server) -> Vec<u64> {
    const CROWD: u64 = 800;
    let mut old = server.connect();
    let one = |_| {
        let crowd: Vec<TcpStream> = (0..CROWD).map(|_| server.connect()).collect();
        settle(&mut old, CROWD + 1);
        drop(crowd);
        settle(&mut old, 1);
        // It is told once a second.
        sleep(Duration::from_millis(1500));
        stat(&old, "nom_free_bytes")
    };
    (0..3).map(one).collect()
}

#[test]
fn a_further_crowd_takes_no_more_memory() {
    const TAKEN_MOST: u64 = 1 << 20;
    let guest = Guest::app("memcached").arguments(&["-t", "2"]);
    Server::on_cores("crowd", guest, 11211, 2, |server| {
        let free = free_after_crowds(server);
        // On which core each connection lives is the device's choice: a core may yet need another slab or two
        // (256 KiB each). Two crowds whose connections left 700 bytes each would leave more.
        assert!(free[0].saturating_sub(free[2]) < TAKEN_MOST, "free after each crowd: {free:?}");
    });
}

/// What a round left of memory, and that nobody in it fared otherwise than he must.
fn free_after(round: &serde_json::Value, beyond: u64) -> u64 {
    let number = |name: &str| round[name].as_u64().unwrap_or_else(|| panic!("no {name} in {round}"));
    assert_eq!((number("failed"), number("unanswered")), (0, 0), "{round}");
    // Whoever is one too many is refused at once, and counted.
    assert_eq!((number("refused"), number("counted")), (beyond, beyond), "{round}");
    let honest: Vec<u64> = serde_json::from_value(round["honest"].clone()).expect("three numbers");
    assert!(
        honest.iter().all(|answers| *answers > 0),
        "the honest client was answered all the time: {round}"
    );
    number("free_bytes")
}

/// 50,000 clients who say nothing, those who are too many, and as many visitors a second as come, three
/// times: what they took is free again.
#[test]
fn fifty_thousand_idle_clients_take_no_memory_for_good() {
    const TAKEN_MOST: u64 = 4 << 20;
    let crowd = Path::new(env!("CARGO_MANIFEST_DIR")).join("../foreign/crowd.py");
    let guest = Guest::bundle("tests/system/manifests/crowd.toml");
    Server::on_cores("crowd50", guest, 11211, 1, |_| {
        let mut command = Command::new("timeout");
        let output = command.args(["900", "python3"]).arg(crowd).args(["--clients", "50000"]).output();
        let output = output.expect("`timeout` runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
        println!("{result}");
        let (before, beyond) = (result["free_bytes"].as_u64(), result["beyond"].as_u64().expect("a number"));
        let rounds = result["rounds"].as_array().expect("a list");
        let free: Vec<u64> = rounds.iter().map(|round| free_after(round, beyond)).collect();
        let before = before.expect("a number");
        assert!(free.iter().all(|free| before.saturating_sub(*free) < TAKEN_MOST), "{before}, then {free:?}");
    });
}

/// As many of nhttpd's, which asks each second who of them is too slow: all find a place, an honest client is
/// answered all the time, and so are those who come when they have gone. What they took is free again but for
/// holes of the heap, some 3 MB.
#[test]
fn fifty_thousand_silent_browsers_keep_nobody_from_being_answered() {
    const TAKEN_MOST: u64 = 8 << 20;
    let crowd = Path::new(env!("CARGO_MANIFEST_DIR")).join("../foreign/crowd.py");
    let guest = Guest::bundle("tests/system/manifests/crowd50-nhttpd.toml");
    Server::on_cores("browsers", guest, 80, 1, |_| {
        let mut command = Command::new("timeout");
        command.args(["900", "python3"]).arg(crowd).args(["--http", "--clients", "50000", "--rounds", "1"]);
        let output = command.args(["--beyond", "0", "--seconds", "1"]).output().expect("`timeout` runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
        println!("{result}");
        let before = result["free_bytes"].as_u64().expect("a number");
        let taken = before.saturating_sub(free_after(&result["rounds"][0], 0));
        assert!(taken < TAKEN_MOST, "{taken} bytes of {before} were not given back");
    });
}

/// Who comes faster than a computer serves is answered, refused or left without an answer; nobody is told
/// anything wrong, and nothing of it stays. How many are answered is for a quiet computer to say.
#[test]
fn ten_thousand_visitors_a_second_leave_nothing_behind() {
    // In three rounds half of the ports that there are: each stays taken for a minute, and Linux is slow to
    // find one of the last.
    const VISITORS: usize = 10_000;
    const PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    const TAKEN_MOST: u64 = 4 << 20;
    let guest = Guest::bundle("tests/system/manifests/crowd.toml");
    Server::on_cores("visits", guest, 11211, 1, |server| {
        std::fs::write(PORTS, "1024 65000").expect("it is root's");
        let mut old = server.connect();
        assert_eq!(ask(&mut old, "set a 0 0 1\r\nx\r\n", "\r\n"), "STORED\r\n");
        let exchange =
            Exchange { request: b"get a\r\n".to_vec(), reply: b"VALUE a 0 1\r\nx\r\nEND\r\n".to_vec() };
        let visits = Visits { target: server.address, exchange: &exchange, rate: 10_000, count: VISITORS };
        let mut free = Vec::new();
        for _ in 0..3 {
            let visited = visits::run(&visits).expect("right answers");
            println!("{visited:?}");
            assert_eq!(visited.answered + visited.refused + visited.unanswered, VISITORS);
            assert!(visited.answered > 0 && visited.refused == 0, "{visited:?}");
            settle(&mut old, 1);
            // It is told once a second.
            sleep(Duration::from_millis(1500));
            free.push(stat(&old, "nom_free_bytes"));
        }
        assert!(free[0].saturating_sub(free[2]) < TAKEN_MOST, "free after each round: {free:?}");
    });
}
