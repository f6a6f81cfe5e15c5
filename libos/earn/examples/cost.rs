//! What deciding costs, in instructions: run it under `valgrind --tool=none`-like counters, as
//! `valgrind --tool=callgrind --toggle-collect='*::observe' target/release/examples/cost 1000`, and divide by
//! the windows.

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
