//! What it takes to go from one thread of a core to another, in cycles of the time-stamp counter: lines
//! `figure name=.. cycles=..`, each the median of many batches.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::num::NonZeroU32;
use core::task::{Poll, Waker};
use nom_app::alloc::rc::Rc;
use nom_app::alloc::sync::Arc;
use nom_app::alloc::vec::Vec;
use nom_app::sockets::Thread;
use nom_app::{println, sockets, time};
use nom_guest_tests::{Check, run};
use nom_rt::EventLoop;
use nom_sys::port::{Clock, Doorbell, Idle};

nom_app::main!(main);

const BATCHES: usize = 101;
/// Switches in one batch.
const SWITCHES: u64 = 100;
/// Bytes of a stack.
const STACK: usize = 32 << 10;

fn main() -> u8 {
    run(&[("threads", threads)])
}

fn threads() -> Check {
    figure("yield", 2, |thread, _, _| thread.yield_now())?;
    figure("yield_of_16", 16, |thread, _, _| thread.yield_now())?;
    figure("wake_and_block", 2, Baton::pass)
}

/// Lets `count` threads do `step` in turn, which is to switch to the next.
fn figure(name: &str, count: usize, step: fn(&Thread<'_>, &Baton, usize)) -> Check {
    let mut core = EventLoop::new(0, Clock, Idle, Arc::new(Doorbell));
    let threads = sockets::threads(core.handle(), STACK);
    let baton =
        Rc::new(Baton { holder: Cell::new(0), waiting: RefCell::new(nom_app::alloc::vec![None; count]) });
    let batches = Rc::new(RefCell::new(Vec::new()));
    for index in 0..count {
        let (baton, batches, all) = (baton.clone(), batches.clone(), threads.clone());
        let handle = core.handle().clone();
        let main = move |thread: &Thread<'_>| {
            while batches.borrow().len() < BATCHES {
                let (start, before) = (time::cycles(), all.switches());
                for _ in 0..SWITCHES {
                    step(thread, &baton, index);
                }
                let (cycles, switches) = (time::cycles() - start, all.switches() - before);
                if index == 0 {
                    batches.borrow_mut().push(cycles / switches.max(1));
                }
            }
            handle.stop(0);
        };
        threads.spawn(NonZeroU32::MIN, main).map_err(|_| "no stack")?;
    }
    core.run();
    let mut batches = batches.take();
    batches.sort_unstable();
    println!("figure name={name} cycles={}", batches[batches.len() / 2]);
    Ok(())
}

/// One thread has it, and gives it to the next.
struct Baton {
    holder: Cell<usize>,
    waiting: RefCell<Vec<Option<Waker>>>,
}

impl Baton {
    fn pass(thread: &Thread<'_>, baton: &Baton, index: usize) {
        thread.block_on(poll_fn(|context| {
            if baton.holder.get() == index {
                return Poll::Ready(());
            }
            baton.waiting.borrow_mut()[index] = Some(context.waker().clone());
            Poll::Pending
        }));
        let next = (index + 1) % baton.waiting.borrow().len();
        baton.holder.set(next);
        let waker = baton.waiting.borrow_mut()[next].take();
        waker.into_iter().for_each(Waker::wake);
    }
}
