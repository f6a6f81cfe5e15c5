//! Who may do what: every kind of account against everything that can be asked for.

mod common;

use common::{Events, agent, answer, delete_as, get, get_as, post, put, status};
use nom_proto::account::Role;
use nom_provider::{Config, Provider};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;

const PRICES: &str = r#"{"prices":[{"resource":"network_out","dollars":1.0}]}"#;

/// A provider with a machine of each of two tenants, and everybody's keys.
struct Place {
    provider: Provider,
    alice: String,
    bob: String,
    auditor: String,
    /// Machine's and meter's key of `web-1`, which is Alice's, and of `web-2`, which is Bob's.
    web: [[String; 2]; 2],
}

impl Place {
    fn new() -> Place {
        Place::with(Config::default())
    }

    fn with(config: Config) -> Place {
        let provider = Provider::start(config).expect("it starts");
        let account = |role, name| provider.add_account(role, name).expect("made").reveal().to_owned();
        let machine = |name, tenant| {
            let keys = provider.register(name, Some(tenant)).expect("registered");
            [keys.machine_key, keys.meter_key]
        };
        Place {
            alice: account(Role::Tenant, "alice"),
            bob: account(Role::Tenant, "bob"),
            auditor: account(Role::Auditor, "prometheus"),
            web: [machine("web-1", "alice"), machine("web-2", "bob")],
            provider,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.provider.url())
    }

    fn report(&self, key: Option<&str>, machine: &str) -> u16 {
        let mut status = serde_json::to_value(status("memcached", 7)).expect("plain data");
        status["machine"] = machine.into();
        post(&self.url("/v1/status"), key, &status).0
    }

    fn enter(&self, key: Option<&str>, machine: &str, id: &str) -> u16 {
        let record = json!({
            "id": id, "machine": machine, "activity": "memcached", "resource": "network_out",
            "quantity": 125_000_000, "unit": "byte", "unit_price": 10.0,
            "from_unix_ns": 1_700_000_000_000_000_000_u64, "to_unix_ns": 1_700_000_001_000_000_000_u64,
        });
        post(&self.url("/v1/ledger/records"), key, &json!({ "records": [record] })).0
    }

    fn owed(&self, key: &str, parameters: &str) -> (u16, Value) {
        let (status, summary) = get_as(key, &self.url(&format!("/v1/ledger/summary{parameters}")));
        (status, summary["cost_nanos"].clone())
    }
}

#[test]
fn nobody_reports_or_charges_for_another_machine() {
    let place = Place::new();
    let [[machine, meter], [other_machine, other_meter]] = &place.web;
    assert_eq!(place.report(Some(machine), "web-1"), 204);
    for key in [other_machine, meter, &place.alice, &place.auditor] {
        assert_eq!(place.report(Some(key), "web-1"), 403);
    }
    assert_eq!(place.report(None, "web-1"), 401);
    assert_eq!(place.enter(Some(meter), "web-1", "web-1/1"), 200);
    for key in [other_meter, machine, &place.alice, &place.auditor] {
        assert_eq!(place.enter(Some(key), "web-1", "web-1/2"), 403);
    }
    assert_eq!(place.enter(None, "web-1", "web-1/2"), 401);
    assert_eq!(place.enter(Some(other_meter), "web-2", "web-1/3"), 422, "an id that web-1 will need");
    let empty = json!({ "records": [] });
    assert_eq!(post(&place.url("/v1/ledger/records"), Some(machine), &empty).0, 403);
    assert_eq!(place.provider.statuses().len(), 1);
    assert_eq!(place.owed(place.provider.token(), ""), (200, json!(10_000_000_000_u64)));
}

#[test]
fn a_tenant_reads_her_own_reports_records_and_bills() {
    let place = Place::new();
    let [[machine, meter], [other_machine, other_meter]] = &place.web;
    for (machine_key, meter_key, name) in [(machine, meter, "web-1"), (other_machine, other_meter, "web-2")] {
        assert_eq!(place.report(Some(machine_key), name), 204);
        assert_eq!(place.enter(Some(meter_key), name, &format!("{name}/1")), 200);
    }
    let machines = |key: &str, path: &str| -> Vec<String> {
        let list = get_as(key, &place.url(path)).1;
        let list = list.get("records").unwrap_or(&list).as_array().expect("a list").clone();
        list.iter().map(|one| one["machine"].as_str().expect("a name").to_owned()).collect()
    };
    for (key, seen) in [
        (place.alice.as_str(), vec!["web-1"]),
        (&place.bob, vec!["web-2"]),
        (&place.auditor, vec!["web-1", "web-2"]),
        (place.provider.token(), vec!["web-1", "web-2"]),
    ] {
        assert_eq!(machines(key, "/v1/status"), seen);
        assert_eq!(machines(key, "/v1/ledger/records"), seen);
        let bill = get_as(key, &place.url("/v1/ledger/focus.csv")).1;
        let bill = bill.as_str().expect("CSV").to_owned();
        let metrics = get_as(key, &place.url("/metrics")).1.as_str().expect("text").to_owned();
        for name in ["web-1", "web-2"] {
            assert_eq!(bill.contains(name), seen.contains(&name), "{name}: {bill}");
            assert_eq!(metrics.contains(name), seen.contains(&name), "{name}: {metrics}");
        }
    }
    assert_eq!(machines(machine, "/v1/status"), ["web-1"], "a machine sees itself");
    assert_eq!(Events::of_as(&place.bob, &place.url("/v1/status/events")).next().data["machine"], "web-2");
    let (status, owed) = place.owed(&place.alice, "?tenant=alice");
    assert_eq!((status, owed), (200, json!(10_000_000_000_u64)));
    assert_eq!(place.owed(&place.alice, "?tenant=bob").0, 403);
    assert_eq!(place.owed(place.provider.token(), "?tenant=bob").1, 10_000_000_000_u64);
    for key in place.web.as_flattened() {
        assert_eq!(place.owed(key, "").0, 403);
    }
}

#[test]
fn a_machine_that_becomes_anothers_takes_no_records_along() {
    let place = Place::new();
    assert_eq!(place.enter(Some(&place.web[0][1]), "web-1", "web-1/1"), 200);
    let keys = place.provider.register("web-1", Some("bob")).expect("registered anew");
    assert_eq!(place.enter(Some(&place.web[0][1]), "web-1", "web-1/2"), 401, "the old key has ended");
    assert_eq!(place.enter(Some(&keys.meter_key), "web-1", "web-1/2"), 200);
    let owed = |key: &str| place.owed(key, "").1;
    assert_eq!(
        (owed(&place.alice), owed(&place.bob)),
        (10_000_000_000_u64.into(), 10_000_000_000_u64.into())
    );
}

#[test]
fn only_operators_set_prices_and_register_machines() {
    let place = Place::new();
    let new = json!({ "name": "web-3", "tenant": "alice", "holder": "here" });
    let strangers = [&place.alice, &place.auditor, &place.web[0][0], &place.web[0][1]];
    for key in strangers {
        assert_eq!(put(&place.url("/v1/prices"), key, PRICES).0, 403);
        assert_eq!(post(&place.url("/v1/machines"), Some(key), &new).0, 403);
        assert_eq!(delete_as(key, &place.url("/v1/machines/web-1")).0, 403);
    }
    let operator = place.provider.add_account(Role::Operator, "carol").expect("made");
    assert_eq!(put(&place.url("/v1/prices"), operator.reveal(), PRICES).0, 200);
    let (status, keys) = post(&place.url("/v1/machines"), Some(operator.reveal()), &new);
    let key = keys["machine_key"].as_str().expect("a key");
    assert_eq!((status, place.report(Some(key), "web-3")), (201, 204));
    let other = json!({ "name": "web-3", "holder": "there" });
    let (status, problem) = post(&place.url("/v1/machines"), Some(operator.reveal()), &other);
    assert_eq!((status, &problem["field"]), (409, &json!("name")), "{problem}");
    assert_eq!(delete_as(operator.reveal(), &place.url("/v1/machines/web-3")).0, 204);
    assert_eq!(delete_as(operator.reveal(), &place.url("/v1/machines/web-3")).0, 404);
    assert_eq!(place.report(Some(key), "web-3"), 401, "given up");
    assert_eq!(post(&place.url("/v1/machines"), Some(operator.reveal()), &other).0, 201);
    let (status, problem) =
        post(&place.url("/v1/machines"), Some(operator.reveal()), &json!({ "name": "a/b" }));
    assert_eq!((status, &problem["field"]), (422, &json!("name")));
}

#[test]
fn prices_are_for_everybody_and_the_rest_is_not() {
    let place = Place::new();
    for path in ["/", "/v1/prices", "/v1/sources"] {
        assert_eq!(get(&place.url(path)).0, 200, "{path}");
    }
    for path in [
        "/v1/status",
        "/v1/status/events",
        "/v1/ledger/records",
        "/v1/ledger/summary",
        "/v1/ledger/focus.csv",
        "/v1/meters",
        "/metrics",
    ] {
        let response = agent().get(place.url(path)).call().expect("an answer");
        assert_eq!(response.headers()["www-authenticate"], "Bearer", "{path}");
        assert_eq!(answer(Ok(response)).0, 401, "{path}");
    }
    let (status, problem) =
        get_as("nom_tenant_000000000000_00000000000000000000000000000000", &place.url("/v1/prices"));
    assert_eq!((status, &problem["field"]), (401, &json!("Authorization")), "a wrong key is told at once");
}

#[test]
fn invented_names_take_no_room() {
    // The limit of requests is tested elsewhere; here it would only hide what the book does.
    let requests_per_second = NonZeroU32::new(1_000_000).expect("not 0");
    let place = Place::with(Config { requests_per_second, ..Config::default() });
    let [machine, _] = &place.web[0];
    for number in 0..10_000 {
        assert_eq!(place.report(Some(place.web[1][0].as_str()), &format!("invented-{number}")), 403);
    }
    assert_eq!(place.report(Some(machine), "web-1"), 204);
    let mut one = serde_json::to_value(status("x", 1)).expect("plain data");
    let report = |status: &Value| post(&place.url("/v1/status"), Some(machine), status).0;
    let outcomes: Vec<u16> = (0..80)
        .map(|number| {
            one["application"] = format!("invented-{number}").into();
            report(&one)
        })
        .collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == 204).count(), 63, "64 with the real one");
    assert!(outcomes.iter().all(|outcome| [204, 507].contains(outcome)));
    assert_eq!(place.report(Some(&place.web[1][0]), "web-2"), 204, "a newcomer finds room");
}

#[test]
fn whoever_asks_too_often_is_told_when_to_come_again() {
    let requests_per_second = NonZeroU32::new(2).expect("not 0");
    let provider = Provider::start(Config { requests_per_second, ..Config::default() }).expect("it starts");
    let url = format!("{}/v1/prices", provider.url());
    let refused = (0..100).map(|_| agent().get(&url).call().expect("an answer"));
    let refused = refused.into_iter().find(|answer| answer.status() == 429).expect("100 are too many");
    assert!(refused.headers().contains_key("retry-after"));
    let key = provider.add_account(Role::Auditor, "x").expect("made");
    assert_eq!(get_as(key.reveal(), &url).0, 200, "an account has a limit of its own");
    let guesses = (0..100).map(|_| get_as("no-key", &url).0);
    assert!(guesses.into_iter().any(|status| status == 429), "guessing counts, too");
    for _ in 0..100 {
        assert_eq!(get_as(provider.token(), &url).0, 200, "the operator has none");
    }
}

#[test]
fn a_page_of_another_name_gets_no_answer() {
    let hosts = vec!["bills.example".to_owned()];
    let provider = Provider::start(Config { hosts, ..Config::default() }).expect("it starts");
    let ask = |host: &str| -> String {
        let mut stream = TcpStream::connect(provider.address()).expect("connected");
        let close = "Connection: close";
        write!(stream, "GET /v1/prices HTTP/1.1\r\nHost: {host}\r\n{close}\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    };
    for host in ["127.0.0.1:7070", "localhost", "bills.example:7070"] {
        assert!(ask(host).starts_with("HTTP/1.1 200 "), "{host}");
    }
    let refusal = ask("evil.example:7070");
    assert!(refusal.starts_with("HTTP/1.1 421 ") && refusal.contains("evil.example"), "{refusal}");
}
