//! What a manifest gives and what it does not: to see what others use, and to make system calls.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::{applications, args, events, time};
use nom_guest_tests::border::smuggled_call;
use nom_guest_tests::{Check, expect, expect_that, run};
use nom_sys::Error;
use nom_sys::abi::layout::APPLICATIONS_MAX;
use nom_sys::abi::syscall::Syscall;
use nom_sys::start::application;

nom_app::main!(main);

/// How long the one who is watched stays.
const STAY_NS: u64 = 3_000_000_000;
const WATCHED: &str = "watched";
/// No machine has such a device.
const NO_DEVICE: u64 = 1_000;

fn main() -> u8 {
    match args().next().unwrap_or_default() {
        "curious" => run(&[("what-others-use-is-hidden", hidden)]),
        "monitor" => run(&[("what-others-use-is-shown-to-a-monitor", shown)]),
        "confined" => run(&[("calls-that-are-not-linked-are-refused", refused)]),
        "listed" => run(&[("calls-that-the-manifest-lists-are-made", allowed)]),
        _ => {
            // Whoever shares the processor may wake it before that.
            let until = time::now_ns() + STAY_NS;
            while time::now_ns() < until {
                events::sleep(until - time::now_ns());
            }
            0
        }
    }
}

/// Frames, cores and cycles that the board shows of an application.
fn used(application: usize) -> [u64; 3] {
    let usage = applications::usage(application);
    [usage.frames.load(Relaxed), usage.cores.load(Relaxed).into(), usage.cycles.load(Relaxed)]
}

fn hidden() -> Check {
    let other = applications::find(WATCHED)?;
    expect_that("the other one runs", applications::is_running(other))?;
    expect_that("its own use is shown", used(application())[0] > 0)?;
    for other in (0..APPLICATIONS_MAX).filter(|other| *other != application()) {
        expect("what another one uses", used(other), [0; 3])?;
    }
    Ok(())
}

fn shown() -> Check {
    let other = applications::find(WATCHED)?;
    let deadline = time::now_ns() + STAY_NS / 2;
    while used(other)[0] == 0 && time::now_ns() < deadline {
        events::sleep(STAY_NS / 100);
    }
    expect_that("frames of the other one are shown", used(other)[0] > 0)?;
    expect("its cores", used(other)[1], 1)
}

/// Code that came into a program, and makes a call that the program itself never makes.
fn refused() -> Check {
    let call = || smuggled_call(Syscall::DeviceAcquire as u64, NO_DEVICE);
    expect("the answer", call(), Err(Error::NotPermitted))?;
    expect("the answer, again", call(), Err(Error::NotPermitted))?;
    expect("calls that were refused", applications::usage(application()).refused.load(Relaxed), 2)
}

fn allowed() -> Check {
    let answer = smuggled_call(Syscall::DeviceAcquire as u64, NO_DEVICE);
    expect("the answer", answer, Err(Error::NoDevice))?;
    expect("calls that were refused", applications::usage(application()).refused.load(Relaxed), 0)
}
