//! Reads from the board what share of the processor each spinner gets, against what its weight says.
//!
//! Arguments: for how many milliseconds, and the spinners' names.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::{format, vec::Vec};
use nom_app::{applications, args, events, println, time};
use nom_guest_tests::{Check, Failure, expect_that, run};

nom_app::main!(main);

/// Largest deviation of a share, in percent of all.
const TOLERANCE: f64 = 1.0;
/// Time that the spinners have to start, which is not measured.
const SETTLE_NS: u64 = 500_000_000;

fn main() -> u8 {
    run(&[("shares", shares)])
}

fn shares() -> Check {
    let mut words = args();
    let milliseconds: u64 = words.next().and_then(|word| word.parse().ok()).ok_or("no duration")?;
    let spinners = words.map(applications::find).collect::<Result<Vec<usize>, _>>()?;
    pause(SETTLE_NS);
    let before = cycles(&spinners);
    pause(milliseconds * 1_000_000);
    let used: Vec<u64> =
        cycles(&spinners).iter().zip(&before).map(|(after, before)| after - before).collect();
    let weights: Vec<u64> =
        spinners.iter().map(|spinner| applications::entry(*spinner).weight.load(Relaxed).into()).collect();
    spinners.iter().zip(percent(&used)).zip(percent(&weights)).try_for_each(judge)
}

fn judge(((spinner, share), weight): ((&usize, f64), f64)) -> Result<(), Failure> {
    println!("share application={spinner} measured={share:.3}% expected={weight:.3}%");
    let deviation = (share - weight).max(weight - share);
    expect_that(&format!("{share:.3}% is within {TOLERANCE}% of {weight:.3}%"), deviation <= TOLERANCE)
}

fn cycles(spinners: &[usize]) -> Vec<u64> {
    spinners.iter().map(|spinner| applications::usage(*spinner).cycles.load(Relaxed)).collect()
}

fn percent(values: &[u64]) -> impl Iterator<Item = f64> {
    let total: u64 = values.iter().sum();
    values.iter().map(move |value| *value as f64 * 100.0 / total as f64)
}

fn pause(duration_ns: u64) {
    let until = time::now_ns() + duration_ns;
    while time::now_ns() < until {
        events::wait(Some(until));
    }
}
