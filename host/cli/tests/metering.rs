//! `nom run --provider` with a provider of its own process: what a machine uses is in the lasting ledger.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far longer than anything takes, on however loaded a computer.
const PATIENCE: Duration = Duration::from_secs(300);
const PRICES: &str = "network_out=10; core=0.5; memory=0.25; energy=1";

/// A provider, and the directory of the state of whoever runs it and machines.
struct Place {
    state: TempDir,
    provider: Child,
    /// What it prints: its URL, and if it speaks TLS its fingerprint.
    url: String,
    https: Option<String>,
}

impl Place {
    fn new(arguments: &[&str]) -> Place {
        let state = tempfile::tempdir().expect("a directory");
        let mut command = nom(state.path());
        command.args(["provider", "--listen", "127.0.0.1:0", "--prices", PRICES]).args(arguments);
        let mut provider = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut url = String::new();
        let output = provider.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut url).expect("its first line");
        let url = url.trim().to_owned();
        let https = url.starts_with("https:").then(|| url.clone());
        Place { state, provider, url, https }
    }

    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = nom(self.state.path());
        command.args(["run", "--provider", &self.url]).args(arguments);
        command
    }

    /// What is owed by resource, as the ledger's file has it.
    fn owed(&self) -> Vec<(String, String, i64)> {
        let sums = self.sums();
        sums.into_iter().map(|(machine, _, resource, cost)| (machine, resource, cost)).collect()
    }

    /// The same by activity, too: nobody's key is needed to read that.
    fn sums(&self) -> Vec<(String, String, String, i64)> {
        let copy = self.state.path().join(format!("copy-{:?}.db", Instant::now()));
        let backup =
            nom(self.state.path()).args(["provider", "backup"]).arg(&copy).output().expect("it runs");
        assert!(backup.status.success(), "{backup:?}");
        let bill = nom(self.state.path()).args(["provider", "bill", "--ledger"]).arg(&copy).output();
        let bill = bill.expect("it runs");
        assert!(bill.status.success(), "{bill:?}");
        let summary: Value = serde_json::from_slice(&bill.stdout).expect("JSON");
        let text = |sum: &Value, field: &str| sum[field].as_str().expect("a name").to_owned();
        let sums = summary["sums"].as_array().expect("sums");
        let cost = |sum: &Value| sum["cost_nanos"].as_i64().expect("a number");
        let key = |sum: &Value| (text(sum, "machine"), text(sum, "activity"), text(sum, "resource"));
        let of = |sum: &Value| {
            let (machine, activity, resource) = key(sum);
            (machine, activity, resource, cost(sum))
        };
        sums.iter().map(of).collect()
    }

    /// Waits until an activity has paid for a resource.
    fn await_payer(&self, activity: &str, resource: &str) {
        let start = Instant::now();
        loop {
            let sums = self.sums();
            let is_it = |sum: &&(String, String, String, i64)| sum.1 == activity && sum.2 == resource;
            if sums.iter().find(is_it).is_some_and(|sum| sum.3 > 0) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{activity} pays for no {resource}: {sums:?}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn check_bill(&self, machine: &str) {
        let owed = self.owed();
        for resource in ["network_out", "core", "memory"] {
            let sum = owed.iter().find(|(name, kind, _)| name == machine && kind == resource);
            assert!(sum.is_some_and(|(_, _, cost)| *cost > 0), "no {resource} of {machine} in {owed:?}");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.provider.kill();
        let _ = self.provider.wait();
    }
}

fn nom(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nom"));
    command.env("XDG_STATE_HOME", state).current_dir(state);
    command
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Waits until memcached answers at the port, and asks it a few times.
fn serve(port: u16) {
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "nobody answers at port {port}");
        let asked = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(&b"version\r\n".repeat(200))?;
            stream.read_exact(&mut [0; 1000])
        });
        if asked.is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The manifest of memcached that tells two tenants apart by their keys.
fn tenants() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../apps/memcached/tenants.toml").to_owned()
}

/// Has gold and somebody else ask.
fn ask_as_tenants(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it serves");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    for _ in 0..200 {
        stream.write_all(b"get gold:1\r\nget x\r\n").expect("it is sent");
        stream.read_exact(&mut [0; 10]).expect("twice END");
    }
}

/// Interrupts a foreground machine as Ctrl-C does; what it said.
fn interrupt(child: Child) -> Output {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill runs").success());
    child.wait_with_output().expect("it ends")
}

#[test]
fn what_a_machine_in_the_foreground_uses_is_in_the_ledger_that_lasts() {
    let place = Place::new(&[]);
    let port = free_port();
    let publish = format!("127.0.0.1:{port}:11211");
    let mut command = place.run(&["-p", &publish, "--name", "shop-1", "--tenant", "alice", &tenants()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    serve(port);
    ask_as_tenants(port);
    // The machine's own are idle cores, among others.
    for activity in ["memcached/gold", "memcached/others", "memcached"] {
        place.await_payer(activity, "core");
    }
    let output = interrupt(child);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "memcached ends itself when it is asked to: {said}");
    place.check_bill("shop-1");
    let refused = !Path::new("/sys/class/powercap/intel-rapl:0").exists();
    assert_eq!(
        said.contains("energy has a price, and was not metered: /sys/class/powercap"),
        refused,
        "{said}"
    );
    let accounts = nom(place.state.path()).args(["provider", "account", "list"]).output().expect("it runs");
    let accounts = String::from_utf8_lossy(&accounts.stdout).into_owned();
    assert_eq!(accounts.lines().filter(|line| line.contains("shop-1") && line.contains("ended")).count(), 2);
}

#[test]
fn what_a_machine_in_the_background_uses_is_metered_by_its_supervisor_and_over_tls() {
    let place = Place::new(&["--tls"]);
    assert!(place.https.is_some(), "{}", place.url);
    let port = free_port();
    let publish = format!("127.0.0.1:{port}:11211");
    let arguments = ["-d", "-p", &publish, "--name", "shop-2", "memcached"];
    let output = place.run(&arguments).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    serve(port);
    std::thread::sleep(Duration::from_secs(2));
    let stop = nom(place.state.path()).args(["stop", "shop-2"]).output().expect("it runs");
    assert!(stop.status.success(), "{stop:?}");
    for verb in ["start", "restart"] {
        let again = nom(place.state.path()).args([verb, "shop-2"]).output().expect("it runs");
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(!again.status.success() && said.contains("`nom rm shop-2`"), "{verb}, unmetered: {said}");
    }
    let start = Instant::now();
    let ended =
        |text: &str| text.lines().filter(|l| l.contains("shop-2") && l.contains("ended")).count() == 2;
    loop {
        let accounts =
            nom(place.state.path()).args(["provider", "account", "list"]).output().expect("it runs");
        if ended(&String::from_utf8_lossy(&accounts.stdout)) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "its keys do not end: {accounts:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    place.check_bill("shop-2");
}

#[test]
fn a_machine_without_keys_or_with_the_wrong_provider_does_not_start() {
    let place = Place::new(&["--tls"]);
    let elsewhere = tempfile::tempdir().expect("a directory");
    let said = |arguments: &[&str]| {
        let mut command = nom(elsewhere.path());
        let command = command.args(["run", "--provider", &place.url]).args(arguments).arg("memcached");
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(125));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&[]).contains("expected --pin"), "{}", said(&[]));
    let other = "ab".repeat(32);
    assert!(said(&["--pin", &other]).contains("its certificate is another"));
    let certificate = place.state.path().join("nom/provider/certificate.pem");
    let pin = nom_provider::tls::fingerprint_of(&certificate).expect("it was made").to_string();
    let refusal = said(&["--pin", &pin]);
    assert!(refusal.contains("account add machine"), "{refusal}");
}
