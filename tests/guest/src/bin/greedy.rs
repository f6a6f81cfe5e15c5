//! Keeps the kernel as busy as it can, so that nobody else comes in. Its peer counts.
//!
//! Argument: `grants`, `console`, `devices` or `fragments`, what to do without end.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::vec::Vec;
use nom_app::devices::Device;
use nom_app::memory::Grant;
use nom_app::{PageSize, args, channels, println};
use nom_guest_tests::{Check, Failure, entropy, run};
use nom_sys::console;

nom_app::main!(main);

/// Pages of 2 MiB that are granted at a time: all but nothing of it is zeroing.
const PAGES: u64 = 64;
/// Most single pages that its device is to reach, no two of them neighbours: as many entries of tables.
const SINGLES: usize = 7_000;
/// Single pages by which it leaves most of memory in pieces that are too small for it.
const FRAGMENTS: usize = 18_000;
const LINE: &[u8; 4096] = &[b'.'; 4096];

fn main() -> u8 {
    run(&[("greedy", greedy)])
}

fn greedy() -> Check {
    let scattered: Vec<Option<Grant>>;
    let work: fn() -> Check = match args().next() {
        Some("grants") => grants,
        Some("console") => lines,
        Some("devices") => {
            scattered = scatter(SINGLES);
            println!("greedy holds {} single pages", scattered.iter().flatten().count());
            devices
        }
        Some("fragments") => {
            scattered = scatter(FRAGMENTS);
            println!("greedy holds {} single pages", scattered.iter().flatten().count());
            pairs
        }
        _ => return Err(Failure::from("expected grants, console, devices or fragments")),
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

/// So many pages, with one between each two of them that is free. Nothing else becomes free.
fn scatter(pages: usize) -> Vec<Option<Grant>> {
    let mut all = Vec::with_capacity(2 * pages);
    all.extend(core::iter::from_fn(|| Grant::new(PageSize::Small, 1).ok().map(Some)).take(2 * pages));
    all.iter_mut().skip(1).step_by(2).for_each(|grant| *grant = None);
    all
}

/// Two pages in a row: they are looked for wherever one is free.
fn pairs() -> Check {
    Grant::new(PageSize::Small, 2)?.release()?;
    Ok(())
}

/// All that it holds is mapped for the device, and unmapped.
fn devices() -> Check {
    drop(Device::acquire(entropy::find()?)?);
    Ok(())
}
