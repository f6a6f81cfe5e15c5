//! The real governor of a simulated server: what it earns, and how soon it notices.

mod common;

use common::World;
use nom_abi::prices::PricedResource;
use nom_economy::controller::{BatchingDelays, WorkingPoints};
use nom_economy::prices::{Prices, Usage};
use nom_economy::response::Response;
use nom_economy::utility::Utility;
use nom_service::{Governor, Setting};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// The paper's contracts (section 6.4), the penalty's objective such that many clients can just be served.
const CONTRACTS: [&str; 3] = ["Gbit; penalty 20 100 0.0017", "Gbit; refund 20 10", "Gbit; bonus 20 0.01"];

fn rate(utility: &Utility, prices: &Prices, response: &Response) -> f64 {
    utility.profit(response, &Usage::default(), prices).get()
}

fn best(utility: &Utility, prices: &Prices, clients: f64) -> f64 {
    let delays = BatchingDelays::up_to(1000);
    let settings = (0..delays.count()).map(|at| Setting {
        batching_delay: Duration::from_micros(delays.micros(at).into()),
        ..Setting::default()
    });
    let rates = settings.map(|setting| rate(utility, prices, &World::truth(clients, setting)));
    rates.fold(f64::NEG_INFINITY, f64::max)
}

/// Many clients at 1 $/Gbit, then one at 10 $/Gbit, as in section 6.1: profit over that of the best setting
/// of each phase.
fn share_of_oracle(contract: &'static str, seed: u64) -> f64 {
    let utility: Utility = contract.parse().expect("good");
    let mut world = World::new(&[("utility", contract)], seed);
    let (mut earned, mut oracle) = (0.0, 0.0);
    for (clients, price) in [(64.0, 1.0), (1.0, 10.0)] {
        world.board.post(PricedResource::NetworkOut, price, world.now_ns);
        world.earner.look(world.now_ns);
        let (began_ns, tariff) = (world.now_ns, *world.earner.tariff());
        while world.now_ns < began_ns + 60 * SECOND {
            let from_ns = world.now_ns;
            let seconds = |from: u64, to: u64| (to - from) as f64 / 1e9;
            let response = world.window(clients);
            earned += rate(&utility, &tariff.prices, &response) * seconds(from_ns, world.now_ns);
        }
        oracle += best(&utility, &tariff.prices, clients) * (world.now_ns - began_ns) as f64 / 1e9;
    }
    earned / oracle
}

#[test]
fn it_earns_nearly_what_the_oracle_earns() {
    for (seed, contract) in CONTRACTS.into_iter().enumerate() {
        let share = share_of_oracle(contract, seed as u64);
        assert!(share >= 0.97, "{contract}: {share}");
    }
}

#[test]
fn a_price_is_answered_at_the_very_next_look() {
    // What is sent brings 20 $/Gbit: up to that price, the more of it the better; beyond, the less.
    let mut world = World::new(&[("utility", "Gbit; value 20")], 4);
    world.board.post(PricedResource::NetworkOut, 1.0, 0);
    for _ in 0..300 {
        world.window(1.0);
    }
    let sent = |setting| World::truth(1.0, setting).sent.get();
    let much = world.earner.setting();
    assert_eq!(world.earner.look(world.now_ns), None, "nothing is new");
    let reports = world.heard.reports().len();
    world.board.post(PricedResource::NetworkOut, 30.0, world.now_ns + 5);
    let little = world.earner.look(world.now_ns + 7).expect("another setting");
    assert!(sent(little) < 0.5 * sent(much), "{much:?} {little:?}");
    let told = world.heard.reports()[reports..].to_vec();
    let [told] = told[..] else { panic!("one report at once: {told:?}") };
    assert_eq!(Duration::from_micros(told.batching_delay_us), little.batching_delay);
    assert_eq!((f64::from_bits(told.price_network_out), told.at_ns), (30.0, world.now_ns + 7));
    world.board.post(PricedResource::NetworkOut, 1.0, world.now_ns + 8);
    let again = world.earner.look(world.now_ns + 9).expect("back again");
    assert!(sent(again) > 0.97 * sent(much), "{again:?}");
}

#[test]
fn a_load_that_comes_back_is_known() {
    let contract = "Gbit; refund 20 10000";
    let utility: Utility = contract.parse().expect("good");
    let mut world = World::new(&[("utility", contract)], 5);
    world.board.post(PricedResource::NetworkOut, 1.0, 0);
    for clients in [64.0, 1.0] {
        world.windows(1000, clients);
    }
    for clients in [64.0, 1.0, 64.0] {
        world.windows(50, clients);
        let prices = world.earner.tariff().prices;
        let here = rate(&utility, &prices, &World::truth(clients, world.earner.setting()));
        assert!(here > 0.97 * best(&utility, &prices, clients), "{clients} clients");
    }
}
