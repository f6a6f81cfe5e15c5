use super::*;
use crate::prices::Resource;
use crate::units::Seconds;
use crate::utility::{Latency, Utility};
use alloc::vec::Vec;
use nom_economy_sim::Random;
use nom_service::Curve;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
/// $20 for a Gbit; a server of 10,000 look-ups a second of 1,000 bytes sends up to 0.08 of them.
const BY_DATA: &str = "Gbit; value 20";
const BY_OPERATION: &str = "operation; value 0.0001";

/// A curve through these points of (MiB, hit ratio).
fn curve(points: &[(u64, f64)]) -> Curve {
    Curve::new(points.iter().map(|(mib, ratio)| (mib * MIB, *ratio)).collect()).expect("a curve")
}

fn demand(points: &[(u64, f64)], limit_mib: u64) -> Demand {
    Demand {
        curve: curve(points),
        samples: 1e5,
        lookups: 10_000.0,
        hit_bytes: 1000.0,
        limit_bytes: limit_mib * MIB,
        least_bytes: 0,
        most_bytes: 64 * MIB,
    }
}

/// A server that sends what its look-ups find, and 100 bytes for each.
struct Machine {
    response: Response,
    held: Usage,
    prices: Prices,
    utility: Utility,
}

impl Machine {
    fn new(demand: &Demand, contract: &str, memory: f64) -> Machine {
        let latency = Latency::new(Seconds::from_micros(200), Seconds::ZERO, Seconds::ZERO).expect("above 0");
        let bytes = 100.0 + demand.curve.at(demand.limit_bytes) * demand.hit_bytes;
        let mut prices = Prices::default();
        if memory > 0.0 {
            prices.offer(Resource::Memory, memory, 0).expect("a price");
        }
        Machine {
            response: Response {
                throughput: OperationsPerSecond::new(demand.lookups).expect("good"),
                answered: GbitPerSecond::new(demand.lookups * bytes * 8e-9).expect("good"),
                sent: GbitPerSecond::new(demand.lookups * bytes * 8e-9).expect("good"),
                received: GbitPerSecond::ZERO,
                latency,
            },
            held: Usage { memory: gib(demand.limit_bytes), ..Usage::default() },
            prices,
            utility: contract.parse().expect("a contract"),
        }
    }

    fn present(&self) -> Present<'_> {
        let Machine { response, held, prices, utility } = self;
        Present { response, held, prices, utility }
    }
}

/// What is chosen at once, in MiB, the present amount if that stays.
fn chosen(demand: &Demand, contract: &str, memory: f64) -> u64 {
    let mut policy = MemoryPolicy::new(4);
    policy.hear(demand);
    let machine = Machine::new(demand, contract, memory);
    policy.choose(0, &machine.present()).map_or(demand.limit_bytes / MIB, u64::from)
}

/// Where it comes to rest, a second for each choice, and the number of moves.
fn settled(mut demand: Demand, contract: &str, memory: f64) -> (u64, usize) {
    let (mut policy, mut moves) = (MemoryPolicy::new(4), 0);
    for second in 0..60 {
        policy.hear(&demand);
        let machine = Machine::new(&demand, contract, memory);
        if let Some(mib) = policy.choose(second * SECOND, &machine.present()) {
            demand.limit_bytes = u64::from(mib) * MIB;
            moves += 1;
        }
    }
    (demand.limit_bytes / MIB, moves)
}

/// Hits grow with the root of memory.
fn root() -> Vec<(u64, f64)> {
    (1..=64).map(|mib| (mib, (mib as f64 / 64.0).sqrt() * 0.9)).collect()
}

#[test]
fn it_takes_what_pays_and_no_more() {
    for contract in [BY_DATA, BY_OPERATION] {
        // 64 MiB bring at most 1.44 $/s by data, and 0.9 by operations.
        assert_eq!(chosen(&demand(&root(), 4), contract, 0.01), 64, "cheap memory, at once");
        assert_eq!(settled(demand(&root(), 64), contract, 1e6).0, 4, "memory too dear leaves the floor");
        let (between, _) = settled(demand(&root(), 64), contract, 15.0);
        assert!((10..=60).contains(&between), "{contract}: {between}");
    }
}

#[test]
fn without_a_price_what_is_held_stays() {
    assert_eq!(chosen(&demand(&root(), 64), BY_DATA, 0.0), 64);
    assert_eq!(chosen(&demand(&[(8, 0.9)], 32), BY_DATA, 0.0), 32, "it gains nothing");
}

#[test]
fn memory_that_hits_nothing_is_given_back_a_quarter_a_second() {
    let flat = demand(&[(8, 0.9)], 64);
    assert_eq!(chosen(&flat, BY_DATA, 1.0), 48);
    let (mut policy, machine) = (MemoryPolicy::new(4), Machine::new(&flat, BY_DATA, 1.0));
    policy.hear(&flat);
    let mut at = |ns| policy.choose(ns, &machine.present());
    assert_eq!([at(0), at(1), at(SECOND - 1), at(SECOND)], [Some(48), None, None, Some(36)]);
    assert_eq!(at(5), Some(27), "a clock that went back does not stop it");
    let (rest, moves) = settled(flat, BY_DATA, 1.0);
    assert!((8..=9).contains(&rest) && moves <= 10, "{rest} after {moves}");
}

#[test]
fn a_valley_is_not_where_it_rests() {
    // All or nothing: below 60 MiB nothing is found.
    let loops = demand(&[(59, 0.001), (60, 0.9)], 64);
    assert_eq!(chosen(&loops, BY_DATA, 0.01), 64, "all is worth it");
    assert_eq!(chosen(&loops, BY_DATA, 50.0), 4, "and where it is not, half would be the worst");
}

#[test]
fn what_the_service_needs_is_never_taken_from_it() {
    let needy = Demand { least_bytes: 20 * MIB - 5, ..demand(&root(), 64) };
    assert_eq!(settled(needy, BY_DATA, 1e6).0, 20);
}

#[test]
fn few_samples_move_nothing() {
    let few = Demand { samples: SAMPLES_MIN - 1.0, ..demand(&root(), 16) };
    for price in [1e-6, 1e6] {
        assert_eq!(chosen(&few, BY_DATA, price), 16);
    }
}

#[test]
fn a_miss_is_no_useful_operation() {
    let found = demand(&[(8, 0.9)], 8);
    let machine = Machine::new(&found, BY_OPERATION, 1.0);
    let mut policy = MemoryPolicy::new(4);
    policy.hear(&found);
    let (hit, miss) = (policy.profit(0, 1.0, &machine.present()), policy.profit(0, 0.0, &machine.present()));
    assert!((hit - 1.0).abs() < 1e-9 && miss.abs() < 1e-9, "{hit} {miss}");
}

#[test]
fn noise_does_not_make_it_go_back_and_forth() {
    for price in [0.3, 3.0, 10.0, 30.0] {
        let (mut random, mut policy) = (Random::new(7), MemoryPolicy::new(4));
        let (mut limit, mut history) = (32, Vec::new());
        for second in 0..300 {
            // What 5,000 look-ups look like: each step of the truth is off by as much as a count is.
            let (mut before, mut sum) = (0.0, 0.0_f64);
            let step = |(mib, ratio): (u64, f64)| {
                let share = ratio - core::mem::replace(&mut before, ratio);
                sum += (share + (share / 5000.0).sqrt() * random.normal()).max(0.0);
                (mib, sum.min(1.0))
            };
            let noisy: Vec<(u64, f64)> = root().into_iter().map(step).collect();
            let demand = Demand { samples: 5000.0, ..demand(&noisy, limit) };
            policy.hear(&demand);
            let machine = Machine::new(&demand, BY_DATA, price);
            if let Some(mib) = policy.choose(second * SECOND, &machine.present()) {
                limit = u64::from(mib);
                history.push(limit);
            }
        }
        assert!(history.len() <= 8, "at {price}: {history:?}");
    }
}

prop_compose! {
    fn any_demand()(
        steps in prop::collection::vec((1_u64..16, 0.0..1.0_f64), 1..12),
        limit in 4_u64..=64,
        samples in 200.0..1e6_f64,
    ) -> Demand {
        let total: f64 = steps.iter().map(|step| step.1).sum::<f64>().max(1.0);
        let (mut mib, mut ratio) = (0, 0.0_f64);
        let points: Vec<_> = steps
            .into_iter()
            .map(|(wide, high)| {
                (mib, ratio) = (mib + wide, (ratio + high / total).min(1.0));
                (mib, ratio)
            })
            .collect();
        Demand { samples, ..demand(&points, limit) }
    }
}

proptest! {
    /// What is chosen brings more than what is held, and lies where it may.
    #[test]
    fn a_move_pays(demand in any_demand(), price in 1e-3..1e4_f64, by_data: bool) {
        let contract = if by_data { BY_DATA } else { BY_OPERATION };
        let machine = Machine::new(&demand, contract, price);
        let mut policy = MemoryPolicy::new(4);
        policy.hear(&demand);
        let profit = |policy: &MemoryPolicy, mib: u64| {
            policy.profit(mib * MIB, demand.curve.at(mib * MIB), &machine.present())
        };
        let before = demand.limit_bytes / MIB;
        let after = policy.clone().choose(0, &machine.present()).map(u64::from);
        prop_assert!(after.is_none_or(|after| after != before && (4..=64).contains(&after)));
        if let Some(after) = after {
            prop_assert!(profit(&policy, after) > profit(&policy, before), "{before} to {after}");
        }
    }

    /// At a higher price it never takes more.
    #[test]
    fn dearer_memory_is_never_taken_more_of(
        demand in any_demand(),
        price in 1e-3..1e4_f64,
        factor in 1.0..100.0_f64,
    ) {
        let mut policy = MemoryPolicy::new(4);
        policy.hear(&demand);
        let target = |price| policy.target(&Machine::new(&demand, BY_DATA, price).present());
        prop_assert!(target(price) >= target(price * factor));
    }
}
