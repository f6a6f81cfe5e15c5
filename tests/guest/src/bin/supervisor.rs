//! Starts one application after the other, each argument `NAME=STATUS`, and checks how each ends and that
//! nothing of it stays.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::format;
use nom_app::{applications, args, println};
use nom_guest_tests::{Check, accounted_frames, comes_true, expect, expect_taken_back};

nom_app::main!(main);

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
    expect_taken_back(application, before)
}
