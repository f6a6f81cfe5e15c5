//! Acquires every processor there is, works on all of them at once, and gives them back.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use nom_app::alloc::{format, vec::Vec};
use nom_app::{Error, application, applications, cores, events, time, upcall};
use nom_guest_tests::processors::{held, processors, wait_until};
use nom_guest_tests::{Check, Failure, border, expect, expect_that, run};

nom_app::main!(main);

/// How long everybody together may take.
const TIMEOUT_NS: u64 = 30_000_000_000;
/// How often cores are acquired and released one after the other.
const ROUNDS: u64 = 300;

fn main() -> u8 {
    run(&[
        ("all-cores-at-once", all_at_once),
        ("hint", hint),
        ("handler-on-each-core", handler_on_each_core),
        ("sleep-on-each-core", sleep_on_each_core),
        ("acquire-and-release", acquire_and_release),
    ])
}

/// Runs `work` on every other processor, waits for it, and until the board shows them released.
fn on_all_others(work: fn()) -> Check {
    let others: Vec<_> = (1..processors()).map(|_| cores::acquire(work)).collect::<Result<_, _>>()?;
    for core in others {
        wait_until(TIMEOUT_NS, "the work returns", || core.is_finished())?;
        core.join();
    }
    wait_until(TIMEOUT_NS, "the cores are released", || held() == 1)
}

static MEETING: AtomicU64 = AtomicU64::new(0);
static SEEN: AtomicU64 = AtomicU64::new(0);
static COUNTED: AtomicBool = AtomicBool::new(false);

/// Sleeps until something is so: many spinning processors would keep each other from few real ones.
fn doze_until(condition: impl Fn() -> bool) {
    while !condition() {
        events::sleep(5_000_000);
    }
}

/// Nobody goes on before all are there, so all have to be there at once.
fn meet() {
    SEEN.fetch_or(1 << cores::current(), Relaxed);
    MEETING.fetch_add(1, Relaxed);
    doze_until(|| MEETING.load(Relaxed) >= processors());
}

/// Keeps the core until the cores are counted.
fn meet_and_stay() {
    meet();
    doze_until(|| COUNTED.load(Relaxed));
}

fn all_at_once() -> Check {
    let others: Vec<_> =
        (1..processors()).map(|_| cores::acquire(meet_and_stay)).collect::<Result<_, _>>()?;
    expect("a core too many", cores::acquire(|| ()).map(|core| core.number()).unwrap_err(), Error::NoCore)?;
    meet();
    let all_held = expect("cores held", held(), processors());
    COUNTED.store(true, Relaxed);
    all_held?;
    expect("the cores that were there", SEEN.load(Relaxed), u64::MAX >> (64 - processors()))?;
    let numbers: u64 = others.iter().map(|core| 1 << core.number()).sum::<u64>() | 1 << cores::current();
    expect("the cores that were promised", numbers, SEEN.load(Relaxed))?;
    others.into_iter().for_each(cores::Core::join);
    wait_until(TIMEOUT_NS, "the cores are released", || held() == 1)
}

fn hint() -> Check {
    let Some(last) = (0..processors()).rev().find(|core| *core != cores::current() as u64) else {
        return Ok(());
    };
    let core = cores::acquire_near(last, || ())?;
    expect("the core", core.number() as u64, last)?;
    core.join();
    wait_until(TIMEOUT_NS, "the core is released", || held() == 1)
}

static UPCALLS: AtomicU64 = AtomicU64::new(0);

fn handler_on_each_core() -> Check {
    UPCALLS.store(0, Relaxed);
    on_all_others(|| {
        let registered = upcall::register(|upcall| {
            UPCALLS.fetch_add(1, Relaxed);
            border::skip_undefined(upcall);
        });
        if registered.is_ok() {
            border::raise_undefined();
        }
    })?;
    expect("upcalls", UPCALLS.load(Relaxed), processors() - 1)
}

static SLEPT: AtomicU64 = AtomicU64::new(0);

fn sleep_on_each_core() -> Check {
    SLEPT.store(0, Relaxed);
    on_all_others(|| {
        let (start, duration_ns) = (time::now_ns(), 5_000_000);
        let events = events::sleep(duration_ns);
        if events.pending == 0 && time::now_ns() - start >= duration_ns {
            SLEPT.fetch_add(1, Relaxed);
        }
    })?;
    expect("cores that slept", SLEPT.load(Relaxed), processors() - 1)
}

/// Nothing is lost by it.
fn acquire_and_release() -> Result<(), Failure> {
    static WORK: AtomicU64 = AtomicU64::new(0);
    let frames = || applications::usage(application()).frames.load(Relaxed);
    let (before, mut rounds) = (frames(), 0);
    while rounds < ROUNDS && processors() > 1 {
        let core = cores::acquire(|| _ = WORK.fetch_add(1, Relaxed))?;
        wait_until(TIMEOUT_NS, "the work returns", || core.is_finished())?;
        core.join();
        wait_until(TIMEOUT_NS, "the core is released", || held() == 1)?;
        rounds += 1;
    }
    expect("work done", WORK.load(Relaxed), rounds)?;
    expect_that(&format!("{} frames are as few as {before}", frames()), frames() <= before)
}
