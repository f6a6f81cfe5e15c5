//! Other frames are mapped where every processor has read some before: none reads the old ones afterwards, be
//! it that it spins meanwhile or halts.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use nom_app::alloc::{boxed::Box, vec::Vec};
use nom_app::memory::{Grant, Region};
use nom_app::{PageSize, Protection, cores, events, time};
use nom_guest_tests::processors::{processors, wait_until};
use nom_guest_tests::{Check, expect, run};

nom_app::main!(main);

const ROUNDS: u64 = 100;
const PAGE: u64 = 4096;
/// How many are mapped and unmapped at once.
const PAGES: u64 = 2;
/// Words of a page.
const WORDS: usize = 512;
/// How long one step may take.
const TIMEOUT_NS: u64 = 20_000_000_000;

/// How long a processor halts that waits for its turn: longer than a turn takes.
const HALT_NS: u64 = 2_000_000;

/// What the processors do: in odd turns they read the second frames, in even ones the first.
static TURN: AtomicU64 = AtomicU64::new(0);
/// Readings that were made, and those that were wrong.
static READ: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

fn main() -> u8 {
    run(&[
        ("translations-forgotten", || translations(ROUNDS, core::hint::spin_loop)),
        ("translations-forgotten-by-who-halts", || translations(ROUNDS / 10, halt)),
    ])
}

fn halt() {
    events::wait(Some(time::now_ns() + HALT_NS));
}

/// Reads in every turn; who spins does not enter the kernel between the two of a round.
fn reader(region: &Region, rounds: u64, rest: fn()) {
    for turn in 1..=2 * rounds {
        while TURN.load(SeqCst) < turn {
            rest();
        }
        look(region, turn);
        READ.fetch_add(1, SeqCst);
    }
}

fn look(region: &Region, turn: u64) {
    for page in 0..PAGES as usize {
        if region.words()[WORDS * page].load(SeqCst) != turn % 2 {
            WRONG.fetch_add(1, SeqCst);
        }
    }
}

fn translations(rounds: u64, rest: fn()) -> Check {
    TURN.store(0, SeqCst);
    READ.store(0, SeqCst);
    let region: &'static Region = Box::leak(Box::new(Region::reserve(3 * PAGES * PAGE, PageSize::Small)?));
    let grants = [Grant::new(PageSize::Small, PAGES)?, Grant::new(PageSize::Small, PAGES)?];
    for (number, grant) in (0..).zip(&grants) {
        let first = PAGES * (1 + number);
        region.map(PAGE * first, grant, Protection::ReadWrite)?;
        for page in first..first + PAGES {
            region.words()[WORDS * page as usize].store(number, SeqCst);
        }
    }
    let others = (1..processors()).map(|_| cores::acquire(move || reader(region, rounds, rest)));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    for turn in 1..=2 * rounds {
        region.map(0, &grants[(turn % 2) as usize], Protection::Read)?;
        TURN.store(turn, SeqCst);
        look(region, turn);
        let all = turn * others.len() as u64;
        wait_until(TIMEOUT_NS, "all have read", || READ.load(SeqCst) == all)?;
        region.unmap(0, PAGES * PAGE)?;
    }
    others.into_iter().for_each(cores::Core::join);
    expect("readings of a frame that was no longer mapped", WRONG.load(SeqCst), 0)
}
