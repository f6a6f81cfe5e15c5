//! The clients of Debian's packages `curl`, `apache2-utils` and `wrk`, on loopback.

#[allow(dead_code, reason = "each test uses a part")]
mod common;

use common::{Bytes, NOW, letters, server};
use nom_nhttpd_core::{Connection, Server};
use nom_port::buffer::Slice;
use nom_service::Stream;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

/// Serves on a free port of loopback until the test ends, one thread a connection: only a test would serve
/// so.
fn serve() -> String {
    let server = Arc::new(Mutex::new(server()));
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let server = server.clone();
            thread::spawn(move || answer(&server, stream.expect("a client connects")));
        }
    });
    address
}

/// Serves one client to the end of its stream; errors of the socket are such ends.
fn answer(server: &Mutex<Server<Bytes>>, mut stream: TcpStream) {
    let mut connection = Connection::new(NOW);
    let mut buffer = vec![0; 2048];
    while let Ok(len @ 1..) = stream.read(&mut buffer) {
        let mut reply = Vec::new();
        let piece = Slice::new(Bytes::from(&buffer[..len]));
        let flow = connection.receive(&mut server.lock().expect("no thread panicked"), piece, &mut reply);
        if stream.write_all(&reply).is_err() || flow == Stream::Close {
            return;
        }
    }
}

/// Runs an installed program; `None`, and a note, if it is not.
fn run(package: &str, name: &str, arguments: &[&str]) -> Option<Output> {
    let paths = std::env::var_os("PATH")?;
    let path =
        std::env::split_paths(&paths).map(|directory| directory.join(name)).find(|path| path.is_file());
    let Some(path) = path else {
        eprintln!("skipped: {name} is not installed (Debian: {package})");
        return None;
    };
    Some(Command::new("timeout").arg("60").arg(path).args(arguments).output().expect("the program starts"))
}

fn curl(arguments: &[&str]) -> Option<Vec<u8>> {
    let output = run("curl", "curl", &[&["-sS", "--noproxy", "*"], arguments].concat())?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

#[test]
fn curl_gets_files_and_parts() {
    let site = serve();
    let url = |path: &str| format!("http://{site}{path}");
    let Some(large) = curl(&[&url("/large.bin")]) else { return };
    assert_eq!(large, letters(10_000));
    assert_eq!(curl(&["-r", "10-19", &url("/large.bin")]).expect("it is there"), b"klmnopqrst");
    assert_eq!(curl(&["-L", &url("/docs")]).expect("it is there"), b"<h1>docs</h1>\n");
    let code = ["-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(curl(&[&code[..], &[&url("/none")]].concat()).expect("it is there"), b"404");
    assert_eq!(curl(&[&code[..], &["--path-as-is", &url("/../x")]].concat()).expect("it is there"), b"403");
    assert_eq!(curl(&[&code[..], &["-d", "x=y", &url("/")]].concat()).expect("it is there"), b"405");
    let since = ["-z", "Wed, 01 Jan 2025 00:00:00 GMT"];
    assert_eq!(curl(&[&code[..], &since, &[&url("/")]].concat()).expect("it is there"), b"304");
    let head = curl(&["-I", &url("/letters.txt")]).expect("it is there");
    assert!(String::from_utf8_lossy(&head).contains("Content-Length: 26\r\n"));
    let both =
        curl(&["-w", "%{num_connects}", &url("/letters.txt"), &url("/letters.txt")]).expect("it is there");
    let letters = String::from_utf8(letters(26)).expect("letters are text");
    assert_eq!(String::from_utf8_lossy(&both), format!("{letters}1{letters}0"));
}

#[test]
fn ab_sees_no_failure() {
    let url = format!("http://{}/letters.txt", serve());
    for keep_alive in [&["-k"][..], &[]] {
        let arguments = [keep_alive, &["-q", "-n", "2000", "-c", "16", &url]].concat();
        let Some(output) = run("apache2-utils", "ab", &arguments) else { return };
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
        let value = |name: &str| {
            let line = report.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(2)?.parse::<u32>().ok()
        };
        assert_eq!(
            (value("Complete requests:"), value("Failed requests:")),
            (Some(2000), Some(0)),
            "{report}"
        );
        assert_eq!(value("Keep-Alive requests:"), (!keep_alive.is_empty()).then_some(2000), "{report}");
    }
}

#[test]
fn wrk_sees_no_error() {
    let url = format!("http://{}/large.bin", serve());
    let arguments = ["-t", "1", "-c", "16", "-d", "1s", &url];
    let Some(output) = run("wrk", "wrk", &arguments) else { return };
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && report.contains("Requests/sec"), "{report}");
    assert!(!report.contains("Non-2xx") && !report.contains("Socket errors"), "{report}");
}
