use super::*;
use proptest::prelude::*;

fn seconds(value: f64) -> Seconds {
    Seconds::new(value).expect("a time")
}

fn latency(mean: f64, jitter: f64) -> Latency {
    Latency::new(seconds(mean), seconds(jitter), seconds(mean)).expect("above 0")
}

fn gbit(value: f64) -> GbitPerSecond {
    GbitPerSecond::new(value).expect("a throughput")
}

fn price(value: f64) -> DollarsPerGbit {
    DollarsPerGbit::new(value).expect("a price")
}

/// A utility function of throughput, latency and price.
type Function = fn(f64, Latency, f64) -> f64;

/// The paper's parameters (section 6.4).
const PUBLISHED: [Function; 3] = [
    |t, l, p| {
        let penalty = Penalty::new(100.0, seconds(750e-6)).expect("the paper's");
        penalty.profit(gbit(t), price(20.0), l, price(p)).get()
    },
    |t, l, p| Refund::new(10.0).expect("the paper's").profit(gbit(t), price(20.0), l, price(p)).get(),
    |t, l, p| {
        let bonus = Bonus::new(0.01, f64::INFINITY).expect("the paper's");
        bonus.profit(gbit(t), price(20.0), l, price(p)).get()
    },
];

#[test]
fn on_time_the_penalty_is_nothing_and_all_late_it_is_everything() {
    let [penalty, ..] = PUBLISHED;
    assert_eq!(penalty(2.0, latency(100e-6, 1e-6), 1.0), 2.0 * (20.0 - 1.0), "N -> 0: T * (alpha - P)");
    assert_eq!(penalty(2.0, latency(7638e-6, 10e-6), 1.0), -2.0, "all late: -T * P");
    assert_eq!(penalty(2.0, latency(749e-6, 0.0), 10.0), 20.0);
    assert_eq!(penalty(2.0, latency(751e-6, 0.0), 10.0), -20.0);
}

#[test]
fn refund_and_bonus_by_hand() {
    let [_, refund, bonus] = PUBLISHED;
    assert!((refund(2.0, latency(0.5, 0.0), 1.0) - 2.0 * (20.0 - 5.0 - 1.0)).abs() < 1e-12);
    assert_eq!(refund(2.0, latency(3.0, 0.0), 1.0), -2.0, "never more than was paid");
    assert!((bonus(2.0, latency(1e-3, 0.0), 1.0) - 2.0 * (20.0 + 10.0 - 1.0)).abs() < 1e-9);
    let capped = Bonus::new(0.01, 4.0).expect("fine");
    assert_eq!(capped.profit(gbit(2.0), price(20.0), latency(1e-3, 0.0), price(1.0)).get(), 46.0);
}

#[test]
fn parameters_without_meaning_are_refused_by_name() {
    for factor in [-1.0, 0.5, 1.99, f64::NAN, f64::INFINITY] {
        let refusal = Penalty::new(factor, seconds(1.0)).expect_err("meaningless");
        assert_eq!(refusal.field, "factor", "{factor}");
    }
    assert_eq!(Refund::new(f64::NAN).expect_err("meaningless").field, "slope");
    assert_eq!(Bonus::new(-1.0, 1.0).expect_err("meaningless").field, "extent");
    assert_eq!(Bonus::new(1.0, f64::NAN).expect_err("meaningless").field, "cap");
    assert!(Latency::new(Seconds::ZERO, Seconds::ZERO, Seconds::ZERO).is_err());
}

#[test]
fn a_small_factor_would_have_paid_for_jitter() {
    let paid = |factor: f64, jitter| 1.0 - (factor * exceedance(seconds(1.0), seconds(2.0), seconds(jitter)));
    assert!(paid(0.9, 10.0) > paid(0.9, 0.1), "why Penalty::new refuses it");
}

proptest! {
    /// The axiom, for each function, factor and pair of states, one no worse than the other.
    #[test]
    fn the_axiom_holds(
        throughput in 0.0..100.0, more in 0.0..100.0,
        mean in 1e-6..3e-3, slower in 0.0..3e-3,
        jitter in 0.0..1e-3, shakier in 0.0..1e-3,
        cost in 0.0..50.0, dearer in 0.0..50.0,
        factor in 2.0..1000.0, cap in 0.0..1e4,
    ) {
        let functions: [&dyn Fn(f64, Latency, f64) -> f64; 5] = [
            &PUBLISHED[0], &PUBLISHED[1], &PUBLISHED[2],
            &|t, l, p| {
                let penalty = Penalty::new(factor, seconds(750e-6)).expect("at least 2");
                penalty.profit(gbit(t), price(20.0), l, price(p)).get()
            },
            &|t, l, p| {
                let bonus = Bonus::new(0.01, cap).expect("not negative");
                bonus.profit(gbit(t), price(20.0), l, price(p)).get()
            },
        ];
        for utility in functions {
            let here = utility(throughput, latency(mean, jitter), cost);
            let tolerance = 1e-9 * (1.0 + here.abs());
            prop_assert!(utility(throughput, latency(mean, jitter), cost + dearer) <= here + tolerance);
            prop_assert!(utility(throughput, latency(mean + slower, jitter), cost) <= here + tolerance);
            prop_assert!(utility(throughput, latency(mean, jitter + shakier), cost) <= here + tolerance);
            let revenue = here + throughput * cost;
            let higher = throughput + more;
            let greater = utility(higher, latency(mean, jitter), cost) + higher * cost;
            prop_assert!(greater >= revenue - tolerance, "more throughput at equal total cost");
        }
    }

    #[test]
    fn operations_earn_what_their_data_earns(operations in 1.0..1e6, bytes in 1.0..1e5, cost in 0.0..50.0) {
        use crate::units::BytesPerOperation;
        let size = BytesPerOperation::new(bytes).expect("positive");
        let rate = OperationsPerSecond::new(operations).expect("positive");
        let penalty = Penalty::new(100.0, seconds(750e-6)).expect("the paper's");
        let now = latency(600e-6, 80e-6);
        let by_data = penalty.profit(size.data_rate(rate), price(20.0), now, price(cost)).get();
        let (alpha, cost) = (size.per_operation(price(20.0)), size.per_operation(price(cost)));
        let by_operation = penalty.profit(rate, alpha, now, cost).get();
        prop_assert!((by_data - by_operation).abs() <= 1e-9 * (1.0 + by_data.abs()));
    }
}
