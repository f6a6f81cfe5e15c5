//! The program.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use application_name::greeting;
use nom_app::{args, println};

nom_app::main!(main);

fn main() {
    println!("{}", greeting(args().next().unwrap_or("world")));
}
