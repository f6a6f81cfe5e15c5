//! How many cores serve, as the real governors of a simulated server decide it.

mod common;

use common::{Board, Heard, World, earner};
use nom_abi::prices::PricedResource;
use nom_earn::CoreGovernor;
use nom_economy::prices::{Prices, Resource, Usage};
use nom_economy::response::{Observation, Response};
use nom_economy::units::{Cores, GbitPerSecond, OperationsPerSecond};
use nom_economy::utility::Utility;
use nom_economy_sim::{Noise, Random};
use nom_service::Latency;
use nom_service::{Governor, Setting, Window};
use std::time::Duration;

const CONTRACT: &str = "Gbit; refund 20 2000";
const PART_NS: u64 = 5_000_000;
const SECOND: u64 = 1_000_000_000;
const MOST: u16 = 4;

type Core = CoreGovernor<parking_lot::RawMutex, Board, Heard>;

/// What one of so many cores does, over which clients are spread as evenly as can be.
fn part(clients: u32, of: u16, index: u16, setting: Setting) -> Option<Response> {
    let own = (clients + u32::from(of - 1 - index)) / u32::from(of);
    (own > 0).then(|| World::truth(f64::from(own), setting))
}

/// What it brings, per second, that so many cores serve so many clients.
fn rate(clients: u32, of: u16, setting: Setting, prices: &Prices) -> f64 {
    let utility: Utility = CONTRACT.parse().expect("good");
    let parts: Vec<Response> = (0..of).filter_map(|index| part(clients, of, index, setting)).collect();
    let sum = |of: fn(&Response) -> f64| parts.iter().map(of).sum::<f64>();
    let response = Response {
        throughput: OperationsPerSecond::new(sum(|part| part.throughput.get())).expect("finite"),
        answered: GbitPerSecond::new(sum(|part| part.answered.get())).expect("finite"),
        sent: GbitPerSecond::new(sum(|part| part.sent.get())).expect("finite"),
        ..parts[0]
    };
    let cores = Cores::new(f64::from(of)).expect("finite");
    utility.profit(&response, &Usage { cores, ..Usage::default() }, prices).get()
}

/// Servers on several cores, their clients, and who sells the cores.
struct House {
    members: Vec<Core>,
    settings: Vec<Setting>,
    board: Board,
    prices: Prices,
    now_ns: u64,
    noise: Noise,
    random: Random,
    /// How often another number of cores served.
    turns: u32,
}

impl House {
    fn new(seed: u64) -> House {
        let (earner, board, _) = earner(&[("utility", CONTRACT), ("knobs", "cores")]);
        let members: Vec<Core> = CoreGovernor::of_cores(earner, board.clone(), MOST.into()).collect();
        let settings = vec![Setting { cores: MOST, ..Setting::default() }; members.len()];
        let noise = Noise::new(0.03, 0.3, 0.002);
        let (prices, random) = (Prices::default(), Random::new(seed));
        let mut house = House { members, settings, board, prices, now_ns: 0, noise, random, turns: 0 };
        house.post(PricedResource::NetworkOut, 1.0);
        house
    }

    fn post(&mut self, resource: PricedResource, dollars: f64) {
        self.board.post(resource, dollars, self.now_ns);
        let resource = match resource {
            PricedResource::Core => Resource::Core,
            _ => Resource::NetworkOut,
        };
        self.prices.offer(resource, dollars, 0).expect("a price");
    }

    fn cores(&self) -> u16 {
        self.settings[0].cores
    }

    /// Serves so many clients; the cores that are not to serve do not.
    fn serve(&mut self, clients: u32, seconds: f64) {
        let until_ns = self.now_ns + (seconds * SECOND as f64) as u64;
        while self.now_ns < until_ns {
            self.now_ns += PART_NS;
            let of = self.cores();
            for index in 0..of {
                self.core(clients, of, index);
            }
            self.turns += u32::from(self.cores() != of);
        }
    }

    fn core(&mut self, clients: u32, of: u16, index: u16) {
        let member = &mut self.members[usize::from(index)];
        let setting = &mut self.settings[usize::from(index)];
        *setting = member.look(self.now_ns).unwrap_or(*setting);
        let window = Window { from_ns: self.now_ns - PART_NS, to_ns: self.now_ns, ..Window::default() };
        let window = match part(clients, of, index, *setting) {
            Some(truth) => {
                let seconds = PART_NS as f64 / 1e9;
                filled(window, &self.noise.observe(&truth, seconds, &mut self.random), seconds)
            }
            None => window,
        };
        *setting = member.observe(&Window { setting: *setting, ..window });
    }

    /// Profit with what is set, as a share of the best there is.
    fn share(&self, clients: u32) -> f64 {
        let delays = [0, 2, 4, 8, 16, 32, 64, 128].map(Duration::from_micros);
        let all = (1..=MOST).flat_map(|of| delays.map(|delay| (of, delay)));
        let best = all
            .map(|(of, batching_delay)| {
                rate(clients, of, Setting { batching_delay, ..Setting::default() }, &self.prices)
            })
            .fold(f64::NEG_INFINITY, f64::max);
        rate(clients, self.cores(), self.settings[0], &self.prices) / best
    }
}

fn filled(window: Window, measured: &Observation, seconds: f64) -> Window {
    let Response { throughput, latency, sent, .. } = measured.response;
    let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
    Window {
        requests: (throughput.get() * seconds) as u64,
        answered_bytes: (sent.get() * seconds * 1e9 / 8.0) as u64,
        sent_bytes: (sent.get() * seconds * 1e9 / 8.0) as u64,
        latency: Latency {
            mean_ns: nanoseconds(latency.mean().get()),
            jitter_ns: nanoseconds(latency.jitter().get()),
            p99_ns: nanoseconds(latency.p99().get()),
        },
        ..window
    }
}

/// What the cores' work brings, about, if all serve 64 clients.
fn worth() -> f64 {
    rate(64, MOST, Setting::default(), &Prices::default())
}

#[test]
fn as_many_cores_serve_as_pay() {
    for (clients, dollars) in [(64, 0.01), (64, 0.6), (2, 0.1), (1, 0.05), (8, 0.02)] {
        for seed in 0..4 {
            let mut house = House::new(seed);
            house.post(PricedResource::Core, dollars * worth());
            house.serve(clients, 20.0);
            let (cores, share) = (house.cores(), house.share(clients));
            assert!(share > 0.95, "{clients} clients at {dollars}: {share} with {cores} cores");
        }
    }
}

#[test]
fn a_price_of_cores_is_answered_at_once() {
    let mut house = House::new(9);
    house.post(PricedResource::Core, 0.001);
    house.serve(64, 10.0);
    house.post(PricedResource::Core, 0.5 * worth());
    house.serve(64, 10.0);
    assert_eq!(house.cores(), 1);
    for (dollars, cores) in [(0.001, MOST), (0.5 * worth(), 1)] {
        house.post(PricedResource::Core, dollars);
        house.serve(64, 0.01);
        assert_eq!(house.cores(), cores, "within two windows of a core");
        house.serve(64, 3.0);
        assert_eq!(house.cores(), cores, "and it stays");
    }
}

#[test]
fn a_load_that_grows_gets_its_cores_back() {
    for seed in 0..4 {
        let mut house = House::new(seed);
        house.post(PricedResource::Core, 0.05 * worth());
        house.serve(1, 10.0);
        assert_eq!(house.cores(), 1);
        house.serve(64, 6.0);
        // Now and then another batching delay is tried for a window.
        let shares = (0..20).map(|_| {
            house.serve(64, 0.025);
            house.share(64)
        });
        let mean = shares.sum::<f64>() / 20.0;
        assert!(mean > 0.9, "{mean} with {} cores", house.cores());
        house.serve(1, 5.0);
        assert_eq!(house.cores(), 1);
    }
}

#[test]
fn noise_moves_no_core() {
    let mut house = House::new(3);
    house.post(PricedResource::Core, 0.05 * worth());
    house.serve(64, 30.0);
    let turns = house.turns;
    house.serve(64, 60.0);
    assert!(house.turns - turns <= 4, "{} turns in a minute", house.turns - turns);
}

#[test]
fn while_nobody_asks_one_core_waits() {
    let mut house = House::new(4);
    house.post(PricedResource::Core, 0.001);
    house.serve(64, 5.0);
    assert_eq!(house.cores(), MOST);
    house.serve(0, 2.0);
    assert_eq!(house.cores(), 1);
    house.serve(64, 0.2);
    assert_eq!(house.cores(), MOST);
}
