//! How long whose packets are held to batch them: all for W, and an activity's no longer than its terms, or
//! the governor, say. The server's core alone takes time.

mod common;
#[path = "common/tenants.rs"]
mod tenants;

use nom_grid::GridPlan;
use nom_service::{Activity, Governor, Setting, Urgent, Window};
use std::time::Duration;
use tenants::{FIRST, SECOND, WARM_UP, World};

const W: Duration = Duration::from_millis(2);
/// What a request takes of the core, in nanoseconds, at most.
const REQUEST_NS: u64 = 120_000;

/// A world in which everything is held for W but for what `plan` says, and these machines have a client each.
fn world(plan: &str, machines: &[usize]) -> World {
    let mut world = World::new(plan);
    world.server.borrow_mut().set_delay(W).unwrap();
    machines.iter().for_each(|machine| world.connect(*machine, 1));
    world.run(WARM_UP);
    world
}

/// How long each machine's client waited for an answer, in nanoseconds.
fn waits(world: &mut World) -> [u64; 3] {
    world.measure(SECOND).map(|(_, answered)| SECOND / answered.max(1))
}

#[test]
fn all_are_held_for_the_batching_delay() {
    for machine in 0..3 {
        let waited = waits(&mut world("", &[machine]))[machine];
        assert!((2_000_000..2_000_000 + REQUEST_NS).contains(&waited), "{machine}: {waited}");
    }
}

#[test]
fn an_activity_is_held_for_no_longer_than_its_terms_say() {
    for (delay_us, machine, expected_us) in [(0, 0, 0), (300, 0, 300), (5000, 0, 2000), (0, 1, 2000)] {
        let plan = format!("for gold delay={delay_us}");
        let waited = waits(&mut world(&plan, &[machine]))[machine];
        let expected = expected_us * 1000..expected_us * 1000 + REQUEST_NS;
        assert!(expected.contains(&waited), "delay={delay_us}, machine {machine}: {waited}");
    }
}

#[test]
fn what_is_held_goes_with_what_is_not() {
    let mut world = world("for gold delay=0", &[0, 1]);
    let [gold, silver, _] = waits(&mut world);
    assert!(gold < 4 * REQUEST_NS && silver < 4 * REQUEST_NS, "{gold} and {silver}");
    let told = world.server.borrow_mut().consumption();
    let held = [FIRST, FIRST + 1].map(|activity| told[activity].held_at_most_ns);
    assert_eq!(held, [Some(0), None]);
}

#[test]
fn terms_can_be_changed_while_the_server_serves() {
    let mut world = world("at input fair; for gold weight=2", &[0]);
    let held = waits(&mut world)[0];
    let share = |world: &mut World, plan: &str| {
        let handle = world.core.handle().clone();
        world.server.borrow_mut().share(&plan.parse::<GridPlan>().unwrap(), &handle);
        waits(world)[0]
    };
    let at_once = share(&mut world, "at input fair; for gold weight=2 delay=0");
    let again = share(&mut world, "at input fair; for gold weight=2");
    assert!(at_once < REQUEST_NS && held > 2_000_000 && again > 1_900_000, "{held}, {at_once}, {again}");
}

/// Sets W, and whose packets are not held.
struct Choosing(Urgent);

impl Governor for Choosing {
    fn observe(&mut self, _: &Window) -> Setting {
        Setting { batching_delay: W, urgent: self.0, ..Setting::default() }
    }

    fn look(&mut self, _: u64) -> Option<Setting> {
        None
    }
}

#[test]
fn a_governor_says_whose_packets_are_not_held() {
    for (urgent, expected) in [(FIRST, 0..REQUEST_NS), (FIRST + 1, 2_000_000..2_000_000 + REQUEST_NS)] {
        let mut world = World::new("");
        let handle = world.core.handle().clone();
        let urgent = Urgent::from_iter([Activity(urgent as u32)]);
        world.server.borrow_mut().govern(Box::new(Choosing(urgent)), &handle);
        world.connect(0, 1);
        world.run(WARM_UP);
        let waited = waits(&mut world)[0];
        assert!(expected.contains(&waited), "{urgent:?}: {waited}");
    }
}
