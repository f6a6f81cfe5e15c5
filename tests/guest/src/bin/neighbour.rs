//! Computes, remembers and sleeps until its peer has ended, and checks that nothing disturbed it.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::alloc::vec::Vec;
use nom_app::{applications, channels, events, println};
use nom_guest_tests::{Check, expect, run};

nom_app::main!(main);

/// Words of memory that are checked each time.
const WORDS: u64 = 8192;
/// Time between two checks.
const PAUSE_NS: u64 = 2_000_000;

fn main() -> u8 {
    run(&[("neighbour-undisturbed", undisturbed)])
}

fn undisturbed() -> Check {
    let peer = channels::all().next().ok_or("no channel to a peer")?.peer;
    let memory: Vec<u64> = (0..WORDS).map(|word| word * word).collect();
    let expected = compute();
    let mut beats = 0;
    while applications::is_running(peer) {
        expect("the computation's result", compute(), expected)?;
        expect("the memory", memory.iter().zip(0..).all(|(word, place)| *word == place * place), true)?;
        beats += 1;
        events::sleep(PAUSE_NS);
    }
    println!("neighbour beats={beats}");
    Ok(())
}

/// Something that keeps many vector registers busy for a while; its bits are the same each time.
fn compute() -> u64 {
    let mut values = [1.0_f64; 16];
    for round in 1..2_000 {
        for (place, value) in values.iter_mut().enumerate() {
            *value = (*value * 1.000_1 + place as f64) / (1.0 + f64::from(round) * 1e-6);
        }
    }
    values.iter().fold(0, |bits, value| bits ^ value.to_bits().rotate_left(7))
}
