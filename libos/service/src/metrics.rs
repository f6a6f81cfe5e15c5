//! What a service counts by itself, told by the control port beside what the server counts.

use alloc::vec::Vec;

/// Metrics of a service, gathered whenever somebody asks. Several cores tell the sum of theirs, so each says
/// only what it counted itself, and all the same metrics in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics(Vec<Metric>);

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name for Prometheus.
    pub name: &'static str,
    /// Prometheus' word for its kind.
    pub kind: &'static str,
    /// What it counts, in one line.
    pub help: &'static str,
    /// How much.
    pub value: u64,
}

impl Metrics {
    /// Adds a number that never falls. `name` is one for Prometheus: letters, digits and `_`, by custom with
    /// `_total` at its end; `help` is one line.
    pub fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.0.push(Metric { name, kind: "counter", help, value });
    }

    /// Adds a number that rises and falls.
    pub fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.0.push(Metric { name, kind: "gauge", help, value });
    }

    /// Adds those of another core.
    pub fn merge(&mut self, other: &Metrics) {
        if self.0.is_empty() {
            return self.clone_from(other);
        }
        for (metric, more) in self.0.iter_mut().zip(&other.0) {
            metric.value += more.value;
        }
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Metric> {
        self.0.iter()
    }
}
