//! Shares its one core with a spinner, and is told before the core is taken.
//!
//! Argument: `ignore` lets the core be taken, `yield` gives it up when warned.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use nom_app::alloc::format;
use nom_app::{Upcall, application, applications, args, events, println, time, upcall};
use nom_guest_tests::{Check, expect_that, run};

nom_app::main!(main);

/// For how long it computes.
const DURATION_NS: u64 = 1_500_000_000;
/// A warning comes at most so long before the core is taken.
const GRACE_NS_MAX: u64 = 10_000_000;

static YIELDS: AtomicBool = AtomicBool::new(false);
static WARNINGS: AtomicU64 = AtomicU64::new(0);
static GRANTED: AtomicU64 = AtomicU64::new(0);
static BAD_DEADLINES: AtomicU64 = AtomicU64::new(0);

fn main() -> u8 {
    YIELDS.store(args().next() == Some("yield"), Relaxed);
    run(&[("revoke", revoke)])
}

fn on_upcall(upcall: &mut upcall::Delivery) {
    let events = upcall.events();
    if events.has(Upcall::CoreGranted) {
        GRANTED.fetch_add(1, Relaxed);
    }
    if events.has(Upcall::CoreRevoking) {
        WARNINGS.fetch_add(1, Relaxed);
        let ahead = events.revoke_deadline_ns.saturating_sub(time::now_ns());
        if events.revoke_deadline_ns == 0 || ahead > GRACE_NS_MAX {
            BAD_DEADLINES.fetch_add(1, Relaxed);
        }
        if YIELDS.load(Relaxed) {
            events::yield_core();
        }
    }
}

fn revoke() -> Check {
    upcall::register(on_upcall)?;
    let until = time::now_ns() + DURATION_NS;
    while time::now_ns() < until {
        core::hint::spin_loop();
    }
    let (warnings, granted) = (WARNINGS.load(Relaxed), GRANTED.load(Relaxed));
    let preemptions: u64 = applications::usage(application()).preemptions.load(Relaxed).into();
    println!("revoke warnings={warnings} granted={granted} preemptions={preemptions}");
    expect_that("there are warnings", warnings > 10)?;
    expect_that("the deadlines are near and known", BAD_DEADLINES.load(Relaxed) == 0)?;
    if YIELDS.load(Relaxed) {
        // A warning that the host delays beyond its deadline comes too late to heed it.
        let text = format!("{preemptions} preemptions are few for {warnings} warnings");
        return expect_that(&text, preemptions * 2 < warnings);
    }
    expect_that("the core was taken", preemptions > 10)?;
    expect_that("and each time given back with an upcall", granted.abs_diff(preemptions) <= 1)
}
