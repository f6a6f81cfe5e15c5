//! How long everything takes, how often it is done, and in which order.

use super::analysis::System;
use super::contract::Function;
use std::time::Duration;

/// How long everything takes, and how often it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// A phase, of every system: what is served in the first seconds is not what is served later.
    pub phase: Duration,
    /// How often each system is run.
    pub runs: u32,
}

/// How long a machine takes to its first reply, for the progress bar.
pub const LINUX_START: Duration = Duration::from_secs(10);
/// The same of nom's.
pub const NOM_START: Duration = Duration::from_secs(2);

/// A run that is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Who serves.
    pub system: System,
    /// The how manieth run of this system it is, from 0.
    pub repetition: u32,
}

impl Schedule {
    /// About how long a run of nom takes.
    pub fn run(&self) -> Duration {
        NOM_START + 2 * self.phase
    }

    /// About how long one application takes, with so many systems beside nom, functions and batching delays.
    pub fn length(&self, beside: usize, functions: usize, delays: usize) -> Duration {
        let beside = (LINUX_START + 2 * self.phase) * beside as u32;
        (beside + self.run() * (functions + delays) as u32) * self.runs
    }

    /// All runs in an order in which whatever else the computer does falls on all alike: the systems `beside`
    /// and adaptive ones lie evenly between the fixed ones of their repetition, and every other repetition
    /// goes backwards.
    pub fn turns(&self, beside: &[System], delays_us: &[u32], functions: &[Function]) -> Vec<Turn> {
        let fixed = |repetition| {
            let turns = delays_us.iter().map(move |us| Turn { system: System::Fixed(*us), repetition });
            backwards_if_odd(repetition, turns.collect())
        };
        let others = |repetition| -> Vec<Turn> {
            let all =
                beside.iter().copied().chain(functions.iter().map(|function| System::Adaptive(*function)));
            all.map(|system| Turn { system, repetition }).collect()
        };
        let turns = |run| between(fixed(run), backwards_if_odd(run, others(run)));
        (0..self.runs).flat_map(turns).collect()
    }
}

fn backwards_if_odd(repetition: u32, mut turns: Vec<Turn>) -> Vec<Turn> {
    if !repetition.is_multiple_of(2) {
        turns.reverse();
    }
    turns
}

/// `few` evenly between `many`, the same number before the first as after the last, as far as they divide.
fn between(many: Vec<Turn>, few: Vec<Turn>) -> Vec<Turn> {
    let (places, count) = (many.len(), few.len());
    let place = |at: usize| (2 * at + 1) * places / (2 * count);
    let mut turns = many;
    for (at, turn) in few.into_iter().enumerate().rev() {
        turns.insert(place(at), turn);
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::super::analysis::{LINUX, TUNED};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const DELAYS_US: [u32; 6] = [0, 2, 5, 10, 20, 40];

    fn turns(runs: u32) -> Vec<Turn> {
        Schedule { phase: SECOND, runs }.turns(&[LINUX, TUNED], &DELAYS_US, &Function::ALL)
    }

    fn text(turns: &[Turn]) -> String {
        let letter = |turn: &Turn| match turn.system {
            System::Fixed(us) => us.to_string(),
            System::Adaptive(function) => function.name()[..1].to_owned(),
            beside => beside.name().replace("linux", "l").replace("-tuned", "t"),
        };
        turns.iter().map(letter).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn other_runs_lie_between_the_fixed_ones_of_their_repetition() {
        let turns = turns(2);
        assert_eq!(text(&turns), "l 0 lt 2 5 p 10 r 20 b 40 b 40 r 20 10 p 5 lt 2 l 0");
        assert!(turns[..11].iter().all(|turn| turn.repetition == 0));
        assert!(turns[11..].iter().all(|turn| turn.repetition == 1));
        assert_eq!(text(&super::between(vec![], turns[5..6].to_vec())), "p");
    }

    #[test]
    fn a_steady_drift_falls_on_all_alike() {
        for runs in [2, 4] {
            let turns = turns(runs);
            let middle = (turns.len() - 1) as f64 / 2.0;
            for one in &turns {
                let places = turns.iter().enumerate().filter(|(_, other)| other.system == one.system);
                let places: Vec<f64> = places.map(|(place, _)| place as f64).collect();
                let mean = places.iter().sum::<f64>() / places.len() as f64;
                assert!((mean - middle).abs() <= 1.0, "{:?} at {mean} of {middle}", one.system);
                assert_eq!(places.len(), runs as usize);
            }
        }
    }
}
