//! Every price source against a server that answers in the documented shape, and then does not.

mod common;

use common::list::{Answer, List};
use common::{PATIENCE, get};
use nom_proto::prices::Resource::{self, Core, Energy, Memory, NetworkOut};
use nom_provider::{Config, Provider, Source};
use serde_json::Value;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A kind of source: its line, where `{url}` stands for the server, the answer, and the prices in it.
struct Row {
    line: &'static str,
    answer: fn(&str) -> String,
    prices: &'static [(Resource, f64)],
    /// The price in the answer, to be made absurd, and its field.
    price: &'static str,
    field: &'static str,
}

const ROWS: &[Row] = &[
    Row {
        line: "cloudsigma:zrh,core_mhz=2000,url={url}",
        answer: |_| include_str!("fixtures/cloudsigma.json").into(),
        // 0.018 $ for 1000 MHz and an hour; 5.184 $ for a GiB and 30 days; 0.04294967296 $ for a GiB.
        prices: &[(Core, 0.018 / 3600.0 * 2.0), (Memory, 5.184 / 2_592_000.0), (NetworkOut, 0.005)],
        price: "\"0.01800000000000000000\"",
        field: "objects[2].price",
    },
    Row {
        line: "azure:westeurope,sku=Standard_D4s_test,cores=4,memory_gib=16,core_share=0.6,url={url}",
        answer: azure,
        prices: &[(Core, 0.36 / 3600.0 * 0.6 / 4.0), (Memory, 0.36 / 3600.0 * 0.4 / 16.0)],
        price: "0.36",
        field: "Items[0].retailPrice",
    },
    Row {
        line: "azure:westeurope,sku=Standard_D4s_test,cores=4,spot=yes,url={url}",
        answer: azure,
        prices: &[(Core, 0.072 / 3600.0 / 4.0)],
        price: "0.072",
        field: "Items[1].retailPrice",
    },
    Row {
        line: "azure-egress:westeurope,url={url}",
        answer: |_| include_str!("fixtures/azure_egress.json").into(),
        prices: &[(NetworkOut, 0.01)],
        price: "0.08",
        field: "Items[1].retailPrice",
    },
    Row {
        line: "aws-spot-list:eu-west-1,instance=t9.test,cores=2,url={url}",
        answer: |_| include_str!("fixtures/aws_spot_list.json").into(),
        prices: &[(Core, 0.036 / 3600.0 / 2.0)],
        price: "\"0.0360\"",
        field: "config.regions[eu-ireland].instanceTypes[].sizes[t9.test].valueColumns[linux].prices.USD",
    },
    Row {
        line: "aws-egress:eu-test-1,gb_per_month=20000,url={url}",
        answer: |_| include_str!("fixtures/aws_egress.json").into(),
        prices: &[(NetworkOut, 0.042_949_673 / 8.589_934_592)],
        price: "\"0.0429496730\"",
        field: "terms.OnDemand.OUT.OUT.T.2.pricePerUnit.USD",
    },
    Row {
        line: "energy-charts:DE-LU,dollars_per_euro=1.2,url={url}",
        answer: |_| energy(),
        prices: &[(Energy, 90.0 * 1.2 / 3.6e9)],
        price: "90.0",
        field: "price[1]",
    },
    Row {
        line: "nom:{url}",
        answer: |_| include_str!("fixtures/nom.json").into(),
        prices: &[(Core, 0.01), (NetworkOut, 10.0)],
        price: "10.0",
        field: "prices[1].dollars",
    },
];

fn azure(path: &str) -> String {
    if path.contains("page=2") {
        return include_str!("fixtures/azure_2.json").into();
    }
    include_str!("fixtures/azure_1.json").into()
}

fn energy() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let text = include_str!("fixtures/energy_charts.json");
    let at = |text: String, name: &str, time: u64| text.replace(name, &time.to_string());
    let text = at(text.into(), "{earlier}", now - 1800);
    at(at(text, "{slot}", now - 900), "{later}", now + 900)
}

impl Row {
    /// A server that answers as documented, with the change.
    fn answers(
        &self,
        url: String,
        change: fn(&str, &str) -> String,
    ) -> impl Fn(&str) -> Answer + Send + use<> {
        let (answer, price) = (self.answer, self.price);
        move |path| Answer::Whole(200, change(&answer(path), price).replace("{url}", &url))
    }

    fn start(&self) -> (List, Provider) {
        let list = List::start(|_| Answer::Nothing);
        list.change(self.answers(list.url(), |text, _| text.into()));
        let line = format!("{},every=0.02,timeout=20", self.line.replace("{url}", &list.url()));
        let source: Source = line.parse().expect(&line);
        let provider =
            Provider::start(Config { sources: vec![source], ..Config::default() }).expect("it starts");
        (list, provider)
    }
}

/// How the only source fares.
fn fares(provider: &Provider) -> Value {
    get(&format!("{}/v1/sources", provider.url())).1[0].clone()
}

fn wait(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for_prices(provider: &Provider, row: &Row) {
    wait(row.line, || provider.prices().prices.len() == row.prices.len());
    for (found, (resource, expected)) in provider.prices().prices.iter().zip(row.prices) {
        assert_eq!(found.resource, *resource, "{}", row.line);
        let error = (found.dollars / expected - 1.0).abs();
        assert!(error < 1e-12, "{}: {} is not {expected}", row.line, found.dollars);
    }
}

/// Waits for a problem that names the field and says so.
fn wait_for_problem(provider: &Provider, line: &str, parts: &[&str]) {
    let mut fares_now = Value::Null;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        fares_now = fares(provider);
        let problem = fares_now["problem"].as_str().unwrap_or_default();
        if parts.iter().all(|part| problem.contains(part)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{line}: expected {parts:?} in {fares_now}");
}

#[test]
fn documented_answers_become_prices() {
    for row in ROWS {
        let (_list, provider) = row.start();
        wait_for_prices(&provider, row);
        wait_for_prices(&provider, row);
        assert_eq!(fares(&provider)["problem"], Value::Null, "{}", row.line);
        let prices = provider.prices();
        assert_eq!(prices.revision, 1, "{}: confirmed, not changed", row.line);
        let kind = row.line.split(':').next().expect("a kind");
        assert!(prices.source.starts_with(kind), "{}", prices.source);
    }
}

#[test]
fn whatever_a_source_says_instead_the_last_good_prices_stay() {
    for row in ROWS {
        let (list, provider) = row.start();
        wait_for_prices(&provider, row);
        let before = provider.prices();
        let url = list.url();
        let html = "<!doctype html><html><title>Sign in</title></html>";
        list.change(move |_| Answer::Whole(200, html.into()));
        wait_for_problem(
            &provider,
            row.line,
            &[&url, "expected JSON, got `<!doctype html><html><title>Sign in"],
        );
        list.change(|_| Answer::Whole(403, "not for you".into()));
        wait_for_problem(&provider, row.line, &[&url, "status 403: not for you"]);
        let answer = row.answer;
        list.change(move |path| Answer::Whole(200, answer(path).chars().take(70).collect()));
        wait_for_problem(&provider, row.line, &[&url, "EOF while parsing"]);
        list.change(move |path| Answer::Half(answer(path)));
        wait_for_problem(&provider, row.line, &[&url]);
        list.change(|_| Answer::Whole(200, "{}".into()));
        wait_for_problem(&provider, row.line, &[&url, "missing field"]);
        let after = provider.prices();
        assert_eq!((after.revision, after.prices), (before.revision, before.prices), "{}", row.line);
        assert!(after.age_seconds > 0.0, "{}: the age shows", row.line);
        list.change(row.answers(list.url(), |text, _| text.into()));
        wait("it recovers", || fares(&provider)["problem"].is_null());
    }
}

#[test]
fn absurd_prices_are_refused_by_field() {
    type Change = fn(&str, &str) -> String;
    let replace: [(Change, &str); 4] = [
        (|text, price| text.replace(price, &like(price, "0.0")), "nothing is free"),
        (|text, price| text.replace(price, &like(price, "-4.5")), "a price is not negative"),
        (|text, price| text.replace(price, &like(price, "1e30")), "a million times less or worse"),
        (|text, price| text.replace(price, &like(price, "1e-30")), "a million times more or worse"),
    ];
    for row in ROWS {
        let (list, provider) = row.start();
        wait_for_prices(&provider, row);
        for (change, reason) in replace {
            list.change(row.answers(list.url(), change));
            wait_for_problem(&provider, row.line, &[row.field, "refused", reason]);
        }
        list.change(row.answers(list.url(), |text, price| text.replace(price, "\"dear\"")));
        wait_for_problem(&provider, row.line, &["expected"]);
        wait_for_prices(&provider, row);
        assert_eq!(provider.prices().revision, 1, "{}", row.line);
    }
}

/// The number, in a string if the price was.
fn like(price: &str, number: &str) -> String {
    if price.starts_with('"') { format!("\"{number}\"") } else { number.to_owned() }
}

#[test]
fn a_source_that_does_not_answer_is_given_up_and_asked_again() {
    let list = List::start(|_| Answer::Nothing);
    let line = format!("nom:{},every=0.02,timeout=0.2", list.url());
    let source: Source = line.parse().expect("good");
    let config = Config { sources: vec![source], ..Config::default() };
    let provider = Provider::start(config).expect("it starts");
    wait_for_problem(&provider, &line, &[&list.url(), "timeout"]);
    assert_eq!(fares(&provider)["answered_seconds_ago"], Value::Null);
    list.change(|_| Answer::Whole(200, include_str!("fixtures/nom.json").into()));
    wait("it recovers", || provider.prices().revision == 1);
    assert!(provider.prices().age_seconds >= 20.0, "what was old there is no younger here");
}

#[test]
fn a_link_to_the_next_page_leads_nowhere_else() {
    let row = &ROWS[1];
    let (list, provider) = row.start();
    list.change(|path| Answer::Whole(200, azure(path).replace("{url}", "http://198.51.100.1")));
    wait_for_problem(&provider, row.line, &["NextPageLink", "198.51.100.1"]);
    let asked = list.requests().concat();
    assert!(asked.contains("armSkuName%20eq%20%27Standard%5FD4s%5Ftest%27"), "{asked}");
}

#[test]
fn what_is_not_for_sale_is_said_to_be() {
    let list = List::start(|_| Answer::Whole(200, include_str!("fixtures/aws_spot_list.json").into()));
    for (instance, parts) in [("t9.gone", ["t9.gone", "not for sale"]), ("t9.none", ["t9.none", "missing"])] {
        let line = format!("aws-spot-list:eu-west-1,instance={instance},cores=2,url={}", list.url());
        let config = Config { sources: vec![line.parse().expect("good")], ..Config::default() };
        let provider = Provider::start(config).expect("it starts");
        wait_for_problem(&provider, &line, &parts);
    }
}

#[test]
fn a_provider_follows_another_one() {
    let upstream = Provider::start(Config::default()).expect("it starts");
    let line = format!("nom:{},every=0.02", upstream.url());
    let config = Config { sources: vec![line.parse().expect("good")], ..Config::default() };
    let provider = Provider::start(config).expect("it starts");
    for price in [1.0, 10.0] {
        upstream.set_prices(&[(NetworkOut, price)]).expect("good");
        wait("it follows", || provider.prices().prices.first().is_some_and(|found| found.dollars == price));
    }
}

/// The price of outgoing data at a provider whose ledger has so much of this month and of the year before.
fn egress_after(line: &str, fixture: &'static str, gb_this_month: u64) -> f64 {
    let list = List::start(move |_| Answer::Whole(200, fixture.into()));
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = directory.path().join("ledger.db");
    let bare =
        Provider::start(Config { ledger: Some(ledger.clone()), ..Config::default() }).expect("it starts");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    let record = |id: &str, gb: u64, at: u64| {
        serde_json::json!({
            "id": id, "machine": "web-1", "activity": "x", "resource": "network_out", "unit": "byte",
            "quantity": gb * 1_000_000_000, "unit_price": 1.0, "from_unix_ns": at, "to_unix_ns": at + 1,
        })
    };
    let year_ns = 366 * 86_400 * 1_000_000_000;
    let records = [record("old", 1_000_000, now - year_ns), record("new", gb_this_month, now)];
    let body = serde_json::json!({ "records": records });
    let entered = common::post(&format!("{}/v1/ledger/records", bare.url()), Some(bare.token()), &body);
    assert_eq!(entered.0, 200, "{}", entered.1);
    drop(bare);
    let line = format!("{line},url={},every=0.02", list.url());
    let sources = vec![line.parse().expect("good")];
    let config = Config { ledger: Some(ledger), sources, ..Config::default() };
    let provider = Provider::start(config).expect("it starts");
    wait(&line, || !provider.prices().prices.is_empty());
    provider.prices().prices[0].dollars
}

#[test]
fn tiers_follow_what_the_ledger_has_of_this_month() {
    let azure =
        |gb| egress_after("azure-egress:westeurope", include_str!("fixtures/azure_egress.json"), gb) * 8.0;
    let close =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9, "{found}, {expected}");
    close(azure(1), 0.08);
    close(azure(200), 0.08);
    close(azure(11_000), 0.05);
    let aws = |gb| {
        egress_after("aws-egress:eu-test-1", include_str!("fixtures/aws_egress.json"), gb) * 8.589_934_592
    };
    close(aws(20_000), 0.042_949_673);
    assert!(aws(1) > 0.05, "the first tier is dearer");
}

#[test]
fn what_a_source_announces_is_told_and_told_on() {
    let list = List::start(|_| {
        let text = include_str!("fixtures/cloudsigma.json");
        let dearer = text.replace("\"level\": 0,", "\"level\": 8,");
        Answer::Whole(200, dearer)
    });
    let line = format!("cloudsigma:zrh,core_mhz=2000,every=0.02,url={}", list.url());
    let start = |line: &str| {
        let config = Config { sources: vec![line.parse().expect("good")], ..Config::default() };
        Provider::start(config).expect("it starts")
    };
    let first = start(&line);
    let second = start(&format!("nom:{},every=0.02", first.url()));
    for provider in [&first, &second] {
        wait("an announcement", || provider.prices().next.len() == 3);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
        let next = provider.prices().next;
        let core = next.iter().find(|price| price.resource == Core).expect("level 8 is for cores");
        assert!((core.dollars / (8.8 / 3600.0 * 2.0) - 1.0).abs() < 1e-12, "{}", core.dollars);
        assert!((now..now + 301_000_000_000).contains(&core.since_unix_ns));
    }
}

#[test]
fn a_schedule_and_a_trace_play() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("prices.csv");
    std::fs::write(&path, "seconds,resource,dollars\n0,core,1\n0,memory,0.5\n100, core ,2\n200,core,3\n")
        .expect("written");
    let trace = format!("trace:{},speed=1000", path.display());
    let schedule = "schedule:network_out=1@0s,10@100ms,2@200ms; storage=0.5";
    let sources = [trace.as_str(), schedule].map(|line| line.parse::<Source>().expect(line));
    let provider =
        Provider::start(Config { sources: sources.into(), ..Config::default() }).expect("it starts");
    let price = |resource: Resource| {
        let prices = provider.prices().prices;
        prices.iter().find(|price| price.resource == resource).map(|price| price.dollars)
    };
    assert_eq!((price(Memory), price(Resource::Storage)), (Some(0.5), Some(0.5)), "from the start on");
    wait("both end", || price(Core) == Some(3.0) && price(NetworkOut) == Some(2.0));
    // Two at the start, two of each later.
    assert_eq!(provider.prices().revision, 6);
    assert_eq!(provider.prices().age_seconds, 0.0);
}

#[test]
fn bad_lines_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bad.csv");
    std::fs::write(&path, "seconds,resource,dollars\n0,core,1\n5,core,-1\n").expect("written");
    let bad_row = format!("trace:{}", path.display());
    for (line, parts) in [
        ("azure", ["the line", "KIND:ARGUMENT"]),
        ("gold:x", ["`gold`", "energy-charts:ZONE"]),
        ("azure:westeurope,cores=2", ["`sku`", "Standard_D4s_v5"]),
        ("azure:westeurope,sku=x,cores=-2", ["`cores`", "above 0"]),
        ("azure:westeurope,sku=x,cores=2,spot=maybe", ["`spot`", "yes or no"]),
        ("azure:west'eu,sku=x,cores=2", ["a name", "letters"]),
        ("nom:10.0.0.1:80", ["the argument", "http://HOST:PORT"]),
        ("nom:http://x,evry=2", ["`evry`", "one that this kind"]),
        ("nom:http://x,every=2,every=3", ["`3`", "once"]),
        ("cloudsigma:zrh", ["`core_mhz`", "MHz"]),
        ("energy-charts:DE-LU", ["`dollars_per_euro`", "worth"]),
        ("schedule:core", ["`core`", "RESOURCE=PRICE@TIME"]),
        ("schedule:gold=1", ["`gold`", "network_out"]),
        ("schedule:core=0", ["`0`", "above 0"]),
        ("schedule:core=1@soon", ["`soon`", "60s"]),
        ("schedule:core=1@0s,2@60s;repeat=30s", ["repeat", "longer than 60s"]),
        ("schedule:", ["the prices", "at least one"]),
        ("trace:/no/such/file.csv", ["/no/such/file.csv", "columns"]),
        (&bad_row, ["dollars in row 2", "above 0"]),
    ] {
        let error = line.parse::<Source>().expect_err(line).to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{line}: {error}");
    }
}

#[test]
fn no_resource_has_two_sources() {
    let sources =
        ["schedule:core=1", "nom:http://127.0.0.1:1"].map(|line| line.parse::<Source>().expect(line));
    let error = Provider::start(Config { sources: sources.into(), ..Config::default() }).expect_err("two");
    assert!(error.to_string().contains("core would have two sources, `schedule` and `nom http"), "{error}");
}
