//! Whoever earns most is served first, by what contracts pay and what is measured, in simulated time: the
//! real governor, server and scheduler, and three tenants who want more of a core than there is.

mod common;
#[path = "common/tenants.rs"]
mod tenants;

use nom_earn::{Audience, Earner, Held, PriceBoard, PriceList, Report, Settings, Solvency};
use tenants::{FIRST, SECOND, WARM_UP, World};

/// Nobody posts prices: what is held and moved costs nothing.
struct NoPrices;

impl PriceBoard for NoPrices {
    fn sequence(&self) -> u32 {
        0
    }

    fn read(&self) -> Option<PriceList> {
        None
    }
}

/// Nobody listens.
struct Nobody;

impl Audience for Nobody {
    fn report(&mut self, _: &Report, _: &Solvency) {}
}

const RULES: &str = "gold clients=10.0.0.1; silver clients=10.0.0.2; bronze clients=10.0.0.3";

/// Connections of each, whose requests take 85 microseconds of the core and half a millisecond of the way:
/// gold alone can use half of the core, and all together three times as much as there is.
const CONNECTIONS: [usize; 3] = [6, 24, 120];
const WAY_NS: u64 = 500_000;

/// A world whose tenants pay by these contracts and are served by this plan.
fn world(plan: &str, contracts: &str) -> World {
    let mut world = World::new(plan);
    let environment = |name: &str| match name {
        "activity" => Some(RULES),
        "contracts" => Some(contracts),
        "batching_delay" => Some("0"),
        _ => None,
    };
    let settings =
        Settings::from_environment(environment).expect("they are contracts").expect("there are some");
    let earner = Earner::new(settings, NoPrices, Nobody, Held::default);
    world.server.borrow_mut().govern(Box::new(earner), world.core.handle());
    world.way_ns = WAY_NS;
    (0..3).for_each(|machine| world.connect(machine, CONNECTIONS[machine]));
    world
}

/// What each tenant pays in two seconds, in nanodollars.
fn pay(plan: &str, contracts: &str) -> [i64; 3] {
    let mut world = world(plan, contracts);
    let told = |world: &World| {
        let consumption = world.server.borrow_mut().consumption();
        [0, 1, 2].map(|tenant| consumption[FIRST + tenant].revenue_nanodollars)
    };
    world.run(WARM_UP);
    let before = told(&world);
    world.run(2 * SECOND);
    let now = told(&world);
    [0, 1, 2].map(|tenant| now[tenant] - before[tenant])
}

const FAIR: &str = "at input fair batching=1";
const BY_CONTRACT: &str = "at input profit batching=1; for gold earns=contract; for silver earns=contract; \
                           for bronze earns=contract";

/// Gold pays for requests that come within 5 ms, and has them paid for that come later; silver pays less the
/// longer it waits, bronze by bytes, and little.
const CONTRACTS: &str = "for gold operation; penalty 0.000003 2 0.005; \
                         for silver operation; refund 0.000002 0.00002; for bronze Gbit; value 1";

/// The same without a measure: 3,000, 2,000 and 64 nanodollars a request of 85 microseconds.
const BY_HAND: &str =
    "at input profit batching=1; for gold earns=35000; for silver earns=23000; for bronze earns=750";

/// Nobody has to know what a request takes to say what a million nanoseconds earn.
#[test]
fn contracts_bring_more_where_whoever_earns_most_is_served_first() {
    let [fair, stated, measured] = [FAIR, BY_HAND, BY_CONTRACT].map(|plan| pay(plan, CONTRACTS));
    let sum = |pay: [i64; 3]| pay.iter().sum::<i64>() as f64;
    let ratio = sum(measured) / sum(fair);
    println!("{ratio:.2}: {measured:?} against {fair:?}, and {stated:?} by hand");
    assert!(sum(fair) > 0.0 && ratio > 1.2, "{ratio}: {measured:?} against {fair:?}");
    assert!(sum(measured) > 0.98 * sum(stated), "{measured:?} against {stated:?}");
}

/// A contract that cannot be kept is no reason to serve anybody first, though it pays most if it is.
#[test]
fn who_would_be_late_however_soon_he_is_served_is_not_preferred() {
    let contracts = "for gold operation; penalty 0.000003 10 0.00001; for silver operation; value 0.000001";
    let plan = "at input profit batching=1; for gold earns=contract; for silver earns=contract";
    let mut world = world(plan, contracts);
    world.run(WARM_UP);
    let [gold, silver, bronze] = world.measure(SECOND);
    // It gets of what silver leaves what bronze does, who pays nothing either.
    assert!(silver.1 > 5 * gold.1 && bronze.0 >= gold.0, "{gold:?}, {silver:?} and {bronze:?}");
}

/// What a contract pays for the next request is what counts, not what it pays in the mean.
#[test]
fn who_has_had_all_that_he_pays_for_leaves_the_core_to_others() {
    // Gold pays for 1,600 requests a second, and not for more; where it comes first it asks 2,200.
    let contracts = "for gold operation; table throughput second 0:0 1600:0.016; \
                     for silver operation; value 0.000001";
    let plan = "at input profit batching=1; for gold earns=contract; for silver earns=contract";
    let mut world = world(plan, contracts);
    world.run(WARM_UP);
    let [gold, silver, _] = world.measure(2 * SECOND);
    assert!((1_400..1_900).contains(&(gold.1 / 2)), "{gold:?} and {silver:?}");
    assert!(silver.1 > gold.1, "{gold:?} and {silver:?}");
}
