//! Ends itself when the machine is asked to end, with the status of its first argument; with the second
//! argument `deaf` it is told and does not end, and without arguments it is not told.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::{args, events, println, shutdown, time};
use nom_sys::abi::Upcall;

nom_app::main!(main);

fn main() -> u8 {
    let mut arguments = args();
    let status = arguments.next().map(|status| status.parse::<u8>().expect("a status"));
    if status.is_some() {
        shutdown::handle();
    }
    println!("ready");
    let mut told = 0;
    loop {
        // Whoever is told sleeps; whoever is not computes.
        let deadline_ns = if status.is_some() { None } else { Some(0) };
        if events::wait(deadline_ns).has(Upcall::Shutdown) {
            told += 1;
            assert!(shutdown::is_requested() && time::now_ns() > 0);
            println!("told {told} time(s)");
            match (status, args().nth(1)) {
                (Some(status), None) => return status,
                _ => println!("deaf"),
            }
        }
    }
}
