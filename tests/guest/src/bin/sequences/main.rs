//! Sequences of system calls, on two cores at once, by an application that is started anew for each.
//!
//! Arguments: for how many seconds (0: for good); the seed (0: one that is drawn); the first round; how many
//! rounds at most. All that an attacker does follows from the seed and its round, so that a round can be
//! done again. With `attacker` alone it is the attacker.
#![no_std]
#![no_main]

mod attacker;

use core::sync::atomic::Ordering::Relaxed;
use fastrand::Rng;
use nom_app::{Error, applications, args, channels, events, println, seed, time};
use nom_guest_tests::{Check, accounted_frames, expect_taken_back, expect_that, run};

nom_app::main!(main);

/// How long an attacker may go on.
const ROUND_NS: u64 = 100_000_000;
/// Where in the channel the attacker finds its seed, and where it counts its calls and the successes.
const SEED_PLACE: usize = 1;
const TOLD_PLACES: core::ops::Range<usize> = 2..4;
/// The least that an attack is.
const CALLS_LEAST: u64 = 1_000;

fn main() -> u8 {
    if args().next() == Some("attacker") {
        let channel = channels::all().next().expect("its manager is its peer");
        let told = channel.words[TOLD_PLACES].first_chunk().expect("two words");
        return attacker::attack(channel.words[SEED_PLACE].load(Relaxed), told);
    }
    run(&[("sequences", sequences)])
}

fn sequences() -> Check {
    let mut words = args().map(|word| word.parse::<u64>().ok());
    let mut next = |default| words.next().flatten().unwrap_or(default);
    let (seconds, chosen, first, count) = (next(1), next(0), next(0), next(u64::MAX));
    let drawn = u64::from_le_bytes(*seed().first_chunk().unwrap_or(&[1; 8]));
    let seed = if chosen == 0 { drawn } else { chosen };
    println!("sequences seed={seed} first={first}: again by the arguments 0 {seed} ROUND 1");
    let attacker = applications::find("attacker")?;
    let end = if seconds == 0 { u64::MAX } else { time::now_ns() + seconds * 1_000_000_000 };
    let before = accounted_frames();
    let mut rounds = first..first.saturating_add(count);
    while time::now_ns() < end
        && let Some(number) = rounds.next()
    {
        round(attacker, number, Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..))?;
        expect_taken_back(attacker, before)?;
    }
    let channel = channels::to(attacker)?;
    let [calls, successes] = [0, 1].map(|place| channel.words[TOLD_PLACES.start + place].load(Relaxed));
    println!("sequences rounds={} calls={calls} successes={successes}", rounds.start - first);
    expect_that("the attacker attacks", calls >= CALLS_LEAST && (calls / 10..calls).contains(&successes))
}

/// One life of the attacker.
fn round(attacker: usize, number: u64, seed: u64) -> Check {
    println!("sequences round={number}");
    let channel = channels::to(attacker)?;
    channel.words[SEED_PLACE].store(seed, Relaxed);
    applications::start(attacker)?;
    let deadline = time::now_ns() + ROUND_NS;
    while applications::is_running(attacker) && time::now_ns() < deadline {
        events::wait(Some(deadline));
    }
    match applications::kill(attacker) {
        Ok(()) | Err(Error::WrongState) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
