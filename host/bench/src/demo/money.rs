//! What a service earned by what its clients were served: arithmetic only.

use super::contract::Contract;
use nom_economy::units::Seconds;
use nom_economy::utility::Latency;
use std::iter::Sum;
use std::ops::Add;

const BITS_IN_GBIT: f64 = 1e9;

/// What a client was served over an interval, as it said itself, and what left the machine meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// When it ended, in seconds from the begin of the run.
    pub end_s: f64,
    /// How long it was.
    pub seconds: f64,
    /// Requests that the client was answered.
    pub operations: f64,
    /// Useful data: bytes of replies that the client read, without the headers of any network layer.
    pub useful_bytes: f64,
    /// Bytes that left the machine, with their headers; the useful ones where nobody metered.
    pub sent_bytes: f64,
    /// Mean latency that the client saw, in seconds.
    pub latency_s: f64,
    /// Its standard deviation.
    pub jitter_s: f64,
    /// Price of outgoing data, in dollars for a Gbit.
    pub price: f64,
}

impl Interval {
    /// The latency, if anything was served.
    fn latency(&self) -> Option<Latency> {
        let seconds = |value| Seconds::new(value).ok();
        let (mean, jitter) = (seconds(self.latency_s)?, seconds(self.jitter_s)?);
        // No published function looks at percentiles.
        Latency::new(mean, jitter, mean).ok()
    }

    /// What was earned in it under `contract`: useful data is paid for, whatever leaves the machine costs.
    pub fn money(&self, contract: &Contract) -> Money {
        let gbits = |bytes: f64| bytes * 8.0 / BITS_IN_GBIT;
        let value = self.latency().map_or(0.0, |latency| contract.value(latency));
        Money { revenue: gbits(self.useful_bytes) * value, cost: gbits(self.sent_bytes) * self.price }
    }
}

/// Sums, in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Money {
    /// What users paid.
    pub revenue: f64,
    /// What the provider is owed.
    pub cost: f64,
}

impl Money {
    /// Revenue less cost.
    pub fn profit(self) -> f64 {
        self.revenue - self.cost
    }
}

impl Add for Money {
    type Output = Money;
    fn add(self, other: Money) -> Money {
        Money { revenue: self.revenue + other.revenue, cost: self.cost + other.cost }
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Money>>(all: I) -> Money {
        all.fold(Money::default(), Add::add)
    }
}

/// What a client was served in the intervals of one phase together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Served {
    /// Time in all.
    pub seconds: f64,
    /// Requests a second.
    pub throughput: f64,
    /// Useful bits a second.
    pub useful_bits: f64,
    /// Bits a second that left the machine.
    pub sent_bits: f64,
    /// Mean latency of all requests, in seconds.
    pub latency_s: f64,
    /// Standard deviation of all requests' latencies.
    pub jitter_s: f64,
}

impl Served {
    /// Puts intervals together; latencies weigh by their requests. Nothing if nothing was served.
    pub fn of(intervals: &[Interval]) -> Option<Served> {
        let sum = |value: fn(&Interval) -> f64| intervals.iter().map(value).sum::<f64>();
        let (seconds, operations) = (sum(|i| i.seconds), sum(|i| i.operations));
        if seconds <= 0.0 || operations <= 0.0 {
            return None;
        }
        let latency_s = sum(|i| i.operations * i.latency_s) / operations;
        let square = sum(|i| i.operations * (i.latency_s.powi(2) + i.jitter_s.powi(2))) / operations;
        Some(Served {
            seconds,
            throughput: operations / seconds,
            useful_bits: sum(|i| i.useful_bytes) * 8.0 / seconds,
            sent_bits: sum(|i| i.sent_bytes) * 8.0 / seconds,
            latency_s,
            jitter_s: (square - latency_s.powi(2)).max(0.0).sqrt(),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::contract::{Function, PAPER_LATENCY_S, Slowness};
    use super::*;
    use proptest::prelude::*;

    /// A second in which `gbit` useful Gbit were served at a mean latency, a tenth more was sent, at `price`.
    pub(in super::super) fn second(gbit: f64, latency_s: f64, price: f64) -> Interval {
        let useful_bytes = gbit * 1e9 / 8.0;
        Interval {
            end_s: 1.0,
            seconds: 1.0,
            operations: 1e6 * gbit,
            useful_bytes,
            sent_bytes: 1.1 * useful_bytes,
            latency_s,
            jitter_s: 0.0,
            price,
        }
    }

    fn contract(function: Function) -> Contract {
        Contract::new(function, Slowness::of(PAPER_LATENCY_S).unwrap()).unwrap()
    }

    #[test]
    fn a_second_of_the_paper() {
        let profit = |function, interval: Interval| interval.money(&contract(function)).profit();
        let good = second(0.5, 400e-6, 1.0);
        assert!((profit(Function::Penalty, good) - 0.5 * (20.0 - 1.1)).abs() < 1e-9);
        assert!((profit(Function::Refund, good) - 0.5 * (20.0 - 10.0 * 400e-6 - 1.1)).abs() < 1e-9);
        assert!((profit(Function::Bonus, good) - 0.5 * (20.0 + 25.0 - 1.1)).abs() < 1e-9);
        let late = second(0.5, 800e-6, 10.0);
        assert!((profit(Function::Penalty, late) + 0.5 * 11.0).abs() < 1e-9, "all is compensated");
    }

    #[test]
    fn what_nobody_was_served_earns_nothing_and_costs_what_it_sent() {
        let mut idle = second(0.0, 0.0, 2.0);
        assert_eq!(idle.money(&contract(Function::Bonus)), Money::default());
        idle.sent_bytes = 1e9 / 8.0;
        assert_eq!(idle.money(&contract(Function::Bonus)).profit(), -2.0);
    }

    #[test]
    fn intervals_become_one_distribution() {
        let (fast, slow) = (second(2.0, 1e-3, 1.0), second(2.0, 3e-3, 1.0));
        let served = Served::of(&[fast, slow]).unwrap();
        assert_eq!((served.seconds, served.throughput, served.useful_bits), (2.0, 2e6, 2e9));
        assert!((served.latency_s - 2e-3).abs() < 1e-12 && (served.jitter_s - 1e-3).abs() < 1e-12);
        assert_eq!(Served::of(&[]), None);
        assert_eq!(Served::of(&[Interval { operations: 0.0, ..fast }]), None);
    }

    proptest! {
        #[test]
        fn sums_do_not_depend_on_how_time_is_cut(gbit in 0.0..9.0, latency in 1e-5..2e-3, price in 1.0..9.0) {
            for function in Function::ALL {
                let whole = second(gbit, latency, price);
                let half = Interval {
                    seconds: 0.5,
                    useful_bytes: whole.useful_bytes / 2.0,
                    sent_bytes: whole.sent_bytes / 2.0,
                    ..whole
                };
                let once = whole.money(&contract(function)).profit();
                let twice: Money = [half, half].iter().map(|one| one.money(&contract(function))).sum();
                prop_assert!((once - twice.profit()).abs() < 1e-9);
            }
        }
    }
}
