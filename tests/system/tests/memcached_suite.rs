//! memcached's own tests, `t/*.t` of Debian's source package, against a machine of ours. None of them is kept
//! here: they are fetched. Each file either passes whole or is named with the reason why it cannot apply.

use nom_system_tests::{Guest, Server};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What the source package is called when it is unpacked.
const UNPACKED: &str = "memcached-1.6.18";

/// Where to fetch it from, for `apt-get source`.
const SOURCES: &str = "Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: bookworm\n\
                       Components: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n";

/// These pass whole. The first asks how much ten items take, where there must be no others.
const PASS: &[&str] = &[
    "issue_42",
    "binary",
    "binary-get",
    "bogus-commands",
    "cas",
    "chunked-items",
    "evictions",
    "flags",
    "getandtouch",
    "getset",
    "incrdecr",
    "issue_104",
    "issue_108",
    "issue_14",
    "issue_152",
    "issue_192",
    "issue_3",
    "issue_41",
    "issue_68",
    "issue_70",
    "line-lengths",
    "malicious-commands",
    "multiversioning",
    "noreply",
    "quit",
    "stats-detail",
    "strtol-testing",
    "touch",
];

const OWN: &str =
    "starts servers with options of its own; against a running one Debian's memcached fails, too";
const CLOCK: &str = "moves the clock by `debugtime`, which only memcached's debugging build has";
const DISK: &str = "external storage: items are in memory only";
const TLS: &str = "no TLS, as in a memcached that is built without it";
const OFF: &str = "skips itself";
const CLASSES: &str = "asks for one of memcached's slab classes: there is one class for all sizes";
const PAGES: &str = "moves pages between slab classes: there is one class for all sizes";
const LRU: &str = "controls memcached's LRU threads: there are none";
const WATCH: &str = "`watch` is not there, and `stats conns` names no clients";

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
    ("issue_163", CLASSES),
    ("issue_183", CLASSES),
    ("issue_22", CLASSES),
    ("issue_260", OFF),
    ("issue_29", CLASSES),
    ("issue_50", OWN),
    ("issue_61", OWN),
    ("issue_67", OWN),
    ("item_size_max", OWN),
    ("lru", LRU),
    ("lru-crawler", LRU),
    ("lru-maintainer", LRU),
    ("maxconns", OWN),
    ("metaget", LRU),
    ("misbehave", OFF),
    ("proxy", OFF),
    ("refhang", OFF),
    ("restart", OWN),
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
    ("stats", OWN),
    ("stats-conns", WATCH),
    ("udp", OWN),
    ("unixsocket", OWN),
    ("watcher", WATCH),
    ("watcher_connid", WATCH),
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

/// Empties the server, and waits until that is done.
fn empty(server: &Server) {
    let mut stream = server.connect();
    stream.write_all(b"flush_all\r\nstats detail off\r\nstats reset\r\nquit\r\n").expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    assert_eq!(answer, "OK\r\nOK\r\nRESET\r\n");
}

/// Runs a file; what it said if not all that it planned passed.
fn run(source: &Path, server: &Server, name: &str) -> Result<usize, String> {
    let mut command = Command::new("timeout");
    command.args(["600", "perl"]).arg(format!("t/{name}.t")).current_dir(source);
    let output = command.env("T_MEMD_USE_DAEMON", server.address.to_string()).output().expect("perl runs");
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

#[test]
fn memcacheds_own_suite_passes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = match fetch(directory.path()) {
        Ok(source) => source,
        Err(why) => return println!("skipped: memcached's sources could not be fetched: {why}"),
    };
    let named: BTreeSet<String> =
        PASS.iter().chain(APART.iter().map(|(name, _)| name)).map(|name| name.to_string()).collect();
    assert_eq!(files(&source), named, "each file passes, or says why it cannot apply");
    put_stand_in(&source);
    let guest = Guest::app("memcached").arguments(&["-U", "0", "-m", "64"]).memory("160M");
    let server = Server::boot(guest, 11211);
    let mut failures = Vec::new();
    let mut passed = 0;
    for name in PASS {
        empty(&server);
        match run(&source, &server, name) {
            Ok(count) => passed += count,
            Err(why) => failures.push(why),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    println!("{passed} assertions in {} files; {} cannot apply", PASS.len(), APART.len());
}
