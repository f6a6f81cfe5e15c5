//! An unmodified program that earns without knowing: `nom run --utility`, docs/earn.md.

mod common;

use common::{PATIENCE, Site, free_port, said};
use nom_proto::prices::Resource;
use nom_proto::status::{State, Status};
use nom_provider::{Config, Provider};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

const MEMCACHED: &str = "/usr/bin/memcached";
/// A dollar for each request: then the profit counts them, as long as nothing costs much.
const CONTRACT: &str = "[utility]\nunit = \"operation\"\nterm = [{ function = \"value\", alpha = 1.0 }]\n";
/// $/Gbit at which what leaves costs next to nothing, and at which every answer costs more than it brings.
const PRICES: [f64; 2] = [20.0, 1e7];
/// A delay so long, in microseconds, that few are served.
const LONG_US: u32 = 200;

/// The machine, and the provider that it hears of.
struct Shop {
    site: Site,
    provider: Provider,
    port: u16,
    /// Where its control port is.
    control: u16,
}

impl Shop {
    /// memcached with the contract; nothing if it is not installed.
    fn open() -> Option<Shop> {
        if !Path::new(MEMCACHED).exists() {
            eprintln!("skipped: there is no {MEMCACHED}: apt-get install memcached");
            return None;
        }
        let (site, port, control) = (Site::new(), free_port(), free_port());
        let token = site.path().join("token");
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let config = Config { listen, token_file: Some(token), ..Config::default() };
        let provider = Provider::start(config).expect("the provider starts");
        std::fs::write(site.path().join("contract.toml"), CONTRACT).expect("it is written");
        let shop = Shop { site, provider, port, control };
        shop.set_price(PRICES[0]);
        let words = format!(
            "run -d --name shop -p {port}:11211 -p {control}:9999 --provider {} --token-file token \
             --utility contract.toml --control 9999 {MEMCACHED}",
            shop.provider.address()
        );
        let output = shop.site.nom(&words).args(["--", "-u", "nobody"]).output().expect("it starts");
        assert!(output.status.success(), "{}", said(&output));
        Some(shop)
    }

    fn set_price(&self, dollars: f64) {
        self.provider.set_prices(&[(Resource::NetworkOut, dollars)]).expect("a good price");
    }

    /// A client, once it is answered.
    fn client(&self) -> Client {
        let end = Instant::now() + PATIENCE;
        loop {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("QEMU listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
            stream.set_nodelay(true).expect("an option is set");
            let mut client = Client { stream, answered: 0 };
            // QEMU accepts before the guest does, and then resets.
            if client.ask().is_ok() {
                return client;
            }
            assert!(Instant::now() < end, "no answer: {}", self.site.run("logs shop"));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// What its control port says to `method`, with this body.
    fn control(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.control)).expect("QEMU listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
        let len = body.len();
        let fields = format!("Host: shop\r\nConnection: close\r\nContent-Length: {len}");
        stream
            .write_all(format!("{method} {path} HTTP/1.1\r\n{fields}\r\n\r\n{body}").as_bytes())
            .expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers, and closes");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{method} {path}: {answer}");
        body.to_owned()
    }

    /// A number that it tells as a metric.
    fn metric(&self, name: &str) -> f64 {
        let page = self.control("GET", "/metrics", "");
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("{name}: {page}"))
    }

    /// Goes on with `work` until a report says so. What it says, then.
    fn until(&self, what: &str, mut work: impl FnMut(), is_so: impl Fn(&Status) -> bool) -> Status {
        let end = Instant::now() + PATIENCE;
        loop {
            work();
            let last = self.provider.statuses();
            if let Some(status) = last.iter().find(|status| is_so(status)) {
                return status.clone();
            }
            let logs = || self.site.run("logs shop");
            assert!(Instant::now() < end, "it is not reported that {what}: {last:?}\n{}", logs());
        }
    }
}

/// Somebody who waits for each answer, and counts them.
struct Client {
    stream: TcpStream,
    answered: u64,
}

impl Client {
    fn ask(&mut self) -> std::io::Result<()> {
        const ANSWER: &[u8] = b"VERSION 1.6.18\r\n";
        self.stream.write_all(b"version\r\n")?;
        let mut answer = vec![0; ANSWER.len()];
        self.stream.read_exact(&mut answer)?;
        assert!(answer.starts_with(b"VERSION ") && answer.ends_with(b"\r\n"), "{answer:?}");
        self.answered += 1;
        Ok(())
    }
}

#[test]
fn unmodified_memcached_counts_as_its_client_does_and_answers_a_price() {
    let Some(shop) = Shop::open() else { return };
    let mut client = shop.client();
    let cheap = shop.until("it earns", || client.ask().expect("served"), |status| status.profit > 200.0);
    assert_eq!(cheap.solvency.state, State::Pays, "{cheap:?}");
    assert!(
        cheap.latency_mean_ns > 0 && cheap.latency_p99_ns > 0 && cheap.revenue_per_second > 0.0,
        "{cheap:?}"
    );
    // Each request was paid for once: the last report has all of them, and nothing follows.
    let answered = client.answered as f64;
    let pause = || std::thread::sleep(Duration::from_millis(50));
    shop.until("all are paid", pause, |status| (status.profit - answered).abs() < 0.5);
    std::thread::sleep(Duration::from_secs(3));
    shop.until("no more are", pause, |status| status.requests == 0 && (status.profit - answered).abs() < 0.5);
    is_asked_and_ordered(&shop, &mut client);
    shop.set_price(PRICES[1]);
    shop.until(
        "it serves less",
        || client.ask().expect("served"),
        |status| {
            let loses = status.cost_per_second > status.revenue_per_second;
            status.price_network_out == PRICES[1] && loses && status.batching_delay_us >= LONG_US
        },
    );
    shop.set_price(PRICES[0]);
    shop.until(
        "it serves all again",
        || client.ask().expect("served"),
        |status| status.price_network_out == PRICES[0] && status.batching_delay_us < LONG_US,
    );
}

/// Its control port tells what its client counted, and holds what it is told to, as a server's of nom's does.
fn is_asked_and_ordered(shop: &Shop, client: &mut Client) {
    assert_eq!(shop.metric("nom_requests_total"), client.answered as f64, "questions there are no requests");
    assert!((shop.metric("nom_profit_dollars") - client.answered as f64).abs() < 0.5);
    assert_eq!(shop.control("PUT", "/governor", "off"), "off\n");
    assert_eq!(shop.control("PUT", "/batching-delay", "77"), "77\n");
    // Many windows pass, and in each a governor that is let go might choose another.
    for _ in 0..3 {
        let before = shop.metric("nom_requests_total");
        while shop.metric("nom_requests_total") < before + 200.0 {
            (0..50).for_each(|_| client.ask().expect("served"));
        }
        assert_eq!(shop.control("GET", "/batching-delay", ""), "77\n");
    }
    let words = format!("top --no-stream --json 127.0.0.1:{}", shop.control);
    let output = shop.site.nom(&words).output().expect("it runs");
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a list");
    let all = rows.as_array().and_then(|rows| rows.iter().find(|row| row["activity"] == "(all)"));
    let all = all.unwrap_or_else(|| panic!("{}", said(&output)));
    assert!(all["connections"].as_f64() >= Some(1.0) && all["cores"].is_number(), "{all}");
    assert_eq!(shop.control("PUT", "/governor", "on"), "on\n");
}
