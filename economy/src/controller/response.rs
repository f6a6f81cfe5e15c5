//! What a server does at a working point, in the form that controllers learn.

use crate::units::{OperationsPerSecond, Seconds};
use crate::utility::{BadParameter, Latency};

/// Throughput and latency over an interval. No price is in it, so that what was learned outlives every price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// Requests answered.
    pub throughput: OperationsPerSecond,
    /// How long they took.
    pub latency: Latency,
}

/// Channels of a [`Logs`].
pub(super) const CHANNELS: usize = 4;
/// Throughput among the channels.
pub(super) const THROUGHPUT: usize = 0;
/// Mean latency among the channels.
pub(super) const MEAN: usize = 1;

/// Logarithms of throughput, mean latency, jitter and p99: errors of measurement are relative, and no
/// prediction is ever negative.
pub(super) type Logs = [f64; CHANNELS];

/// A jitter of nothing has no logarithm; a nanosecond is below what anybody measures.
const LEAST: f64 = 1e-9;

impl Response {
    pub(super) fn logs(&self) -> Logs {
        let latency = self.latency;
        let values =
            [self.throughput.get(), latency.mean().get(), latency.jitter().get(), latency.p99().get()];
        values.map(|value| libm::log(value.max(LEAST)))
    }

    /// Of bounded logarithms, so that each exponential is a quantity.
    pub(super) fn from_logs(logs: &Logs) -> Self {
        let [throughput, mean, jitter, p99] = logs.map(|log| libm::exp(log.clamp(-60.0, 60.0)));
        let response = || -> Result<Self, BadParameter> {
            let seconds = |value| Seconds::new(value).expect("an exponential is positive");
            let latency = Latency::new(seconds(mean), seconds(jitter), seconds(p99))?;
            let throughput = OperationsPerSecond::new(throughput).expect("an exponential is positive");
            Ok(Self { throughput, latency })
        };
        response().expect("an exponential is above 0")
    }
}
