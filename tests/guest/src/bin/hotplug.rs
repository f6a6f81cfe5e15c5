//! Waits for an entropy device to be plugged in, uses it, and lets it go when asked; as often as its argument
//! says. One more device ends it.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::format;
use nom_app::{Upcall, args, board, events, println, time};
use nom_guest_tests::{Check, Failure, entropy, expect_that, run};

nom_app::main!(main);

/// How long the host may take.
const TIMEOUT_NS: u64 = 60_000_000_000;

fn main() -> u8 {
    run(&[("hotplug", hotplug)])
}

fn hotplug() -> Check {
    let rounds: usize = args().next().and_then(|word| word.parse().ok()).unwrap_or(1);
    for round in 0..rounds {
        println!("hotplug round={round} waiting");
        let index = arrival()?;
        let mut device = entropy::Entropy::open(index)?;
        let length = device.read(&mut [0; 32])?;
        println!("hotplug round={round} device={index} bytes={length}");
        await_upcall(Upcall::DeviceLeft)?;
        drop(device);
        departure(index)?;
        println!("hotplug round={round} left");
    }
    // Ending now could keep the monitor from reporting that the last device has left.
    println!("hotplug waits for the end");
    arrival().map(|_| ())
}

/// The device, which may be there already.
fn arrival() -> Result<usize, Failure> {
    loop {
        match entropy::find() {
            Ok(index) => return Ok(index),
            Err(_) => await_upcall(Upcall::DeviceArrived)?,
        }
    }
}

fn await_upcall(upcall: Upcall) -> Check {
    let deadline = time::now_ns() + TIMEOUT_NS;
    while !events::wait(Some(deadline)).has(upcall) {
        expect_that(&format!("{} comes", upcall.name()), time::now_ns() < deadline)?;
    }
    Ok(())
}

fn departure(index: usize) -> Check {
    let (entry, deadline) = (&board().devices[index], time::now_ns() + TIMEOUT_NS);
    while entry.present.load(Relaxed) == 1 {
        expect_that("the board shows that it left", time::now_ns() < deadline)?;
        events::sleep(1_000_000);
    }
    expect_that("the board counts both changes", entry.changes.load(Relaxed) >= 2)
}
