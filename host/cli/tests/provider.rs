//! `nom provider` as a process: what it acknowledged survives whatever happens to it.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use ureq::Agent;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// How often the process is killed, how many enter records meanwhile, and how long it lives at most.
const KILLS: u64 = 200;
const CLIENTS: u64 = 3;
const LIFE_MAX_MS: u64 = 60;
/// Far longer than anything takes, on however loaded a machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A provider process; it is killed when dropped.
struct Running {
    child: Child,
    url: String,
}

impl Running {
    fn start(directory: &Path, arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nom"));
        command
            .current_dir(directory)
            .env("XDG_STATE_HOME", directory)
            .args(["provider", "--listen", "127.0.0.1:0"])
            .args(arguments);
        command.args(["--ledger", "ledger.db", "--token-file", "token"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut url = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut url).expect("its first line");
        Running { child, url: url.trim().to_owned() }
    }

    fn get(&self, path: &str) -> Value {
        let request = agent().get(format!("{}{path}", self.url));
        let mut answer =
            request.header("Authorization", format!("Bearer {TOKEN}")).call().expect("an answer");
        let text = answer.body_mut().with_config().limit(1 << 30).read_to_string().expect("a body");
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn agent() -> Agent {
    Agent::config_builder().timeout_global(Some(PATIENCE)).build().into()
}

fn directory() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("token"), TOKEN).expect("written");
    directory
}

/// The record of a number: what it says follows from it.
fn record(id: &str, number: u64) -> Value {
    json!({
        "id": id, "machine": "web-1", "activity": "memcached", "resource": "network_out",
        "quantity": number, "unit": "byte", "unit_price": 10.0,
        "from_unix_ns": 1_700_000_000_000_000_000 + number, "to_unix_ns": 1_700_000_001_000_000_000 + number,
    })
}

/// Somebody who enters records, and enters those again that were not acknowledged.
struct Client {
    name: u64,
    next: u64,
    unacknowledged: Vec<u64>,
    acknowledged: Vec<u64>,
}

impl Client {
    fn id(&self, number: u64) -> String {
        format!("{}/{number}", self.name)
    }

    /// Enters batch after batch until the provider is gone.
    fn enter(&mut self, url: &str) {
        let agent = agent();
        loop {
            if self.unacknowledged.is_empty() {
                let size = 1 + self.next % 4;
                self.unacknowledged = (self.next..self.next + size).collect();
                self.next += size;
            }
            let records: Vec<Value> =
                self.unacknowledged.iter().map(|&number| record(&self.id(number), number)).collect();
            let request = agent.post(format!("{url}/v1/ledger/records"));
            let request = request.header("Content-Type", "application/json");
            let request = request.header("Authorization", format!("Bearer {TOKEN}"));
            match request.send(json!({ "records": records }).to_string()) {
                Ok(_) => self.acknowledged.append(&mut self.unacknowledged),
                Err(ureq::Error::StatusCode(status)) => panic!("records refused with {status}"),
                Err(_) => return,
            }
        }
    }
}

/// Numbers that look random, the same each time.
struct Lcg(u64);

impl Lcg {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// How often each id is in the ledger, with its quantity.
fn ledger(provider: &Running) -> HashMap<String, (u32, u64)> {
    let mut found: HashMap<String, (u32, u64)> = HashMap::new();
    let mut after = Some(0);
    while let Some(sequence) = after {
        let page = provider.get(&format!("/v1/ledger/records?limit=10000&after={sequence}"));
        for record in page["records"].as_array().expect("records") {
            let id = record["id"].as_str().expect("an id").to_owned();
            let entry = found.entry(id).or_default();
            *entry = (entry.0 + 1, record["quantity"].as_u64().expect("a number"));
        }
        after = page["next"].as_u64();
    }
    found
}

#[test]
fn what_was_acknowledged_survives_two_hundred_kills_exactly_once() {
    let directory = directory();
    let mut random = Lcg(1);
    let client = |name| Client { name, next: 0, unacknowledged: Vec::new(), acknowledged: Vec::new() };
    let mut clients: Vec<Client> = (0..CLIENTS).map(client).collect();
    for _ in 0..KILLS {
        let mut provider = Running::start(directory.path(), &[]);
        let url = provider.url.clone();
        std::thread::scope(|scope| {
            for client in &mut clients {
                scope.spawn(|| client.enter(&url));
            }
            std::thread::sleep(Duration::from_millis(random.next() % LIFE_MAX_MS));
            provider.child.kill().expect("SIGKILL");
            provider.child.wait().expect("its end");
        });
    }
    let provider = Running::start(directory.path(), &[]);
    let mut found = ledger(&provider);
    let mut acknowledged = 0;
    for client in &clients {
        acknowledged += client.acknowledged.len();
        for &number in &client.acknowledged {
            let id = client.id(number);
            assert_eq!(found.remove(&id), Some((1, number)), "{id} was acknowledged");
        }
        // What was on its way may be there, but not twice.
        for &number in &client.unacknowledged {
            let entry = found.remove(&client.id(number));
            assert!(entry.is_none_or(|entry| entry == (1, number)));
        }
    }
    assert!(found.is_empty(), "nobody entered {found:?}");
    assert!(acknowledged as u64 > KILLS, "{acknowledged} records say little");
    eprintln!("{acknowledged} acknowledged records survived {KILLS} kills");
}

/// Lines of the shell in a document that begin with one of these.
fn lines_of_document<'d>(document: &'d str, beginnings: &[&str]) -> Vec<&'d str> {
    let blocks = document.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let begins = |line: &&str| beginnings.iter().any(|beginning| line.starts_with(beginning));
    blocks.flat_map(str::lines).filter(begins).collect()
}

#[test]
fn the_examples_of_the_document_work() {
    let directory = directory();
    let home = directory.path();
    let bin = Path::new(env!("CARGO_BIN_EXE_nom")).parent().expect("a directory").display().to_string();
    let command = |program: &str| {
        let mut command = Command::new(program);
        let path = format!("{bin}:{}", std::env::var("PATH").expect("a path"));
        command.current_dir(home).env("HOME", home).env_remove("XDG_STATE_HOME").env("PATH", path);
        command
    };
    let mut provider = command("nom");
    provider.args(["provider", "--listen", "127.0.0.1:0", "--prices", "core=0.01; network_out=1"]);
    let mut child = provider.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut url = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut url).expect("its first line");
    let running = Running { child, url: url.trim().to_owned() };
    let document = include_str!("../../../docs/provider.md");
    let examples = lines_of_document(
        document,
        &[
            "nom provider account",
            "nom provider backup",
            "nom provider bill",
            "nom provider rotate-token",
            "TOKEN=",
            "curl ",
        ],
    );
    assert!(examples.len() >= 14, "{examples:?}");
    let mut script = examples.join("\n").replace("http://127.0.0.1:7070", &running.url);
    // A status that says no is a failure here.
    script = script.replace("curl -s", "curl -sS --fail-with-body");
    let output = command("sh").args(["-exc", &script]).output().expect("sh runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    for part in ["nom_tenant_", "\"dollars\":0.02", "machine_key", "BilledCost", "nom_price_dollars", "# EOF"]
    {
        assert!(said.contains(part), "no {part} in {said}");
    }
    assert!(home.join("ledger-copy.db").exists());
    let keys = std::fs::read_to_string(home.join("web-1.keys")).expect("written");
    assert!(keys.contains("meter_key"), "{keys}");
}

#[test]
fn the_board_asks_for_metrics_that_there_are() {
    let directory = directory();
    let provider = Running::start(directory.path(), &["--prices", "core=0.01"]);
    // Metrics of machines are there with machines.
    let post = |path: &str, body: Value| {
        let request =
            agent().post(format!("{}{path}", provider.url)).header("Content-Type", "application/json");
        request.header("Authorization", format!("Bearer {TOKEN}")).send(body.to_string()).expect("taken");
    };
    post("/v1/ledger/records", json!({ "records": [record("a", 1)] }));
    post(
        "/v1/meters",
        json!({
            "machine": "web-1", "cores_configured": 1, "cores_claimed": 1.0, "cores_busy": 0.5,
            "memory_configured": 1, "memory_claimed": 1, "disagreements": 0,
        }),
    );
    post(
        "/v1/status",
        json!({
            "machine": "web-1", "application": "a", "at_ns": 1, "window_ns": 1, "batching_delay_us": 0,
            "polls": false, "cores": 1, "memory_bytes": 1, "requests": 0, "sent_bytes": 0,
            "received_bytes": 0,
            "latency_mean_ns": 0, "latency_jitter_ns": 0, "latency_p99_ns": 0, "price_revision": 1,
            "price_network_out": 1.0, "revenue_per_second": 0.0, "cost_per_second": 0.0, "profit": 1.0,
        }),
    );
    let own = include_str!("../../../docs/grafana.json");
    let board: Value = serde_json::from_str(own).expect("JSON");
    let expressions: Vec<&str> = board["panels"]
        .as_array()
        .expect("panels")
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"))
        .map(|target| target["expr"].as_str().expect("an expression"))
        .collect();
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let names: Vec<&str> = expressions
        .iter()
        .flat_map(|text| text.split(|c| !is_name(c)))
        .filter(|word| word.starts_with("nom_"))
        .collect();
    let metrics = provider.get("/metrics").as_str().expect("text").to_owned();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        let family = name.trim_end_matches("_total");
        assert!(metrics.contains(&format!("# TYPE {family} ")), "no {name} in {metrics}");
    }
}

#[test]
fn a_client_that_leaves_early_does_not_end_the_provider() {
    let directory = directory();
    let provider = Running::start(directory.path(), &["--tls"]);
    let pin = nom_provider::tls::fingerprint_of(&directory.path().join("nom/provider/certificate.pem"));
    let address = provider.url.strip_prefix("https://").expect("TLS").parse().expect("an address");
    // Each leaves right after the handshake, when the provider has something to say to it yet.
    for _ in 0..20 {
        nom_provider::tls::try_out(address, "localhost", pin.as_ref().expect("made")).expect("it lives");
    }
}

#[test]
fn beyond_this_computer_keys_do_not_pass_in_the_clear() {
    let directory = directory();
    let output = Command::new(env!("CARGO_BIN_EXE_nom"))
        .env("XDG_STATE_HOME", directory.path())
        .args(["provider", "--listen", "0.0.0.0:0", "--prices", "core=1"])
        .output()
        .expect("it runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && complaint.contains("--tls"), "{complaint}");
}

#[test]
fn the_command_line_chooses_prices() {
    let directory = directory();
    std::fs::write(directory.path().join("provider.toml"), "schedule = 'core=0.5; memory=0.25'\n")
        .expect("written");
    let price = |provider: &Running| provider.get("/v1/prices")["prices"][0].clone();
    let provider = Running::start(directory.path(), &["--prices", "network_out=1@0s,10@1h"]);
    assert_eq!(price(&provider)["resource"], "network_out");
    drop(provider);
    let provider = Running::start(directory.path(), &["--config", "provider.toml"]);
    assert_eq!((&price(&provider)["resource"], &price(&provider)["dollars"]), (&json!("core"), &json!(0.5)));
}

#[test]
fn a_wrong_source_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_nom"))
        .args(["provider", "--source", "azure:westeurope,cores=2"])
        .output()
        .expect("it runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && complaint.contains("Standard_D4s_v5"), "{complaint}");
}
