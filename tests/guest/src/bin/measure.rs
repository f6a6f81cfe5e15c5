//! What crossing the border costs, in cycles of the time-stamp counter: lines `figure name=.. cycles=..`,
//! each the median of many batches.
//!
//! Argument: `measure NAME` measures, with the application NAME at the other end of the channel; `echo`
//! answers, `yield` only yields. On one processor the two share it, on several they do not.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::vec::Vec;
use nom_app::{applications, args, board, events, println, time, upcall};
use nom_guest_tests::line::{Line, Patience};
use nom_guest_tests::{Check, border, expect, run};

nom_app::main!(main);

const BATCHES: usize = 101;
/// Repetitions in one batch: enough to make reading the counter cheap beside them.
const REPETITIONS: u64 = 100;

fn main() -> u8 {
    match args().next() {
        Some("echo") => run(&[("echo", echo)]),
        Some("yield") => loop {
            events::yield_core();
        },
        _ => run(&[("measure", measure)]),
    }
}

fn measure() -> Check {
    figure("system_call", 1, || _ = border::call_unknown());
    upcall::register(border::skip_undefined)?;
    figure("upcall_round_trip", 1, border::raise_undefined);
    figure("board_clock", 1, || _ = core::hint::black_box(time::now_ns()));
    let peer = applications::find(args().nth(1).ok_or("expected the peer's name")?)?;
    applications::start(peer)?;
    let result = if board().machine.cores.load(Relaxed) == 1 { switches(peer) } else { messages() };
    applications::kill(peer)?;
    result
}

/// Prints the median cost of `work`, which does what is measured `per_call` times.
fn figure(name: &str, per_call: u64, mut work: impl FnMut()) {
    let mut batches: Vec<u64> = (0..BATCHES)
        .map(|_| {
            let start = time::cycles();
            (0..REPETITIONS).for_each(|_| work());
            time::cycles() - start
        })
        .collect();
    batches.sort_unstable();
    println!("figure name={name} cycles={}", batches[BATCHES / 2] / (REPETITIONS * per_call));
}

/// One yield is a switch to the peer and one back.
fn switches(peer: usize) -> Check {
    let cycles = || applications::entry(peer).cycles.load(Relaxed);
    events::sleep(10_000_000);
    let before = cycles();
    figure("address_space_switch", 2, events::yield_core);
    expect("whether the peer ran", cycles() > before, true)
}

/// The shortest message there and back, both ends awake, then both asleep until they are notified.
fn messages() -> Check {
    let mut line = Line::open()?;
    let mut result = Ok(());
    for (name, patience) in
        [("ipc_round_trip_awake", Patience::Awake), ("ipc_round_trip_asleep", Patience::Asleep)]
    {
        exchange(&mut line, patience)?;
        figure(name, 1, || {
            if result.is_ok() {
                result = exchange(&mut line, patience);
            }
        });
    }
    result
}

/// The message tells the peer how to wait for the next one.
fn exchange(line: &mut Line, patience: Patience) -> Check {
    let mut message = [u8::from(patience == Patience::Asleep); 8];
    line.send(&message)?;
    line.receive(&mut message, patience).map(|_| ())
}

fn echo() -> Check {
    let mut line = Line::open()?;
    let mut message = [0; 8];
    loop {
        let patience = if message[0] == 0 { Patience::Awake } else { Patience::Asleep };
        line.receive(&mut message, patience)?;
        line.send(&message)?;
    }
}
