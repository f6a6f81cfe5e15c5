//! `/metrics`: everything for Prometheus, in the OpenMetrics text format.

use super::Shared;
use super::problem::Refusal;
use crate::clock::Moment;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use nom_proto::ledger::Sum;
use nom_proto::prices::Resource;
use nom_proto::status::Status;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters = Family<Labels, Counter<f64, AtomicU64>>;

pub async fn metrics(State(shared): State<Arc<Shared>>) -> Result<impl IntoResponse, Refusal> {
    let tally = shared.tally.clone();
    let sums = shared.ledger.ask(move |connection| {
        let mut tally = tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tally.advance(connection)?;
        Ok(tally.sums().cloned().collect::<Vec<_>>())
    });
    let sums = sums.await?;
    let mut registry = Registry::with_prefix("nom");
    prices(&mut registry, &shared);
    sources(&mut registry, &shared);
    statuses(&mut registry, &shared.statuses.all());
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

const FIGURES: [Figure; 12] = [
    ("app_requests_per_second", "Requests answered", |s| per_second(s, s.requests)),
    ("app_sent_bytes_per_second", "Bytes that left the machine", |s| per_second(s, s.sent_bytes)),
    ("app_received_bytes_per_second", "Bytes that came", |s| per_second(s, s.received_bytes)),
    ("app_latency_mean_seconds", "Mean latency of requests", |s| seconds(s.latency_mean_ns)),
    ("app_latency_jitter_seconds", "Standard deviation of latency", |s| seconds(s.latency_jitter_ns)),
    ("app_latency_p99_seconds", "99th percentile of latency", |s| seconds(s.latency_p99_ns)),
    ("app_batching_delay_seconds", "Batching delay W", |s| f64::from(s.batching_delay_us) / 1e6),
    ("app_cores", "Cores held", |s| f64::from(s.cores)),
    ("app_memory_bytes", "Memory held", |s| s.memory_bytes as f64),
    ("app_revenue_dollars_per_second", "What users pay", |s| s.revenue_per_second),
    ("app_cost_dollars_per_second", "What is owed to the provider", |s| s.cost_per_second),
    ("app_profit_dollars", "Revenue less cost since the application began", |s| s.profit),
];

fn statuses(registry: &mut Registry, statuses: &[Status]) {
    for (name, help, figure) in FIGURES {
        let gauges = Gauges::default();
        for status in statuses {
            let labels =
                vec![("machine", status.machine.clone()), ("application", status.application.clone())];
            gauges.get_or_create(&labels).set(figure(status));
        }
        registry.register(name, help, gauges);
    }
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
