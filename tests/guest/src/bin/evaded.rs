//! Reads from the board what part of a processor its peer gets that has a hundred times the weight of the one
//! who tries to evade his.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::format;
use nom_app::{applications, args, cores, events, println, time};
use nom_guest_tests::{Check, Failure, expect_that, run};
use nom_sys::abi::board::Usage;

nom_app::main!(main);

/// What its weight gives it, but for the cost of exchanging contexts, in percent.
const LEAST_PERCENT: u64 = 95;
const SETTLE_NS: u64 = 300_000_000;
const MEASURE_NS: u64 = 2_000_000_000;

fn main() -> u8 {
    run(&[("weights-cannot-be-evaded", share)])
}

/// The cycles that it has used. A processor accounts when it changes hands, so that it is taken for a moment.
fn used(entry: &Usage) -> Result<u64, Failure> {
    cores::acquire(|| {})?.join();
    Ok(entry.cycles.load(Relaxed))
}

fn share() -> Check {
    let name = args().next().ok_or("no name")?;
    let entry = applications::usage(applications::find(name)?);
    events::sleep(SETTLE_NS);
    let (before, from) = (used(entry)?, time::cycles());
    events::sleep(MEASURE_NS);
    let percent = (used(entry)? - before) * 100 / (time::cycles() - from);
    println!("evaded share={percent}%");
    expect_that(&format!("{percent}% is at least {LEAST_PERCENT}%"), percent >= LEAST_PERCENT)
}
