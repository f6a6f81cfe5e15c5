//! Settings of one machine by turns, a second each: what the computer does to one it does to its neighbours.
//!
//! A machine of its own for each batching delay differs from the next by 5% to 12%, whatever the delay.
//! Within one machine a round has every fixed delay and the governor's choice once, in an order that a seed
//! shuffles, so that neither a drift of the computer nor a habit of the order favours anybody.

use super::analysis::{Account, Run, System};
use super::contract::Function;
use super::experiment::{self, Load, PHASES, Phase};
use super::money::Interval;
use super::place::Machine;
use super::progress::Progress;
use super::schedule::Turn;
use super::steer;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// Seconds of each phase that do not count: clients connect, and fill what is empty.
const WARM_UP: usize = 2;
/// Clients go on for that much longer than turns take, so that the last one ends while they are there.
const MARGIN: usize = 1;
/// Rounds, where there is less time.
const ROUNDS_MIN: u32 = 2;

/// Which settings take turns under one function, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    settings: Vec<System>,
    rounds: u32,
    seed: u64,
}

/// What was served in each phase, turn by turn.
pub type Turns = [Vec<(Turn, Interval)>; 2];

impl Plan {
    /// These delays and the governor's choice by `function`, as many rounds as take `length` with both
    /// phases, at least two. The order follows from `seed`.
    pub fn new(delays_us: &[u32], function: Function, length: Duration, seed: u64) -> Plan {
        let fixed = delays_us.iter().map(|us| System::Fixed(*us));
        let settings: Vec<System> = fixed.chain([System::Adaptive(function)]).collect();
        let round = (settings.len() * PHASES.len()) as u64;
        let rounds = u32::try_from(length.as_secs() / round).unwrap_or(u32::MAX);
        Plan { settings, rounds: rounds.max(ROUNDS_MIN), seed }
    }

    /// How many rounds there are.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// How long the clients of a phase take.
    pub fn phase(&self) -> Duration {
        let seconds = WARM_UP + self.settings.len() * self.rounds as usize + MARGIN;
        Duration::from_secs(seconds as u64)
    }

    /// The turns of a phase.
    pub fn turns(&self, phase: usize) -> Vec<Turn> {
        let mut dice = fastrand::Rng::with_seed(self.seed ^ phase as u64);
        let mut round = |repetition| {
            let mut settings = self.settings.clone();
            dice.shuffle(&mut settings);
            settings.into_iter().map(move |system| Turn { system, repetition })
        };
        (0..self.rounds).flat_map(|repetition| round(repetition).collect::<Vec<_>>()).collect()
    }

    /// Has the clients of both phases `load` the `machine`, whose setting changes at each second that they
    /// report. `set_price` is called as a phase begins.
    ///
    /// # Errors
    /// If a client fails, the machine ends or takes no orders, the price is refused, or somebody interrupts.
    pub fn carry_out(
        &self,
        machine: &mut Machine,
        load: Load,
        origin: Instant,
        progress: &mut Progress,
        what: &str,
        mut set_price: impl FnMut(f64) -> Result<()>,
    ) -> Result<Turns> {
        let load = Load { phase: self.phase(), ..load };
        let mut served = [Vec::new(), Vec::new()];
        for (index, half) in PHASES.iter().enumerate() {
            progress.step(&format!("{what}: {} at {} $/Gbit", half.name, half.price), load.phase)?;
            set_price(half.price)?;
            served[index] = serve(machine, &load, half, origin, self.turns(index), progress)?;
        }
        Ok(served)
    }
}

fn serve(
    machine: &mut Machine,
    load: &Load,
    half: &Phase,
    origin: Instant,
    turns: Vec<Turn>,
    progress: &Progress,
) -> Result<Vec<(Turn, Interval)>> {
    let mut client = experiment::clients(machine, load, half, origin)?;
    for (index, turn) in turns.iter().enumerate() {
        client.wait_for_seconds(WARM_UP + index, progress)?;
        steer::become_system(machine.place(), turn.system)?;
    }
    client.wait_for_seconds(WARM_UP + turns.len(), progress)?;
    machine.check()?;
    let intervals = client.finish(progress, half.price)?;
    let expected = WARM_UP + turns.len();
    ensure!(intervals.len() >= expected, "clients reported {} seconds of {expected}", intervals.len());
    Ok(turns.into_iter().zip(intervals.into_iter().skip(WARM_UP)).collect())
}

/// The account of each setting: a round is a repetition, from `first` on.
pub fn accounts(turns: &Turns, first: u32) -> Vec<Account> {
    let [many, single] = turns;
    let mut accounts: Vec<Account> = Vec::new();
    for (turn, interval) in many {
        let Some((_, other)) = single.iter().find(|(other, _)| other == turn) else { continue };
        let run = Run { repetition: first + turn.repetition, halves: [vec![*interval], vec![*other]] };
        match accounts.iter_mut().find(|account| account.system == turn.system) {
            Some(account) => account.runs.push(run),
            None => accounts.push(Account { system: turn.system, runs: vec![run] }),
        }
    }
    accounts
}

#[cfg(test)]
mod tests {
    use super::super::money::tests::second;
    use super::*;

    fn plan(seed: u64) -> Plan {
        Plan::new(&[0, 5, 40], Function::Refund, Duration::from_secs(80), seed)
    }

    #[test]
    fn each_round_has_every_setting_once_in_an_order_of_its_own() {
        let plan = plan(1);
        assert_eq!((plan.rounds(), plan.phase()), (10, Duration::from_secs(43)));
        let turns = plan.turns(0);
        for (number, round) in turns.chunks(4).enumerate() {
            assert!(round.iter().all(|turn| turn.repetition == number as u32));
            let has = |system| round.iter().filter(|turn| turn.system == system).count();
            assert!(plan.settings.iter().all(|system| has(*system) == 1), "{round:?}");
        }
        let order = |round: usize| turns[4 * round..][..4].iter().map(|turn| turn.system).collect::<Vec<_>>();
        assert!((1..10).any(|round| order(round) != order(0)), "shuffled anew each time");
        assert_eq!(turns, plan.turns(0), "it follows from the seed");
        assert!(turns != plan.turns(1) && turns != super::tests::plan(2).turns(0));
        assert_eq!(Plan::new(&[0], Function::Bonus, Duration::ZERO, 1).rounds(), ROUNDS_MIN);
    }

    /// Profits drift by a factor of two, and a second's noise is 3%: the share of the oracle is found all the
    /// same, within its standard error.
    #[test]
    fn a_drift_of_the_computer_cancels() {
        use super::super::contract::{PAPER_LATENCY_S, Slowness};
        use super::super::findings::Findings;
        use super::super::shares::Shares;
        let plan = Plan::new(&[0, 5, 40], Function::Refund, Duration::from_secs(300), 7);
        let mut dice = fastrand::Rng::with_seed(3);
        let phase = |index: usize, dice: &mut fastrand::Rng| {
            let turns = plan.turns(index);
            let count = turns.len() as f64;
            let served = |(at, turn): (usize, Turn)| {
                let worth = match turn.system {
                    System::Fixed(0) => 0.9,
                    System::Fixed(_) => 1.0,
                    _ => 0.97,
                };
                let noise = 1.0 + 0.03 * (dice.f64() + dice.f64() + dice.f64() - 1.5) * 2.0;
                (turn, second(worth * noise * (1.0 + at as f64 / count), 1e-4, 1.0))
            };
            turns.into_iter().enumerate().map(served).collect::<Vec<_>>()
        };
        let turns = [phase(0, &mut dice), phase(1, &mut dice)];
        let findings = Findings {
            application: "memcached",
            slowness: Slowness::of(PAPER_LATENCY_S).unwrap(),
            seconds: 10.0,
            accounts: vec![],
            turned: vec![(Function::Refund, accounts(&turns, 0))],
            agreements: vec![],
            reactions_s: vec![],
            governing_shares: vec![],
        };
        let share = Shares::of(&findings, Function::Refund).unwrap().both.unwrap();
        let error = share.error().unwrap();
        assert!(error < 0.01, "{error}");
        assert!((share.value - 0.97).abs() < 3.0 * error, "{share:?}");
    }

    #[test]
    fn a_round_is_a_repetition_of_each_account() {
        let plan = Plan::new(&[0, 5], Function::Penalty, Duration::from_secs(12), 1);
        let served = |phase: usize| {
            let value = second(1.0 + phase as f64, 1e-4, 1.0);
            plan.turns(phase).into_iter().map(|turn| (turn, value)).collect::<Vec<_>>()
        };
        let accounts = accounts(&[served(0), served(1)], 10);
        assert_eq!(accounts.len(), 3);
        for account in &accounts {
            let of: Vec<u32> = account.runs.iter().map(|run| run.repetition).collect();
            assert_eq!(of, [10, 11], "{:?}", account.system);
            assert!(account.runs.iter().all(|run| run.halves[1][0].useful_bytes == 2.5e8));
        }
    }
}
