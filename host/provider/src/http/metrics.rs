//! `/metrics`: everything for Prometheus, in the OpenMetrics text format.

use super::Shared;
use super::access::{Caller, Sight};
use super::problem::Refusal;
use crate::clock::Moment;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use nom_proto::ledger::Sum;
use nom_proto::prices::Resource;
use nom_proto::status::{self, Reported, Status};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters = Family<Labels, Counter<f64, AtomicU64>>;

pub async fn metrics(
    caller: Caller,
    State(shared): State<Arc<Shared>>,
) -> Result<impl IntoResponse + use<>, Refusal> {
    let (sight, tenant) = (caller.sight(), caller.bills()?.map(str::to_owned));
    let tally = shared.tally.clone();
    let sums = shared.ledger.ask(move |connection| {
        let mut tally = tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tally.advance(connection)?;
        let is_his = |sum: &&Sum| tenant.is_none() || sum.tenant == tenant;
        Ok(tally.sums().filter(is_his).cloned().collect::<Vec<_>>())
    });
    let sums = sums.await?;
    let mut registry = Registry::with_prefix("nom");
    prices(&mut registry, &shared);
    sources(&mut registry, &shared);
    let mut all = shared.statuses.reported(Moment::now());
    all.retain(|reported| sight.has(&reported.status.machine, &shared));
    statuses(&mut registry, &all);
    meters(&mut registry, &shared, &sight);
    ledger(&mut registry, &sums);
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be written: {error}"))
    })?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text))
}

fn prices(registry: &mut Registry, shared: &Shared) {
    let now = Moment::now();
    let (dollars, ages, refused) = (Gauges::default(), Gauges::default(), Counters::default());
    for resource in Resource::ALL {
        let labels = vec![("resource", resource.name().to_owned())];
        refused.get_or_create(&labels).inc_by(shared.prices.refused(resource) as f64);
        if let Some(age_ns) = shared.prices.age_ns(resource, now) {
            ages.get_or_create(&labels).set(age_ns as f64 / 1e9);
        }
    }
    let prices = shared.prices.prices(now);
    for price in &prices.prices {
        let (resource, unit) = (price.resource.name().to_owned(), price.resource.unit().to_owned());
        dollars.get_or_create(&vec![("resource", resource), ("unit", unit)]).set(price.dollars);
    }
    let revision: Gauge<f64, AtomicU64> = Gauge::default();
    revision.set(prices.revision as f64);
    registry.register("price_dollars", "Price of one unit of a resource", dollars);
    registry.register("price_age_seconds", "Time since a price was last confirmed", ages);
    registry.register("price_revision", "Number of changes of prices", revision);
    registry.register("price_refused", "Absurd prices that were refused", refused);
}

fn sources(registry: &mut Registry, shared: &Shared) {
    let (failures, answered) = (Counters::default(), Gauges::default());
    for source in shared.journal.sources(Moment::now()) {
        let labels = vec![("source", source.name)];
        failures.get_or_create(&labels).inc_by(source.failures as f64);
        if let Some(seconds) = source.answered_seconds_ago {
            answered.get_or_create(&labels).set(seconds);
        }
    }
    registry.register("source_failures", "Questions to a price source that failed", failures);
    registry.register("source_answered_ago_seconds", "Time since a price source answered", answered);
}

/// A figure of a status: name, help, and how it is found.
type Figure = (&'static str, &'static str, fn(&Status) -> f64);

const FIGURES: [Figure; 10] = [
    ("app_requests_per_second", "Requests answered", |s| per_second(s, s.requests)),
    ("app_sent_bytes_per_second", "Bytes that left the machine", |s| per_second(s, s.sent_bytes)),
    ("app_received_bytes_per_second", "Bytes that came", |s| per_second(s, s.received_bytes)),
    ("app_latency_mean_seconds", "Mean latency of requests", |s| seconds(s.latency_mean_ns)),
    ("app_latency_jitter_seconds", "Standard deviation of latency", |s| seconds(s.latency_jitter_ns)),
    ("app_latency_p99_seconds", "99th percentile of latency", |s| seconds(s.latency_p99_ns)),
    ("app_batching_delay_seconds", "Batching delay W", |s| f64::from(s.batching_delay_us) / 1e6),
    ("app_cores", "Cores held", |s| f64::from(s.cores)),
    ("app_memory_bytes", "Memory held", |s| s.memory_bytes as f64),
    ("app_cost_dollars_per_second", "What is owed to the provider", |s| s.cost_per_second),
];

fn labels(status: &Status) -> Labels {
    vec![("machine", status.machine.clone()), ("application", status.application.clone())]
}

fn statuses(registry: &mut Registry, reported: &[Reported]) {
    presence(registry, reported);
    // What a machine did that is gone says nothing of the present.
    let present: Vec<&Status> = reported.iter().filter(|one| one.is_up()).map(|one| &one.status).collect();
    for (name, help, figure) in FIGURES {
        let gauges = Gauges::default();
        for status in &present {
            gauges.get_or_create(&labels(status)).set(figure(status));
        }
        registry.register(name, help, gauges);
    }
    money(registry, &present);
}

/// Who lives.
fn presence(registry: &mut Registry, reported: &[Reported]) {
    let (up, machines, ages) = (Gauges::default(), Gauges::default(), Gauges::default());
    let mut machines_up: BTreeMap<&str, bool> = BTreeMap::new();
    for one in reported {
        up.get_or_create(&labels(&one.status)).set(truth(one.is_up()));
        ages.get_or_create(&labels(&one.status)).set(one.age_seconds);
        *machines_up.entry(&one.status.machine).or_default() |= one.is_up();
    }
    for (machine, is_up) in machines_up {
        machines.get_or_create(&vec![("machine", machine.to_owned())]).set(truth(is_up));
    }
    registry.register("app_up", "Whether an application has reported lately", up);
    registry.register("machine_up", "Whether any application of a machine has", machines);
    registry.register("app_report_age_seconds", "Time since the last report", ages);
}

fn truth(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// What users pay, where they do, and whether that pays.
fn money(registry: &mut Registry, present: &[&Status]) {
    let (revenue, profit, states) = (Gauges::default(), Gauges::default(), Gauges::default());
    for status in present {
        for (state, name) in status::State::ALL {
            let labels = [labels(status), vec![("state", name.to_owned())]].concat();
            states.get_or_create(&labels).set(truth(status.solvency.state == state));
        }
        if status.has_contract() {
            revenue.get_or_create(&labels(status)).set(status.revenue_per_second);
            profit.get_or_create(&labels(status)).set(status.profit);
        }
    }
    registry.register("app_state", "1 for what there is to say of an application's contract", states);
    registry.register("app_revenue_dollars_per_second", "What users pay", revenue);
    registry.register("app_profit_dollars", "Revenue less cost since the application began", profit);
}

/// What meters measured, beside what machines say.
fn meters(registry: &mut Registry, shared: &Shared, sight: &Sight) {
    let (busy, configured) = (Gauges::default(), Gauges::default());
    let (disagreements, refused) = (Counters::default(), Counters::default());
    for report in shared.meters.all().into_iter().filter(|report| sight.has(&report.machine, shared)) {
        let labels = vec![("machine", report.machine.clone())];
        busy.get_or_create(&labels).set(report.cores_busy);
        configured.get_or_create(&labels).set(report.memory_configured as f64);
        disagreements.get_or_create(&labels).inc_by(report.disagreements as f64);
        refused.get_or_create(&labels).inc_by(report.records_refused as f64);
    }
    registry.register("meter_busy_cores", "Processor time of a machine, over time", busy);
    registry.register("meter_memory_configured_bytes", "Memory that a machine may have", configured);
    let help = "Stretches in which a machine's word and what was measured could not both be true";
    registry.register("meter_disagreements", help, disagreements);
    let help = "Records of a machine that were refused for what is in them, and that nobody is charged for";
    registry.register("meter_records_refused", help, refused);
}

fn per_second(status: &Status, count: u64) -> f64 {
    count as f64 / seconds(status.window_ns.max(1))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn ledger(registry: &mut Registry, sums: &[Sum]) {
    let (cost, quantity, records) = (Counters::default(), Counters::default(), Counters::default());
    for sum in sums {
        let labels = vec![
            ("machine", sum.machine.clone()),
            ("activity", sum.activity.clone()),
            ("resource", sum.resource.name().to_owned()),
        ];
        cost.get_or_create(&labels).inc_by(sum.cost_nanos as f64 / 1e9);
        records.get_or_create(&labels).inc_by(sum.records as f64);
        let labels = [labels, vec![("unit", sum.unit.clone())]].concat();
        quantity.get_or_create(&labels).inc_by(sum.quantity as f64);
    }
    registry.register("ledger_cost_dollars", "What is owed", cost);
    registry.register("ledger_quantity", "What was consumed", quantity);
    registry.register("ledger_records", "Records in the ledger", records);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_proto::status::{Solvency, State as Contract};

    fn reported(machine: &str, age_seconds: f64, state: Contract) -> Reported {
        let json = r#"{"machine":"m","application":"a","at_ns":1,"window_ns":1000000000,
            "batching_delay_us":0,"polls":false,"cores":1,"memory_bytes":1,"requests":7,"sent_bytes":0,
            "received_bytes":0,"latency_mean_ns":0,"latency_jitter_ns":0,"latency_p99_ns":0,
            "price_revision":1,"price_network_out":1.0,"revenue_per_second":2.0,"cost_per_second":3.0,
            "profit":1.0}"#;
        let mut status: Status = serde_json::from_str(json).expect("a status");
        status.machine = machine.to_owned();
        status.solvency = Solvency { state, ..Solvency::default() };
        Reported { status, age_seconds }
    }

    fn page(reported: &[Reported]) -> String {
        let mut registry = Registry::with_prefix("nom");
        statuses(&mut registry, reported);
        let mut text = String::new();
        encode(&mut text, &registry).expect("written");
        text
    }

    #[test]
    fn a_machine_that_is_gone_has_an_age_and_no_figures() {
        let text =
            page(&[reported("lives", 0.5, Contract::CostsMore), reported("dies", 90.0, Contract::CostsMore)]);
        for line in [
            "nom_machine_up{machine=\"lives\"} 1.0",
            "nom_machine_up{machine=\"dies\"} 0.0",
            "nom_app_up{machine=\"dies\",application=\"a\"} 0.0",
            "nom_app_report_age_seconds{machine=\"dies\",application=\"a\"} 90.0",
            "nom_app_requests_per_second{machine=\"lives\",application=\"a\"} 7.0",
            "nom_app_state{machine=\"lives\",application=\"a\",state=\"costs_more\"} 1.0",
            "nom_app_state{machine=\"lives\",application=\"a\",state=\"pays\"} 0.0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
        assert!(!text.contains("requests_per_second{machine=\"dies\""), "{text}");
    }

    #[test]
    fn without_a_contract_there_is_a_cost_and_no_profit() {
        let text = page(&[reported("m", 0.0, Contract::NoContract)]);
        assert!(text.contains("nom_app_cost_dollars_per_second{"), "{text}");
        assert!(!text.contains("nom_app_profit_dollars{") && !text.contains("revenue_dollars_per_second{"));
    }
}
