//! Starts and ends a victim again and again, at random moments, and finds everything free again.
//!
//! Arguments: the victim's name, how many times, after how many microseconds at the latest it is killed, and
//! the statuses with which it may end, separated by commas.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use fastrand::Rng;
use nom_app::alloc::{format, vec::Vec};
use nom_app::{Error, applications, args, events, println, seed, time};
use nom_guest_tests::{Check, accounted_frames, expect, expect_taken_back, run};

nom_app::main!(main);

/// Status of an application that was killed.
const KILLED: u32 = 137;

fn main() -> u8 {
    run(&[("lifecycle", lifecycle)])
}

struct Plan {
    victim: usize,
    rounds: u64,
    delay_us: u64,
    statuses: Vec<u32>,
}

fn lifecycle() -> Check {
    let plan = plan().ok_or("arguments: VICTIM ROUNDS MICROSECONDS STATUS[,STATUS..]")?;
    let mut random = Rng::with_seed(u64::from_le_bytes([seed()[0]; 8]));
    let before = accounted_frames();
    let mut killed = 0;
    for _ in 0..plan.rounds {
        killed += u64::from(round(&plan, random.u64(0..=plan.delay_us) * 1000)?);
    }
    println!("lifecycle rounds={} killed={killed}", plan.rounds);
    let starts = applications::entry(plan.victim).starts.load(Relaxed);
    expect("the victim's starts", u64::from(starts), plan.rounds)?;
    expect_taken_back(plan.victim, before)
}

fn plan() -> Option<Plan> {
    let mut words = args();
    let victim = applications::find(words.next()?).ok()?;
    let (rounds, delay_us) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let statuses = words.next()?.split(',').filter_map(|status| status.parse().ok()).collect();
    Some(Plan { victim, rounds, delay_us, statuses })
}

/// One life. Returns whether it had to be killed.
fn round(plan: &Plan, delay_ns: u64) -> Result<bool, nom_guest_tests::Failure> {
    applications::start(plan.victim)?;
    let deadline = time::now_ns() + delay_ns;
    while applications::is_running(plan.victim) && time::now_ns() < deadline {
        events::wait(Some(deadline));
    }
    let killed = match applications::kill(plan.victim) {
        Ok(()) => true,
        Err(Error::WrongState) => false,
        Err(error) => return Err(error.into()),
    };
    let status = applications::entry(plan.victim).status.load(Relaxed);
    if killed {
        expect("the status of a killed application", status, KILLED)?;
    } else if !plan.statuses.contains(&status) {
        return Err(format!("the victim ended with status {status}").into());
    }
    Ok(killed)
}
