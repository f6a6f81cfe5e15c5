//! Does the misdeed that its argument names, and so is ended by the kernel.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::{args, println};
use nom_guest_tests::misdeeds;

nom_app::main!(main);

fn main() -> u8 {
    let name = args().next().unwrap_or("");
    if name == "panic" {
        panic!("as asked");
    }
    let Some((_, misdeed)) = misdeeds::ALL.iter().find(|(known, _)| *known == name) else {
        println!("FAILED misdeed: `{name}` is none, expected panic or one of:");
        misdeeds::ALL.iter().for_each(|(known, _)| println!("  {known}"));
        return 2;
    };
    misdeed();
    println!("FAILED {name}: nothing stopped it");
    1
}
