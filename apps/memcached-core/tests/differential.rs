//! The same commands to this server and to the memcached of the distribution: the replies must be the same,
//! byte by byte.

#[allow(dead_code, reason = "each test uses a part")]
mod common;

use common::script::{Dice, binary_command, frame, text_command};
use common::{Bytes, program, unix};
use nom_memcached_core::{Connection, Options, Server};
use nom_port::buffer::Slice;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

/// A memcached on loopback, ended with the test.
struct Real {
    process: Child,
    port: u16,
}

impl Drop for Real {
    fn drop(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }
}

impl Real {
    /// Starts it; `None`, and a note, if it is not installed.
    fn start() -> Option<Real> {
        let Some(path) = program("memcached") else {
            eprintln!("skipped: memcached is not installed");
            return None;
        };
        // A port that was free before it started may be another's by then, as of a test beside this one.
        let own = (0..10).find_map(|_| {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
            let port = port.expect("a port is free").port();
            let mut command = Command::new(&path);
            command.args(["-u", "nobody", "-U", "0", "-l", "127.0.0.1", "-p", &port.to_string()]);
            // Its LRU thread holds items for moments, in which `incr` replaces them instead of overwriting.
            command.args(["-o", "no_modern"]);
            let real = Real { process: command.spawn().expect("memcached starts"), port };
            real.is_own().then_some(real)
        });
        Some(own.expect("one of ten ports was memcached's"))
    }

    /// Whether it is this process that listens on its port.
    fn is_own(&self) -> bool {
        let mut stream = self.connect();
        stream.write_all(b"stats\r\n").expect("memcached reads");
        let said = String::from_utf8(read_to(&mut stream, b"END\r\n")).expect("text");
        said.contains(&format!("STAT pid {}\r\n", self.process.id()))
    }

    fn connect(&self) -> TcpStream {
        for _ in 0..1200 {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
                return stream;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("memcached does not listen on port {}", self.port);
    }
}

/// How long a busy computer may take for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ids are compared, too, and those of one core count all changes, as memcached's do.
fn options() -> Options {
    Options { threads: 1, ..Options::default() }
}

/// Reads replies until they end with `end`, or the stream ends. Who does not answer has not answered less.
fn read_to(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut replies = Vec::new();
    let mut buffer = [0; 65536];
    while !replies.ends_with(end) {
        match stream.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("memcached has said nothing for {PATIENCE:?}, but {}", replies.escape_ascii())
            }
            Ok(0) | Err(_) => break,
            Ok(len) => replies.extend_from_slice(&buffer[..len]),
        }
    }
    replies
}

/// Replies without the seconds that an item has left (` t99999`): both sides need not count the same.
fn without_seconds(replies: &[u8]) -> Vec<u8> {
    let (mut before, mut is_time) = (0, false);
    let is_kept = |byte: &&u8| {
        let is_digit = byte.is_ascii_digit();
        is_time = if is_digit { is_time } else { before == b' ' && **byte == b't' };
        before = **byte;
        !(is_time && is_digit)
    };
    replies.iter().filter(is_kept).copied().collect()
}

/// Plays scripts of `command`s, each ended by `end`, whose reply is `ended`. The environment's `SEED` chooses
/// others.
fn replies_agree(command: fn(&mut Dice) -> Vec<u8>, end: &[u8], ended: &[u8]) {
    let Some(real) = Real::start() else { return };
    let mut stream = real.connect();
    let mut server = Server::<Bytes, parking_lot::RawMutex>::new(options(), unix(), 7);
    let mut connection = Connection::new();
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let mut dice = Dice::new(seed);
    for _ in 0..4000 {
        // One at a time: memcached treats items differently while replies that show them wait to be sent.
        let mut script = command(&mut dice);
        script.extend_from_slice(end);
        stream.write_all(&script).expect("memcached reads");
        let theirs = read_to(&mut stream, ended);
        let mut ours = Vec::new();
        let flow = connection.receive(&mut server, Slice::new(Bytes::from(&script[..])), &mut ours);
        let same = ours.iter().zip(&theirs).take_while(|(ours, theirs)| ours == theirs).count();
        let show = |bytes: &[u8]| bytes[same.saturating_sub(200)..].escape_ascii().to_string();
        assert!(
            without_seconds(&ours) == without_seconds(&theirs),
            "{flow:?}: {}\n\n{}\n\n{}",
            show(&ours),
            show(&theirs),
            script.escape_ascii()
        );
    }
}

#[test]
fn text_and_meta_replies_agree() {
    replies_agree(text_command, b"\r\nverbosity 0 end\r\nmn\r\n", b"OK\r\nMN\r\n");
}

#[test]
fn binary_replies_agree() {
    let end = frame(0x0a, &[], "", "", 0, 0xfeed_beef);
    let ended = [&[0x81, 0x0a][..], &[0; 10], &[0xfe, 0xed, 0xbe, 0xef], &[0; 8]].concat();
    replies_agree(binary_command, &end, &ended);
}

/// What ends a connection, with the replies before.
#[test]
fn connections_end_for_the_same_reasons() {
    let Some(real) = Real::start() else { return };
    let too_long_key = frame(0x00, &[], &"k".repeat(251), "", 0, 1);
    let no_key = frame(0x00, &[], "", "", 0, 2);
    let mut wrong_magic = [frame(0x0a, &[], "", "", 0, 3), frame(0x0a, &[], "", "", 0, 4)].concat();
    wrong_magic[24] = 0x79;
    let scripts = [
        &b"get a\r\nquit\r\nget b\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        &too_long_key,
        &no_key,
        &wrong_magic,
        &frame(0x07, &[], "", "", 0, 5),
        &frame(0x17, &[], "", "", 0, 6),
    ];
    for script in scripts {
        let mut server = Server::<Bytes, parking_lot::RawMutex>::new(options(), unix(), 7);
        let mut ours = Vec::new();
        let flow = Connection::new().receive(&mut server, Slice::new(Bytes::from(script)), &mut ours);
        assert_eq!(flow, nom_service::Stream::Close, "{}", script.escape_ascii());
        // memcached closes with bytes unread, which resets the connection; that may overtake the replies.
        let mut theirs = Vec::new();
        for _ in 0..20 {
            let mut stream = real.connect();
            stream.write_all(script).expect("memcached reads");
            theirs = read_to(&mut stream, b"never");
            if theirs.len() >= ours.len() {
                break;
            }
        }
        assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string());
    }
}

/// Sizes around the item-size limit.
#[test]
fn the_largest_item_is_the_same() {
    let Some(real) = Real::start() else { return };
    let mut stream = real.connect();
    let mut server = Server::<Bytes, parking_lot::RawMutex>::new(options(), unix(), 7);
    let mut connection = Connection::new();
    for (flags, len) in
        [(0, 1_048_512), (0, 1_048_513), (0, 1_048_514), (1, 1_048_509), (1, 1_048_512), (0, 1_100_000)]
    {
        let script = format!("set key {flags} 0 {len}\r\n{}\r\nget kez\r\nmn\r\n", "x".repeat(len));
        stream.write_all(script.as_bytes()).expect("memcached reads");
        let theirs = read_to(&mut stream, b"MN\r\n");
        let mut ours = Vec::new();
        let _open = connection.receive(&mut server, Slice::new(Bytes::from(script.as_bytes())), &mut ours);
        assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs), "{flags} {len}");
    }
}

/// What `stats items` and `stats slabs` tell of size classes in which there is something.
fn classes(mut ask: impl FnMut(&str) -> String) -> Vec<String> {
    let items = ask("stats items\r\n");
    let slabs = ask("stats slabs\r\n");
    let used = |line: &&str| line.contains(":used_chunks ") && !line.ends_with(" 0");
    let known = |line: &&str| line.contains(":number ") || line.contains(":mem_requested ");
    let mut lines: Vec<String> = items.lines().filter(known).map(str::to_owned).collect();
    for line in slabs.lines().filter(used) {
        let class = line.split(':').next().expect("there is a first");
        let chunk = slabs.lines().find(|line| line.starts_with(&format!("{class}:chunk_size ")));
        lines.extend([line, chunk.expect("each class has a size")].map(str::to_owned));
    }
    lines.sort();
    lines
}

/// Items are shown in the size classes that memcached would put them in, as values come, grow and go.
#[test]
fn items_are_in_the_same_classes() {
    let Some(real) = Real::start() else { return };
    let mut stream = real.connect();
    let mut server = Server::<Bytes, parking_lot::RawMutex>::new(options(), unix(), 7);
    let mut connection = Connection::new();
    let mut ours = |script: &str| {
        let mut reply = Vec::new();
        let _open = connection.receive(&mut server, Slice::new(Bytes::from(script.as_bytes())), &mut reply);
        String::from_utf8_lossy(&reply).into_owned()
    };
    let mut theirs = |script: &str, end: &str| {
        stream.write_all(script.as_bytes()).expect("memcached reads");
        String::from_utf8_lossy(&read_to(&mut stream, end.as_bytes())).into_owned()
    };
    for number in 0..300_usize {
        let (key, flags) = (format!("{}{number}", "k".repeat(number * 7 % 200)), number % 3);
        let len = (number * 1_103_515_245 / 65_536 % 16_384) << (number % 5);
        let mut script = format!("set {key} {flags} 0 {len}\r\n{}\r\n", "x".repeat(len));
        script += &match number % 5 {
            0 => format!("delete {key}\r\n"),
            1 => format!("append {key} 0 0 300\r\n{}\r\n", "y".repeat(300)),
            2 => format!("set {key} 0 0 2\r\n12\r\nincr {key} 99999\r\n"),
            _ => String::new(),
        };
        script += "mn\r\n";
        assert_eq!(ours(&script), theirs(&script, "MN\r\n"), "{number}");
    }
    let (ours, theirs) = (classes(&mut ours), classes(|script| theirs(script, "END\r\n")));
    assert!(theirs.len() > 100, "{theirs:?}");
    assert_eq!(ours, theirs);
}

/// An item that is stored over one that has expired has taken its place, in the statistics of its class.
#[test]
fn what_is_stored_over_an_expired_item_counts_as_reclaimed() {
    let mut server = Server::<Bytes, parking_lot::RawMutex>::new(options(), unix(), 7);
    let value = "x".repeat(66_560);
    let ask = |server: &mut Server<Bytes, parking_lot::RawMutex>, script: &str| {
        let mut reply = Vec::new();
        let bytes = Slice::new(Bytes::from(script.as_bytes()));
        let _open = Connection::new().receive(server, bytes, &mut reply);
        String::from_utf8_lossy(&reply).into_owned()
    };
    let set = |exptime| format!("set key 0 {exptime} 66560\r\n{value}\r\n");
    assert_eq!(ask(&mut server, &set(1)), "STORED\r\n");
    server.set_time(unix() + 3);
    assert_eq!(ask(&mut server, &set(0)), "STORED\r\n");
    let items = ask(&mut server, "stats items\r\n");
    assert!(items.contains("STAT items:31:reclaimed 1\r\n") && items.contains(":number 1\r\n"), "{items}");
    assert!(ask(&mut server, "stats\r\n").contains("STAT get_expired 0\r\n"));
}
