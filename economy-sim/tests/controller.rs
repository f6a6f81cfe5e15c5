//! What the controller makes of simulated servers.

use nom_economy::controller::{BatchingDelays, Controller, KnobGrid, Notice, Profit, WorkingPoints};
use nom_economy::response::{Observation, Response};
use nom_economy::units::{DollarsPerSecond, GbitPerSecond, OperationsPerSecond, Seconds};
use nom_economy::utility::Latency;
use nom_economy_sim::{Climb, Noise, Outcome, Random, Scenario, Server, run, run_with};
use proptest::prelude::*;

const INTERVAL: f64 = 0.02;

/// A server of the paper's speed that gains much by batching under many clients.
fn server() -> Server {
    Server {
        request: 10e-6,
        batch: 15e-6,
        crowding: 0.2e-6,
        wire: 40e-6,
        waiting: 1.0,
        idle_jitter: 0.1,
        queue_jitter: 0.2,
        tail: 1.2,
        ripple: (0.0, 0.0),
        bytes: 1000.0,
        unheld: 1.0,
    }
}

fn noise(white: f64) -> Noise {
    Noise::new(white, 0.3, 0.002)
}

/// Profit with a refund that makes late answers worthless at 2 ms.
fn refund(price: f64) -> impl Fn(usize, &Response) -> DollarsPerSecond {
    move |_, response| {
        let value = 20.0 * (1.0 - response.latency.mean().get() / 2e-3).max(0.0) - price;
        DollarsPerSecond::new(response.sent.get() * value).expect("finite")
    }
}

struct Bench {
    points: BatchingDelays,
    server: Server,
    controller: Controller,
    noise: Noise,
    random: Random,
}

impl Bench {
    fn new(white: f64, seed: u64) -> Self {
        let points = BatchingDelays::up_to(500);
        let controller = Controller::new(&points, 0);
        Self { points, server: server(), controller, noise: noise(white), random: Random::new(seed) }
    }

    /// Serves so many clients for so many intervals, and returns the points that were set.
    fn serve(&mut self, clients: f64, intervals: u32, profit: &Profit) -> Vec<usize> {
        let step = |_| {
            let truth = self.server.response(clients, self.points.micros(self.controller.point()), 1.0);
            let observation = self.noise.observe(&truth, INTERVAL, &mut self.random);
            self.controller.observe(&observation, profit)
        };
        (0..intervals).map(step).collect()
    }

    fn truth(&self, clients: f64, point: usize, profit: &Profit) -> f64 {
        profit(point, &self.server.response(clients, self.points.micros(point), 1.0)).get()
    }

    /// Profit at the present point over that at the best.
    fn share(&self, clients: f64, profit: &Profit) -> f64 {
        let all = (0..self.points.count()).map(|point| self.truth(clients, point, profit));
        self.truth(clients, self.controller.point(), profit) / all.fold(f64::NEG_INFINITY, f64::max)
    }
}

#[test]
fn the_published_experiment_earns_what_the_oracle_earns() {
    for seed in 0..3 {
        let scenario = Scenario::published(seed);
        let outcome = run(&scenario, seed);
        let share = outcome.profit / outcome.oracle;
        assert!(share >= 0.97, "seed {seed}: {share}");
        assert!(outcome.profit >= 0.99 * outcome.best_static, "seed {seed}");
        assert!(
            outcome.found_seconds[1] <= 1.0,
            "seed {seed}: load noticed after {:?}",
            outcome.found_seconds
        );
    }
}

/// Shares of the oracle with eight seeds, and their mean.
fn shares(scenario: fn(u64) -> Scenario) -> (f64, Vec<f64>) {
    let share = |seed| {
        let outcome = run(&scenario(seed), seed);
        outcome.profit / outcome.oracle
    };
    let shares: Vec<f64> = (0..8).map(share).collect();
    (shares.iter().sum::<f64>() / 8.0, shares)
}

#[test]
fn a_shared_host_does_not_lead_it_astray() {
    let (mean, shares) = shares(Scenario::host);
    assert!(mean > 0.95 && shares.iter().all(|share| *share > 0.8), "{mean} of {shares:?}");
}

#[test]
fn a_best_point_that_moves_is_followed() {
    let (mean, shares) = shares(Scenario::turning);
    assert!(mean > 0.93 && shares.iter().all(|share| *share > 0.8), "{mean} of {shares:?}");
}

#[test]
fn a_time_in_which_nothing_pays_costs_little_and_leaves_nothing_behind() {
    let (mean, shares) = shares(Scenario::losing);
    assert!(mean > 0.95 && shares.iter().all(|share| *share > 0.8), "{mean} of {shares:?}");
}

#[test]
fn near_a_promise_what_makes_a_profit_is_kept_though_a_loss_is_expected() {
    // Of these a controller that believes its estimate alone makes 76% to 89%: it leaves what earns.
    for seed in [99, 109, 168, 246, 257, 273] {
        let outcome = run(&Scenario::cliff(seed), seed);
        let share = outcome.profit / outcome.oracle;
        assert!(share > 0.9, "seed {seed}: {share}");
    }
}

/// At these promises were, before, a point that a hiccup had condemned for good, and trials in half of the
/// time, of which each cost a fifth of what it could have taught.
#[test]
fn near_a_promise_trials_cost_little() {
    for seed in [300_037, 300_135] {
        let outcome = run(&Scenario::cliff(seed), seed);
        assert!(outcome.profit > 0.95 * outcome.oracle, "{seed}: {}", outcome.profit / outcome.oracle);
    }
}

#[test]
fn it_beats_climbing() {
    let earned = |outcome: Outcome| outcome.profit / outcome.oracle;
    let (mut bayes, mut climb) = (0.0, 0.0);
    for seed in 100..102 {
        let scenario = Scenario::random(seed);
        bayes += earned(run(&scenario, seed));
        climb += earned(run_with(&scenario, seed, Climb::new(scenario.count())));
    }
    assert!(bayes > climb, "{bayes} {climb}");
}

#[test]
fn the_same_seed_makes_the_same_decisions() {
    let scenario = Scenario::random(7);
    let [one, other] = [(); 2].map(|()| run(&scenario, 9));
    assert_eq!(one.profit.to_bits(), other.profit.to_bits());
    assert_ne!(one.profit.to_bits(), run(&scenario, 10).profit.to_bits());
}

#[test]
fn a_price_change_is_answered_without_a_measurement() {
    // What is sent brings 20 $/Gbit: up to that price, the more of it the better; beyond, the less.
    let at_price = |price: f64| {
        move |_: usize, response: &Response| {
            DollarsPerSecond::new(response.sent.get() * (20.0 - price)).expect("finite")
        }
    };
    let mut bench = Bench::new(0.01, 1);
    bench.serve(1.0, 300, &at_price(1.0));
    let (before, sent_much) =
        (bench.controller.point(), bench.truth(1.0, bench.controller.point(), &at_price(0.0)));
    let after = bench.controller.reconsider(&at_price(30.0));
    let sent_little = bench.truth(1.0, after, &at_price(0.0));
    assert!(sent_little < 0.5 * sent_much, "{before} {after}: {sent_much} {sent_little}");
    let again = bench.controller.reconsider(&at_price(1.0));
    assert!(bench.truth(1.0, again, &at_price(0.0)) > 0.97 * sent_much, "{again}");
}

#[test]
fn loads_are_told_apart_and_known_again() {
    let mut bench = Bench::new(0.02, 2);
    bench.serve(64.0, 400, &refund(1.0));
    assert!(bench.share(64.0, &refund(1.0)) > 0.98);
    bench.serve(1.0, 400, &refund(1.0));
    assert!(bench.share(1.0, &refund(1.0)) > 0.98);
    assert_eq!(bench.controller.loads(), 2);
    for _ in 0..3 {
        bench.serve(64.0, 5, &refund(1.0));
        assert!(bench.share(64.0, &refund(1.0)) > 0.97, "after a tenth of a second");
        bench.serve(64.0, 100, &refund(1.0));
        bench.serve(1.0, 5, &refund(1.0));
        assert!(bench.share(1.0, &refund(1.0)) > 0.97, "after a tenth of a second");
        bench.serve(1.0, 100, &refund(1.0));
    }
    assert_eq!(bench.controller.loads(), 2);
}

/// Profit where late answers are worthless at 0.6 ms, which no batching delay keeps; only packets that are
/// not held may, if their path is short.
fn strict(_: usize, response: &Response) -> DollarsPerSecond {
    let value = 20.0 * (1.0 - response.latency.mean().get() / 0.6e-3).max(0.0) - 1.0;
    DollarsPerSecond::new(response.sent.get() * value).expect("finite")
}

#[test]
fn as_long_as_it_loses_it_keeps_looking_ever_more_rarely() {
    for seed in 0..8 {
        let mut bench = Bench::new(0.01, seed);
        bench.server.unheld = 2.0;
        bench.serve(64.0, 500, &strict);
        let trials = |points: &[usize]| points.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let [early, late] = [1000, 1000].map(|intervals| trials(&bench.serve(64.0, intervals, &strict)));
        assert!(late > 0 && late < early, "seed {seed}: {early} changes, then {late}");
        // Not to hold packets was measured many times, and lost; now it pays.
        bench.server.unheld = 0.3;
        bench.serve(64.0, 6000, &strict);
        assert_eq!(bench.controller.point(), 0, "seed {seed}: it earns again");
    }
}

#[test]
fn one_slow_request_at_the_start_begins_no_search() {
    let latency = Seconds::from_micros(8000);
    let latency = Latency::new(latency, Seconds::from_micros(1), latency).expect("a latency");
    let (rate, data) = (OperationsPerSecond::new(50.0), GbitPerSecond::new(1e-4).expect("data"));
    let throughput = rate.expect("a rate");
    let response = Response { throughput, answered: data, sent: data, received: data, latency };
    let mut controller = Controller::new(&BatchingDelays::up_to(10_000), 0);
    for interval in 0..2 {
        let point = controller.observe(&Observation { response, samples: 1 }, &strict);
        assert_eq!(point, 0, "interval {interval}");
    }
    for _ in 0..4 {
        controller.observe(&Observation { response, samples: 100 }, &strict);
    }
    assert_ne!(controller.point(), 0, "what stays so slow is a loss, though");
}

#[test]
fn a_load_that_was_met_is_known_again_within_two_intervals() {
    let mut bench = Bench::new(0.02, 2);
    [64.0, 1.0].into_iter().for_each(|clients| drop(bench.serve(clients, 100, &refund(1.0))));
    for clients in [64.0, 1.0, 64.0, 1.0] {
        let before = bench.controller.load();
        bench.serve(clients, 2, &refund(1.0));
        assert_ne!(bench.controller.load(), before, "{clients} clients");
        bench.serve(clients, 30, &refund(1.0));
    }
    assert_eq!(bench.controller.loads(), 2);
}

#[test]
fn noise_and_hiccups_do_not_make_it_oscillate() {
    for (seed, white) in [(3, 0.003), (4, 0.02), (5, 0.05)] {
        let mut bench = Bench::new(white, seed);
        bench.serve(32.0, 1000, &refund(1.0));
        let points = bench.serve(32.0, 3000, &refund(1.0));
        let changes = points.windows(2).filter(|pair| pair[0] != pair[1]).count();
        // A trial is two: where noise is large and others are as good, one interval in twenty-five is.
        assert!(changes <= 240, "{changes} changes in a minute with noise of {white}");
        assert_eq!(bench.controller.loads(), 1);
    }
}

#[test]
fn a_hiccup_at_a_trial_does_not_condemn_the_point() {
    let mut bench = Bench::new(0.02, 8);
    bench.serve(32.0, 20, &refund(1.0));
    // A trial leaves the point that was set for the last ten intervals.
    let mut settled = (bench.controller.point(), 0);
    while settled.1 < 10 || bench.controller.point() == settled.0 {
        settled = if bench.controller.point() == settled.0 {
            (settled.0, settled.1 + 1)
        } else {
            (bench.controller.point(), 0)
        };
        bench.serve(32.0, 1, &refund(1.0));
    }
    let (home, point) = (settled.0, bench.controller.point());
    let response = server().response(32.0, bench.points.micros(point), 2.0);
    let hiccup = Observation { response, samples: 1000 };
    assert_eq!(bench.controller.observe(&hiccup, &refund(1.0)), point, "it gets another chance");
    assert_eq!(bench.controller.observe(&hiccup, &refund(1.0)), home, "but one");
}

#[test]
fn a_given_table_is_used_from_the_first_interval() {
    let mut bench = Bench::new(0.01, 6);
    let rows = |clients| {
        let points = BatchingDelays::up_to(500);
        (0..points.count()).map(move |at| (at, server().response(clients, points.micros(at), 1.0)))
    };
    for clients in [1.0, 64.0] {
        let table: Vec<_> = rows(clients).chain([(usize::MAX, server().response(1.0, 0, 1.0))]).collect();
        bench.controller.teach(&table);
    }
    bench.serve(64.0, 1, &refund(1.0));
    let share = bench.share(64.0, &refund(1.0));
    assert!(share > 0.99, "{share}");
}

#[test]
fn an_interval_without_requests_changes_nothing() {
    let mut bench = Bench::new(0.01, 7);
    bench.serve(64.0, 300, &refund(1.0));
    let response = server().response(1.0, 0, 1.0);
    let before = bench.controller.point();
    for _ in 0..100 {
        bench.controller.observe(&Observation { response, samples: 0 }, &refund(1.0));
    }
    assert_eq!((bench.controller.point(), bench.controller.loads()), (before, 1));
}

#[test]
fn cores_are_held_while_they_pay() {
    let delays = BatchingDelays::up_to(100);
    let knobs = KnobGrid::new(delays, &[Notice::Interrupt, Notice::Poll], &[1, 2]).expect("values");
    let respond = |point: usize, clients: f64| {
        let setting = knobs.setting(point);
        let mut server = server();
        let speed = f64::from(setting.cores) * if setting.notice == Notice::Poll { 1.2 } else { 1.0 };
        (server.request, server.batch) = (server.request / speed, server.batch / speed);
        server.response(clients, setting.batching_micros, 1.0)
    };
    let profit = |point: usize, response: &Response| {
        let setting = knobs.setting(point);
        let polling = if setting.notice == Notice::Poll { 0.1 } else { 0.0 };
        let cost = 2.0 * f64::from(setting.cores) * (1.0 + polling);
        DollarsPerSecond::new(20.0 * response.sent.get() - cost).expect("finite")
    };
    let mut controller = Controller::new(&knobs, 0);
    let (mut noise, mut random) = (noise(0.01), Random::new(8));
    for (clients, cores) in [(64.0, 2), (1.0, 1)] {
        for _ in 0..400 {
            let truth = respond(controller.point(), clients);
            controller.observe(&noise.observe(&truth, INTERVAL, &mut random), &profit);
        }
        let at = |point| profit(point, &respond(point, clients)).get();
        let best = (0..knobs.count()).map(at).fold(f64::NEG_INFINITY, f64::max);
        assert!(at(controller.point()) > 0.97 * best, "{clients}: {:?}", knobs.setting(controller.point()));
        assert_eq!(knobs.setting(controller.point()).cores, cores);
    }
}

fn any_observation() -> impl Strategy<Value = Observation> {
    let exponent = || -300.0..300.0_f64;
    (exponent(), exponent(), exponent(), exponent(), exponent(), any::<u64>()).prop_map(|logs| {
        let power = |log: f64| libm::exp10(log);
        let seconds = |log| Seconds::new(power(log)).expect("finite");
        let latency = Latency::new(seconds(logs.0), seconds(logs.1), seconds(logs.2)).expect("above 0");
        let sent = GbitPerSecond::new(power(logs.3)).expect("finite");
        let throughput = OperationsPerSecond::new(power(logs.4)).expect("finite");
        Observation {
            response: Response { throughput, answered: sent, sent, received: sent, latency },
            samples: logs.5,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_measurement_makes_it_leave_its_points(
        observations in prop::collection::vec(any_observation(), 1..60),
    ) {
        let points = BatchingDelays::up_to(100);
        let mut controller = Controller::new(&points, 3);
        for observation in &observations {
            prop_assert!(controller.observe(observation, &refund(1.0)) < points.count());
        }
        prop_assert!(controller.reconsider(&refund(2.0)) < points.count());
    }
}
