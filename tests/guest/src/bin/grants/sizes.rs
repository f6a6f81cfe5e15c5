//! What is granted.

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::{format, vec::Vec};
use nom_app::memory::{Grant, Shared};
use nom_app::{Error, PageSize, application, applications, board};
use nom_guest_tests::{Check, expect, expect_that};

fn free() -> u64 {
    board().machine.frames_free.load(Relaxed)
}

/// Each size alone and several together: aligned, contiguous, usable to the last byte, and free afterwards.
pub fn sizes() -> Check {
    let before = free();
    for (size, count) in [
        (PageSize::Small, 1),
        (PageSize::Small, 300),
        (PageSize::Large, 1),
        (PageSize::Large, 5),
        (PageSize::Huge, 1),
    ] {
        let tables = applications::usage(application()).frames.load(Relaxed);
        let memory = Shared::new(size, count)?;
        let name = format!("{count} x {size:?}");
        expect(&name, memory.grant().bytes(), count * size.bytes())?;
        expect_that(&format!("{name} is aligned"), memory.grant().frame().is_multiple_of(size.frames()))?;
        let charged = applications::usage(application()).frames.load(Relaxed) - tables;
        expect_that(&format!("{name} charges {charged} frames"), charged >= count * size.frames())?;
        check_words(&memory)?;
    }
    expect("frames free again", free(), before)
}

/// The first, the last, and some words between.
fn check_words(memory: &Shared) -> Check {
    let words = memory.words();
    let step = (words.len() / 64).max(1);
    let places = || (0..words.len()).step_by(step).chain([words.len() - 1]);
    for place in places() {
        expect("a word of new memory", words[place].load(Relaxed), 0)?;
        words[place].store(place as u64, Relaxed);
    }
    let intact = places().all(|place| words[place].load(Relaxed) == place as u64);
    expect_that("every word keeps its value", intact)
}

/// Each colour is to be had, and is what it says.
pub fn colours() -> Check {
    let colours: u64 = board().machine.colours.load(Relaxed).into();
    for colour in 0..colours {
        let grants = [Grant::with_colour(colour)?, Grant::with_colour(colour)?];
        for grant in &grants {
            expect("the colour", grant.frame() % colours, colour)?;
        }
        expect_that("the grants differ", grants[0].frame() != grants[1].frame())?;
    }
    expect("a colour too many", Grant::with_colour(colours).unwrap_err(), Error::InvalidArgument)
}

/// What one had written, the next does not read, though it is the same memory.
pub fn zeroed() -> Check {
    let mut frames = Vec::new();
    let mut again = 0;
    for _ in 0..64 {
        let memory = Shared::new(PageSize::Small, 4)?;
        again += u32::from(frames.contains(&memory.grant().frame()));
        frames.push(memory.grant().frame());
        for word in memory.words() {
            expect("a word of new memory", word.swap(u64::MAX, Relaxed), 0)?;
        }
    }
    expect_that("some memory was granted twice", again > 0)
}

/// Parts of a grant may go back, each once.
pub fn partial_release() -> Check {
    let grant = Grant::new(PageSize::Small, 8)?;
    let before = free();
    let release = |from: u64, count: u64| {
        // SAFETY: the grant is mapped nowhere, so nobody refers to its memory.
        unsafe { nom_sys::raw::memory_release(grant.frame() + from, PageSize::Small as u64, count) }
    };
    release(2, 3)?;
    expect("frames free", free(), before + 3)?;
    expect("a part that went back", release(3, 1), Err(Error::NotGranted))?;
    expect("a range with a part that went back", release(0, 8), Err(Error::NotGranted))?;
    release(0, 2)?;
    release(5, 3)?;
    expect("frames free", free(), before + 8)?;
    expect("the whole grant", grant.release(), Err(Error::NotGranted))
}

/// Granting ends with an error when the machine has no more, and all of it comes back.
pub fn exhaustion() -> Check {
    // The list takes memory of its own, which goes back with it.
    let before = free();
    let mut grants = Vec::with_capacity(16 * 1024);
    for size in [PageSize::Huge, PageSize::Large, PageSize::Small] {
        let error = loop {
            match Grant::new(size, 1) {
                Ok(grant) => grants.push(grant),
                Err(error) => break error,
            }
        };
        expect(&format!("the end of {size:?} pages"), error, Error::OutOfMemory)?;
    }
    expect("frames free", free(), 0)?;
    let result = check_disjoint(&grants);
    drop(grants);
    result?;
    expect("frames free again", free(), before)
}

/// Every pair among the larger grants, and each small page against the next: no memory is left to sort them.
fn check_disjoint(grants: &[Grant]) -> Check {
    let end = |grant: &Grant| grant.frame() + grant.page_size().frames();
    let overlap = |a: &Grant, b: &Grant| a.frame() < end(b) && b.frame() < end(a);
    let large = grants.partition_point(|grant| grant.page_size() != PageSize::Small);
    let clash =
        grants[..large].iter().enumerate().any(|(n, a)| grants[n + 1..].iter().any(|b| overlap(a, b)));
    expect_that("no two grants overlap", !clash && !grants.windows(2).any(|pair| overlap(&pair[0], &pair[1])))
}
