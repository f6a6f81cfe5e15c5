//! A server whose batching delay, cores, memory and clients matter at once, under prices of data, cores and
//! memory that step together, and a load that changes.

use super::random::Random;
use super::server::Server;
use nom_economy::controller::{BatchingDelays, WorkingPoints};
use nom_economy::prices::{Prices, Resource, Usage};
use nom_economy::response::Response;
use nom_economy::units::{Cores, GbitPerSecond, Gib, OperationsPerSecond, Seconds};
use nom_economy::utility::{Latency, Utility};

/// The most cores.
pub const CORES_MAX: u16 = 4;
/// The longest batching delay, in microseconds.
pub const DELAY_MAX: u32 = 1000;
/// The least memory, in MiB.
pub const MEMORY_MIN: u32 = 2;
/// Length of a phase.
pub const PHASE_SECONDS: f64 = 20.0;
/// Bytes of an answer that nothing was found.
const MISS_BYTES: f64 = 40.0;
/// The share of look-ups that are for what was never stored.
const HITS_MAX: f64 = 0.95;
/// Points of a curve.
const CURVE_POINTS: u32 = 24;

/// What the server is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allotment {
    /// Batching delay in microseconds.
    pub micros: u32,
    /// Cores that serve.
    pub cores: u16,
    /// Memory for what it keeps.
    pub memory_mib: u32,
    /// Most clients of each core.
    pub clients_max: u32,
}

/// A time in which load and prices stay as they are.
#[derive(Clone, Debug)]
pub struct Times {
    /// Clients that each wait for their answer.
    pub clients: u32,
    /// Of data sent, cores and memory.
    pub prices: Prices,
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Resources {
    /// What users pay, as the environment says it.
    pub contract: String,
    /// The most memory there is, in MiB.
    pub memory_max: u32,
    /// What happens, in order, [`PHASE_SECONDS`] each.
    pub times: Vec<Times>,
    utility: Utility,
    server: Server,
    /// Memory, in MiB, that finds 63% of what can be found.
    scale_mib: f64,
}

impl Resources {
    /// Server, contract, loads and prices from a seed: four times, each with another load or other prices of
    /// everything. Some profit can be made in each.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        loop {
            let scenario = Self::build(&mut random);
            if scenario.times.iter().all(|times| scenario.oracle(times).1 > 0.0) {
                return scenario;
            }
        }
    }

    fn build(random: &mut Random) -> Self {
        let server = Server { ripple: (0.0, 0.0), ..Server::random(random, 1.0) };
        let server = Server { bytes: server.bytes.max(4.0 * MISS_BYTES), ..server };
        let loads = [(); 2].map(|()| libm::round(random.log_between(2.0, 128.0)) as u32);
        let alone = |clients: u32| server.response(f64::from(clients), 0, 1.0);
        // What one core finds in two seconds fills it.
        let busiest = alone(loads[0].max(loads[1]));
        let filled = busiest.throughput.get() * server.bytes * 2.0 / f64::from(1 << 20);
        let memory_max = libm::round(filled.clamp(16.0, 128.0)) as u32;
        let scale_mib = f64::from(memory_max) * random.between(0.1, 0.5);
        let late = alone(loads[0].max(loads[1])).latency.mean().get();
        let contract = match random.unit() < 0.5 {
            true => format!("Gbit; penalty 20 100 {}", late * random.between(0.5, 2.0)),
            false => format!("Gbit; refund 20 {}", 20.0 / late * random.between(0.0, 0.4)),
        };
        let utility = contract.parse().expect("a contract of the paper");
        // What a core, and all the memory, bring about.
        let worth = 18.0 * busiest.sent.get();
        let gib = f64::from(memory_max) / 1024.0;
        let mut clients = loads[0];
        let mut next = |at: usize| {
            if random.unit() < 0.5 || at == 0 {
                clients = loads[at % 2];
            }
            let mut prices = Prices::default();
            let dear = |random: &mut Random, low, high| random.log_between(low, high);
            for (resource, dollars) in [
                (Resource::NetworkOut, dear(random, 0.5, 8.0)),
                (Resource::Core, worth * dear(random, 0.02, 1.0)),
                (Resource::Memory, worth / gib * dear(random, 0.02, 1.0)),
            ] {
                prices.offer(resource, dollars, 0).expect("a first price");
            }
            Times { clients, prices }
        };
        let times = (0..4).map(&mut next).collect();
        Self { contract, memory_max, times, utility, server, scale_mib }
    }

    /// The share of look-ups that find something, with so many MiB kept.
    #[must_use]
    pub fn hit_ratio(&self, mib: f64) -> f64 {
        HITS_MAX * (1.0 - libm::exp(-mib / self.scale_mib))
    }

    /// The same as points of bytes and ratio.
    #[must_use]
    pub fn curve(&self) -> Vec<(u64, f64)> {
        let mib = |point: u32| f64::from(self.memory_max) * f64::from(point) / f64::from(CURVE_POINTS);
        let point = |mib: f64| ((mib * f64::from(1 << 20)) as u64, self.hit_ratio(mib));
        (1..=CURVE_POINTS).map(mib).map(point).collect()
    }

    /// Bytes that a look-up which finds something sends more than one which does not.
    #[must_use]
    pub fn hit_bytes(&self) -> f64 {
        self.server.bytes - MISS_BYTES
    }

    /// What core `index` does for its clients, if it has any.
    #[must_use]
    pub fn core(&self, clients: u32, given: &Allotment, index: u16, hit_ratio: f64) -> Option<Response> {
        let share = (clients + u32::from(given.cores - 1 - index)) / u32::from(given.cores);
        let own = share.min(given.clients_max);
        let response = (own > 0).then(|| self.server.response(f64::from(own), given.micros, 1.0))?;
        let bytes = MISS_BYTES + hit_ratio * self.hit_bytes();
        let data = GbitPerSecond::new(response.throughput.get() * bytes * 8e-9).expect("finite");
        Some(Response { answered: data, sent: data, received: data, ..response })
    }

    /// What all of them do.
    #[must_use]
    pub fn whole(&self, clients: u32, given: &Allotment, hit_ratio: f64) -> Option<Response> {
        let parts = (0..given.cores).filter_map(|index| self.core(clients, given, index, hit_ratio));
        pooled(&parts.collect::<Vec<_>>())
    }

    /// Dollars a second for what is done by who holds this.
    #[must_use]
    pub fn profit(&self, response: Option<&Response>, given: &Allotment, prices: &Prices) -> f64 {
        let cores = Cores::new(f64::from(given.cores)).expect("finite");
        let memory = Gib::new(f64::from(given.memory_mib) / 1024.0).expect("finite");
        let held = Usage { cores, memory, ..Usage::default() };
        match response {
            Some(response) => self.utility.profit(response, &held, prices).get(),
            None => -prices.cost(&held).get(),
        }
    }

    /// The best that can be given, and what it makes in a second.
    #[must_use]
    pub fn oracle(&self, times: &Times) -> (Allotment, f64) {
        let delays = BatchingDelays::up_to(DELAY_MAX);
        let limits: Vec<u32> = core::iter::successors(Some(1), |limit| Some(limit * 2))
            .take_while(|limit| *limit < times.clients)
            .collect();
        let mut best =
            (Allotment { micros: 0, cores: 1, memory_mib: MEMORY_MIN, clients_max: u32::MAX }, f64::MIN);
        for cores in 1..=CORES_MAX {
            for micros in (0..delays.count()).map(|point| delays.micros(point)) {
                for clients_max in limits.iter().copied().chain([u32::MAX]) {
                    let given = Allotment { micros, cores, memory_mib: MEMORY_MIN, clients_max };
                    let found = self.best_memory(times, given);
                    best = if found.1 > best.1 { found } else { best };
                }
            }
        }
        best
    }

    fn best_memory(&self, times: &Times, given: Allotment) -> (Allotment, f64) {
        let full = self.whole(times.clients, &given, 1.0);
        let sizes = (0..).map(|step| (f64::from(MEMORY_MIN) * libm::exp2(f64::from(step) / 4.0)) as u32);
        let sizes = sizes.take_while(|size| *size < self.memory_max).chain([self.memory_max]);
        let all = sizes.map(|memory_mib| {
            let given = Allotment { memory_mib, ..given };
            let ratio = self.hit_ratio(f64::from(memory_mib));
            let bytes = (MISS_BYTES + ratio * self.hit_bytes()) / self.server.bytes;
            let less = |data: GbitPerSecond| GbitPerSecond::new(data.get() * bytes).expect("finite");
            let response = full.map(|full| Response {
                answered: less(full.answered),
                sent: less(full.sent),
                received: less(full.received),
                ..full
            });
            (given, self.profit(response.as_ref(), &given, &times.prices))
        });
        all.fold((given, f64::MIN), |best, other| if other.1 > best.1 { other } else { best })
    }
}

/// Cores' responses together: latencies are those of all requests.
#[must_use]
pub fn pooled(parts: &[Response]) -> Option<Response> {
    let sum = |of: &dyn Fn(&Response) -> f64| parts.iter().map(of).sum::<f64>();
    let rate = sum(&|part| part.throughput.get());
    (rate > 0.0).then(|| {
        let mean_of = |of: &dyn Fn(&Response) -> f64| sum(&|part| part.throughput.get() * of(part)) / rate;
        let square = |value: f64| value * value;
        let mean = mean_of(&|part| part.latency.mean().get());
        let squares =
            mean_of(&|part| square(part.latency.mean().get()) + square(part.latency.jitter().get()));
        let p99 = mean_of(&|part| part.latency.p99().get());
        let seconds = |value: f64| Seconds::new(value).expect("a mean of times");
        let jitter = libm::sqrt((squares - mean * mean).max(0.0));
        let data = |of: &dyn Fn(&Response) -> f64| GbitPerSecond::new(sum(of)).expect("finite");
        Response {
            throughput: OperationsPerSecond::new(rate).expect("finite"),
            answered: data(&|part| part.answered.get()),
            sent: data(&|part| part.sent.get()),
            received: data(&|part| part.received.get()),
            latency: Latency::new(seconds(mean), seconds(jitter), seconds(p99)).expect("clients wait"),
        }
    })
}
