//! Uses another application's core in turns that never end: it leaves each before it is over, and comes back
//! as a newcomer.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::{Error, cores, time};

nom_app::main!(main);

/// Less than a turn, in which nobody is taken off a core.
const STAY_NS: u64 = 1_500_000;

fn main() -> Result<(), Error> {
    loop {
        let work = cores::acquire(|| {
            let until = time::now_ns() + STAY_NS;
            while time::now_ns() < until {
                core::hint::spin_loop();
            }
        })?;
        // Asleep it would notice late.
        while !work.is_finished() {
            core::hint::spin_loop();
        }
        work.join();
    }
}
