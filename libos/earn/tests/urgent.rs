//! Whose packets are not held: the real governor of two *simulated* tenants of one core, of whom one wants to
//! be answered soon, and the other much.

mod common;

use common::{Board, Heard, earner};
use nom_abi::prices::PricedResource;
use nom_earn::Earner;
use nom_economy::controller::{BatchingDelays, WorkingPoints};
use nom_economy::prices::Prices;
use nom_economy::response::Response;
use nom_economy::units::{GbitPerSecond, OperationsPerSecond, Seconds};
use nom_economy::utility::{Latency, Utility};
use nom_economy_sim::{Noise, Random};
use nom_service::{Activity, Governor, Setting, Urgent, Window};
use std::time::Duration;

/// The activities' numbers, and how many there are.
const GOLD: Activity = Activity(3);
const BULK: Activity = Activity(4);
const ACTIVITIES: usize = 5;

/// Clients of bulk, each of whom asks again when he is answered.
const CLIENTS: f64 = 400.0;
/// What a request takes, what it takes to tell the device, and the path, in seconds.
const REQUEST: f64 = 4e-6;
const KICK: f64 = 8e-6;
const PATH: f64 = 90e-6;

/// Two tenants: gold asks so many times a second, and bulk as often as it is answered.
#[derive(Clone, Copy)]
struct Tenants {
    gold: (&'static str, f64),
    bulk: &'static str,
}

/// One hurries, and has a small part of the load.
const HURRIED: Tenants =
    Tenants { gold: ("operation; penalty 0.02 4 0.00015", 2_000.0), bulk: "operation; value 0.0003" };

fn setting(micros: u32, urgent: &[Activity]) -> Setting {
    Setting {
        batching_delay: Duration::from_micros(micros.into()),
        urgent: urgent.iter().copied().collect(),
        ..Setting::default()
    }
}

/// A response by its rate, and the mean and p99 of its latency.
fn response(rate: f64, mean: f64, p99: f64) -> Response {
    let seconds = |value| Seconds::new(value).expect("a time");
    let latency = Latency::new(seconds(mean), seconds(mean / 4.0), seconds(p99)).expect("good");
    let data = GbitPerSecond::new(rate * 8e-6).expect("a rate");
    let throughput = OperationsPerSecond::new(rate).expect("a rate");
    Response { throughput, answered: data, sent: data, received: data, latency }
}

impl Tenants {
    fn variables(&self) -> [(&'static str, &'static str); 3] {
        let contracts = format!("for gold {}; for bulk {}", self.gold.0, self.bulk);
        let knobs = ("knobs", "batching_delay,activities");
        [("activity", "gold port=1; bulk port=2"), ("contracts", contracts.leak()), knobs]
    }

    /// How the server truly responds to gold and to bulk. Whatever is held goes with whatever is not.
    fn truth(&self, setting: Setting) -> [Response; 2] {
        let held = setting.batching_delay.as_secs_f64();
        let urgent = [GOLD, BULK].map(|tenant| held == 0.0 || setting.urgent.has(tenant));
        let gold = self.gold.1;
        // What is served where each kick carries all that was answered since the last.
        let mut served = 1.0 / (REQUEST + KICK);
        for _ in 0..50 {
            let alone = if urgent[0] { gold } else { 0.0 } + if urgent[1] { served - gold } else { 0.0 };
            let kicks = if held > 0.0 { (alone + 1.0 / held).min(served) } else { served };
            served = 0.5 * (served + ((1.0 - kicks * KICK) / REQUEST).max(1.0 / (REQUEST + KICK)));
        }
        let held = |is_urgent: bool| if is_urgent { 0.0 } else { held };
        let bulk = (served - gold).min(CLIENTS / (PATH + held(urgent[1])));
        [
            response(gold, PATH + held(urgent[0]) / 2.0, PATH + held(urgent[0])),
            response(bulk, CLIENTS / bulk, CLIENTS / bulk + held(urgent[1])),
        ]
    }

    /// What that brings.
    fn brings(&self, setting: Setting) -> f64 {
        let utilities = [self.gold.0, self.bulk].map(|line| line.parse::<Utility>().expect("good"));
        let parts = self.truth(setting).into_iter().zip(utilities);
        parts.map(|(response, utility)| utility.revenue(&response, &Prices::default()).get()).sum()
    }

    /// The most that is brought where packets of these are not held.
    fn best(&self, urgent: &[Activity]) -> f64 {
        let delays = BatchingDelays::up_to(1000);
        let rates = (0..delays.count()).map(|at| self.brings(setting(delays.micros(at), urgent)));
        rates.fold(f64::NEG_INFINITY, f64::max)
    }
}

struct World {
    tenants: Tenants,
    earner: Earner<Board, Heard>,
    now_ns: u64,
    noise: Noise,
    random: Random,
}

impl World {
    fn new(tenants: Tenants, seed: u64) -> World {
        let (earner, board, _) = earner(&tenants.variables());
        board.post(PricedResource::NetworkOut, 0.001, 0);
        World { tenants, earner, now_ns: 0, noise: Noise::new(0.02, 0.3, 0.002), random: Random::new(seed) }
    }

    /// Serves for so long, and says what that truly brought in a second.
    fn serve(&mut self, seconds: u64) -> f64 {
        let (mut brought, until_ns) = (0.0, self.now_ns + seconds * 1_000_000_000);
        while self.now_ns < until_ns {
            let length_ns = self.earner.window_ns();
            brought += self.tenants.brings(self.earner.setting()) * length_ns as f64 / 1e9;
            self.window(length_ns);
        }
        brought / seconds as f64
    }

    fn window(&mut self, length_ns: u64) {
        let setting = self.earner.setting();
        let (from_ns, to_ns) = (self.now_ns, self.now_ns + length_ns);
        let seconds = length_ns as f64 / 1e9;
        let mut shares = vec![Window { from_ns, to_ns, setting, ..Window::default() }; ACTIVITIES];
        for (tenant, truth) in [GOLD, BULK].into_iter().zip(self.tenants.truth(setting)) {
            let seen = self.noise.observe(&truth, seconds, &mut self.random).response;
            let nanos = |time: Seconds| (time.get() * 1e9) as u64;
            let share = &mut shares[tenant.0 as usize];
            share.requests = (seen.throughput.get() * seconds) as u64;
            share.answered_bytes = share.requests * 1000;
            (share.sent_bytes, share.received_bytes) = (share.answered_bytes, share.answered_bytes);
            share.latency.mean_ns = nanos(seen.latency.mean());
            share.latency.jitter_ns = nanos(seen.latency.jitter());
            share.latency.p99_ns = nanos(seen.latency.p99());
        }
        self.now_ns = to_ns;
        self.earner.divide(&shares);
        self.earner.observe(&together(&shares));
    }
}

/// What all were served, as a server measures it.
fn together(shares: &[Window]) -> Window {
    let mut whole = Window { requests: 0, ..shares[0] };
    let requests: u64 = shares.iter().map(|share| share.requests).sum();
    let mean = |of: fn(&Window) -> f64| {
        shares.iter().map(|share| share.requests as f64 * of(share)).sum::<f64>() / requests.max(1) as f64
    };
    whole.latency.mean_ns = mean(|share| share.latency.mean_ns as f64) as u64;
    let squared =
        mean(|share| (share.latency.mean_ns as f64).powi(2) + (share.latency.jitter_ns as f64).powi(2));
    whole.latency.jitter_ns = (squared - (whole.latency.mean_ns as f64).powi(2)).max(0.0).sqrt() as u64;
    whole.latency.p99_ns = shares.iter().map(|share| share.latency.p99_ns).max().unwrap_or(0);
    whole.requests = requests;
    whole.answered_bytes = shares.iter().map(|share| share.answered_bytes).sum();
    (whole.sent_bytes, whole.received_bytes) = (whole.answered_bytes, whole.answered_bytes);
    whole
}

#[test]
fn whoever_hurries_is_not_held_while_others_are() {
    let (alone, both) = (HURRIED.best(&[]), HURRIED.best(&[GOLD]));
    assert!(both > 1.1 * alone, "{both} against {alone}: there is something to gain");
    for seed in 0..4 {
        let mut world = World::new(HURRIED, seed);
        world.serve(20);
        let brought = world.serve(20);
        let set = world.earner.setting();
        assert!(brought > 0.95 * both, "seed {seed}: {brought} of {both}, at {set:?}");
        assert_eq!(set.urgent, Urgent::from_iter([GOLD]), "seed {seed}");
    }
}

#[test]
fn whoever_is_most_of_the_load_is_held_where_that_brings_more() {
    // What bulk is not held for it would lose by as many kicks as there are requests.
    let tenants = Tenants { gold: ("operation; value 0.001", 100.0), bulk: "operation; refund 0.0001 0.01" };
    let best = tenants.best(&[]).max(tenants.best(&[BULK]));
    assert!(tenants.best(&[BULK]) < 0.8 * best);
    for seed in 0..4 {
        let mut world = World::new(tenants, seed);
        world.serve(20);
        let brought = world.serve(20);
        assert!(brought > 0.95 * best, "seed {seed}: {brought} of {best}, at {:?}", world.earner.setting());
    }
}

#[test]
fn without_the_knob_all_are_held_alike() {
    let [activity, contracts, _] = HURRIED.variables();
    let (mut earner, board, _) = earner(&[activity, contracts]);
    board.post(PricedResource::NetworkOut, 0.001, 0);
    for _ in 0..500 {
        assert_eq!(earner.setting().urgent, Urgent::default());
        let setting = earner.setting();
        earner.observe(&Window { to_ns: 20_000_000, requests: 1000, setting, ..Window::default() });
    }
}
