//! What a provider says and refuses over the wire.

mod common;

use common::{Events, PATIENCE, agent, answer, get, get_as, post, put, status};
use nom_proto::prices::Resource;
use nom_provider::tls::{self, Identity};
use nom_provider::{Config, Provider};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

fn provider() -> Provider {
    Provider::start(Config::default()).expect("it starts")
}

#[test]
fn prices_are_set_by_the_operator_alone() {
    let provider = provider();
    let url = format!("{}/v1/prices", provider.url());
    let one = r#"{"prices":[{"resource":"network_out","dollars":1.0}]}"#;
    assert_eq!(get(&url).1["revision"], 0);
    let (status, problem) = put(&url, "0123456789abcdef0", one);
    assert_eq!((status, &problem["field"]), (401, &json!("Authorization")));
    assert_eq!(provider.prices().revision, 0);
    let (status, prices) = put(&url, provider.token(), one);
    assert_eq!((status, &prices["revision"], &prices["prices"][0]["dollars"]), (200, &json!(1), &json!(1.0)));
    assert_eq!(put(&url, provider.token(), one).1["revision"], 1, "no change, no revision");
    assert_eq!(provider.set_prices(&[(Resource::NetworkOut, 10.0)]), Ok(2));
    assert_eq!(get(&url).1["prices"][0]["dollars"], 10.0);
    assert!(provider.set_prices(&[(Resource::Core, 1.0), (Resource::NetworkOut, -1.0)]).is_err());
    assert_eq!(provider.prices().revision, 2);
}

#[test]
fn bad_prices_are_refused_by_field() {
    let provider = provider();
    let url = format!("{}/v1/prices", provider.url());
    let price = |dollars: &str| format!(r#"{{"prices":[{{"resource":"core","dollars":{dollars}}}]}}"#);
    let twice = r#"{"prices":[{"resource":"core","dollars":1},{"resource":"core","dollars":2}]}"#;
    let rows = [
        (price("0"), "prices[0].dollars", "nothing is free"),
        (price("-1"), "prices[0].dollars", "not negative"),
        (price("\"1\""), "prices[0].dollars", "invalid type"),
        (price("1e999"), "prices[0].dollars", "out of range"),
        (price("1,\"currency\":\"EUR\""), "prices[0].currency", "unknown field"),
        (r#"{"prices":[{"resource":"gold","dollars":1}]}"#.into(), "prices[0].resource", "unknown variant"),
        (twice.into(), "prices[1].resource", "core has a price already"),
        (r#"{"prices":[]"#.into(), "", "EOF"),
    ];
    for (body, field, detail) in rows {
        let (status, problem) = put(&url, provider.token(), &body);
        assert_eq!((status, problem["status"].as_u64()), (422, Some(422)), "{body}: {problem}");
        assert!(problem["detail"].as_str().is_some_and(|found| found.contains(detail)), "{problem}");
        if !field.is_empty() {
            assert_eq!(problem["field"], field, "{body}: {problem}");
        }
        assert!(problem["expected"].is_string(), "{problem}");
    }
    assert_eq!(provider.prices().revision, 0);
}

#[test]
fn what_is_no_request_gets_a_problem() {
    let provider = provider();
    let url = |path: &str| format!("{}{path}", provider.url());
    let (status, problem) = get(&url("/v2"));
    assert_eq!((status, &problem["title"]), (404, &json!("Not Found")));
    assert_eq!(answer(agent().delete(url("/v1/prices")).call()).0, 405);
    let operator = format!("Bearer {}", provider.token());
    let unmarked = agent().post(url("/v1/status")).header("Authorization", operator);
    let (status, problem) = answer(unmarked.send("{}"));
    assert_eq!((status, &problem["field"]), (415, &json!("Content-Type")));
    // It may say so before it has read the body, and close: only the head is sent.
    let mut stream = TcpStream::connect(provider.address()).expect("a listener");
    let head = "POST /v1/status HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    write!(stream, "{head}Content-Length: {}\r\n\r\n", 2 << 20).expect("sent");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    assert!(line.starts_with("HTTP/1.1 413 "), "{line}");
    let response = agent().get(url("/v2")).call().expect("an answer");
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert!(get(&url("/")).1.as_str().is_some_and(|page| page.contains("<title>")));
}

#[test]
fn price_events_begin_with_the_present_prices() {
    let provider = provider();
    provider.set_prices(&[(Resource::NetworkOut, 1.0)]).expect("good");
    let mut events = Events::of(&format!("{}/v1/prices/events", provider.url()));
    let first = events.next();
    assert_eq!((first.name.as_str(), first.id.as_str()), ("prices", "1"));
    assert_eq!(first.data["prices"][0]["dollars"], 1.0);
    assert!(events.next_any().is_comment, "a heartbeat, for nothing happens");
    provider.set_prices(&[(Resource::NetworkOut, 10.0)]).expect("good");
    let second = events.next();
    assert_eq!((second.id.as_str(), &second.data["prices"][0]["dollars"]), ("2", &json!(10.0)));
}

#[test]
fn statuses_are_kept_and_passed_on() {
    let provider = provider();
    let url = format!("{}/v1/status", provider.url());
    let key = provider.register("web-1", None).expect("registered").machine_key;
    let report = |status| post(&url, Some(&key), &serde_json::to_value(&status).expect("plain data"));
    assert_eq!(report(status("memcached", 1)).0, 204);
    assert_eq!(report(status("nhttpd", 2)).0, 204);
    let mut events = Events::of_as(provider.token(), &format!("{url}/events"));
    for expected in [1, 2] {
        assert_eq!(events.next().data["requests"], expected);
    }
    assert_eq!(report(status("memcached", 3)).0, 204);
    let event = events.next();
    assert_eq!((event.name.as_str(), &event.data["requests"]), ("status", &json!(3)));
    let requests: Vec<u64> = provider.statuses().iter().map(|status| status.requests).collect();
    assert_eq!(requests, [3, 2]);
    assert_eq!(get_as(&key, &url).1.as_array().map(Vec::len), Some(2));
}

#[test]
fn a_status_without_a_name_is_refused() {
    let provider = provider();
    let url = format!("{}/v1/status", provider.url());
    for name in [String::new(), "a\nb".to_owned(), "x".repeat(129)] {
        let mut status = serde_json::to_value(status("x", 1)).expect("plain data");
        status["machine"] = name.into();
        let (status, problem) = post(&url, Some(provider.token()), &status);
        assert_eq!((status, &problem["field"]), (422, &json!("machine")));
    }
    let activities = |name: &str| {
        let mut status = serde_json::to_value(status("memcached", 1)).expect("plain data");
        let figures = ["at_ns", "core_ns", "requests", "latency_ns", "received_bytes", "sent_bytes"];
        let figures = figures.into_iter().chain(["connections", "memory_bytes", "cost", "profit"]);
        let mut activity: Value = figures.map(|figure| (figure.to_owned(), json!(1))).collect();
        activity["name"] = name.into();
        status["activities"] = json!([activity]);
        status
    };
    // The last one is a name, and none any more behind that of its application.
    for name in [String::new(), "\n".to_owned(), "x".repeat(129), "x".repeat(120)] {
        let (status, problem) = post(&url, Some(provider.token()), &activities(&name));
        assert_eq!((status, &problem["field"]), (422, &json!("activities[0].name")), "{name:?}: {problem}");
    }
    assert!(provider.statuses().is_empty());
    assert_eq!(post(&url, Some(provider.token()), &activities(&"x".repeat(118))).0, 204);
}

fn record(id: &str, quantity: u64) -> Value {
    json!({
        "id": id, "machine": "web-1", "activity": "memcached", "resource": "network_out",
        "quantity": quantity, "unit": "byte", "unit_price": 10.0,
        "from_unix_ns": 1_700_000_000_000_000_000_u64, "to_unix_ns": 1_700_000_001_000_000_000_u64,
    })
}

#[test]
fn the_ledger_is_written_and_read_by_the_operator() {
    let provider = provider();
    let url = |path: &str| format!("{}/v1/ledger/{path}", provider.url());
    let records = json!({ "records": [record("a", 125_000_000), record("b", 250_000_000)] });
    assert_eq!(post(&url("records"), None, &records).0, 401);
    let entered = post(&url("records"), Some(provider.token()), &records);
    assert_eq!(entered, (200, json!({ "recorded": 2, "known": 0 })));
    assert_eq!(post(&url("records"), Some(provider.token()), &records).1["known"], 2);
    let get = |url: &str| get_as(provider.token(), url);
    let page = get(&url("records?machine=web-1&limit=1")).1;
    assert_eq!((&page["records"][0]["cost_nanos"], &page["next"]), (&json!(10_000_000_000_u64), &json!(1)));
    let page = get(&url("records?after=1&resource=network_out")).1;
    assert_eq!((&page["records"][0]["id"], &page["next"]), (&json!("b"), &Value::Null));
    assert_eq!(get(&url("records?machine=other")).1["records"], json!([]));
    assert_eq!(get(&url("summary")).1["cost_nanos"], 30_000_000_000_u64);
    let bill = get(&url("focus.csv")).1;
    assert!(bill.as_str().is_some_and(|bill| bill.starts_with("BilledCost,") && bill.lines().count() == 2));
}

#[test]
fn bad_records_and_questions_are_refused_by_field() {
    let provider = provider();
    let url = |path: &str| format!("{}/v1/ledger/{path}", provider.url());
    let enter =
        |record: Value| post(&url("records"), Some(provider.token()), &json!({ "records": [record] }));
    assert_eq!(enter(record("a", 1)).0, 200);
    let (status, problem) = enter(record("a", 2));
    assert_eq!((status, &problem["field"]), (409, &json!("records[0].id")));
    let mut wrong = record("b", 1);
    wrong["unit"] = "Gbit".into();
    let (status, problem) = enter(wrong);
    assert_eq!((status, &problem["field"]), (422, &json!("records[0].unit")));
    assert!(problem["expected"].as_str().is_some_and(|expected| expected.contains("byte")), "{problem}");
    let (status, problem) = get_as(provider.token(), &url("records?machin=web-1"));
    assert_eq!((status, &problem["field"]), (400, &json!("parameters")));
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("machin")), "{problem}");
}

/// The value of a metric that has this label.
fn metric(scrape: &prometheus_parse::Scrape, name: &str, label: (&str, &str)) -> f64 {
    let is_it = |sample: &&prometheus_parse::Sample| {
        sample.metric == name && sample.labels.get(label.0) == Some(label.1)
    };
    let sample = scrape.samples.iter().find(is_it).unwrap_or_else(|| panic!("no {name} of {label:?}"));
    match sample.value {
        prometheus_parse::Value::Counter(value)
        | prometheus_parse::Value::Gauge(value)
        | prometheus_parse::Value::Untyped(value) => value,
        ref other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn prometheus_can_read_everything() {
    let provider = provider();
    provider.set_prices(&[(Resource::NetworkOut, 10.0)]).expect("good");
    provider.set_prices(&[(Resource::NetworkOut, -1.0)]).expect_err("absurd");
    let report = serde_json::to_value(status("mem\"cached", 40_000)).expect("plain data");
    post(&format!("{}/v1/status", provider.url()), Some(provider.token()), &report);
    for id in ["a", "b"] {
        let records = json!({ "records": [record(id, 125_000_000)] });
        post(&format!("{}/v1/ledger/records", provider.url()), Some(provider.token()), &records);
        // Between the two, so that the sums go on from where they were.
        get_as(provider.token(), &format!("{}/metrics", provider.url()));
    }
    let text = get_as(provider.token(), &format!("{}/metrics", provider.url())).1;
    let lines = text.as_str().expect("text").lines().map(|line| Ok(line.to_owned()));
    let scrape = prometheus_parse::Scrape::parse(lines).expect("readable");
    let out = ("resource", "network_out");
    assert_eq!(metric(&scrape, "nom_price_dollars", out), 10.0);
    assert_eq!(metric(&scrape, "nom_price_age_seconds", out), 0.0);
    assert_eq!(metric(&scrape, "nom_price_refused_total", out), 1.0);
    let application = ("application", "mem\"cached");
    assert_eq!(metric(&scrape, "nom_app_requests_per_second", application), 40_000.0);
    assert_eq!(metric(&scrape, "nom_app_latency_jitter_seconds", application), 121e-6);
    assert_eq!(metric(&scrape, "nom_app_profit_dollars", application), -1.25);
    assert_eq!(metric(&scrape, "nom_ledger_cost_dollars_total", ("machine", "web-1")), 20.0);
    assert_eq!(metric(&scrape, "nom_ledger_quantity_total", ("unit", "byte")), 250_000_000.0);
}

#[test]
fn slow_clients_disturb_nobody() {
    let provider = provider();
    let slow: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut stream = TcpStream::connect(provider.address()).expect("connected");
            // Half a request line; half a body; events that are never read.
            let start: &[u8] = match number % 3 {
                0 => b"GET /v1/pri",
                1 => {
                    b"POST /v1/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\
                       Content-Type: application/json\r\n\r\n{"
                }
                _ => b"GET /v1/prices/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
            };
            stream.write_all(start).expect("sent");
            stream
        })
        .collect();
    for price in (1..100).map(f64::from) {
        provider.set_prices(&[(Resource::Core, price)]).expect("good");
        assert_eq!(get(&format!("{}/v1/prices", provider.url())).1["prices"][0]["dollars"], price);
    }
    drop(slow);
}

#[test]
fn a_body_that_never_comes_is_given_up() {
    let provider = provider();
    let mut stream = TcpStream::connect(provider.address()).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let start = "POST /v1/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nConnection: close\r\n\
                 Content-Type: application/json\r\n";
    write!(stream, "{start}Authorization: Bearer {}\r\n\r\n{{", provider.token()).expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply, then the end");
    assert!(reply.starts_with("HTTP/1.1 408"), "{reply}");
}

#[test]
fn an_ended_provider_answers_no_more() {
    let provider = provider();
    let (url, address) = (provider.url(), provider.address());
    let mut events = TcpStream::connect(address).expect("connected");
    events.write_all(b"GET /v1/prices/events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    provider.shutdown();
    assert!(agent().get(format!("{url}/v1/prices")).call().is_err());
    let mut rest = Vec::new();
    // Whether it is told by an end or by a reset, it is told.
    let _ = events.set_read_timeout(Some(PATIENCE));
    let ended = events.read_to_end(&mut rest);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    let taken =
        Provider::start(Config { listen: "192.0.2.1:1".parse().expect("an address"), ..Config::default() });
    assert!(taken.expect_err("not ours").to_string().contains("192.0.2.1:1"));
}

#[test]
fn over_tls_a_provider_is_known_by_its_certificate() {
    let identity = Identity::make(&[]).expect("made");
    let pin = identity.fingerprint();
    let provider = Provider::start(Config { tls: Some(identity), ..Config::default() }).expect("it starts");
    assert!(provider.url().starts_with("https://") && provider.fingerprint() == Some(pin));
    let address = provider.address();
    tls::try_out(address, "localhost", &pin).expect("that is it");
    let other = Identity::make(&[]).expect("made").fingerprint();
    let error = tls::try_out(address, "localhost", &other).expect_err("another").to_string();
    assert!(error.contains("its certificate is another"), "{error}");
    let relay = |pin| {
        let entrance = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", entrance.local_addr().expect("bound"));
        tls::relay(entrance, address, "localhost", pin).expect("it relays");
        url
    };
    let url = relay(&pin);
    provider.set_prices(&[(Resource::Core, 2.0)]).expect("good");
    assert_eq!(get(&format!("{url}/v1/prices")).1["prices"][0]["dollars"], 2.0);
    let mut events = Events::of(&format!("{url}/v1/prices/events"));
    assert_eq!(events.next().data["revision"], 1);
    assert_eq!(get_as(provider.token(), &format!("{url}/v1/status")).0, 200);
    assert!(agent().get(format!("{}/v1/prices", relay(&other))).call().is_err(), "not by another's");
    assert!(agent().get(format!("http://{address}/v1/prices")).call().is_err(), "not in the clear");
    let plain = Provider::start(Config::default()).expect("it starts");
    let error = format!("{:#}", tls::try_out(plain.address(), "localhost", &pin).expect_err("no TLS"));
    assert!(error.contains("does not speak TLS"), "{error}");
}

#[test]
fn the_description_is_served_and_names_every_path() {
    let provider = provider();
    let (status, description) = get(&format!("{}/v1/openapi.json", provider.url()));
    assert_eq!((status, description["openapi"].as_str()), (200, Some("3.1.0")));
    let committed = include_str!("../../../docs/openapi.json");
    let committed: Value = serde_json::from_str(committed).expect("JSON");
    if description != committed {
        let path = std::env::temp_dir().join("nom-openapi.json");
        std::fs::write(&path, serde_json::to_string_pretty(&description).expect("JSON") + "\n")
            .expect("written");
        panic!("docs/openapi.json is not what is served: {} is", path.display());
    }
    for (path, methods) in description["paths"].as_object().expect("paths") {
        let url = format!("{}{}", provider.url(), path.replace("{name}", "nobody"));
        for method in methods.as_object().expect("methods").keys() {
            let status = match method.as_str() {
                // Not its body: that of a stream of events does not end.
                "get" => agent().get(&url).call().expect("an answer").status().as_u16(),
                "put" => put(&url, "wrong", "{}").0,
                "post" => post(&url, None, &json!({})).0,
                _ => answer(agent().delete(&url).call()).0,
            };
            assert!([200, 401].contains(&status), "{method} {path}: {status}");
        }
    }
}
