//! A host that a machine shares with others: what they do slows it, or delays some of its packets.

use super::random::Random;
use nom_economy::response::{Logs, Response};

/// The most that hiccups together take.
const LEAST_SPEED: f64 = 0.3;
/// Share of requests that a burst of lateness delays, as what it adds to their mean.
const LATE_SHARE: f64 = 0.03;

/// What the host does to the machine in an interval, in logarithms.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Of its speed.
    speed: f64,
    /// Of how much more some requests' lateness makes jitter.
    lateness: f64,
}

impl Moment {
    /// A response, as it is at this moment. Clients that wait for their answers ask less if these take
    /// longer.
    #[must_use]
    pub fn slow(&self, response: &Response) -> Response {
        let late = LATE_SHARE * (libm::exp(self.lateness) - 1.0);
        let slower = libm::log1p(late) - self.speed;
        let later = self.lateness - self.speed;
        let changes: Logs = [-slower, slower, later, later, -slower, -slower, -slower];
        let mut logs = response.logs();
        logs.iter_mut().zip(changes).for_each(|(log, change)| *log += change);
        Response::from_logs(&logs)
    }
}

/// How a host treats a machine.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Amplitude and period in seconds of two waves of the logarithm of speed.
    waves: [(f64, f64); 2],
    /// Hiccups, and bursts of lateness, per second.
    hiccups: f64,
    bursts: f64,
}

/// A time in which something is so much of something.
struct Episode {
    start: f64,
    end: f64,
    depth: f64,
}

impl Host {
    /// As bad as a shared one is: speed wanders by up to 30% over seconds; between several times a second
    /// and once in four seconds it falls to 0.4 to 0.9 of itself for 20 to 500 ms, and some packets are late
    /// as often.
    #[must_use]
    pub fn random(random: &mut Random) -> Self {
        let mut wave = || (random.between(0.02, 0.13), random.log_between(2.0, 15.0));
        let waves = [wave(), wave()];
        Self { waves, hiccups: random.log_between(0.25, 4.0), bursts: random.log_between(0.25, 4.0) }
    }

    /// What it does in so many intervals of so many seconds.
    #[must_use]
    pub fn moments(&self, count: usize, interval: f64, random: &mut Random) -> Vec<Moment> {
        let length = count as f64 * interval;
        let phases = self.waves.map(|_| random.between(0.0, core::f64::consts::TAU));
        let hiccups = episodes(self.hiccups, length, 0.5, (0.1, 0.6), random);
        let bursts = episodes(self.bursts, length, 0.1, (2.0, 9.0), random);
        let moment = |index: usize| {
            let from = index as f64 * interval;
            let wave = self.waves.iter().zip(phases).map(|((amplitude, period), phase)| {
                amplitude * libm::sin(phase + core::f64::consts::TAU * from / period)
            });
            let lost = |episodes| overlap(episodes, from, from + interval);
            let speed = libm::log((1.0 - lost(&hiccups)).max(LEAST_SPEED));
            Moment { speed: wave.sum::<f64>() + speed, lateness: libm::log1p(lost(&bursts)) }
        };
        (0..count).map(moment).collect()
    }
}

/// So many per second, each of 20 ms to `longest` seconds, and of a depth between these.
fn episodes(rate: f64, length: f64, longest: f64, depth: (f64, f64), random: &mut Random) -> Vec<Episode> {
    let (mut episodes, mut start) = (Vec::new(), 0.0);
    loop {
        start -= libm::log(1.0 - random.unit()) / rate;
        if start > length {
            return episodes;
        }
        let end = start + random.log_between(0.02, longest);
        episodes.push(Episode { start, end, depth: random.between(depth.0, depth.1) });
    }
}

/// Mean depth of the episodes together over a time.
fn overlap(episodes: &[Episode], from: f64, to: f64) -> f64 {
    let share = |episode: &Episode| (episode.end.min(to) - episode.start.max(from)).max(0.0) / (to - from);
    episodes.iter().map(|episode| episode.depth * share(episode)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Server;

    #[test]
    fn a_host_slows_and_delays_but_loses_no_client() {
        let mut random = Random::new(3);
        let host = Host::random(&mut random);
        let moments = host.moments(2000, 0.02, &mut random);
        let truth = Server::random(&mut random, 1.0).response(16.0, 20, 1.0);
        let slowed: Vec<Response> = moments.iter().map(|moment| moment.slow(&truth)).collect();
        let ratio = |response: &Response| response.throughput.get() / truth.throughput.get();
        assert!(slowed.iter().any(|response| ratio(response) < 0.7), "there are hiccups");
        assert!(slowed.iter().filter(|response| ratio(response) > 0.7).count() > 1000, "but not always");
        for response in &slowed {
            let in_flight = response.throughput.get() * response.latency.mean().get();
            assert!((in_flight / 16.0 - 1.0).abs() < 1e-6, "{in_flight}");
        }
        let speeds = |seed| {
            let moments = host.moments(50, 0.02, &mut Random::new(seed));
            moments.iter().map(|moment| moment.speed.to_bits()).collect::<Vec<_>>()
        };
        assert_eq!(speeds(5), speeds(5));
        assert_ne!(speeds(5), speeds(6));
    }
}
