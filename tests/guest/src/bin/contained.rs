//! Tasks that panic, or find no memory: each ends, and nothing else does. With the argument `hang`, one that
//! never comes back: it ends the program, which says where.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::hint::black_box;
use nom_app::alloc::sync::Arc;
use nom_app::alloc::vec::Vec;
use nom_app::{args, println};
use nom_guest_tests::{Check, expect_that, run};
use nom_rt::EventLoop;
use nom_sys::port::{Clock, Container, Doorbell, Idle};
use nom_sys::stack::ThreadStack;

nom_app::main!(main);

/// Bytes of a stack.
const STACK: usize = 64 << 10;

fn main() -> u8 {
    if args().next() == Some("hang") {
        return hang();
    }
    run(&[("a-task-that-panics", a_task_that_panics), ("a-task-without-memory", a_task_without_memory)])
}

/// A loop whose tasks are kept apart from it.
fn containing() -> EventLoop<Clock, Idle> {
    let core = EventLoop::new(0, Clock, Idle, Arc::new(Doorbell));
    core.handle().contain(&Container, || ThreadStack::new(STACK).ok());
    core
}

/// Runs a task that must not come to its end, while another one does.
fn ends(wrong: impl Future<Output = ()> + 'static) -> Check {
    let mut core = containing();
    let (handle, other) = (core.handle().clone(), core.handle().clone());
    let ended = core.block_on(async move {
        let beside = handle.spawn(async move { other.sleep(1_000_000).await });
        (handle.spawn(wrong).await.is_err(), beside.await.is_ok())
    });
    expect_that("it ends, and the others go on", ended == Some((true, true)))
}

fn a_task_that_panics() -> Check {
    ends(async { panic!("a wish of task number {}", black_box(1)) })?;
    ends(async { black_box(None::<u32>).map_or_else(|| panic!("a second wish"), drop) })
}

fn a_task_without_memory() -> Check {
    ends(async {
        let mut all = Vec::new();
        loop {
            all.push(black_box(Vec::<u8>::with_capacity(1 << 40)));
        }
    })
}

fn hang() -> u8 {
    let mut core = containing();
    core.block_on(async {
        println!("about to hang");
        endless()
    });
    0
}

/// Named in the backtrace.
#[inline(never)]
fn endless() {
    while black_box(true) {}
}
