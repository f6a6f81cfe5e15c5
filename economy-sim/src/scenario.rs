//! A server, its owner's contract, and what happens to it.

use super::host::{Host, Moment};
use super::noise::Noise;
use super::random::Random;
use super::server::{Load, Server};
use super::strategy::best;
use core::ops::Range;
use nom_economy::controller::{BatchingDelays, WorkingPoints};
use nom_economy::response::Response;
use nom_economy::units::{DollarsPerGbit, DollarsPerSecond, Seconds};
use nom_economy::utility::{Bonus, Penalty, Refund};

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

    /// The penalty of the paper, with a promise of so many seconds.
    fn promise(seconds: f64) -> Self {
        let objective = Seconds::new(seconds).expect("a time");
        Self::Penalty(Penalty::new(100.0, objective).expect("the paper's factor"))
    }

    /// One whose terms matter for a server that answers many clients within `many` seconds at best.
    fn random(random: &mut Random, many: f64) -> Self {
        match (random.unit() * 3.0) as u32 {
            0 => Self::promise(many * random.between(1.4, 3.0)),
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
    pub seconds: f64,
    /// Dollars per Gbit sent.
    pub price: f64,
    /// Who asks.
    pub load: Load,
    /// Clients connect one after the other, for so many seconds.
    pub connecting: f64,
}

impl Phase {
    fn new(seconds: u32, price: f64, clients: f64) -> Self {
        Self { seconds: f64::from(seconds), price, load: Load::Closed { clients }, connecting: 0.0 }
    }

    fn open(seconds: u32, price: f64, utilisation: f64) -> Self {
        Self { load: Load::Open { utilisation }, ..Self::new(seconds, price, 1.0) }
    }

    /// Who asks so many seconds after it began.
    fn load(&self, at: f64) -> Load {
        match self.load {
            Load::Closed { clients } if at < self.connecting => {
                Load::Closed { clients: libm::ceil(clients * at / self.connecting).max(1.0) }
            }
            load => load,
        }
    }
}

/// How the work of packets that are not held goes up and down, beside that of all others.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Of its logarithm.
    amplitude: f64,
    /// Of the logarithm of what a batch shares, so that the best delay moves.
    batch: f64,
    /// In seconds.
    period: f64,
    phase: f64,
}

/// What happens beside load and price: nothing, unless a scenario says so.
#[derive(Clone, Copy, Debug, Default)]
struct Variation {
    host: Option<Host>,
    turn: Turn,
    /// The contract is the penalty, and promises a latency between these shares of the best mean.
    promise: Option<(f64, f64)>,
    /// In some phase every point makes a loss.
    has_losses: bool,
}

impl Turn {
    /// The server so many seconds after the start.
    fn turned(&self, server: &Server, second: f64) -> Server {
        if self.amplitude == 0.0 && self.batch == 0.0 {
            return server.clone();
        }
        let wave = libm::sin(self.phase + core::f64::consts::TAU * second / self.period);
        let (unheld, batch) = (libm::exp(self.amplitude * wave), libm::exp(self.batch * wave));
        Server { unheld: server.unheld * unheld, batch: server.batch * batch, ..server.clone() }
    }
}

/// For so long after the start clients connect, unless the scenario says otherwise, in seconds.
const CONNECTING: f64 = 0.2;

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
    /// Responses of each point on a quiet host, by load; and of each interval the load, and what the host
    /// does.
    quiet: Vec<Vec<Response>>,
    moments: Vec<(usize, Moment)>,
    /// Profit of each point in each phase, in dollars.
    held: Vec<Vec<f64>>,
}

impl Scenario {
    /// The paper's experiment (section 6.1): 60 s with many clients at 1 $/Gbit, then 60 s with one client at
    /// 10 $/Gbit; server, noise and contract vary with the seed.
    #[must_use]
    pub fn published(seed: u64) -> Self {
        Self::retried(
            seed,
            |_| Variation::default(),
            |random| {
                let clients = libm::round(random.log_between(8.0, 128.0));
                vec![Phase::new(60, 1.0, clients), Phase::new(60, 10.0, 1.0)]
            },
        )
    }

    /// The same on an emulated machine: several times as much noise.
    #[must_use]
    pub fn emulated(seed: u64) -> Self {
        let noise = Noise::emulated(&mut Random::new(!seed));
        Self { noise, ..Self::published(seed) }
    }

    /// The same in a hurry, on a host that is shared: 8 to 12 s each, and in the first 200 to 600 ms of
    /// these clients connect.
    #[must_use]
    pub fn host(seed: u64) -> Self {
        let scenario = Self::retried(
            seed,
            |random| Variation { host: Some(Host::random(random)), ..Variation::default() },
            |random| {
                let clients = libm::round(random.log_between(8.0, 64.0));
                let mut phase = |price, clients| {
                    let connecting = random.between(0.2, 0.6);
                    Phase { connecting, ..Phase::new(random.between(8.0, 13.0) as u32, price, clients) }
                };
                vec![phase(1.0, clients), phase(10.0, 1.0)]
            },
        );
        Self { noise: Noise::of_host(&mut Random::new(!seed)), ..scenario }
    }

    /// The same alone on an emulated machine, where what a server does changes which point is best, as when
    /// its memory fills and it begins to copy: packets that are not held take up to a fifth more or less work
    /// than those that are, back and forth within seconds.
    #[must_use]
    pub fn turning(seed: u64) -> Self {
        let turn = |random: &mut Random| Turn {
            amplitude: random.log_between(0.02, 0.2),
            period: random.between(4.0, 16.0),
            phase: random.between(0.0, core::f64::consts::TAU),
            batch: 0.0,
        };
        let scenario = Self::retried(
            seed,
            |random| Variation { turn: turn(random), ..Variation::default() },
            |random| {
                let clients = libm::round(random.log_between(8.0, 64.0));
                vec![Phase::new(12, 1.0, clients), Phase::new(12, 10.0, 1.0)]
            },
        );
        Self { noise: Noise::interrupted(&mut Random::new(!seed)), ..scenario }
    }

    /// Prices and loads that change at any time, together or apart, and come back.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        Self::retried(
            seed,
            |_| Variation::default(),
            |random| {
                let loads = [(); 3].map(|()| libm::round(random.log_between(1.0, 128.0)));
                let mut phase = Phase::new(0, 1.0, loads[0]);
                let count = random.between(3.0, 8.0) as u32;
                let mut next = || {
                    phase.seconds = f64::from(random.log_between(8.0, 60.0) as u32);
                    let (changes_price, changes_load) = (random.unit() < 0.6, random.unit() < 0.6);
                    if changes_price {
                        phase.price = random.log_between(0.2, 15.0);
                    }
                    if changes_load {
                        phase.load = Load::Closed { clients: loads[(random.unit() * 3.0) as usize] };
                    }
                    phase
                };
                (0..count).map(|_| next()).collect()
            },
        )
    }

    /// A load and a price that never stand still: every two seconds both have moved by a few percent or tens
    /// of percent, as real traces do.
    #[must_use]
    pub fn wandering(seed: u64) -> Self {
        Self::retried(
            seed,
            |_| Variation::default(),
            |random| {
                let (roughness, volatility) = (random.log_between(0.02, 0.3), random.log_between(0.01, 0.3));
                let mut clients: f64 = random.log_between(2.0, 100.0);
                let mut price: f64 = random.log_between(0.5, 8.0);
                let mut next = || {
                    clients = (clients * libm::exp(roughness * random.normal())).clamp(1.0, 200.0);
                    price = (price * libm::exp(volatility * random.normal())).clamp(0.1, 15.0);
                    Phase::new(2, price, libm::round(clients))
                };
                (0..45).map(|_| next()).collect()
            },
        )
    }

    /// The paper's experiment with a promise so near to the best mean latency that most points break it.
    #[must_use]
    pub fn cliff(seed: u64) -> Self {
        Self::retried(
            seed,
            |_| Variation { promise: Some((1.1, 1.6)), ..Variation::default() },
            |random| {
                let clients = libm::round(random.log_between(8.0, 128.0));
                vec![Phase::new(60, 1.0, clients), Phase::new(60, 10.0, 1.0)]
            },
        )
    }

    /// One load for two minutes, while what is best moves to and fro once in one to four minutes.
    #[must_use]
    pub fn drifting(seed: u64) -> Self {
        let turn = |random: &mut Random| Turn {
            amplitude: random.log_between(0.05, 0.3),
            batch: random.between(-0.5, 0.5),
            period: random.log_between(60.0, 240.0),
            phase: random.between(0.0, core::f64::consts::TAU),
        };
        Self::retried(
            seed,
            |random| Variation { turn: turn(random), ..Variation::default() },
            |random| {
                let clients = libm::round(random.log_between(8.0, 128.0));
                vec![Phase::new(60, 1.0, clients), Phase::new(60, 1.0, clients)]
            },
        )
    }

    /// Two loads that take turns each second.
    #[must_use]
    pub fn alternating(seed: u64) -> Self {
        Self::retried(
            seed,
            |_| Variation::default(),
            |random| {
                let loads = [(2.0, 16.0), (16.0, 128.0)].map(|(low, high)| random.log_between(low, high));
                let loads = loads.map(libm::round);
                (0..60).map(|at| Phase::new(1, 1.0, loads[at % 2])).collect()
            },
        )
    }

    /// The paper's experiment with clients that do not wait for answers.
    #[must_use]
    pub fn open(seed: u64) -> Self {
        Self::retried(
            seed,
            |_| Variation::default(),
            |random| {
                let (much, little) = (random.between(0.4, 0.85), random.log_between(0.02, 0.2));
                vec![Phase::open(60, 1.0, much), Phase::open(60, 10.0, little)]
            },
        )
    }

    /// A load that becomes ten times as much for a while every few seconds; clients wait for their answers in
    /// one half of the seeds.
    #[must_use]
    pub fn bursts(seed: u64) -> Self {
        Self::retried(
            seed,
            |_| Variation::default(),
            |random| {
                let is_open = random.unit() < 0.5;
                let (clients, utilisation) =
                    (libm::round(random.log_between(1.0, 12.0)), random.between(0.04, 0.085));
                let phase = |seconds, times: f64| {
                    let load = if is_open {
                        Load::Open { utilisation: utilisation * times }
                    } else {
                        Load::Closed { clients: clients * times }
                    };
                    Phase { seconds, load, ..Phase::new(0, 1.0, 1.0) }
                };
                let mut pair = || {
                    let (calm, burst) = (random.between(2.0, 8.0), random.between(0.3, 2.0));
                    [phase(calm, 1.0), phase(burst, 10.0)]
                };
                (0..12).flat_map(|_| pair()).collect()
            },
        )
    }

    /// A price that for some seconds is more than a Gbit is worth, so that every point makes a loss: best is
    /// then to serve little, and to be back at once when it pays again. To refuse clients is no choice here.
    #[must_use]
    pub fn losing(seed: u64) -> Self {
        Self::retried(
            seed,
            |_| Variation { has_losses: true, ..Variation::default() },
            |random| {
                let clients = libm::round(random.log_between(2.0, 128.0));
                let price = ALPHA * random.between(1.05, 1.5);
                vec![
                    Phase::new(25, 1.0, clients),
                    Phase::new(10, price, clients),
                    Phase::new(25, 1.0, clients),
                ]
            },
        )
    }

    /// Tries seeds until a profit can be made in every phase, since a share of a loss has no meaning; or in
    /// most of the time, and a loss cannot be avoided in the rest.
    fn retried(
        seed: u64,
        variation: impl Fn(&mut Random) -> Variation,
        phases: impl Fn(&mut Random) -> Vec<Phase>,
    ) -> Self {
        let mut random = Random::new(seed);
        loop {
            let mut phases = phases(&mut random);
            phases[0].connecting = phases[0].connecting.max(CONNECTING);
            let variation = variation(&mut random);
            let scenario = Self::build(&mut random, phases, variation);
            let profits = || scenario.oracles().into_iter().map(|(_, profit)| profit);
            let is_sound = match variation.has_losses {
                true => {
                    profits().any(|profit| profit < 0.0)
                        && profits().sum::<f64>() > 0.5 * profits().map(f64::abs).sum::<f64>()
                }
                false => profits().all(|profit| profit > 0.0),
            };
            if is_sound {
                return scenario;
            }
        }
    }

    fn build(
        random: &mut Random,
        phases: Vec<Phase>,
        Variation { host, turn, promise, .. }: Variation,
    ) -> Self {
        let slowness = random.log_between(1.0, 20.0);
        let server = Server::random(random, slowness);
        let points = BatchingDelays::up_to((40.0 * slowness * random.log_between(1.0, 8.0)) as u32);
        let latency = |load, point| server.respond(load, points.micros(point), 1.0).latency.mean().get();
        let least =
            |load| (0..points.count()).map(|point| latency(load, point)).fold(f64::INFINITY, f64::min);
        let many = phases.iter().map(|phase| least(phase.load)).fold(0.0, f64::max);
        let contract = match promise {
            Some((low, high)) => Contract::promise(many * random.between(low, high)),
            None => Contract::random(random, many),
        };
        let noise = Noise::random(random);
        let drift = (random.between(0.0, 0.03), random.between(20.0, 100.0));
        let interval = random.between(0.01, 0.05);
        let (quiet, loads) = quiet(&server, &phases, &points, (drift, turn), interval);
        let host = host.map(|host| host.moments(loads.len(), interval, random));
        let host = host.unwrap_or_else(|| vec![Moment::default(); loads.len()]);
        let moments = loads.into_iter().zip(host).collect();
        let held = Vec::new();
        let scenario = Self { contract, phases, noise, points, interval, quiet, moments, held };
        let held = (0..scenario.count()).map(|point| scenario.hold(point)).collect();
        Self { held, ..scenario }
    }

    /// What a point truly does in an interval of the scenario.
    #[must_use]
    pub fn truth(&self, interval: usize, point: usize) -> Response {
        self.moment(interval).slow(self.quiet(interval, point))
    }

    /// What a point would do in an interval on a quiet host.
    #[must_use]
    pub fn quiet(&self, interval: usize, point: usize) -> &Response {
        &self.quiet[self.moments[interval].0][point]
    }

    /// What the host does in an interval.
    #[must_use]
    pub fn moment(&self, interval: usize) -> &Moment {
        &self.moments[interval].1
    }

    /// How many points there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.points.count()
    }

    /// How many intervals there are.
    #[must_use]
    pub fn moments(&self) -> usize {
        self.moments.len()
    }

    /// The intervals of each phase.
    pub fn spans(&self) -> impl Iterator<Item = (Range<usize>, Phase)> + '_ {
        let mut start = 0;
        self.phases.iter().map(move |phase| {
            let span = start..start + intervals(phase, self.interval);
            start = span.end;
            (span, *phase)
        })
    }

    /// Profit that a point held makes in each phase, in dollars.
    fn hold(&self, point: usize) -> Vec<f64> {
        let profit = |(span, phase): (Range<usize>, Phase)| {
            let rates = span.map(|at| self.contract.profit(&self.truth(at, point), phase.price).get());
            rates.sum::<f64>() * self.interval
        };
        self.spans().map(profit).collect()
    }

    /// The best point of each phase in hindsight, and its profit.
    #[must_use]
    pub fn oracles(&self) -> Vec<(usize, f64)> {
        let of = |phase: usize| best(self.held.iter().map(|profits| profits[phase]));
        (0..self.phases.len()).map(of).collect()
    }

    /// The most that any point held throughout makes.
    #[must_use]
    pub fn best_static(&self) -> f64 {
        self.held.iter().map(|profits| profits.iter().sum()).fold(f64::NEG_INFINITY, f64::max)
    }
}

fn intervals(phase: &Phase, interval: f64) -> usize {
    (phase.seconds / interval) as usize
}

/// What each point does without a host: responses by load, and the load of each interval. A load is a number
/// of clients in one second, over which work drifts.
fn quiet(
    server: &Server,
    phases: &[Phase],
    points: &BatchingDelays,
    ((amplitude, period), turn): ((f64, f64), Turn),
    interval: f64,
) -> (Vec<Vec<Response>>, Vec<usize>) {
    let (mut responses, mut loads, mut last) = (Vec::new(), Vec::new(), None);
    for phase in phases {
        for at in 0..intervals(phase, interval) {
            let second = (loads.len() as f64 * interval) as u32;
            let load = phase.load(at as f64 * interval);
            if last.replace((second, load)) != Some((second, load)) {
                let drift = 1.0 + amplitude * libm::sin(core::f64::consts::TAU * f64::from(second) / period);
                let server = turn.turned(server, f64::from(second));
                let respond = |point| server.respond(load, points.micros(point), drift);
                responses.push((0..points.count()).map(respond).collect());
            }
            loads.push(responses.len() - 1);
        }
    }
    (responses, loads)
}
