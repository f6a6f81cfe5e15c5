//! The smallest application: greets, and repeats its arguments.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::{args, print, println};

nom_app::main!(main);

fn main() {
    print!("Hello from nom!");
    args().for_each(|argument| print!(" {argument}"));
    println!();
}
