//! Messages through shared memory, to and fro, each end sleeping until it is notified.
//!
//! Argument: `ping NAME` starts the application NAME, talks to it and sees it end; `pong` answers.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::alloc::{format, vec};
use nom_app::{Upcall, applications, args, events, println, time};
use nom_guest_tests::line::{Line, Patience};
use nom_guest_tests::{Check, expect, expect_that, run};

nom_app::main!(main);

/// How often each length is sent.
const ROUNDS: u8 = 40;
/// Lengths of the messages, in bytes; 0 tells the peer to end.
const LENGTHS: [usize; 8] = [1, 7, 8, 9, 64, 1000, 4096, 20_000];
/// How long the peer may take to start, and to end.
const TIMEOUT_NS: u64 = 20_000_000_000;
/// Longest message.
const BYTES_MAX: usize = 20_000;

fn main() -> u8 {
    match args().next() {
        Some("ping") => run(&[("ping", ping)]),
        Some("pong") => run(&[("pong", pong)]),
        _ => run(&[("ring", || Err("expected ping or pong".into()))]),
    }
}

fn ping() -> Check {
    let name = args().nth(1).ok_or("no name")?;
    let peer = applications::find(name)?;
    let mut line = Line::open()?;
    expect("the peer", line.channel.peer, peer)?;
    applications::start(peer)?;
    await_change("the peer's start", || applications::is_running(peer))?;
    let mut buffer = vec![0; BYTES_MAX];
    for length in LENGTHS {
        for round in 0..ROUNDS {
            let message = vec![round ^ length as u8; length];
            line.send(&message)?;
            let answer = line.receive(&mut buffer, Patience::Asleep)?;
            expect("the answer", &buffer[..answer] == message.as_slice(), true)?;
        }
    }
    line.send(&[])?;
    await_change("the peer's end", || !applications::is_running(peer))?;
    println!("ping answers={}", LENGTHS.len() * usize::from(ROUNDS));
    Ok(())
}

/// Waits for an upcall that says that a peer changed, and for the board to say how.
fn await_change(what: &str, changed: impl Fn() -> bool) -> Check {
    let deadline = time::now_ns() + TIMEOUT_NS;
    loop {
        let events = events::wait(Some(deadline));
        expect_that(&format!("{what} is announced"), time::now_ns() < deadline)?;
        if events.has(Upcall::PeerChanged) && changed() {
            return Ok(());
        }
    }
}

fn pong() -> Check {
    let mut line = Line::open()?;
    let mut buffer = vec![0; BYTES_MAX];
    loop {
        let length = line.receive(&mut buffer, Patience::Asleep)?;
        if length == 0 {
            return Ok(());
        }
        line.send(&buffer[..length])?;
    }
}
