use super::*;
use crate::units::Seconds;
use crate::utility::{Bonus, Penalty, Per, Refund, Table, Term, Unit};
use proptest::prelude::*;

fn table(over: Quantity, per: Per, points: &[(f64, f64)]) -> Term {
    Term::Table { over, per, table: Table::new(points.to_vec()).expect("a table") }
}

fn penalty() -> Term {
    let objective = Seconds::new(750e-6).expect("a time");
    Term::Penalty { alpha: 20.0, penalty: Penalty::new(100.0, objective).expect("the paper's") }
}

fn bonus() -> Term {
    Term::Bonus { alpha: 0.0, bonus: Bonus::new(0.01, f64::INFINITY).expect("the paper's") }
}

fn refusal(floor: Option<f64>, terms: &[Term]) -> Option<Quantity> {
    let violation = Utility::new(Unit::Gbit, floor, terms.to_vec()).err()?;
    let (less, more) = (&violation.less, &violation.more);
    assert!(less.0.get(violation.quantity) < more.0.get(violation.quantity), "{violation}");
    for other in Quantity::all().filter(|other| *other != violation.quantity) {
        assert_eq!(less.0.get(other), more.0.get(other), "{violation}");
    }
    let is_broken =
        if violation.quantity == Quantity::Throughput { less.1 > more.1 } else { less.1 < more.1 };
    assert!(is_broken, "the pair shows it: {violation}");
    Some(violation.quantity)
}

#[test]
fn the_published_functions_pass() {
    let refund = Term::Refund { alpha: 20.0, refund: Refund::new(10.0).expect("the paper's") };
    for term in [penalty(), refund.clone(), bonus()] {
        assert_eq!(refusal(None, &[term]), None);
    }
    assert_eq!(refusal(None, &[penalty(), refund, bonus()]), None);
}

#[test]
fn a_rise_is_found_along_each_quantity() {
    for quantity in Quantity::all().filter(|quantity| *quantity != Quantity::Throughput) {
        for per in [Per::Unit, Per::Second] {
            let rising = table(quantity, per, &[(1e-3, 1.0), (2e-3, 1.5)]);
            for others in [alloc::vec![], alloc::vec![penalty()], alloc::vec![bonus(), Term::Value(3.0)]] {
                let terms = [others.as_slice(), core::slice::from_ref(&rising)].concat();
                // The paper's bonus falls by 5 dollars over this stretch of mean latency, and hides the rise.
                if quantity == Quantity::MeanLatency && per == Per::Unit && terms.contains(&bonus()) {
                    assert_eq!(refusal(None, &terms), None);
                } else {
                    assert_eq!(refusal(None, &terms), Some(quantity), "{terms:?}");
                }
            }
        }
    }
}

#[test]
fn what_another_table_makes_up_for_is_no_rise() {
    let rising = table(Quantity::P99, Per::Unit, &[(1e-3, 1.0), (2e-3, 2.0)]);
    let falling = table(Quantity::P99, Per::Unit, &[(0.0, 9.0), (4e-3, 5.0)]);
    assert_eq!(refusal(None, &[rising.clone(), falling]), None, "both fall by as much");
    let too_flat = table(Quantity::P99, Per::Unit, &[(0.0, 9.0), (4e-3, 5.1)]);
    assert_eq!(refusal(None, &[rising, too_flat]), Some(Quantity::P99));
}

#[test]
fn more_throughput_must_not_earn_less() {
    let discount = table(Quantity::Throughput, Per::Second, &[(0.0, 0.0), (10.0, 50.0), (20.0, 40.0)]);
    assert_eq!(refusal(None, core::slice::from_ref(&discount)), Some(Quantity::Throughput));
    assert_eq!(refusal(None, &[discount, Term::Value(1.0)]), None, "each unit brings what the total loses");
    let fine = table(Quantity::P99, Per::Unit, &[(1e-3, 0.0), (2e-3, -5.0)]);
    let terms = [Term::Value(4.0), fine];
    assert_eq!(refusal(None, &terms), Some(Quantity::Throughput), "late units bring a loss");
    assert_eq!(refusal(Some(0.0), &terms), None, "not with a floor");
}

#[test]
fn a_violation_reads_as_a_sentence() {
    let rising = table(Quantity::P99, Per::Unit, &[(0.0, 1.0), (32.0, 33.0)]);
    let violation = Utility::new(Unit::Gbit, None, alloc::vec![rising]).expect_err("rises");
    let text = std::string::ToString::to_string(&violation);
    let start =
        "utility function axiom broken: revenue must not rise with p99, but rises from 1 $/s at p99 0 to";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains("(both at throughput 1, mean-latency "), "{text}");
}

fn points(dollars: core::ops::Range<f64>) -> impl Strategy<Value = Vec<(f64, f64)>> {
    prop::collection::btree_map(0_u32..50, dollars, 1..5)
        .prop_map(|map| map.into_iter().map(|(x, y)| (f64::from(x) * 1e-4, y)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is accepted keeps the axiom at random pairs of states.
    #[test]
    fn what_is_accepted_keeps_the_axiom(
        p99 in points(-1.0..1.0), mean in points(-1.0..1.0), fixed in points(-1.0..1.0),
        has_penalty: bool, has_bonus: bool, has_floor: bool, value in 0.0..4.0,
        pairs in prop::collection::vec(
            (0.0..5.0, 1e-6..5e-3, 0.0..2e-3, 0.0..5e-3, 0_usize..10, 0.0..2e-3), 40,
        ),
    ) {
        let mut terms = alloc::vec![
            Term::Value(value),
            table(Quantity::P99, Per::Unit, &p99),
            table(Quantity::MeanLatency, Per::Unit, &mean),
            table(Quantity::Jitter, Per::Second, &fixed),
        ];
        terms.extend(has_penalty.then(penalty));
        terms.extend(has_bonus.then(bonus));
        let floor = has_floor.then_some(0.0);
        if refusal(floor, &terms).is_some() {
            return Ok(());
        }
        let utility = Utility::new(Unit::Gbit, floor, terms).expect("was accepted");
        for (throughput, mean_latency, jitter, p99, which, more) in pairs {
            let state = State { throughput, mean_latency, jitter, p99, prices: [1.0; Resource::COUNT] };
            let quantity = Quantity::all().nth(which).expect("there are ten");
            let next = state.with(quantity, state.get(quantity) + more);
            let (here, there) = (utility.revenue_at(&state), utility.revenue_at(&next));
            let tolerance = 1e-9 * (1.0 + here.abs());
            let rise = if quantity == Quantity::Throughput { here - there } else { there - here };
            prop_assert!(rise <= tolerance, "{quantity:?}: {here} at {state:?}, {there} at {next:?}");
        }
    }
}
