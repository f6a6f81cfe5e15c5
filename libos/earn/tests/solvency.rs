//! What a governor says of a contract that cannot pay, and whom it refuses.

mod common;

use common::World;
use nom_abi::prices::PricedResource;
use nom_earn::Solvency;
use nom_service::Governor;

/// Windows of more than ten seconds.
const TEN_SECONDS: u32 = 600;
/// On time in the simulated server under 64 clients without a batching delay, or with a small one.
const ON_TIME: (&str, &str) = ("utility", "Gbit; penalty 20 100 0.0017");
const REFUSE: (&str, &str) = ("knobs", "batching_delay,admission");

fn world(variables: &[(&str, &'static str)], network_out: f64) -> World {
    let world = World::new(variables, 1);
    world.board.post(PricedResource::NetworkOut, network_out, 0);
    world
}

#[test]
fn a_contract_that_pays_has_nothing_amiss() {
    let mut world = world(&[ON_TIME], 1.0);
    world.windows(TEN_SECONDS, 64.0);
    let solvency = world.heard.solvency();
    assert_eq!((solvency.state, solvency.objective_ns), (Solvency::PAYS, 1_700_000));
    assert_eq!(solvency.clients_max, Solvency::NO_LIMIT);
}

#[test]
fn requests_that_cost_more_than_they_bring_are_said_to() {
    let mut world = world(&[("utility", "Gbit; value 20")], 30.0);
    world.windows(20, 64.0);
    assert_eq!(world.heard.solvency().state, Solvency::PAYS, "it is too early to say");
    world.windows(TEN_SECONDS, 64.0);
    let solvency = world.heard.solvency();
    assert_eq!((solvency.state, solvency.clients_max), (Solvency::COSTS_MORE, Solvency::NO_LIMIT));
    world.board.post(PricedResource::NetworkOut, 1.0, world.now_ns);
    world.earner.look(world.now_ns);
    assert_eq!(world.heard.solvency().state, Solvency::PAYS, "a new price is answered at once");
}

#[test]
fn a_promise_that_no_batching_delay_keeps_is_said_to_be_missed() {
    let mut world = world(&[("utility", "Gbit; penalty 20 100 0.0001")], 1.0);
    world.windows(TEN_SECONDS, 64.0);
    let (solvency, at_once) = (world.heard.solvency(), World::truth(64.0, Default::default()));
    assert_eq!((solvency.state, solvency.objective_ns), (Solvency::LATE, 100_000));
    assert_eq!(solvency.soonest_delay_us, 0);
    let told = solvency.soonest_p99_ns as f64 / 1e9 / at_once.latency.p99().get();
    assert!((0.8..1.25).contains(&told), "{solvency:?}");
}

#[test]
fn a_machine_that_costs_more_than_its_requests_bring_is_said_to() {
    let mut world = world(&[ON_TIME], 1.0);
    world.board.post(PricedResource::Core, 1000.0, 0);
    world.windows(TEN_SECONDS, 64.0);
    assert_eq!(world.heard.solvency().state, Solvency::HELD_COSTS_MORE);
}

#[test]
fn who_costs_more_than_he_brings_is_refused_and_tried_again_now_and_then() {
    let (mut served, mut world) = (0, world(&[("utility", "Gbit; value 20"), REFUSE], 30.0));
    world.windows(TEN_SECONDS, 64.0);
    let lost = world.earner.account().profit().dollars();
    for _ in 0..60 {
        world.window(64.0);
        served += u32::from(world.earner.setting().clients_max != Some(0));
    }
    assert!((1..120).contains(&served), "{served} windows with clients");
    assert_eq!(world.heard.solvency().state, Solvency::COSTS_MORE, "it is still so");
    world.board.post(PricedResource::NetworkOut, 1.0, world.now_ns);
    world.earner.look(world.now_ns);
    assert_eq!(world.earner.setting().clients_max, None, "all are let in again at once");
    world.windows(TEN_SECONDS, 64.0);
    assert!(world.earner.account().profit().dollars() > lost);
}

#[test]
fn as_many_are_served_as_can_be_in_time() {
    // A few clients are answered in time, 64 are not.
    let contract = ("utility", "Gbit; penalty 20 100 0.0004");
    let [refusing, serving] = [&[contract, REFUSE][..], &[contract]].map(|variables| {
        let mut world = world(variables, 1.0);
        while world.now_ns < 60_000_000_000 {
            world.window(64.0);
        }
        world.earner.account().profit().dollars()
    });
    assert!(serving < 0.0 && refusing > 0.0, "{serving} {refusing}");
}

#[test]
fn without_a_contract_costs_are_reckoned_and_nothing_is_set() {
    use common::{Board, Heard};
    use nom_earn::{Earner, Held, Settings};
    use nom_service::{Setting, Window};
    use std::time::Duration;
    let (board, heard) = (Board::default(), Heard::default());
    let held = || Held { cores: 2, memory_bytes: 1 << 30 };
    let mut earner = Earner::new(Settings::watched(), board.clone(), heard.clone(), held);
    board.post(PricedResource::Core, 3.0, 0);
    assert!(!earner.governs());
    let setting = Setting { batching_delay: Duration::from_micros(70), cores: 2, ..Setting::default() };
    for second in 0..10 {
        let (from_ns, to_ns) = (second * 1_000_000_000, (second + 1) * 1_000_000_000);
        let window = Window { from_ns, to_ns, requests: 500, setting, ..Window::default() };
        assert_eq!(earner.observe(&window), setting, "what others have set");
    }
    let report = *heard.reports().last().expect("it reports");
    assert_eq!((report.requests, report.batching_delay_us), (500, 70));
    assert_eq!([report.cost_per_second, report.profit].map(f64::from_bits), [6.0, -60.0]);
    assert_eq!(heard.solvency().state, Solvency::NO_CONTRACT);
}
