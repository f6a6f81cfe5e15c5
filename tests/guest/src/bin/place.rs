//! Prints where everything lies: a second boot must print other addresses.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::memory::Region;
use nom_app::{Error, PageSize, println};
use nom_sys::start;

nom_app::main!(main);

fn main() -> Result<(), Error> {
    let info = start::info();
    println!("place image={:#x}", info.image_base);
    println!("place stack={:#x}", info.stack_base);
    println!("place start={:#x}", core::ptr::from_ref(info) as u64);
    println!("place board={:#x}", info.board);
    println!("place channel={:#x}", info.channel[0].address);
    println!("place region={:#x}", Region::reserve(4096, PageSize::Small)?.address());
    println!("place seed={:#x}", u128::from_le_bytes(*info.seed.first_chunk().unwrap_or(&[0; 16])));
    Ok(())
}
