//! The daemon against providers on real sockets: the real one, and such as misbehave.

mod common;

use common::{Fake, Machine, Manner, Manners};
use nom_abi::priced::Report;
use nom_proto::prices::Resource;
use nom_provider::{Config, Provider};
use std::time::Duration;
use zerocopy::{FromZeros, IntoBytes};

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

fn json(revision: u64, network_out: f64) -> String {
    format!(
        "{{\"revision\":{revision},\"source\":\"fake\",\"age_seconds\":0,\"prices\":\
         [{{\"resource\":\"network_out\",\"dollars\":{network_out},\"since_unix_ns\":0}}]}}"
    )
}

fn event(revision: u64, network_out: f64) -> String {
    format!("event: prices\ndata: {}\n\n", json(revision, network_out))
}

fn good(_: &str) -> Manner {
    Manner::Stay(format!("{EVENTS}{}", event(1, 2.0)))
}

#[test]
fn the_real_provider_is_understood() {
    let provider = Provider::start(Config::default()).expect("it starts");
    provider.set_prices(&[(Resource::NetworkOut, 1.0), (Resource::Core, 1e-5)]).expect("good prices");
    let address = provider.address();
    let keys = provider.register("machine", None).expect("registered");
    let mut machine = Machine::with_key(address, Some(&keys.machine_key));
    machine.until_price(1.0);
    provider.set_prices(&[(Resource::NetworkOut, 10.0)]).expect("a good price");
    machine.until_price(10.0);
    assert_eq!((machine.board.revision, machine.announcements), (2, 2));

    let report = Report { kind: Report::KIND, requests: 7, ..Report::new_zeroed() };
    let status = nom_priced_core::status(
        report.as_bytes(),
        "machine",
        "application",
        nom_priced_core::Held::default(),
    );
    machine.daemon.report(status.expect("a report"));
    machine.until("the report", |_| !provider.statuses().is_empty());
    assert_eq!(provider.statuses()[0].requests, 7);

    provider.shutdown();
    machine.until_said("the last prices stay");
    let provider = Provider::start(Config { listen: address, ..Config::default() }).expect("it starts again");
    provider.set_prices(&[(Resource::NetworkOut, 11.0)]).expect("a good price");
    machine.until_price(11.0);
    machine.until_said("its prices come by events");
}

#[test]
fn a_provider_without_events_is_asked_now_and_then() {
    fn manner(path: &str) -> Manner {
        let json = json(3, 4.0);
        match path {
            "/v1/prices" => Manner::Close(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{json}",
                json.len()
            )),
            _ => Manner::Close("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into()),
        }
    }
    fn dearer(path: &str) -> Manner {
        match manner(path) {
            Manner::Close(text) => Manner::Close(text.replace("\"dollars\":4", "\"dollars\":5")),
            other => other,
        }
    }
    let fake = Fake::start(manner);
    let mut machine = Machine::new(fake.address);
    machine.until_said("it has no events");
    machine.until_price(4.0);
    fake.set(dearer);
    machine.skip(Duration::from_secs(5));
    machine.until_price(5.0);
    assert_eq!(machine.lines, [""; 0], "all is as it was");
}

#[test]
fn events_that_come_byte_by_byte_are_read() {
    fn manner(_: &str) -> Manner {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let event = event(1, 6.0);
        Manner::Dribble(format!("{head}5\r\n{}\r\n{:x}\r\n{}\r\n", &event[..5], event.len() - 5, &event[5..]))
    }
    let mut machine = Machine::new(Fake::start(manner).address);
    machine.until_price(6.0);
}

#[test]
fn whatever_a_provider_says_the_last_prices_stay_and_the_trouble_is_told_once() {
    let cases: [(Manners, &str); 9] = [
        (|_| Manner::Close("HTTP/1.1 500 Oh no\r\n\r\n<html>".into()), "it answers with status 500"),
        (
            |_| Manner::Close("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>".into()),
            "it answers with `text/html`, expected `application/json`",
        ),
        (|_| Manner::Close("SSH-2.0-OpenSSH_9.2\r\n".into()), "what it says is not HTTP"),
        (|_| Manner::Close(String::new()), "it closed the connection"),
        (|_| Manner::Close(format!("{EVENTS}event: pri")), "it ended its events"),
        (
            |_| {
                Manner::Close(format!(
                    "{}5\r\nab",
                    EVENTS.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n")
                ))
            },
            "it ended its events",
        ),
        (
            |_| {
                Manner::Close(EVENTS.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\nnothing\r\n"))
            },
            "its answer has a broken chunk",
        ),
        (|_| Manner::Repeat("HTTP/1.1 200 OK\r\n".into(), "X: y\r\n".repeat(100)), "not HTTP"),
        (|_| Manner::Repeat(EVENTS.into(), "data: x".repeat(1000)), "it sends an event of more than"),
    ];
    let fake = Fake::start(good);
    let mut machine = Machine::new(fake.address);
    machine.is_eager = true;
    machine.until_said("its prices come by events");
    for (manner, expected) in cases {
        fake.set(manner);
        machine.skip(Duration::from_secs(60)); // The good connection falls silent.
        machine.until_said(expected);
        let served = fake.served();
        machine.until("more tries", |_| fake.served() > served + 6);
        assert!(!machine.lines.iter().any(|line| line.contains(expected)), "{:?}", machine.lines);
        assert_eq!(machine.price(), Some(2.0), "{expected}");
        fake.set(good);
        machine.until_said("its prices come by events");
    }
}

#[test]
fn absurd_prices_are_refused_by_name_and_a_flood_of_them_is_not_told_in_full() {
    fn manner(_: &str) -> Manner {
        let lies: String = (0..50).map(|number| event(9, -1.0 - f64::from(number))).collect();
        Manner::Repeat(format!("{EVENTS}{}", event(1, 2.0)), lies)
    }
    let mut machine = Machine::new(Fake::start(manner).address);
    machine.until_said("(fake): price of NetworkOut -1 $/Gbit refused: a price is not negative");
    (0..2000).for_each(|_| machine.turn());
    assert!(machine.lines.len() < 20, "{:?}", machine.lines);
    assert_eq!(machine.price(), Some(2.0));
}
