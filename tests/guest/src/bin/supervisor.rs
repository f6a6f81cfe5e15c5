//! Starts one application after the other, each argument `NAME=STATUS`, and checks how each ends and that
//! nothing of it stays.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::format;
use nom_app::{applications, args, events, println, time};
use nom_guest_tests::{Check, accounted_frames, expect};

nom_app::main!(main);

/// How long an application may take to end, and what it had to be taken back.
const TIMEOUT_NS: u64 = 20_000_000_000;
/// Time between two looks at the board.
const LOOK_NS: u64 = 500_000;

fn main() -> u8 {
    let mut status = 0;
    for argument in args() {
        match supervise(argument) {
            Ok(()) => println!("ok {argument}"),
            Err(why) => {
                println!("FAILED {argument}: {why:?}");
                status = 1;
            }
        }
    }
    status
}

fn supervise(argument: &str) -> Check {
    let (name, status) = argument.split_once('=').ok_or("an argument is NAME=STATUS")?;
    let status: u32 = status.parse().map_err(|_| "a status is a number")?;
    let application = applications::find(name)?;
    let before = accounted_frames();
    applications::start(application)?;
    if !comes_true(|| !applications::is_running(application)) {
        applications::kill(application)?;
        return Err(format!("{name} did not end").into());
    }
    expect("its status", applications::entry(application).status.load(Relaxed), status)?;
    // What it had is taken back in pieces, and some of them may come after its end is known.
    let frames = || applications::usage(application).frames.load(Relaxed);
    comes_true(|| frames() == 0);
    expect("its frames", frames(), 0)?;
    expect("frames that are free or charged to somebody", accounted_frames(), before)
}

/// Looks at the board until `condition` holds; `false` if it does not in time.
fn comes_true(condition: impl Fn() -> bool) -> bool {
    let deadline = time::now_ns() + TIMEOUT_NS;
    while !condition() {
        if time::now_ns() > deadline {
            return false;
        }
        events::sleep(LOOK_NS);
    }
    true
}
