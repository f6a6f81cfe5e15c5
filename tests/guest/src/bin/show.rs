//! Prints its arguments and environment, and ends with the status that the variable STATUS gives.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::{args, println, var, vars};

nom_app::main!(main);

fn main() -> u8 {
    args().enumerate().for_each(|(number, argument)| println!("argument {number} `{argument}`"));
    vars().for_each(|(name, value)| println!("variable {name} `{value}`"));
    var("STATUS").and_then(|status| status.parse().ok()).unwrap_or(0)
}
