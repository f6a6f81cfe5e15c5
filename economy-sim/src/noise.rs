//! What measuring does to the truth.

use super::random::Random;
use nom_economy::response::{CHANNELS, Logs, Observation, Response};

/// How the measured differs from the true.
#[derive(Clone, Debug)]
pub struct Noise {
    /// Deviation of interval means beyond what their samples explain.
    pub white: f64,
    /// Correlation of this deviation from one interval to the next.
    pub persistence: f64,
    /// Probability that an interval contains a hiccup of the host.
    pub hiccups: f64,
    /// The least and the most that a hiccup makes of the logarithm of latency.
    depth: (f64, f64),
    state: f64,
}

impl Noise {
    /// See the fields.
    #[must_use]
    pub fn new(white: f64, persistence: f64, hiccups: f64) -> Self {
        Self { white, persistence, hiccups, depth: (0.3, 1.4), state: 0.0 }
    }

    /// From calm to that of a busy host.
    #[must_use]
    pub fn random(random: &mut Random) -> Self {
        let (white, persistence) = (random.log_between(0.003, 0.04), random.between(0.0, 0.7));
        Self::new(white, persistence, random.log_between(1e-4, 5e-3))
    }

    /// What is left on a shared host, when that itself is simulated.
    #[must_use]
    pub fn of_host(random: &mut Random) -> Self {
        Self::new(random.log_between(0.01, 0.05), random.between(0.0, 0.5), 0.0)
    }

    /// As bad as an emulated machine's on a busy host.
    #[must_use]
    pub fn emulated(random: &mut Random) -> Self {
        let (white, persistence) = (random.log_between(0.04, 0.2), random.between(0.3, 0.9));
        Self::new(white, persistence, random.log_between(5e-3, 5e-2))
    }

    /// As an emulated machine's whose processor others take for some milliseconds several times a second.
    #[must_use]
    pub fn interrupted(random: &mut Random) -> Self {
        let (white, persistence) = (random.log_between(0.02, 0.08), random.between(0.0, 0.5));
        let hiccups = random.log_between(0.03, 0.25);
        Self { depth: (0.1, 0.5), ..Self::new(white, persistence, hiccups) }
    }

    /// What is measured in an interval of so many seconds.
    pub fn observe(&mut self, truth: &Response, seconds: f64, random: &mut Random) -> Observation {
        let samples = (truth.throughput.get() * seconds).max(1.0);
        let fresh = libm::sqrt(1.0 - self.persistence * self.persistence);
        self.state = self.persistence * self.state + fresh * random.normal();
        let slow = self.white * self.state + self.hiccup(random);
        let (mean, jitter) = (truth.latency.mean().get(), truth.latency.jitter().get());
        let sampling = jitter / mean / libm::sqrt(samples);
        let mut errors: Logs = [0.0; CHANNELS];
        errors[0] = -0.8 * slow + 0.3 * self.white * random.normal() + 0.3 * sampling * random.normal();
        errors[1] = slow + sampling * random.normal();
        errors[2] = 1.5 * slow + libm::hypot(2.0 * self.white, 0.8 / libm::sqrt(samples)) * random.normal();
        errors[3] = 1.5 * slow + libm::hypot(2.0 * self.white, 1.5 / libm::sqrt(samples)) * random.normal();
        (errors[4], errors[5], errors[6]) = (errors[0], errors[0], errors[0]);
        let mut logs = truth.logs();
        logs.iter_mut().zip(errors).for_each(|(log, error)| *log += error);
        Observation { response: Response::from_logs(&logs), samples: samples as u64 }
    }

    fn hiccup(&self, random: &mut Random) -> f64 {
        if random.unit() < self.hiccups { random.between(self.depth.0, self.depth.1) } else { 0.0 }
    }
}
