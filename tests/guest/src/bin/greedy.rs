//! Keeps the kernel as busy as it can, so that nobody else comes in. Its peer counts.
//!
//! Argument: `grants` or `console`, what to do without end.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::memory::Grant;
use nom_app::{PageSize, args, channels};
use nom_guest_tests::{Check, Failure, run};
use nom_sys::console;

nom_app::main!(main);

/// Pages of 2 MiB that are granted at a time: all but nothing of it is zeroing.
const PAGES: u64 = 64;
const LINE: &[u8; 4096] = &[b'.'; 4096];

fn main() -> u8 {
    run(&[("greedy", greedy)])
}

fn greedy() -> Check {
    let work: fn() -> Check = match args().next() {
        Some("grants") => grants,
        Some("console") => lines,
        _ => return Err(Failure::from("expected grants or console")),
    };
    let channel = channels::all().next().ok_or("no channel to a peer")?;
    loop {
        work()?;
        channel.words[0].fetch_add(1, Relaxed);
    }
}

fn grants() -> Check {
    Grant::new(PageSize::Large, PAGES)?.release()?;
    Ok(())
}

fn lines() -> Check {
    console::write(LINE);
    Ok(())
}
