//! Sleeping: deadlines are kept, and a machine that has nothing to do takes no interrupts.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::format;
use nom_app::{args, board, cores, events, println, time};
use nom_guest_tests::{Check, expect, expect_that, run};

nom_app::main!(main);

/// How late a wake-up may be on a host that does much else.
const LATE_NS: u64 = 500_000_000;
/// For how long the machine is left idle, each time.
const IDLE_NS: u64 = 250_000_000;
/// How often it is left so until it was quiet for once. A tick comes in every such time; what a busy host
/// does to an emulated timer, which then fires early and is armed again for the rest, comes in some.
const TRIALS: u32 = 40;
/// Timer interrupts that one deadline may take. The slowest of ticks, a hundred in a second, would be 25.
const INTERRUPTS_MAX: u64 = 6;
/// Part of that time, in percent, that every processor must have been halted.
const IDLE_PERCENT: u64 = 95;

fn main() -> u8 {
    if args().next() == Some("idle") {
        // Until the others, who share the processor, sleep too; of that the first events tell.
        let settled = time::now_ns() + 4 * IDLE_NS;
        while time::now_ns() < settled {
            events::wait(Some(settled));
        }
        return run(&[("tickless-idle", idle)]);
    }
    run(&[
        ("deadlines", deadlines),
        ("deadline-in-the-past", past),
        ("tickless-idle", idle),
        ("clock-rate", clock_rate),
    ])
}

fn deadlines() -> Check {
    for duration_ns in [0, 1_000, 50_000, 1_000_000, 20_000_000, 200_000_000] {
        let deadline = time::now_ns() + duration_ns;
        let events = events::wait(Some(deadline));
        let late = time::now_ns().wrapping_sub(deadline);
        println!("deadline in={duration_ns} late={late}");
        expect("pending events", events.pending, 0)?;
        expect_that(&format!("{late} ns late is soon after the deadline"), late < LATE_NS)?;
    }
    Ok(())
}

fn past() -> Check {
    for deadline in [0, 1, time::now_ns() - 1] {
        expect("pending events", events::wait(Some(deadline)).pending, 0)?;
    }
    Ok(())
}

/// No timer interrupts but those that end the sleep.
fn idle() -> Check {
    (1..TRIALS).find(|_| left_idle().is_ok()).map_or_else(left_idle, |_| Ok(()))
}

/// Whether a machine that is left idle for a while is so.
fn left_idle() -> Check {
    let machine = &board().machine;
    let processors = machine.cores.load(Relaxed) as usize;
    // The deadline makes every processor's accounting run up to the moment it is read.
    let (interrupts, idle, start) = (machine.timer_interrupts.load(Relaxed), idle_cycles(), time::cycles());
    events::sleep(IDLE_NS);
    let interrupts = machine.timer_interrupts.load(Relaxed) - interrupts;
    let (idle, passed) = (idle_cycles() - idle, time::cycles() - start);
    println!(
        "idle processors={processors} timer_interrupts={interrupts} own_idle_percent={}",
        idle * 100 / passed
    );
    expect_that(
        &format!("{interrupts} timer interrupts do not come from ticks"),
        interrupts <= INTERRUPTS_MAX,
    )?;
    expect_that(&format!("{idle} of {passed} cycles were idle"), idle * 100 >= passed * IDLE_PERCENT)
}

/// Idle cycles of this core.
fn idle_cycles() -> u64 {
    board().cores[cores::current()].idle_cycles.load(Relaxed)
}

/// The clock and the time-stamp counter agree with each other, unless the host paused between their readings.
fn clock_rate() -> Check {
    (1..TRIALS).find(|_| agree().is_ok()).map_or_else(agree, |_| Ok(()))
}

fn agree() -> Check {
    let hz = board().clock.tsc_hz.load(Relaxed);
    expect_that(&format!("{hz} Hz is a processor's frequency"), (100_000_000..20_000_000_000).contains(&hz))?;
    let (cycles, start) = (time::cycles(), time::now_ns());
    events::sleep(100_000_000);
    let (cycles, passed) = (time::cycles() - cycles, time::now_ns() - start);
    let expected = u128::from(passed) * u128::from(hz) / 1_000_000_000;
    expect_that(
        &format!("{cycles} cycles are {passed} ns at {hz} Hz"),
        u128::from(cycles).abs_diff(expected) * 100 <= expected,
    )
}
