//! Makes calls on every processor at once, each of which holds the kernel's lock for long, and counts them.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_app::alloc::vec::Vec;
use nom_app::memory::Grant;
use nom_app::{PageSize, board, cores, println, time};
use nom_guest_tests::{Check, expect_that, run};

nom_app::main!(main);

const DURATION_NS: u64 = 1_000_000_000;
/// As many pages as the kernel zeroes at a time.
const PAGES: u64 = 16;

static CALLS: AtomicU64 = AtomicU64::new(0);

fn main() -> u8 {
    run(&[("contend", contend)])
}

fn contend() -> Check {
    let processors = board().machine.cores.load(Relaxed);
    let until = time::now_ns() + DURATION_NS;
    let others = (1..processors).map(|_| cores::acquire(move || work(until)));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    work(until);
    others.into_iter().for_each(cores::Core::join);
    let calls = CALLS.load(Relaxed);
    println!("contend processors={processors} calls={calls}");
    expect_that("calls come through", calls > 0)
}

fn work(until: u64) {
    while time::now_ns() < until {
        let is_done = Grant::new(PageSize::Small, PAGES).and_then(Grant::release).is_ok();
        CALLS.fetch_add(is_done.into(), Relaxed);
    }
}
