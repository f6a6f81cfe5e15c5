//! What the runs say together: who earned how much, and what the best batching delay would have been.

use super::contract::{Contract, Function};
use super::experiment::Halves;
use super::money::{Interval, Money, Served};
use crate::linux::Tuning;

/// Who served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// The distribution's server on the distribution's kernel.
    Linux(Tuning),
    /// A machine of somebody else's, by its name.
    Peer(&'static str),
    /// nom's application with a fixed batching delay, in microseconds.
    Fixed(u32),
    /// nom's application, choosing its batching delay by this utility function.
    Adaptive(Function),
}

/// Linux as it is shipped, by whose latency contracts are made.
pub const LINUX: System = System::Linux(Tuning::Shipped);
/// Linux set up for nothing but serving.
pub const TUNED: System = System::Linux(Tuning::Tuned);

impl System {
    /// Its name in records.
    pub fn name(self) -> String {
        match self {
            System::Linux(tuning) => tuning.name().into(),
            System::Peer(name) => name.into(),
            System::Fixed(us) => format!("nom-w-{us}us"),
            System::Adaptive(function) => format!("nom-adaptive-{}", function.name()),
        }
    }

    /// Its batching delay, if that is fixed.
    pub fn delay_us(self) -> Option<u32> {
        match self {
            System::Fixed(us) => Some(us),
            System::Linux(_) | System::Peer(_) | System::Adaptive(_) => None,
        }
    }
}

/// All that one system served, over all of its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Who.
    pub system: System,
    /// Each run.
    pub runs: Vec<Run>,
}

/// What was served in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Which repetition it was of, from 0: those of one happened at about the same time.
    pub repetition: u32,
    /// What was served.
    pub halves: Halves,
}

impl Account {
    /// The intervals of one phase of all runs.
    pub fn intervals(&self, phase: usize) -> Vec<Interval> {
        self.runs.iter().flat_map(|run| run.halves[phase].iter().copied()).collect()
    }

    /// What was served in a phase.
    pub fn served(&self, phase: usize) -> Option<Served> {
        Served::of(&self.intervals(phase))
    }

    /// Dollars a second in a phase under `contract`; none if nothing was served.
    pub fn rate(&self, contract: &Contract, phase: usize) -> Option<f64> {
        rate(contract, &self.intervals(phase))
    }

    /// Dollars that a run with phases of `seconds` earns.
    pub fn profit(&self, contract: &Contract, seconds: f64) -> Option<f64> {
        Some(seconds * (self.rate(contract, 0)? + self.rate(contract, 1)?))
    }

    /// The same of each run by itself.
    pub fn profits(&self, contract: &Contract, seconds: f64) -> Vec<f64> {
        let profits = self.phase_profits(contract, seconds);
        profits.into_iter().map(|(_, [many, single])| many + single).collect()
    }

    /// What each run earned in each phase, and which repetition it was of.
    pub fn phase_profits(&self, contract: &Contract, seconds: f64) -> Vec<(u32, [f64; 2])> {
        let of = |run: &Run| {
            let [many, single] = [0, 1].map(|phase| Some(seconds * rate(contract, &run.halves[phase])?));
            Some((run.repetition, [many?, single?]))
        };
        self.runs.iter().filter_map(of).collect()
    }
}

/// Dollars a second.
fn rate(contract: &Contract, intervals: &[Interval]) -> Option<f64> {
    let seconds = Served::of(intervals)?.seconds;
    Some(intervals.iter().map(|interval| interval.money(contract)).sum::<Money>().profit() / seconds)
}

/// What is known, once everything has been tried, of the fixed batching delays under one contract. The best
/// of them were lucky, too: see [`super::oracle`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hindsight {
    /// The delay with the highest throughput while many are served, and what it earns in both phases.
    pub throughput: Choice,
    /// The delay with the lowest latency while a single one is served, and what it earns in both phases.
    pub latency: Choice,
    /// The delay that earns most of all that stay the same in both phases.
    pub single: Choice,
    /// The best delay of each phase.
    pub oracle_us: [u32; 2],
    /// What somebody earns who knew them beforehand.
    pub oracle: f64,
    /// The same of each phase.
    pub oracle_phases: [f64; 2],
}

/// A batching delay and its profit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// In microseconds.
    pub delay_us: u32,
    /// In dollars.
    pub profit: f64,
}

impl Hindsight {
    /// Of runs whose phases take `seconds`; none unless a fixed delay served in both phases.
    pub fn of(accounts: &[Account], contract: &Contract, seconds: f64) -> Option<Hindsight> {
        let fixed: Vec<Tried> = accounts.iter().filter_map(|account| Tried::of(account, contract)).collect();
        let best = |value: &dyn Fn(&Tried) -> f64| {
            fixed.iter().max_by(|one, other| value(one).total_cmp(&value(other)))
        };
        let choice = |tried: &Tried| Choice {
            delay_us: tried.delay_us,
            profit: seconds * (tried.rates[0] + tried.rates[1]),
        };
        let oracle = [best(&|tried| tried.rates[0])?, best(&|tried| tried.rates[1])?];
        Some(Hindsight {
            throughput: choice(best(&|tried| tried.throughput)?),
            latency: choice(best(&|tried| -tried.latency_s)?),
            single: choice(best(&|tried| tried.rates[0] + tried.rates[1])?),
            oracle_us: oracle.map(|tried| tried.delay_us),
            oracle: seconds * (oracle[0].rates[0] + oracle[1].rates[1]),
            oracle_phases: [seconds * oracle[0].rates[0], seconds * oracle[1].rates[1]],
        })
    }
}

/// A fixed delay that was tried.
struct Tried {
    delay_us: u32,
    throughput: f64,
    latency_s: f64,
    rates: [f64; 2],
}

impl Tried {
    fn of(account: &Account, contract: &Contract) -> Option<Tried> {
        Some(Tried {
            delay_us: account.system.delay_us()?,
            throughput: account.served(0)?.throughput,
            latency_s: account.served(1)?.latency_s,
            rates: [account.rate(contract, 0)?, account.rate(contract, 1)?],
        })
    }
}

/// Whether no other point has more throughput and less latency, or one of them and as much of the other.
pub fn is_on_frontier((latency, throughput): (f64, f64), points: &[(f64, f64)]) -> bool {
    !points.iter().any(|&(other_latency, other)| {
        other_latency <= latency && other >= throughput && (other_latency, other) != (latency, throughput)
    })
}

#[cfg(test)]
mod tests {
    use super::super::contract::{PAPER_LATENCY_S, Slowness};
    use super::super::money::tests::second;
    use super::*;

    /// A fixed delay under which so many Gbit were served at such a latency in each phase.
    fn account(us: u32, [many, single]: [(f64, f64); 2]) -> Account {
        let halves = [vec![second(many.0, many.1, 1.0)], vec![second(single.0, single.1, 10.0)]];
        let runs = [0, 1].map(|repetition| Run { repetition, halves: halves.clone() });
        Account { system: System::Fixed(us), runs: runs.into() }
    }

    fn bonus() -> Contract {
        Contract::new(Function::Bonus, Slowness::of(PAPER_LATENCY_S).unwrap()).unwrap()
    }

    #[test]
    fn hindsight_takes_the_best_of_each_phase() {
        let accounts = [
            account(0, [(1.0, 1e-3), (1.0, 1e-4)]),
            account(20, [(2.0, 1e-3), (0.5, 2e-4)]),
            account(40, [(1.9, 5e-4), (0.1, 3e-4)]),
            Account { system: LINUX, runs: vec![] },
        ];
        let hindsight = Hindsight::of(&accounts, &bonus(), 60.0).unwrap();
        // Many: 28.9, 57.8, 73.9 dollars a second; single: 109, 29.5, 4.2.
        assert_eq!(hindsight.oracle_us, [40, 0]);
        assert!((hindsight.oracle - 60.0 * (1.9 * (40.0 - 1.1) + 120.0 - 11.0)).abs() < 1e-6);
        assert!((hindsight.oracle_phases[0] - 60.0 * 1.9 * (40.0 - 1.1)).abs() < 1e-6);
        assert!((hindsight.oracle_phases.iter().sum::<f64>() - hindsight.oracle).abs() < 1e-6);
        assert_eq!(hindsight.single.delay_us, 0);
        assert_eq!((hindsight.throughput.delay_us, hindsight.latency.delay_us), (20, 0));
        assert!(hindsight.single.profit <= hindsight.oracle);
    }

    #[test]
    fn what_did_not_serve_is_no_choice() {
        let mut silent = account(5, [(1.0, 1e-3), (1.0, 1e-4)]);
        silent.runs.iter_mut().for_each(|run| run.halves[1].clear());
        assert_eq!(Hindsight::of(&[silent.clone()], &bonus(), 1.0), None);
        assert_eq!(silent.profit(&bonus(), 1.0), None);
        assert!(silent.profits(&bonus(), 1.0).is_empty());
    }

    #[test]
    fn longer_runs_earn_no_more_a_second() {
        let account = account(5, [(1.0, 1e-3), (1.0, 1e-4)]);
        let once = Account { runs: account.runs[..1].to_vec(), ..account.clone() };
        assert_eq!(once.profit(&bonus(), 7.0), account.profit(&bonus(), 7.0));
        assert_eq!(account.profits(&bonus(), 7.0).len(), 2);
    }

    #[test]
    fn frontier_is_what_nobody_beats() {
        let points = [(1.0, 10.0), (2.0, 9.0), (3.0, 20.0), (3.0, 15.0)];
        let kept = points.map(|point| is_on_frontier(point, &points));
        assert_eq!(kept, [true, false, true, false]);
    }
}
