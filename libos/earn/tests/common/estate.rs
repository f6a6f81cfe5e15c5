//! The real governors of a simulated server on several cores that keeps things: every knob matters.

use super::{Board, Heard, settings};
use nom_earn::{CoreGovernor, Earner, Held};
use nom_economy::prices::Resource;
use nom_economy::response::Response;
use nom_economy_sim::resources::{Allotment, CORES_MAX, PHASE_SECONDS, Resources, Times, pooled};
use nom_economy_sim::{Noise, Random};
use nom_service::{Curve, Demand, Governor, Latency, Setting, Window};
use std::cell::Cell;

const PART_NS: u64 = 5_000_000;
const SECOND: u64 = 1_000_000_000;
/// After another number of cores serves, so long clients move, and so much of them is served meanwhile.
const MOVING_NS: u64 = 30_000_000;
const MOVING_SHARE: f64 = 0.5;
/// Who asks of a curve: so many of its look-ups were sampled.
const SAMPLES: f64 = 1e5;

type Core = CoreGovernor<parking_lot::RawMutex, Board, Heard>;

thread_local! {
    /// What the application holds: a governor asks a function without arguments.
    static HELD: Cell<Held> = const { Cell::new(Held { cores: 1, memory_bytes: 0 }) };
}

/// Dollars made, and that the best settings of each time would have made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Earned {
    pub profit: f64,
    pub oracle: f64,
}

pub struct Estate<'a> {
    scenario: &'a Resources,
    members: Vec<Core>,
    settings: Vec<Setting>,
    board: Board,
    now_ns: u64,
    noise: Noise,
    random: Random,
    /// MiB that are full, and until when clients move.
    kept: f64,
    moving_ns: u64,
    served: f64,
    /// Whether to say what is set, each second.
    pub is_told: bool,
}

impl<'a> Estate<'a> {
    pub fn new(scenario: &'a Resources, knobs: &'static str, seed: u64) -> Self {
        let (board, heard) = (Board::default(), Heard::default());
        let contract: &'static str = scenario.contract.clone().leak();
        let settings = settings(&[("utility", contract), ("knobs", knobs)]);
        let earner = Earner::new(settings, board.clone(), heard, || HELD.get());
        let members: Vec<Core> = CoreGovernor::of_cores(earner, board.clone(), CORES_MAX.into()).collect();
        let settings = vec![Setting { cores: CORES_MAX, ..Setting::default() }; members.len()];
        Self {
            scenario,
            members,
            settings,
            board,
            now_ns: SECOND,
            noise: Noise::new(0.03, 0.3, 0.002),
            random: Random::new(seed),
            kept: f64::from(scenario.memory_max),
            moving_ns: 0,
            served: 0.0,
            is_told: false,
        }
    }

    /// Lives through the whole scenario.
    pub fn live(&mut self) -> Vec<Earned> {
        let scenario = self.scenario;
        scenario.times.iter().map(|times| self.pass(times)).collect()
    }

    fn pass(&mut self, times: &Times) -> Earned {
        for resource in [Resource::NetworkOut, Resource::Core, Resource::Memory] {
            let quote = times.prices.quote(resource).expect("it has a price");
            self.board.post(resource.into(), quote.price, self.now_ns);
        }
        let (best, rate) = self.scenario.oracle(times);
        if self.is_told {
            println!("{} clients, best {best:?}: {rate:.4} $/s", times.clients);
        }
        let mut earned = Earned { oracle: rate * PHASE_SECONDS, ..Earned::default() };
        let until_ns = self.now_ns + (PHASE_SECONDS * SECOND as f64) as u64;
        while self.now_ns < until_ns {
            let profit = self.part(times);
            earned.profit += profit * PART_NS as f64 / SECOND as f64;
            if self.now_ns % SECOND < PART_NS {
                self.tell(times, profit / rate);
                self.hear();
            }
        }
        earned
    }

    fn tell(&self, times: &Times, share: f64) {
        if self.is_told {
            let given = self.given();
            let clients = times.clients;
            println!(
                "{:>3} s {clients:>4} {given:?} kept {:.0}: {share:.3}",
                self.now_ns / SECOND,
                self.kept
            );
        }
    }

    fn given(&self) -> Allotment {
        let Setting { batching_delay, cores, memory_mib, clients_max, .. } = self.settings[0];
        Allotment {
            micros: batching_delay.as_micros() as u32,
            cores: if cores == 0 { CORES_MAX } else { cores },
            memory_mib: if memory_mib == 0 { self.scenario.memory_max } else { memory_mib },
            clients_max: clients_max.unwrap_or(u32::MAX),
        }
    }

    fn hear(&mut self) {
        let mib = |mib: u32| u64::from(mib) << 20;
        let demand = Demand {
            curve: Curve::new(self.scenario.curve()).expect("a curve"),
            samples: SAMPLES,
            lookups: core::mem::take(&mut self.served),
            hit_bytes: self.scenario.hit_bytes(),
            limit_bytes: mib(self.given().memory_mib),
            least_bytes: 0,
            most_bytes: mib(self.scenario.memory_max),
        };
        if self.members[0].wants_demand() {
            self.members[0].hear(&demand);
        }
    }

    /// A few milliseconds. Returns what they earn, per second.
    fn part(&mut self, times: &Times) -> f64 {
        self.now_ns += PART_NS;
        let given = self.given();
        HELD.set(Held { cores: given.cores.into(), memory_bytes: u64::from(given.memory_mib) << 20 });
        self.kept = self.kept.min(f64::from(given.memory_mib));
        let hits = self.scenario.hit_ratio(self.kept);
        let share = if self.now_ns < self.moving_ns { MOVING_SHARE } else { 1.0 };
        let parts: Vec<Response> = (0..given.cores)
            .filter_map(|index| {
                let truth = self.scenario.core(times.clients, &given, index, hits);
                let truth = truth.map(|truth| slowed(&truth, share));
                self.core(index, truth.as_ref());
                truth
            })
            .collect();
        let whole = pooled(&parts);
        let seconds = PART_NS as f64 / SECOND as f64;
        let requests = whole.map_or(0.0, |whole| whole.throughput.get()) * seconds;
        self.served += requests;
        let stored = requests * (1.0 - hits) * self.scenario.hit_bytes() / f64::from(1 << 20);
        self.kept = (self.kept + stored).min(f64::from(given.memory_mib));
        if self.given().cores != given.cores {
            self.moving_ns = self.now_ns + MOVING_NS;
        }
        self.scenario.profit(whole.as_ref(), &given, &times.prices)
    }

    fn core(&mut self, index: u16, truth: Option<&Response>) {
        let (member, setting) =
            (&mut self.members[usize::from(index)], &mut self.settings[usize::from(index)]);
        *setting = member.look(self.now_ns).unwrap_or(*setting);
        let window = Window { from_ns: self.now_ns - PART_NS, to_ns: self.now_ns, ..Window::default() };
        let window = match truth {
            Some(truth) => {
                let seconds = PART_NS as f64 / SECOND as f64;
                let measured = self.noise.observe(truth, seconds, &mut self.random).response;
                let in_flight = truth.throughput.get() * truth.latency.mean().get();
                Window { clients: in_flight.round() as u32, ..filled(window, &measured, seconds) }
            }
            None => window,
        };
        *setting = member.observe(&Window { setting: *setting, ..window });
    }
}

/// Clients that wait are served so much less, and so much later.
fn slowed(truth: &Response, share: f64) -> Response {
    let mut logs = truth.logs();
    let change = share.ln();
    let signs = [1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0];
    logs.iter_mut().zip(signs).for_each(|(log, sign)| *log += sign * change);
    Response::from_logs(&logs)
}

fn filled(window: Window, response: &Response, seconds: f64) -> Window {
    let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
    let bytes = |gbit: f64| (gbit * seconds * 1e9 / 8.0) as u64;
    Window {
        requests: (response.throughput.get() * seconds) as u64,
        answered_bytes: bytes(response.answered.get()),
        sent_bytes: bytes(response.sent.get()),
        received_bytes: bytes(response.received.get()),
        latency: Latency {
            mean_ns: nanoseconds(response.latency.mean().get()),
            jitter_ns: nanoseconds(response.latency.jitter().get()),
            p99_ns: nanoseconds(response.latency.p99().get()),
        },
        ..window
    }
}
