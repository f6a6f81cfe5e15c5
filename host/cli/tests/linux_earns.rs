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
}

impl Shop {
    /// memcached with the contract; nothing if it is not installed.
    fn open() -> Option<Shop> {
        if !Path::new(MEMCACHED).exists() {
            eprintln!("skipped: there is no {MEMCACHED}: apt-get install memcached");
            return None;
        }
        let (site, port) = (Site::new(), free_port());
        let token = site.path().join("token");
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let config = Config { listen, token_file: Some(token), ..Config::default() };
        let provider = Provider::start(config).expect("the provider starts");
        std::fs::write(site.path().join("contract.toml"), CONTRACT).expect("it is written");
        let shop = Shop { site, provider, port };
        shop.set_price(PRICES[0]);
        let words = format!(
            "run -d --name shop -p {port}:11211 --provider {} --token-file token --utility contract.toml \
             {MEMCACHED}",
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
    shop.until("no more are", || (), |status| status.requests == 0 && (status.profit - answered).abs() < 0.5);
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
