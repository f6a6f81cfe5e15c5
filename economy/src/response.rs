//! What a server did over an interval, and what was measured of it.

use crate::units::{GbitPerSecond, OperationsPerSecond, Seconds};
use crate::utility::Latency;

/// Throughput and latency over an interval. No price is in it, so that what was learned outlives every price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// Requests answered.
    pub throughput: OperationsPerSecond,
    /// Data of answers, as users read it: what they pay for.
    pub answered: GbitPerSecond,
    /// Data that left the machine, headers included, as its provider meters it.
    pub sent: GbitPerSecond,
    /// Data that entered the machine.
    pub received: GbitPerSecond,
    /// How long the requests took.
    pub latency: Latency,
}

/// A response as measured: over some interval in which one working point was set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The response.
    pub response: Response,
    /// Requests that it is the statistics of.
    pub samples: u64,
}

/// How many channels a [`Logs`] has.
pub const CHANNELS: usize = 7;
/// Throughput among the channels.
pub const THROUGHPUT: usize = 0;
/// Mean latency among the channels.
pub const MEAN: usize = 1;
/// Jitter among the channels.
pub(crate) const JITTER: usize = 2;

/// 99th percentile among the channels.
pub(crate) const P99: usize = 3;

/// Logarithms of throughput, mean latency, jitter, p99, data sent, received and answered: errors of
/// measurement are relative, and no prediction is ever negative.
pub type Logs = [f64; CHANNELS];

/// An observation in the form that is learned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// What was measured.
    pub logs: Logs,
    /// Deviation of the logarithms of means for want of samples.
    pub sampling: f64,
    /// What it counts, in whole observations.
    pub share: f64,
}

/// Mean of logarithms, of which the old count less from some number on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunningMean {
    pub logs: Logs,
    /// How many it is the mean of.
    pub count: f64,
}

impl RunningMean {
    /// Adds one; as many as `most` count.
    pub fn add(&mut self, logs: &Logs, most: f64) {
        self.count = (self.count + 1.0).min(most);
        for (mean, log) in self.logs.iter_mut().zip(logs) {
            *mean += (log - *mean) / self.count;
        }
    }
}

/// Requests with which an observation counts half of one with very many.
const SAMPLES_HALF: f64 = 4.0;

impl Observation {
    pub(crate) fn measured(&self) -> Measured {
        let (logs, samples) = (self.response.logs(), self.samples.max(1) as f64);
        // Of requests that all took as long, few tell as much as many; a factor e is doubt enough.
        let spread = libm::exp(logs[JITTER] - logs[MEAN]).min(1.0);
        let sampling = spread / libm::sqrt(samples);
        Measured { logs, sampling, share: samples / (samples + SAMPLES_HALF) }
    }
}

/// The sign with which each channel moves when things go better: more is served, sooner.
pub const BETTER: Logs = [1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0];

/// Nothing has no logarithm; a nanosecond, and a bit in a second, are below what anybody measures.
const LEAST: f64 = 1e-9;
/// Beyond these logarithms nothing is measured, and products of two exponentials stay finite.
const LOG_MAX: f64 = 60.0;
/// Their exponentials.
const FACTOR_MAX: f64 = 1.142_007_389_815_684_3e26;
const FACTOR_MIN: f64 = 1.0 / FACTOR_MAX;

impl Response {
    /// Logarithms of what is in it.
    #[must_use]
    pub fn logs(&self) -> Logs {
        let latency = self.latency;
        let values = [
            self.throughput.get(),
            latency.mean().get(),
            latency.jitter().get(),
            latency.p99().get(),
            self.sent.get(),
            self.received.get(),
            self.answered.get(),
        ];
        values.map(|value| libm::log(value.max(LEAST)))
    }

    /// What has these logarithms; they are bounded, so that products of two responses stay finite.
    #[must_use]
    pub fn from_logs(logs: &Logs) -> Self {
        Likely::new(logs).response()
    }
}

/// What is likely, of which what is a little better or worse follows without an exponential for each channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Likely(Logs);

impl Likely {
    pub fn new(logs: &Logs) -> Self {
        Self(logs.map(|log| libm::exp(log.clamp(-LOG_MAX, LOG_MAX))))
    }

    /// Every channel better by this factor; worse, if it is below 1.
    pub fn better(&self, factor: f64) -> Self {
        let (factor, inverse) =
            (factor.clamp(FACTOR_MIN, FACTOR_MAX), (1.0 / factor).clamp(FACTOR_MIN, FACTOR_MAX));
        let better = |channel: usize| if BETTER[channel] > 0.0 { factor } else { inverse };
        Self(core::array::from_fn(|channel| {
            (self.0[channel] * better(channel)).clamp(FACTOR_MIN, FACTOR_MAX)
        }))
    }

    pub fn response(&self) -> Response {
        let [throughput, mean, jitter, p99, sent, received, answered] = self.0;
        let seconds = |value| Seconds::new(value).expect("it is clamped");
        let data = |value| GbitPerSecond::new(value).expect("it is clamped");
        let latency = Latency::new(seconds(mean), seconds(jitter), seconds(p99)).expect("above 0");
        let throughput = OperationsPerSecond::new(throughput).expect("it is clamped");
        let (answered, sent, received) = (data(answered), data(sent), data(received));
        Response { throughput, answered, sent, received, latency }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_is_more_and_sooner_by_the_factor() {
        let likely = Likely::new(&[1.0, -2.0, -3.0, -4.0, 0.5, 0.25, 0.4]);
        let shifted = Likely::new(&[1.3, -2.3, -3.3, -4.3, 0.8, 0.55, 0.7]);
        let better = likely.better(libm::exp(0.3));
        assert!(better.0.iter().zip(&shifted.0).all(|(a, b)| (a / b - 1.0).abs() < 1e-12), "{better:?}");
        let wild = Likely::new(&[60.0; CHANNELS]).better(1e300).better(0.0).response();
        assert!((wild.throughput.get() * wild.latency.mean().get()).is_finite());
    }

    #[test]
    fn logarithms_lead_back_to_the_response() {
        let seconds = |micros: u32| Seconds::from_micros(micros);
        let latency = Latency::new(seconds(399), seconds(121), seconds(800)).expect("above 0");
        let throughput = OperationsPerSecond::new(40_000.0).expect("fine");
        let data = |value| GbitPerSecond::new(value).expect("fine");
        let response =
            Response { throughput, answered: data(0.2), sent: data(0.3), received: data(0.0), latency };
        let again = Response::from_logs(&response.logs());
        assert!((again.throughput.get() / 40_000.0 - 1.0).abs() < 1e-12);
        assert!((again.latency.jitter().get() / 121e-6 - 1.0).abs() < 1e-12);
        assert!(
            (again.answered.get() / 0.2 - 1.0).abs() < 1e-12 && (again.sent.get() / 0.3 - 1.0).abs() < 1e-12
        );
        assert!(again.received.get() < 1e-8, "nothing comes back as next to nothing");
        let wild = Response::from_logs(&[1e300; CHANNELS]);
        assert!((wild.throughput.get() * wild.latency.mean().get()).is_finite());
    }
}
