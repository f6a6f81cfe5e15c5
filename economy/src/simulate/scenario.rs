//! A server, its owner's contract, and what happens to it.

use super::noise::Noise;
use super::random::Random;
use super::server::Server;
use crate::controller::{BatchingDelays, WorkingPoints};
use crate::response::Response;
use crate::units::{DollarsPerGbit, DollarsPerSecond, Seconds};
use crate::utility::{Bonus, Penalty, Refund};
use alloc::vec::Vec;

/// The paper's value of a Gbit (nom, VEE'16, section 6.4), in dollars.
const ALPHA: f64 = 20.0;

/// One of the published utility functions, per Gbit sent.
#[derive(Clone, Copy, Debug)]
pub enum Contract {
    /// Equation 2.
    Penalty(Penalty),
    /// Equation 3.
    Refund(Refund),
    /// Equation 4.
    Bonus(Bonus),
}

impl Contract {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Penalty(_) => "penalty",
            Self::Refund(_) => "refund",
            Self::Bonus(_) => "bonus",
        }
    }

    /// Profit at a price in dollars per Gbit.
    ///
    /// # Panics
    /// If the price is negative or no number.
    #[must_use]
    pub fn profit(&self, response: &Response, price: f64) -> DollarsPerSecond {
        let dollars = |value| DollarsPerGbit::new(value).expect("scenarios have good prices");
        let (sent, latency, alpha, price) = (response.sent, response.latency, dollars(ALPHA), dollars(price));
        match self {
            Self::Penalty(penalty) => penalty.profit(sent, alpha, latency, price),
            Self::Refund(refund) => refund.profit(sent, alpha, latency, price),
            Self::Bonus(bonus) => bonus.profit(sent, alpha, latency, price),
        }
    }

    /// One whose terms matter for a server that answers many clients within `many` seconds at best.
    fn random(random: &mut Random, many: f64) -> Self {
        match (random.unit() * 3.0) as u32 {
            0 => {
                let objective = Seconds::new(many * random.between(1.4, 3.0)).expect("a time");
                Self::Penalty(Penalty::new(100.0, objective).expect("the paper's factor"))
            }
            1 => Self::Refund(Refund::new(ALPHA / many * random.between(0.0, 0.4)).expect("not negative")),
            _ => {
                let extent = ALPHA * many * random.log_between(0.05, 1.0);
                Self::Bonus(Bonus::new(extent, f64::INFINITY).expect("not negative"))
            }
        }
    }
}

/// A time in which load and price stay as they are.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// How long it lasts.
    pub seconds: u32,
    /// Dollars per Gbit sent.
    pub price: f64,
    /// Clients that wait for an answer each.
    pub clients: f64,
}

/// Everything that happens, and the truth about it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The contract.
    pub contract: Contract,
    /// What happens, in order.
    pub phases: Vec<Phase>,
    /// How it is measured.
    pub noise: Noise,
    /// The points to choose from.
    pub points: BatchingDelays,
    /// Length of an interval, in seconds.
    pub interval: f64,
    /// True responses of each point, by second.
    truth: Vec<Vec<Response>>,
}

impl Scenario {
    /// The paper's experiment (section 6.1): 60 s with many clients at 1 $/Gbit, then 60 s with one client at
    /// 10 $/Gbit; server, noise and contract vary with the seed.
    #[must_use]
    pub fn published(seed: u64) -> Self {
        Self::retried(seed, |random| {
            let clients = libm::round(random.log_between(8.0, 128.0));
            alloc::vec![
                Phase { seconds: 60, price: 1.0, clients },
                Phase { seconds: 60, price: 10.0, clients: 1.0 },
            ]
        })
    }

    /// The same on an emulated machine: several times as much noise.
    #[must_use]
    pub fn emulated(seed: u64) -> Self {
        let noise = Noise::emulated(&mut Random::new(!seed));
        Self { noise, ..Self::published(seed) }
    }

    /// Prices and loads that change at any time, together or apart, and come back.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        Self::retried(seed, |random| {
            let loads = [(); 3].map(|()| libm::round(random.log_between(1.0, 128.0)));
            let mut phase = Phase { seconds: 0, price: 1.0, clients: loads[0] };
            let count = random.between(3.0, 8.0) as u32;
            let mut next = || {
                phase.seconds = random.log_between(8.0, 60.0) as u32;
                let (changes_price, changes_load) = (random.unit() < 0.6, random.unit() < 0.6);
                if changes_price {
                    phase.price = random.log_between(0.2, 15.0);
                }
                if changes_load {
                    phase.clients = loads[(random.unit() * 3.0) as usize];
                }
                phase
            };
            (0..count).map(|_| next()).collect()
        })
    }

    /// A load and a price that never stand still: every two seconds both have moved by a few percent or tens
    /// of percent, as real traces do.
    #[must_use]
    pub fn wandering(seed: u64) -> Self {
        Self::retried(seed, |random| {
            let (roughness, volatility) = (random.log_between(0.02, 0.3), random.log_between(0.01, 0.3));
            let mut clients: f64 = random.log_between(2.0, 100.0);
            let mut price: f64 = random.log_between(0.5, 8.0);
            let mut next = || {
                clients = (clients * libm::exp(roughness * random.normal())).clamp(1.0, 200.0);
                price = (price * libm::exp(volatility * random.normal())).clamp(0.1, 15.0);
                Phase { seconds: 2, price, clients: libm::round(clients) }
            };
            (0..45).map(|_| next()).collect()
        })
    }

    /// Tries seeds until a profit can be made in every phase: a share of a loss has no meaning.
    fn retried(seed: u64, phases: impl Fn(&mut Random) -> Vec<Phase>) -> Self {
        let mut random = Random::new(seed);
        loop {
            let phases = phases(&mut random);
            let scenario = Self::build(&mut random, phases);
            if scenario.oracles().iter().all(|(_, profit)| *profit > 0.0) {
                return scenario;
            }
        }
    }

    fn build(random: &mut Random, phases: Vec<Phase>) -> Self {
        let slowness = random.log_between(1.0, 20.0);
        let server = Server::random(random, slowness);
        let points = BatchingDelays::up_to((40.0 * slowness * random.log_between(1.0, 8.0)) as u32);
        let most = phases.iter().map(|phase| phase.clients).fold(1.0, f64::max);
        let latency = |point| server.response(most, points.micros(point), 1.0).latency.mean().get();
        let many = (0..points.count()).map(latency).fold(f64::INFINITY, f64::min);
        let contract = Contract::random(random, many);
        let noise = Noise::random(random);
        let drift = (random.between(0.0, 0.03), random.between(20.0, 100.0));
        let truth = truth(&server, &phases, &points, drift);
        let interval = random.between(0.01, 0.05);
        Self { contract, phases, noise, points, interval, truth }
    }

    /// What a point truly does in a second of the scenario.
    #[must_use]
    pub fn truth(&self, second: usize, point: usize) -> &Response {
        &self.truth[second][point]
    }

    /// First and last second of each phase, the last excluded.
    pub fn spans(&self) -> impl Iterator<Item = (usize, usize, Phase)> + '_ {
        let mut start = 0;
        self.phases.iter().map(move |phase| {
            let span = (start, start + phase.seconds as usize, *phase);
            start = span.1;
            span
        })
    }

    /// Profit that a point held makes in each phase, in dollars.
    #[must_use]
    pub fn held(&self, point: usize) -> Vec<f64> {
        let profit = |(start, end, phase): (usize, usize, Phase)| {
            (start..end).map(|at| self.contract.profit(self.truth(at, point), phase.price).get()).sum()
        };
        self.spans().map(profit).collect()
    }

    /// The best point of each phase in hindsight, and its profit.
    #[must_use]
    pub fn oracles(&self) -> Vec<(usize, f64)> {
        let held: Vec<Vec<f64>> = (0..self.points.count()).map(|point| self.held(point)).collect();
        let best = |phase: usize| {
            let profits = held.iter().map(|profits| profits[phase]).enumerate();
            profits.fold((0, f64::NEG_INFINITY), |best, other| if other.1 > best.1 { other } else { best })
        };
        (0..self.phases.len()).map(best).collect()
    }

    /// The most that any point held throughout makes.
    #[must_use]
    pub fn best_static(&self) -> f64 {
        let total = |point| self.held(point).iter().sum();
        (0..self.points.count()).map(total).fold(f64::NEG_INFINITY, f64::max)
    }
}

fn truth(
    server: &Server,
    phases: &[Phase],
    points: &BatchingDelays,
    drift: (f64, f64),
) -> Vec<Vec<Response>> {
    let (amplitude, period) = drift;
    let clients = phases.iter().flat_map(|phase| (0..phase.seconds).map(|_| phase.clients));
    let second = |(at, clients): (usize, f64)| {
        let drift = 1.0 + amplitude * libm::sin(core::f64::consts::TAU * at as f64 / period);
        (0..points.count()).map(|point| server.response(clients, points.micros(point), drift)).collect()
    };
    clients.enumerate().map(second).collect()
}
