//! Whether the bulletin board tells the truth, as far as an application can know it.
//!
//! Arguments: processors, megabytes of memory, own weight.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::format;
use nom_app::memory::Grant;
use nom_app::{PageSize, application, applications, args, board, cores, events, println, time};
use nom_guest_tests::{Check, Failure, expect, expect_that, run};
use nom_sys::abi::board::{ApplicationState, BOARD_BYTES, ClockSource, DmaProtection, Hazards, NOBODY};

nom_app::main!(main);

fn main() -> u8 {
    run(&[
        ("board-header", header),
        ("board-machine", machine),
        ("board-cores", all_cores),
        ("board-applications", all_applications),
        ("board-memory", memory),
        ("board-clock", clock),
        ("board-cycles", cycles),
    ])
}

fn argument(number: usize) -> Result<u64, Failure> {
    let text = args().nth(number).ok_or("three arguments are expected")?;
    text.parse().map_err(|_| format!("`{text}` is no number").into())
}

fn header() -> Check {
    expect("the magic", board().is_valid(), true)?;
    expect("its bytes", board().header.bytes.load(Relaxed) as usize, BOARD_BYTES)?;
    expect("prices", board().prices.count.load(Relaxed), 0)
}

fn machine() -> Check {
    let machine = &board().machine;
    expect("processors", u64::from(machine.cores.load(Relaxed)), argument(0)?)?;
    let (total, free) = (machine.frames_total.load(Relaxed), machine.frames_free.load(Relaxed));
    let frames = argument(1)? << 8;
    // Firmware and legacy devices keep a little.
    expect_that(
        &format!("{total} frames are those of the memory"),
        (frames - frames / 16..=frames).contains(&total),
    )?;
    expect_that(&format!("{free} free of {total}"), free > 0 && free < total)?;
    expect_that("there are cache colours", machine.colours.load(Relaxed).is_power_of_two())?;
    println!("unmitigated={}.", Hazards(machine.unmitigated.load(Relaxed)));
    println!("dma={}", DmaProtection::name(machine.dma_protection.load(Relaxed)));
    Ok(())
}

fn all_cores() -> Check {
    for (number, core) in (0..).zip(&board().cores) {
        let online = u64::from(core.online.load(Relaxed));
        expect(&format!("core {number} online"), online, u64::from(number < argument(0)?))?;
        if online == 0 {
            expect("the holders of an absent core", core.holders.load(Relaxed), 0)?;
            expect("who runs on an absent core", core.running.load(Relaxed), NOBODY)?;
        }
    }
    let here = &board().cores[cores::current()];
    expect("who runs here", here.running.load(Relaxed) as usize, application())?;
    expect_that("it holds this core", here.holders.load(Relaxed) & 1 << application() != 0)
}

fn all_applications() -> Check {
    let own = applications::entry(application());
    expect("own state", own.state.load(Relaxed), ApplicationState::Running as u32)?;
    expect("own weight", u64::from(own.weight.load(Relaxed)), argument(2)?)?;
    expect("own cores", applications::usage(application()).cores.load(Relaxed), 1)?;
    expect("own starts", own.starts.load(Relaxed), 1)?;
    expect("the most cores", own.cores_max.load(Relaxed), nom_sys::start::info().cores_max)?;
    expect("the most frames", own.frames_max.load(Relaxed), nom_sys::start::info().frames_max)?;
    let name = own.name_bytes();
    expect("own name", name.split(|byte| *byte == 0).next(), Some(&b"board"[..]))?;
    expect("own index by name", applications::find("board")?, application())
}

/// A grant moves frames from free to charged, and back.
fn memory() -> Check {
    let figures = || {
        let charged = applications::usage(application()).frames.load(Relaxed);
        (board().machine.frames_free.load(Relaxed), charged)
    };
    let (free, charged) = figures();
    let grants = [Grant::new(PageSize::Small, 5)?, Grant::new(PageSize::Large, 1)?];
    expect("free and charged with grants", figures(), (free - 517, charged + 517))?;
    for grant in grants {
        grant.release()?;
    }
    expect("free and charged without", figures(), (free, charged))
}

fn clock() -> Check {
    let source = ClockSource::name(board().clock.source.load(Relaxed));
    println!("clock={source}");
    expect_that("the clock was calibrated", source != "none")?;
    expect_that("it started with the machine", (1..600_000_000_000).contains(&time::now_ns()))?;
    let mut last = 0;
    for _ in 0..10_000 {
        let now = time::now_ns();
        expect_that("it never goes back", now >= last)?;
        last = now;
    }
    Ok(())
}

/// What this application runs is charged to it, what it sleeps is not.
fn cycles() -> Check {
    let charged = || {
        events::yield_core(); // Brings the board up to date.
        applications::usage(application()).cycles.load(Relaxed)
    };
    let start = time::cycles();
    let before = charged();
    while time::cycles() - start < board().clock.tsc_hz.load(Relaxed) / 10 {}
    let (ran, passed) = (charged() - before, time::cycles() - start);
    expect_that(&format!("{ran} of {passed} cycles are charged"), ran <= passed && ran * 10 >= passed * 9)?;
    let before = charged();
    events::sleep(100_000_000);
    let slept = charged() - before;
    expect_that(&format!("{slept} cycles are few for a sleep"), slept * 5 < passed)
}
