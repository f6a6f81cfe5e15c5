//! Sleeps until times that are far away: beyond what fits in the time-stamp counter, where arithmetic that
//! loses bits would find a moment in the past.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::{args, board, events};

nom_app::main!(main);

fn main() {
    // Nanoseconds in 2^64 cycles of the counter: a little later the cycles begin anew.
    let multiplier = u128::from(board().clock.multiplier.load(Relaxed));
    let turn_ns = u64::try_from(multiplier << 32).unwrap_or(u64::MAX);
    let laps: u64 = args().next().and_then(|word| word.parse().ok()).unwrap_or(1);
    loop {
        events::wait(Some(turn_ns.saturating_mul(laps).saturating_add(1)));
    }
}
