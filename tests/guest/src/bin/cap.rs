//! Meets the caps of its manifest: memory (4 MiB) and cores (1).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::vec::Vec;
use nom_app::memory::{Grant, Region};
use nom_app::{Error, PageSize, Protection, application, applications, cores};
use nom_guest_tests::{Check, expect, expect_that, run};

nom_app::main!(main);

fn main() -> u8 {
    run(&[("memory-cap", memory_cap), ("heap-at-the-cap", heap_at_the_cap), ("core-cap", core_cap)])
}

/// Frames that it still may hold.
fn left() -> u64 {
    let own = applications::entry(application());
    own.frames_max.load(Relaxed) - applications::usage(application()).frames.load(Relaxed)
}

/// Grants pages until none may be granted.
fn exhaust(grants: &mut Vec<Grant>) -> Error {
    loop {
        match Grant::new(PageSize::Small, 1) {
            Ok(grant) => grants.push(grant),
            Err(error) => return error,
        }
    }
}

fn memory_cap() -> Check {
    let frames_max = applications::entry(application()).frames_max.load(Relaxed);
    expect("the cap in frames", frames_max, 1024)?;
    let mut grants = Vec::with_capacity(frames_max as usize);
    let before = left();
    expect("a large grant at the cap", Grant::new(PageSize::Large, 2).unwrap_err(), Error::OverMemoryCap)?;
    expect("one grant too many", exhaust(&mut grants), Error::OverMemoryCap)?;
    expect("frames left", left(), 0)?;
    expect("pages granted", grants.len() as u64, before)?;
    grants.pop();
    // One frame for a page, none for the tables that it would need far from everything else.
    let (page, far) = (Grant::new(PageSize::Small, 1)?, Region::reserve(4096, PageSize::Huge)?);
    expect("a mapping at the cap", far.map(0, &page, Protection::Read), Err(Error::OverMemoryCap))?;
    drop(page);
    drop(grants);
    expect("frames left again", left(), before)
}

/// An allocation that cannot be fails; it does not end the program.
fn heap_at_the_cap() -> Check {
    let mut bytes = Vec::<u8>::new();
    expect_that("8 MiB are refused", bytes.try_reserve_exact(8 << 20).is_err())?;
    expect_that("1 TiB is refused", bytes.try_reserve_exact(1 << 40).is_err())?;
    expect_that("1 MiB is there", bytes.try_reserve_exact(1 << 20).is_ok())?;
    bytes.resize(1 << 20, 0x5a);
    expect_that("and can be used", bytes.iter().all(|byte| *byte == 0x5a))
}

fn core_cap() -> Check {
    expect("a second core", cores::acquire(|| ()).map(|core| core.number()).unwrap_err(), Error::NoCore)
}
