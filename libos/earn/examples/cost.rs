//! What deciding costs, in instructions, as callgrind counts them:
//! `valgrind --tool=callgrind --toggle-collect='*Governor>::observe' COMMAND`, where COMMAND is
//! `target/release/examples/cost 1000`.
//!
//! The same with 3000 windows less that, by 2000, is what a window costs once the search is over. The pattern
//! must match the governor's function alone: another that matches, called within it, switches the count off.

#[path = "../tests/common/mod.rs"]
mod common;

use common::World;
use nom_abi::prices::PricedResource;

fn main() {
    let windows: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    let mut world = World::new(&[("utility", "Gbit; penalty 20 100 0.0017")], 1);
    world.board.post(PricedResource::NetworkOut, 1.0, 0);
    world.windows(windows, 64.0);
    println!("{windows} windows, {:?}", world.earner.setting());
}
