//! Makes system calls beside an application that keeps the kernel busy, and counts how many come through
//! while that does one piece of its work.
//!
//! Arguments: how many pieces of its peer's work it counts, and how many calls it expects for each. Or
//! `gaps`: on one processor for both, it measures how late it has it back when its peer's turn is over.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::format;
use nom_app::alloc::vec::Vec;
use nom_app::{applications, args, channels, events, println, time};
use nom_guest_tests::{Check, border, expect_that, run};

nom_app::main!(main);

/// Turns of its peer that it looks at.
const GAPS: usize = 100;

fn main() -> u8 {
    if args().next() == Some("gaps") {
        return run(&[("gaps", gaps)]);
    }
    run(&[("not-starved", not_starved)])
}

/// Nobody is taken off the processor while the kernel does something for it at one go.
fn gaps() -> Check {
    let channel = channels::all().next().ok_or("no channel to a peer")?;
    while channel.words[0].load(Relaxed) == 0 {
        expect_that("the peer runs", applications::is_running(channel.peer))?;
        events::yield_core();
    }
    let mut gaps: Vec<u64> = (0..GAPS)
        .map(|_| {
            let start = time::cycles();
            events::yield_core();
            time::cycles() - start
        })
        .collect();
    // Whose turn ends outside of the kernel is warned before, which takes longer; that is seldom.
    gaps.sort_unstable();
    println!("figure name=gap cycles={}", gaps[GAPS / 2]);
    Ok(())
}

fn not_starved() -> Check {
    let mut numbers = args().filter_map(|word| word.parse::<u64>().ok());
    let (pieces, least) = (numbers.next().ok_or("no pieces")?, numbers.next().ok_or("no calls")?);
    let channel = channels::all().next().ok_or("no channel to a peer")?;
    let done = || channel.words[0].load(Relaxed);
    while done() == 0 {
        expect_that("the peer runs", applications::is_running(channel.peer))?;
        core::hint::spin_loop();
    }
    let (from, mut calls, mut longest) = (done(), 0, 0);
    while done() < from + pieces {
        let before = time::now_ns();
        _ = border::call_unknown();
        longest = longest.max(time::now_ns() - before);
        calls += 1;
    }
    println!("\nstarved calls={calls} longest_us={}", longest / 1000);
    expect_that(&format!("{calls} are at least {least} for each of {pieces}"), calls >= pieces * least)
}
