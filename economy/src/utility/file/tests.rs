use super::*;
use crate::prices::{Prices, Resource, Usage};
use crate::response::Response;
use crate::units::{Cores, GbitPerSecond, OperationsPerSecond};
use crate::utility::Latency;

const PENALTY: &str = r#"
name = "memcached"

[utility]
unit = "Gbit"

[[utility.term]]
function = "penalty"
alpha = 20
factor = 100.0
objective = 750e-6
"#;

fn response(latency: f64) -> Response {
    let seconds = |value| Seconds::new(value).expect("a time");
    let data = |value| GbitPerSecond::new(value).expect("data");
    let latency = Latency::new(seconds(latency), seconds(10e-6), seconds(latency * 2.0)).expect("above 0");
    let throughput = OperationsPerSecond::new(40_000.0).expect("a rate");
    Response { throughput, sent: data(2.0), received: data(0.1), latency }
}

fn prices(network_out: f64, core: f64) -> Prices {
    let mut prices = Prices::default();
    prices.offer(Resource::NetworkOut, network_out, 0).expect("good");
    prices.offer(Resource::Core, core, 0).expect("good");
    prices
}

fn refusal(text: &str) -> String {
    from_toml(text).expect_err("should be refused").to_string()
}

#[test]
fn the_papers_penalty_earns_what_the_paper_says() {
    let utility = from_toml(PENALTY).expect("good").expect("there is one");
    let held = Usage { cores: Cores::new(2.0).expect("two"), ..Usage::default() };
    let profit = |latency, price| utility.profit(&response(latency), &held, &prices(price, 0.5)).get();
    assert!((profit(400e-6, 1.0) - (2.0 * (20.0 - 1.0) - 1.0)).abs() < 1e-9, "{}", profit(400e-6, 1.0));
    assert!((profit(7638e-6, 10.0) - (-2.0 * 10.0 - 1.0)).abs() < 1e-9, "all late");
}

#[test]
fn terms_add_up() {
    let text = r#"
[utility]
unit = "operation"
floor = 0.0
[[utility.term]]
function = "value"
alpha = 0.001
[[utility.term]]
function = "table"
over = "p99"
per = "unit"
points = [[0.001, 0.0], [0.002, -0.0005], [0.01, -0.1]]
[[utility.term]]
function = "table"
over = "price-network-out"
per = "second"
points = [[1, 5.0], [10, 1.0]]
"#;
    let utility = from_toml(text).expect("good").expect("there is one");
    let revenue = |latency, price| utility.revenue(&response(latency), &prices(price, 1.0)).get();
    assert!((revenue(400e-6, 1.0) - (40.0 + 5.0)).abs() < 1e-9);
    assert!((revenue(750e-6, 5.5) - (40_000.0 * 0.00075 + 3.0)).abs() < 1e-9, "half way on both tables");
    assert!((revenue(50e-3, 100.0) - 1.0).abs() < 1e-9, "a unit brings at least the floor");
}

#[test]
fn a_file_without_the_section_has_no_utility_function() {
    assert_eq!(from_toml("name = \"hello\""), Ok(None));
}

#[test]
fn what_is_wrong_is_named() {
    let cases = [
        ("alpha = 20", "alpha = -20", "utility.term[0].alpha is -20: expected a finite number, at least 0"),
        ("alpha = 20", "alpha = nan", "utility.term[0].alpha is NaN: expected a finite number, at least 0"),
        ("alpha = 20", "alpha = inf", "utility.term[0].alpha is inf: expected a finite number, at least 0"),
        ("750e-6", "-1.0", "utility.term[0].objective is -1: expected seconds, above 0"),
        (
            "factor = 100.0",
            "factor = 1.5",
            "utility.term[0].factor is 1.5: expected 0, or a finite number from 2 up",
        ),
        ("unit = \"Gbit\"", "unit = \"Gbit\"\nfloor = -1.0", "utility.floor is -1: expected a finite number"),
    ];
    for (from, to, expected) in cases {
        let text = refusal(&PENALTY.replace(from, to));
        assert!(text.starts_with(expected), "{text}");
    }
}

#[test]
fn what_is_missing_or_unknown_is_named_with_its_line() {
    let cases = [
        ("factor = 100.0\n", "", "missing field `factor`"),
        ("factor = 100.0", "faktor = 100.0", "unknown field `faktor`, expected"),
        ("\"penalty\"", "\"penality\"", "unknown variant `penality`, expected"),
        ("unit = \"Gbit\"", "unit = \"Gbyte\"", "unknown variant `Gbyte`, expected `Gbit` or `operation`"),
        ("unit = \"Gbit\"\n", "", "missing field `unit`"),
        ("alpha = 20", "alpha = \"20\"", "invalid type: string \"20\", expected f64"),
    ];
    for (from, to, expected) in cases {
        let text = refusal(&PENALTY.replace(from, to));
        assert!(text.contains(expected) && text.contains("at line"), "{text}");
    }
    assert!(refusal("<html>").contains("at line 1"));
}

#[test]
fn tables_that_are_none_are_refused() {
    let table = |over: &str, per: &str, points: &str| {
        let head = "[utility]\nunit = \"Gbit\"\n[[utility.term]]\nfunction = \"table\"";
        refusal(&alloc::format!("{head}\nover = \"{over}\"\nper = \"{per}\"\npoints = {points}"))
    };
    let cases = [
        (table("p99", "unit", "[]"), "utility.term[0].points: expected at least one"),
        (
            table("p99", "unit", "[[1, nan]]"),
            "utility.term[0].points[0] is (1, NaN): expected finite numbers",
        ),
        (table("p99", "unit", "[[-1, 1]]"), "utility.term[0].points[0] is (-1, 1): expected finite numbers"),
        (table("p99", "unit", "[[1, 1], [1, 0]]"), "utility.term[0].points[1] is at 1, after 1: expected"),
        (table("throughput", "unit", "[[1, 1]]"), "utility.term[0].per: expected \"second\" over throughput"),
        (
            table("p99", "unit", "[[0, 1], [1, 2]]"),
            "utility: utility function axiom broken: revenue must not rise",
        ),
    ];
    for (text, expected) in cases {
        assert!(text.starts_with(expected), "{text}");
    }
    assert!(
        table("p98", "unit", "[[1, 1]]").contains("over is `p98`: expected one of throughput, mean-latency")
    );
}

#[test]
fn on_a_machine_ten_times_as_slow_the_contract_keeps_its_meaning() {
    let all = r#"
[utility]
unit = "Gbit"
[[utility.term]]
function = "penalty"
alpha = 20.0
factor = 100.0
objective = 750e-6
[[utility.term]]
function = "refund"
alpha = 20.0
slope = 10.0
[[utility.term]]
function = "bonus"
alpha = 20.0
extent = 0.01
[[utility.term]]
function = "table"
over = "p99"
per = "second"
points = [[0.0, 5.0], [0.001, 1.0]]
"#;
    let utility = from_toml(all).expect("good").expect("there is one");
    let slow = utility.slowed(10.0).expect("a good factor");
    let prices = prices(1.0, 1.0);
    for latency in [50e-6, 400e-6, 740e-6, 800e-6, 5e-3] {
        let mut late = response(latency * 10.0);
        let jitter = Seconds::new(100e-6).expect("a time");
        late.latency = Latency::new(late.latency.mean(), jitter, late.latency.p99()).expect("above 0");
        let (fast, slow) = (utility.revenue(&response(latency), &prices), slow.revenue(&late, &prices));
        assert!((fast - slow).get().abs() < 1e-9 * fast.get(), "{latency}: {fast:?} {slow:?}");
    }
    assert!(utility.slowed(0.0).is_err() && utility.slowed(f64::NAN).is_err());
}
