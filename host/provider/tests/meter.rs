//! A meter over made-up counts: what it enters in the ledger, whatever becomes of the provider.

mod common;

use common::{PATIENCE, get_as, post, status};
use nom_proto::prices::Resource;
use nom_proto::status::Activity;
use nom_provider::meter::{Bytes, Charge, Counter, Meter};
use nom_provider::{Config, Provider, Token};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes sent; a tenth as many are received.
#[derive(Clone, Default)]
struct Traffic(Arc<AtomicU64>);

impl Traffic {
    fn send(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Counter for Traffic {
    fn read(&mut self) -> Bytes {
        let sent = self.0.load(Ordering::Relaxed);
        Bytes { sent, received: sent / 10 }
    }
}

fn provider(directory: &Path, listen: &str) -> Provider {
    let token = Token::new("0123456789abcdef").expect("long enough");
    let listen = listen.parse().expect("an address");
    let ledger = Some(directory.join("ledger.db"));
    let config =
        || Config { listen, token: Some(token.clone()), ledger: ledger.clone(), ..Config::default() };
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Provider::start(config()) {
            Ok(provider) => return provider,
            // Connections of the one before it may linger at its port.
            Err(error) => assert!(Instant::now() < deadline, "{error:#}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn charge(provider: &Provider) -> Charge {
    let keys = provider.register("web-1", None).expect("registered");
    Charge { provider: provider.url(), key: keys.meter_key, machine: keys.name, activity: "memcached".into() }
}

/// Bytes sent that the ledger has.
fn entered(provider: &Provider) -> u64 {
    let url = format!("{}/v1/ledger/summary?resource=network_out", provider.url());
    let summary = get_as(provider.token(), &url).1;
    summary["sums"][0]["quantity"].as_u64().unwrap_or(0)
}

fn wait(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_is_lost_while_the_provider_is_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = provider(directory.path(), "127.0.0.1:0");
    first.set_prices(&[(Resource::NetworkOut, 10.0)]).expect("good");
    let traffic = Traffic::default();
    traffic.send(7);
    let meter = Meter::start(Box::new(traffic.clone()), charge(&first)).expect("metered");
    traffic.send(1000);
    wait("the first record", || entered(&first) == 1000);
    let address = first.address().to_string();
    first.shutdown();
    traffic.send(20_000);
    // Long enough for a record to be tried in vain.
    std::thread::sleep(Duration::from_millis(1500));
    traffic.send(300_000);
    let second = provider(directory.path(), &address);
    wait("what was metered meanwhile", || entered(&second) == 321_000);
    traffic.send(4_000_000);
    assert_eq!(meter.bytes().sent, 4_321_000);
    let metered = meter.finish(PATIENCE);
    let bytes = Bytes { sent: 4_321_000, received: 432_100 };
    assert_eq!((metered.bytes, metered.lost, entered(&second)), (bytes, 0, 4_321_000));
}

#[test]
fn a_price_change_ends_a_record_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let provider = provider(directory.path(), "127.0.0.1:0");
    let traffic = Traffic::default();
    provider.set_prices(&[(Resource::NetworkOut, 1.0)]).expect("good");
    let meter = Meter::start(Box::new(traffic.clone()), charge(&provider)).expect("metered");
    for round in 0..5 {
        traffic.send(100);
        provider.set_prices(&[(Resource::NetworkOut, 2.0 + f64::from(round))]).expect("good");
        // Until the meter has heard of it and entered what was at the old price.
        wait("a record", || entered(&provider) == 100 * (u64::try_from(round).expect("few") + 1));
    }
    assert_eq!(meter.finish(PATIENCE).lost, 0);
    let url = format!("{}/v1/ledger/records?resource=network_out", provider.url());
    let records = get_as(provider.token(), &url).1;
    let prices: Vec<_> = records["records"].as_array().expect("records").iter().collect();
    assert_eq!(prices.iter().map(|record| record["quantity"].as_u64().unwrap_or(0)).sum::<u64>(), 500);
    assert!(prices.len() >= 5, "{records}");
}

#[test]
fn no_word_of_a_machine_stops_its_meter() {
    let directory = tempfile::tempdir().expect("a directory");
    let provider = provider(directory.path(), "127.0.0.1:0");
    provider.set_prices(&[(Resource::NetworkOut, 10.0)]).expect("good");
    let keys = provider.register("web-1", None).expect("registered");
    let charge = Charge {
        provider: provider.url(),
        key: keys.meter_key,
        machine: keys.name,
        activity: "memcached".into(),
    };
    let traffic = Traffic::default();
    let meter = Meter::start(Box::new(traffic.clone()), charge).expect("metered");
    let mut status = status("memcached", 1);
    for name in ["", "\n", &"x".repeat(129), &"x".repeat(128)] {
        let sent_bytes = 1 << 40;
        status.activities.push(Activity { name: name.into(), at_ns: 1, sent_bytes, ..Activity::default() });
    }
    let status = serde_json::to_value(&status).expect("plain data");
    post(&format!("{}/v1/status", provider.url()), Some(&keys.machine_key), &status);
    // Until the meter has heard of it, if it can.
    for sent in 1..=4 {
        traffic.send(1000);
        wait("what was sent", || entered(&provider) == sent * 1000);
    }
    let metered = meter.finish(PATIENCE);
    assert_eq!((metered.lost, entered(&provider)), (0, 4000));
}

#[test]
fn a_machine_with_the_longest_name_is_metered() {
    let directory = tempfile::tempdir().expect("a directory");
    let provider = provider(directory.path(), "127.0.0.1:0");
    let keys = provider.register(&"x".repeat(128), None).expect("registered");
    let (machine, activity) = (keys.name, "y".repeat(128));
    let charge = Charge { provider: provider.url(), key: keys.meter_key, machine, activity };
    let traffic = Traffic::default();
    let meter = Meter::start(Box::new(traffic.clone()), charge.clone()).expect("metered");
    traffic.send(1000);
    let metered = meter.finish(PATIENCE);
    assert_eq!((metered.lost, entered(&provider)), (0, 1000), "{:?}", metered.refused);
    let nameless = Charge { activity: "y".repeat(129), ..charge };
    let refusal = format!("{:#}", Meter::start(Box::<Traffic>::default(), nameless).expect_err("no name"));
    assert!(refusal.contains("yyy") && refusal.contains("1 to 128 characters"), "{refusal}");
}

#[test]
fn a_meter_does_not_begin_without_its_provider() {
    let directory = tempfile::tempdir().expect("a directory");
    let provider = provider(directory.path(), "127.0.0.1:0");
    let wrong = Charge { key: "another word, which is wrong".into(), ..charge(&provider) };
    let refusal = format!("{:#}", Meter::start(Box::<Traffic>::default(), wrong).expect_err("refused"));
    assert!(refusal.contains("cannot enter records") && refusal.contains("401"), "{refusal}");
    let nobody = Charge { provider: "http://127.0.0.1:1".into(), ..charge(&provider) };
    let refusal = format!("{:#}", Meter::start(Box::<Traffic>::default(), nobody).expect_err("nobody"));
    assert!(refusal.contains("http://127.0.0.1:1/v1/prices"), "{refusal}");
}
