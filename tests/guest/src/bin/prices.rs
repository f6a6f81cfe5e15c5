//! The prices on the board: one application publishes them, another one reads them and must not write them.
//!
//! Arguments: `publish NAME VANDAL` starts the reader NAME and, while it looks on, the application VANDAL,
//! which writes to the prices and is ended for it; `read` checks what it sees. They talk over a channel.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::prices::{self, PriceEntry, PriceList, PriceSource, PricedResource};
use nom_app::{Error, applications, args, board, events, println, time};
use nom_guest_tests::line::{Line, Patience};
use nom_guest_tests::{Check, expect, expect_that, run};

nom_app::main!(main);

/// How often the prices change.
const CHANGES: u64 = 1000;
/// How long an application may take to end.
const TIMEOUT_NS: u64 = 20_000_000_000;
/// Status of an application that the kernel ended for a fault.
const FAULTED: u32 = 139;

fn main() -> u8 {
    match args().next() {
        Some("publish") => run(&[("prices-published", publish)]),
        Some("read") => run(&[("prices-read", read), ("prices-forbidden", publish_without_permission)]),
        _ => run(&[("prices", || Err("expected publish or read".into()))]),
    }
}

/// Prices of a revision, of which each tells the others.
fn list(revision: u64, published_ns: u64) -> PriceList {
    let mut list = PriceList::new(revision, published_ns);
    for (number, resource) in (1..).zip(PricedResource::ALL) {
        let dollars = (revision * number) as f64;
        let (since_ns, confirmed_ns) = (revision, revision);
        list.set(PriceEntry { resource, source: PriceSource::Fixed, dollars, since_ns, confirmed_ns });
    }
    list
}

fn publish() -> Check {
    let (reader, vandal) = (args().nth(1).ok_or("no reader")?, args().nth(2).ok_or("no vandal")?);
    expect_that("there are no prices at first", prices::read().is_some_and(|list| list.is_empty()))?;
    let mut line = Line::open()?;
    applications::start(applications::find(reader)?)?;
    for revision in 1..=CHANGES {
        prices::publish(&list(revision, time::now_ns()))?;
        if revision % 100 == 0 {
            line.send(&revision.to_le_bytes())?;
            expect("the answer's length", line.receive(&mut [0; 8], Patience::Asleep)?, 0)?;
        }
    }
    let vandal = applications::find(vandal)?;
    applications::start(vandal)?;
    await_end(vandal)?;
    expect("its status", applications::entry(vandal).status.load(Relaxed), FAULTED)?;
    expect("the revision that stands", prices::read().map(|list| list.revision), Some(CHANGES))?;
    line.send(&[])?;
    await_end(applications::find(reader)?)?;
    expect("the reader's status", applications::entry(applications::find(reader)?).status.load(Relaxed), 0)
}

fn await_end(application: usize) -> Check {
    let deadline = time::now_ns() + TIMEOUT_NS;
    while applications::is_running(application) {
        expect_that("it ends", time::now_ns() < deadline)?;
        events::sleep(500_000);
    }
    Ok(())
}

fn read() -> Check {
    let mut line = Line::open()?;
    let mut buffer = [0; 8];
    while line.receive(&mut buffer, Patience::Asleep)? > 0 {
        let seen = prices::read().ok_or("the publisher waits, and does not write")?;
        expect("the revision", seen.revision, u64::from_le_bytes(buffer))?;
        expect("the same in one word", prices::revision(), seen.revision)?;
        expect("how often they changed", u64::from(prices::sequence()), seen.revision)?;
        expect_that("they were published in the past", seen.published_ns <= time::now_ns())?;
        expect("the prices", seen, list(seen.revision, seen.published_ns))?;
        line.send(&[])?;
    }
    println!("prices revision={}", prices::revision());
    Ok(())
}

/// Refused before it is tried; that the memory is read-only is the vandal's matter.
fn publish_without_permission() -> Check {
    let before = board().prices.read();
    expect("the answer", prices::publish(&list(1, 1)), Err(Error::NotPermitted))?;
    expect("the prices", board().prices.read(), before)
}
