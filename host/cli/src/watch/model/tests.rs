use super::*;
use nom_proto::prices::Price;
use nom_proto::status::{Solvency, State};

pub(crate) fn prices(revision: u64, network_out: f64, age_seconds: f64) -> Prices {
    let price = |resource, dollars| Price { resource, dollars, since_unix_ns: 0 };
    Prices {
        revision,
        source: "schedule".into(),
        age_seconds,
        prices: vec![price(Resource::NetworkOut, network_out), price(Resource::Core, 0.0125)],
        next: Vec::new(),
    }
}

pub(crate) fn status(second: u64) -> Status {
    Status {
        machine: "shop-1".into(),
        application: "memcached".into(),
        at_ns: second * 1_000_000_000,
        window_ns: 500_000_000,
        batching_delay_us: 40,
        polls: true,
        cores: 1,
        memory_bytes: 12 << 20,
        machine_cores: 1,
        machine_memory_bytes: 12 << 20,
        requests: 20_000 + 500 * second,
        sent_bytes: 22_000_000,
        received_bytes: 2_000_000,
        latency_mean_ns: 399_000,
        latency_jitter_ns: 121_000,
        latency_p99_ns: 800_000,
        price_revision: 3,
        price_network_out: 10.0,
        revenue_per_second: 7.0,
        cost_per_second: 3.5,
        profit: 3.5 * second as f64,
        solvency: Solvency::default(),
        activities: Vec::new(),
    }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn shop() -> Model {
    Model::new("shop-1", vec!["memcached".into()])
}

/// The values of a view's first application by their labels.
fn value<'v>(view: &'v View, label: &str) -> &'v str {
    let figure = view.applications[0].figures.iter().find(|figure| figure.label == label);
    &figure.unwrap_or_else(|| panic!("no {label}")).value
}

/// A report that the provider has just heard.
pub(crate) fn fresh(status: Status) -> Update {
    Update::Status(Reported { status, age_seconds: 0.0 })
}

#[test]
fn before_anything_is_heard_the_view_says_so() {
    let view = shop().view(at(0));
    assert_eq!(view.notices, ["no prices yet", "memcached: no report yet"]);
    assert_eq!((view.profit, view.stale), (None, false));
    assert_eq!(view.lines(at(0)), ["watch:    0 s  no prices yet; memcached: no report yet"]);
    let nobody = Model::new("shop-1", Vec::new()).view(at(0));
    assert!(nobody.notices[1].contains("[utility]"), "{nobody:?}");
}

#[test]
fn a_report_becomes_figures() {
    let mut model = shop();
    model.apply(Update::Prices(prices(3, 10.0, 0.0)), at(1));
    model.apply(fresh(status(2)), at(2));
    let view = model.view(at(2));
    assert_eq!(view.notices, [""; 0]);
    assert_eq!(value(&view, "working point"), "W 40 us, polls, 1 core, 12.0 MiB");
    assert_eq!(value(&view, "throughput"), "42,000 requests/s, 352 Mbit/s out, 32.0 Mbit/s in");
    assert_eq!(value(&view, "latency"), "399 us mean, 800 us p99");
    assert_eq!(value(&view, "jitter"), "121 us");
    assert_eq!(value(&view, "profit"), "3.50 $/s: 7.00 paid, 3.50 owed");
    assert_eq!(view.profit, Some([7.0, 3.5]));
    assert_eq!(
        view.lines(at(2)),
        ["watch:    2 s  price 10 $/Gbit (schedule, confirmed 1 s ago); memcached; working point W 40 us, \
          polls, 1 core, 12.0 MiB; price used 10 $/Gbit out; throughput 42,000 requests/s, 352 Mbit/s out, \
          32.0 Mbit/s in; latency 399 us mean, 800 us p99; jitter 121 us; profit 3.50 $/s: 7.00 paid, 3.50 \
          owed; so far 7.00 $"]
    );
}

/// What gold and others have consumed after so many seconds.
fn activities(second: u64) -> Vec<Activity> {
    let of = |name: &str, share: u64| Activity {
        name: name.into(),
        at_ns: second * 1_000_000_000,
        core_ns: 250_000_000 * share * second,
        requests: 1_000 * share * second,
        latency_ns: 400_000_000 * share * second,
        received_bytes: 125_000 * share * second,
        sent_bytes: 1_250_000 * share * second,
        connections: share,
        memory_bytes: share << 20,
        cost: 0.5 * (share * second) as f64,
        profit: 1.25 * (share * second) as f64,
    };
    vec![of("gold", 2), of("others", 0)]
}

#[test]
fn each_activity_has_a_row_of_what_it_took() {
    let mut model = shop();
    model.apply(Update::Prices(prices(3, 10.0, 0.0)), at(1));
    let tell = |model: &mut Model, second, of| {
        model.apply(fresh(Status { activities: activities(of), ..status(second) }), at(second));
        let view = model.view(at(second));
        view.applications[0]
            .figures
            .iter()
            .find(|figure| figure.label == "gold")
            .map(|gold| gold.value.clone())
    };
    assert_eq!(tell(&mut model, 2, 2), None, "a rate takes two looks");
    let said = "0.500 cores, 2,000 requests/s, 400 us mean, 20.0 Mbit/s out, 2.00 Mbit/s in, 2 clients, \
                2.00 MiB, 1.00 $/s owed, 2.50 $/s profit";
    assert_eq!(tell(&mut model, 3, 4).as_deref(), Some(said));
    // The next report is of the same second of them.
    assert_eq!(tell(&mut model, 4, 4).as_deref(), Some(said));
    assert_eq!(
        value(&model.view(at(4)), "others"),
        "0.000 cores, 0 requests/s, - mean, 0 bit/s out, 0 bit/s in, \
                0 clients, 0 MiB, 0 $/s owed, 0 $/s profit"
    );
    assert!(model.view(at(4)).lines(at(4))[0].contains("; gold 0.500 cores"));
    assert_eq!(tell(&mut model, 5, 1), None, "it was started again");
}

#[test]
fn without_a_contract_there_is_a_cost_and_no_profit() {
    let mut model = Model::new("shop-1", Vec::new());
    let solvency = Solvency { state: State::NoContract, ..Solvency::default() };
    let served = Status { solvency, revenue_per_second: 0.0, profit: -7.0, ..status(2) };
    model.apply(Update::Prices(prices(3, 10.0, 0.0)), at(1));
    model.apply(fresh(served), at(2));
    let view = model.view(at(2));
    assert_eq!((view.profit, view.cost, view.notices.as_slice()), (None, Some([7.0, 3.5]), &[][..]));
    assert_eq!(value(&view, "cost"), "3.50 $/s, no contract: nobody pays");
    assert_eq!(value(&view, "so far"), "7.00 $");
    let [line] = &view.lines(at(2))[..] else { panic!("one line") };
    assert!(line.contains("42,000 requests/s") && line.contains("cost 3.50 $/s"), "{line}");
    assert!(!line.contains("profit"), "{line}");
}

#[test]
fn a_contract_that_cannot_pay_is_said_to_in_every_line() {
    let mut model = shop();
    let (state, objective_ns, soonest_p99_ns) = (State::Late, 750_000, 2_100_000);
    let solvency = Solvency { state, objective_ns, soonest_p99_ns, ..Solvency::default() };
    model.apply(Update::Prices(prices(3, 10.0, 0.0)), at(1));
    model.apply(fresh(Status { solvency, ..status(2) }), at(2));
    let view = model.view(at(2));
    let said = "memcached: the promise of 750 us is missed: p99 is 2.10 ms at W = 0";
    assert!(view.notices[0].starts_with(said), "{:?}", view.notices);
    assert!(view.lines(at(2))[0].contains(said), "{:?}", view.lines(at(2)));
}

#[test]
fn figures_have_their_last_minute() {
    let mut model = shop();
    model.apply(Update::Prices(prices(1, 1.0, 0.0)), at(0));
    (1..=3).for_each(|second| model.apply(fresh(status(second)), at(second)));
    model.apply(Update::Prices(prices(2, 10.0, 0.0)), at(3));
    let view = model.view(at(4));
    let last = |figure: &Figure| figure.history[SECONDS - 5..].to_vec();
    assert_eq!(last(&view.prices[0]), [Some(1.0), Some(1.0), Some(1.0), Some(10.0), Some(10.0)]);
    let throughput = &view.applications[0].figures[2];
    assert_eq!(last(throughput), [None, Some(41_000.0), Some(42_000.0), Some(43_000.0), None]);
}

#[test]
fn prices_grow_old_and_are_marked() {
    let mut model = shop();
    model.apply(Update::Prices(prices(3, 10.0, 50.0)), at(0));
    assert_eq!(model.view(at(9)).source, "schedule, confirmed 59 s ago");
    assert_eq!(model.view(at(11)).source, "STALE: schedule, confirmed 61 s ago");
    model.apply(Update::Confirmed(prices(3, 10.0, 0.0)), at(12));
    assert!(!model.view(at(12)).stale, "confirmed again");
    model.apply(Update::Confirmed(prices(2, 1.0, 0.0)), at(13));
    assert_eq!(model.view(at(13)).prices[0].value, "10 $/Gbit", "what is older came late");
    model.apply(Update::Prices(prices(1, 1.0, 0.0)), at(14));
    assert_eq!(model.view(at(14)).prices[0].value, "1 $/Gbit", "the provider began again");
}

#[test]
fn a_lost_provider_and_a_silent_application_are_said() {
    let mut model = shop();
    model.apply(Update::Prices(prices(3, 10.0, 0.0)), at(0));
    model.apply(fresh(status(1)), at(1));
    model.apply(Update::Lost("connection refused".into()), at(2));
    let view = model.view(at(8));
    assert_eq!(
        view.notices,
        [
            "no connection to the provider, trying again: connection refused",
            "memcached: no report for 7 s, it is stuck or gone"
        ]
    );
    model.apply(fresh(status(9)), at(9));
    assert_eq!(model.view(at(9)).notices, [""; 0]);
}

#[test]
fn an_application_that_is_behind_the_prices_says_so() {
    let mut model = shop();
    model.apply(fresh(Status { price_revision: 0, ..status(1) }), at(1));
    assert_eq!(value(&model.view(at(1)), "price used"), "none yet");
    model.apply(Update::Prices(prices(4, 1.0, 0.0)), at(1));
    model.apply(fresh(status(2)), at(2));
    assert_eq!(value(&model.view(at(2)), "price used"), "10 $/Gbit out (revision 3 of 4)");
}

#[test]
fn strange_reports_are_shown_not_believed() {
    let mut model = shop();
    model.apply(fresh(Status { machine: "other".into(), ..status(1) }), at(1));
    assert!(model.view(at(1)).applications.is_empty(), "of another machine");
    let idle = Status { requests: 0, window_ns: 0, profit: f64::NAN, polls: false, ..status(1) };
    model.apply(fresh(idle), at(1));
    let view = model.view(at(1));
    assert_eq!([value(&view, "latency"), value(&view, "jitter"), value(&view, "so far")], ["-", "-", "? $"]);
    assert!(value(&view, "throughput").starts_with("0 requests/s"));
    assert!(value(&view, "working point").contains("sleeps until interrupts"));
}

#[test]
fn a_report_that_was_old_when_watching_began_is_old() {
    let mut model = Model::new("shop-1", vec!["memcached".into()]);
    model.apply(Update::Status(Reported { status: status(1), age_seconds: 30.0 }), at(40));
    assert_eq!(model.view(at(40)).notices[1], "memcached: no report for 30 s, it is stuck or gone");
}
