//! What it takes to go from one thread of a core to another, in cycles of the time-stamp counter: lines
//! `figure name=.. cycles=..`, each the median of many batches.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::task::{Poll, Waker};
use nom_app::alloc::rc::Rc;
use nom_app::alloc::sync::Arc;
use nom_app::alloc::vec::Vec;
use nom_app::sockets::{Thread, Threads};
use nom_app::{board, println, sockets, time};
use nom_guest_tests::{Check, expect_that, run};
use nom_rt::EventLoop;
use nom_sys::port::{Clock, Doorbell, Idle, Interrupter};

nom_app::main!(main);

const BATCHES: usize = 101;
/// Switches in one batch.
const SWITCHES: u64 = 100;
/// Bytes of a stack.
const STACK: usize = 32 << 10;

fn main() -> u8 {
    run(&[
        ("computing-starves-nobody", computing_starves_nobody),
        ("computing-alone-is-tickless", computing_alone_is_tickless),
        ("threads", threads),
    ])
}

/// A loop whose threads are interrupted while they compute.
fn preemptive() -> (EventLoop<Clock, Idle>, Threads) {
    let core = EventLoop::new(0, Clock, Idle, Arc::new(Doorbell));
    core.handle().set_preemption(&Interrupter);
    let threads = sockets::threads(core.handle(), STACK);
    (core, threads)
}

/// Two threads compute until a third, which sleeps in between, says that it is enough: never, if any of them
/// had the core to itself.
fn computing_starves_nobody() -> Check {
    let (mut core, threads) = preemptive();
    let (is_enough, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new([0, 1].map(AtomicU64::new)));
    for index in 0..2 {
        let (is_enough, rounds) = (is_enough.clone(), rounds.clone());
        let main = move |thread: &Thread<'_>| {
            thread.preemptible(|_| {
                while !is_enough.load(Relaxed) {
                    // Heap and registers in all states.
                    let list: Vec<u64> = (0..rounds[index].load(Relaxed) % 60).collect();
                    rounds[index].fetch_add(1 + list.iter().sum::<u64>() % 2, Relaxed);
                }
            });
        };
        threads.spawn(NonZeroU32::MIN, main).map_err(|_| "no stack")?;
    }
    let counts = rounds.clone();
    let main = move |thread: &Thread<'_>| {
        let mut least = [0; 2];
        for _ in 0..20 {
            thread.sleep(1_000_000);
            let now = [0, 1].map(|index: usize| counts[index].load(Relaxed));
            least = core::array::from_fn(|index| least[index] + u64::from(now[index] > least[index]));
        }
        is_enough.store(true, Relaxed);
        while !threads.is_empty() && threads.len() > 1 {
            thread.yield_now();
        }
        thread.handle().stop(0);
    };
    sockets::threads(core.handle(), STACK).spawn(NonZeroU32::MIN, main).map_err(|_| "no stack")?;
    core.run();
    expect_that("both got on", rounds.iter().all(|rounds| rounds.load(Relaxed) > 1))
}

/// One that computes alone is interrupted where the loop looks for work, and then by nothing but work.
fn computing_alone_is_tickless() -> Check {
    let (mut core, threads) = preemptive();
    let main = |thread: &Thread<'_>| {
        let interrupts = || board().machine.timer_interrupts.load(Relaxed);
        let before = interrupts();
        thread.preemptible(|_| {
            let end_ns = time::now_ns() + 200_000_000;
            while time::now_ns() < end_ns {}
        });
        thread.handle().stop((interrupts() - before) as i32);
    };
    threads.spawn(NonZeroU32::MIN, main).map_err(|_| "no stack")?;
    let interrupts = core.run();
    println!("figure name=timer_interrupts_alone cycles={interrupts}");
    expect_that("a handful of interrupts in 200 ms", interrupts <= 10)
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
