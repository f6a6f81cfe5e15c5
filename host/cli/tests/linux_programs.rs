//! Unmodified programs of this computer, in machines: docs/linux.md.

mod common;

use common::{PATIENCE, Site, free_port, said};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Debian's, from the package of this name.
const MEMCACHED: &str = "/usr/bin/memcached";
/// What is asked of it, and what every memcached answers.
const ASKED: &[u8] = b"set nom 7 0 5\r\nearns\r\nget nom\r\nincr nom 1\r\n\
                       set count 0 0 2\r\n41\r\nincr count 1\r\nquit\r\n";
const ANSWERED: &str = "STORED\r\nVALUE nom 7 5\r\nearns\r\nEND\r\n\
                        CLIENT_ERROR cannot increment or decrement non-numeric value\r\n\
                        STORED\r\n42\r\n";

/// Runs a program to its end.
fn run(words: &[&str]) -> (Option<i32>, String) {
    let site = Site::new();
    let output = site.nom("run -m 256M").args(words).output().expect("it starts");
    (output.status.code(), said(&output))
}

fn ask(port: u16, question: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(question)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_shell_computes_and_its_status_is_the_machines() {
    let script = "read line </etc/passwd; echo first $line; echo seven $((3 + 4)) >/tmp/it; \
                  while read a b; do echo $b $a; done </tmp/it; exit 3";
    let (status, said) = run(&["/bin/dash", "--", "-c", script]);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("7 seven"), "{said}");
    assert!(said.contains("first root:x:0:0:"), "{said}");
}

#[test]
fn a_shell_runs_pipelines_and_waits_for_its_children() {
    let script = "echo a; ls / | cat | wc -l; (exit 7) ; echo child $?; x=1; (x=2; echo inner $x); echo outer $x; \
                  kill -9 $$ & wait $!; seen=$(echo sub | tr a-z A-Z); echo $seen; exit 4";
    let script = script.replace("kill -9 $$ & ", "sleep 30 & kill -9 $!; ");
    let (status, said) = run(&[
        "--include",
        "/bin/ls",
        "--include",
        "/bin/cat",
        "--include",
        "/usr/bin/wc",
        "--include",
        "/usr/bin/tr",
        "--include",
        "/bin/sleep",
        "/bin/dash",
        "--",
        "-c",
        &script,
    ]);
    assert_eq!(status, Some(4), "{said}");
    for expected in ["a\n", "child 7", "inner 2", "outer 1", "SUB"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn files_are_listed_as_they_are() {
    let (status, said) = run(&["/bin/ls", "--", "-ln", "/etc/passwd", "/nowhere"]);
    assert_eq!(status, Some(2), "{said}");
    let bytes = std::fs::metadata("/etc/passwd").expect("it is there").len();
    assert!(said.contains(&format!(" {bytes} ")) && said.contains("/etc/passwd"), "{said}");
    assert!(said.contains("cannot access '/nowhere': No such file or directory"), "{said}");
}

#[test]
fn memcached_serves_without_a_change() {
    if !Path::new(MEMCACHED).exists() {
        eprintln!("skipped: there is no {MEMCACHED}: apt-get install memcached");
        return;
    }
    let (site, port) = (Site::new(), free_port());
    let published = format!("run -d --name cache -m 256M -p {port}:11211");
    let mut command = site.nom(&published);
    let output = command.args([MEMCACHED, "--", "-u", "nobody", "-m", "64"]).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    let end = Instant::now() + PATIENCE;
    // QEMU accepts before the guest does.
    while !ask(port, b"version\r\nquit\r\n").is_ok_and(|answer| answer.starts_with("VERSION ")) {
        assert!(Instant::now() < end, "memcached does not answer: {}", site.run("logs cache"));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(ask(port, ASKED).expect("an answer"), ANSWERED);
    // Its threads, each with connections of its own.
    let all: Vec<_> = (0..8).map(|_| std::thread::spawn(move || ask(port, ASKED))).collect();
    for each in all {
        let answer = each.join().expect("it asks").expect("an answer");
        assert!(answer.starts_with("STORED\r\n") && answer.ends_with("42\r\n"), "{answer}");
    }
    capable(port);
}

/// The protocol suite of memcached's own client library, where that is installed.
fn capable(port: u16) {
    let port = port.to_string();
    let Ok(output) = Command::new("memccapable").args(["-h", "127.0.0.1", "-p", &port, "-a"]).output() else {
        eprintln!("skipped: there is no memccapable: apt-get install libmemcached-tools");
        return;
    };
    assert!(output.status.success(), "{}", said(&output));
}
