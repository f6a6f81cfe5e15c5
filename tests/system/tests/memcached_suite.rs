//! memcached's own tests, `t/*.t` of Debian's source package, against a machine of ours. None of them is kept
//! here: they are fetched. Each file either passes whole or is named with the reason why it cannot apply.

use nom_system_tests::{Guest, Server};
use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// What the source package is called when it is unpacked.
const UNPACKED: &str = "memcached-1.6.18";

/// Where to fetch it from, for `apt-get source`.
const SOURCES: &str = "Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: bookworm\n\
                       Components: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n";

/// What passes whole with Debian's memcached, run in the same way: a server that is told nothing but `-m 64`.
const YARDSTICK: &[&str] = &[
    "binary",
    "binary-get",
    "bogus-commands",
    "cas",
    "chunked-items",
    "flags",
    "getandtouch",
    "getset",
    "incrdecr",
    "issue_104",
    "issue_108",
    "issue_14",
    "issue_152",
    "issue_163",
    "issue_192",
    "issue_29",
    "issue_3",
    "issue_41",
    "issue_42",
    "issue_68",
    "issue_70",
    "line-lengths",
    "malicious-commands",
    "metaget",
    "multiversioning",
    "noreply",
    "quit",
    "stats-detail",
    "strtol-testing",
    "touch",
    "watcher_connid",
];

/// What passes with ours as well, with as much memory as the file wants. Debian's would have to be started
/// with `-o no_modern`, or fails with `-m 64`.
const BEYOND: &[&str] = &["evictions", "issue_183"];

/// Megabytes that a file gives the server which it wants, if they are others than 64.
const MEGABYTES: &[(&str, &str)] = &[("evictions", "3")];

const OWN: &str =
    "starts servers with options of its own; against a running one Debian's memcached fails, too";
const CLOCK: &str = "moves the clock by `debugtime`, which only memcached's debugging build has";
const DISK: &str = "external storage, and so skips itself: items are in memory only";
const TLS: &str = "skips itself: no TLS, as in a memcached that is built without it";
const OFF: &str = "skips itself, with Debian's memcached, too";
const PAGES: &str = "wants a server of its own, whose slab pages move: Debian's memcached fails, too; \
                     ours has no pages";
const LRU: &str = "wants a server of its own, whose LRU threads can be told what to do: Debian's memcached \
                   fails, too; ours has one list and no such threads";
const WATCH: &str = "wants to be told what was evicted, too, and which connections come and go, and fills \
                     a log of its own size: Debian's memcached fails, too; ours tells fetchers and mutations";
const SETTINGS: &str = "counts the lines of `stats`, and wants values of another `-I`: Debian's memcached \
                        fails, too; ours tells nothing of LRU locks and hash levels, which it has not";
const CONNS: &str = "wants a listener of its own in `stats conns`: Debian's memcached fails, too; \
                     ours names no clients";
const KEPT: &str = "items that outlive their server, in a file: Debian's memcached fails, too; \
                    ours has no file";

/// These cannot apply.
const APART: &[(&str, &str)] = &[
    ("00-startup", OWN),
    ("64bit", OWN),
    ("ascii-auth", OWN),
    ("binary-extstore", DISK),
    ("binary-sasl", OFF),
    ("chunked-extstore", DISK),
    ("conn-limits", OWN),
    ("daemonize", OWN),
    ("dash-M", OWN),
    ("dyn-maxbytes", OWN),
    ("error-extstore", DISK),
    ("expirations", CLOCK),
    ("extstore", DISK),
    ("extstore-buckets", DISK),
    ("extstore-jbod", DISK),
    ("flush-all", CLOCK),
    ("idle-timeout", OWN),
    ("issue_140", OFF),
    ("issue_22", OWN),
    ("issue_260", OFF),
    ("issue_50", OWN),
    ("issue_61", OWN),
    ("issue_67", OWN),
    ("item_size_max", OWN),
    ("lru", OWN),
    ("lru-crawler", LRU),
    ("lru-maintainer", LRU),
    ("maxconns", OWN),
    ("misbehave", OFF),
    ("proxy", OFF),
    ("refhang", OFF),
    ("restart", KEPT),
    ("shutdown", OWN),
    ("slabhang", OFF),
    ("slabs-reassign-chunked", PAGES),
    ("slabs-reassign2", PAGES),
    ("slabs_reassign", PAGES),
    ("ssl_cert_refresh", TLS),
    ("ssl_ports", TLS),
    ("ssl_proto_version", TLS),
    ("ssl_session_resumption", TLS),
    ("ssl_settings", TLS),
    ("ssl_verify_modes", TLS),
    ("stats", SETTINGS),
    ("stats-conns", CONNS),
    ("udp", OWN),
    ("unixsocket", OWN),
    ("watcher", WATCH),
    ("whitespace", OFF),
];

/// memcached's sources, unpacked in `directory`; or why they could not be fetched.
fn fetch(directory: &Path) -> Result<PathBuf, String> {
    let at = |name: &str| directory.join(name);
    for name in ["parts", "lists/partial", "archives/partial"] {
        std::fs::create_dir_all(at(name)).map_err(|error| error.to_string())?;
    }
    std::fs::write(at("parts/debian.sources"), SOURCES).map_err(|error| error.to_string())?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        let path = |name: &str| at(name).display().to_string();
        for (option, value) in [
            ("Dir::Etc::sourcelist", "/dev/null".to_owned()),
            ("Dir::Etc::sourceparts", path("parts")),
            ("Dir::State::lists", path("lists")),
            ("Dir::Cache", path("")),
            ("Acquire::http::Timeout", "20".to_owned()),
            ("Acquire::Retries", "0".to_owned()),
        ] {
            command.arg("-o").arg(format!("{option}={value}"));
        }
        let output = command.arg("-qq").args(arguments).current_dir(directory).output();
        output.map_err(|error| format!("no apt-get: {error}")).and_then(said)
    };
    let perl = Command::new("perl").args(["-MTest::More", "-e1"]).output();
    perl.map_err(|error| format!("no perl: {error}")).and_then(said)?;
    apt(&["update", "-o", "APT::Update::Error-Mode=any"])?;
    apt(&["source", "memcached"])?;
    let unpacked = at(UNPACKED);
    if unpacked.is_dir() { Ok(unpacked) } else { Err(format!("no {UNPACKED} in the source package")) }
}

fn said(output: Output) -> Result<(), String> {
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(text) }
}

/// The files of the suite, without `.t`.
fn files(source: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(source.join("t")).expect("the suite is there");
    let names = entries.map(|entry| entry.expect("readable").file_name().into_string().expect("text"));
    names.filter_map(|name| name.strip_suffix(".t").map(str::to_owned)).collect()
}

/// The suite looks for a memcached to ask what it can (`-h`): ours has nothing that can be left out.
fn put_stand_in(source: &Path) {
    let path = source.join("memcached-debug");
    std::fs::write(&path, "#!/bin/sh\necho memcached 1.6.18\n").expect("it is written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it can be run");
}

/// Runs a file; what it said if not all that it planned passed.
fn run(source: &Path, server: &str, name: &str) -> Result<usize, String> {
    let mut command = Command::new("timeout");
    command.args(["600", "perl"]).arg(format!("t/{name}.t")).current_dir(source);
    let output = command.env("T_MEMD_USE_DAEMON", server).output().expect("perl runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = text.lines().filter(|line| line.starts_with("ok ")).count();
    // Perl's status is 0 only if as many passed as were planned.
    if output.status.success() && passed > 0 {
        return Ok(passed);
    }
    let others: Vec<&str> = text.lines().filter(|line| !line.starts_with("ok ")).take(20).collect();
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}, {passed} passed\n{}\n{error}", output.status, others.join("\n")))
}

/// The directory of the sources, which goes with the first; or why there is none.
fn sources() -> Result<(tempfile::TempDir, PathBuf), String> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = fetch(directory.path())?;
    put_stand_in(&source);
    Ok((directory, source))
}

/// Runs files, each against a server of its own, as the suite means it; how many assertions passed.
fn run_all(source: &Path, names: &[&str], serve: impl Fn(&str, &mut dyn FnMut(&str))) -> usize {
    let (mut passed, mut failures) = (0, Vec::new());
    for name in names {
        serve(name, &mut |address| match run(source, address, name) {
            Ok(count) => passed += count,
            Err(why) => failures.push(why),
        });
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    passed
}

fn is_apart(name: &str) -> bool {
    APART.iter().any(|(apart, _)| *apart == name)
}

#[test]
fn memcacheds_own_suite_passes() {
    let (_directory, source) = match sources() {
        Ok(sources) => sources,
        Err(why) => return println!("skipped: memcached's sources could not be fetched: {why}"),
    };
    let mut named: BTreeSet<String> = [YARDSTICK, BEYOND].concat().into_iter().map(str::to_owned).collect();
    named.extend(APART.iter().map(|(name, _)| name.to_string()));
    assert_eq!(files(&source), named, "each file passes, or says why it cannot apply");
    let pass: Vec<&str> = [YARDSTICK, BEYOND].concat().into_iter().filter(|name| !is_apart(name)).collect();
    let passed = run_all(&source, &pass, |name, test| {
        let megabytes = MEGABYTES.iter().find(|(other, _)| *other == name).map_or("64", |(_, some)| some);
        let guest = Guest::app("memcached").arguments(&["-U", "0", "-m", megabytes]).memory("160M");
        let server = Server::boot(guest, 11211);
        test(&server.address.to_string());
    });
    println!("{passed} assertions in {} files; {} cannot apply", pass.len(), APART.len());
}

/// The yardstick is what it says: otherwise a file could be left out for a reason that is none.
#[test]
fn debians_memcached_passes_what_it_is_said_to() {
    let port = || TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map(|at| at.port());
    if Command::new("memcached").arg("-V").output().is_err() {
        return println!("skipped: memcached is not installed");
    }
    let (_directory, source) = match sources() {
        Ok(sources) => sources,
        Err(why) => return println!("skipped: memcached's sources could not be fetched: {why}"),
    };
    run_all(&source, YARDSTICK, |_, test| {
        let port = port().expect("a port is free");
        let mut command = Command::new("memcached");
        command.args(["-u", "nobody", "-U", "0", "-m", "64", "-l", "127.0.0.1", "-p", &port.to_string()]);
        let mut process = command.spawn().expect("memcached starts");
        let is_there = |_: &u32| {
            std::thread::sleep(Duration::from_millis(50));
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        };
        (0..100).find(is_there).expect("memcached listens");
        test(&format!("127.0.0.1:{port}"));
        process.kill().and_then(|()| process.wait()).expect("memcached ends");
    });
}
