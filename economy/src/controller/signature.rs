//! What tells one load from another, whatever the machine does.
//!
//! Clients that wait for their answers keep the number of requests in flight (Little's law: throughput times
//! latency), however slow the machine is and whatever batching delay is set; those that ask at a rate of
//! their own keep the throughput. Whichever of the two varies less is the load's signature.

use super::parameters::Parameters;
use crate::response::{Logs, MEAN, THROUGHPUT};

/// One logarithm's mean and variance.
#[derive(Clone, Copy, Debug)]
struct Steady {
    mean: f64,
    variance: f64,
}

/// Requests in flight, and throughput.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signature {
    p: &'static Parameters,
    both: [Steady; 2],
    weight: f64,
}

fn values(logs: &Logs) -> [f64; 2] {
    [logs[THROUGHPUT] + logs[MEAN], logs[THROUGHPUT]]
}

impl Signature {
    /// Of a load that was met in this interval.
    pub fn new(p: &'static Parameters, logs: &Logs) -> Self {
        let variance = p.noise * p.noise;
        Self { p, both: values(logs).map(|mean| Steady { mean, variance }), weight: 1.0 }
    }

    /// Learns from another interval.
    pub fn learn(&mut self, logs: &Logs) {
        self.weight = (self.weight + 1.0).min(self.p.memory);
        for (steady, value) in self.both.iter_mut().zip(values(logs)) {
            let error = value - steady.mean;
            let square = (error * error).min((self.p.outlier * self.p.outlier) * steady.variance);
            steady.mean += error / self.weight;
            steady.variance += (square - steady.variance) / (self.weight + self.p.guess);
        }
    }

    /// How far an interval is from this load, in logarithms, and how far it may be.
    fn error(&self, logs: &Logs) -> (f64, f64) {
        let [in_flight, throughput] = self.both;
        let (steady, index) =
            if in_flight.variance <= throughput.variance { (in_flight, 0) } else { (throughput, 1) };
        (values(logs)[index] - steady.mean, steady.variance.max(self.p.noise * self.p.noise))
    }

    /// How much an interval surprises under this load, in squares of deviations.
    pub fn surprise(&self, logs: &Logs, sampling: f64) -> f64 {
        let (error, variance) = self.error(logs);
        error * error / (variance + sampling * sampling)
    }

    /// How far it is from this load.
    pub fn distance(&self, logs: &Logs) -> f64 {
        self.error(logs).0.abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::CHANNELS;

    /// An interval with so many requests in flight, and such a throughput.
    fn logs(in_flight: f64, throughput: f64) -> Logs {
        let mut logs = [0.0; CHANNELS];
        logs[THROUGHPUT] = libm::log(throughput);
        logs[MEAN] = libm::log(in_flight / throughput);
        logs
    }

    #[test]
    fn clients_that_wait_are_counted_however_slow_the_machine() {
        let mut signature = Signature::new(&Parameters::DEFAULT, &logs(16.0, 1000.0));
        for throughput in [900.0, 2000.0, 400.0, 1000.0] {
            assert!(signature.surprise(&logs(16.0, throughput), 0.0) < 1.0);
            signature.learn(&logs(16.0, throughput));
        }
        assert!(signature.surprise(&logs(8.0, 1000.0), 0.0) > 15.0);
        assert!((signature.distance(&logs(8.0, 700.0)) - core::f64::consts::LN_2).abs() < 1e-9);
    }

    #[test]
    fn clients_that_do_not_wait_are_known_by_their_rate() {
        let mut signature = Signature::new(&Parameters::DEFAULT, &logs(16.0, 1000.0));
        for in_flight in [20.0, 9.0, 30.0, 14.0, 22.0, 8.0] {
            signature.learn(&logs(in_flight, 1000.0));
        }
        assert!(signature.surprise(&logs(60.0, 1000.0), 0.0) < 1.0);
        assert!(signature.surprise(&logs(16.0, 500.0), 0.0) > 15.0);
    }
}
