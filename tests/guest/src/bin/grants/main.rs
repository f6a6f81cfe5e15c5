//! Memory by size and colour; mapping, protecting, unmapping; and every error, which changes nothing.
//!
//! Needs a machine with 3 GiB of memory.
#![no_std]
#![no_main]

mod errors;
mod mappings;
mod sizes;

use nom_app::alloc::vec::Vec;
use nom_guest_tests::run;

nom_app::main!(main);

fn main() -> u8 {
    // The heap takes its first memory now, not in the middle of a check that counts frames.
    drop(Vec::<u8>::with_capacity(1));
    run(&[
        ("sizes", sizes::sizes),
        ("colours", sizes::colours),
        ("zeroed", sizes::zeroed),
        ("partial-release", sizes::partial_release),
        ("exhaustion", sizes::exhaustion),
        ("two-mappings", mappings::two_mappings),
        ("protections", mappings::protections),
        ("code", mappings::code),
        ("large-pages", mappings::large_pages),
        ("sparse", mappings::sparse),
        ("errors-change-nothing", errors::errors_change_nothing),
    ])
}
