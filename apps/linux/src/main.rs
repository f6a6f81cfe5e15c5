//! Runs a program of Linux, unmodified: see docs/linux.md.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

nom_app::main!(main);

fn main() -> Result<u8, nom_app::alloc::boxed::Box<dyn core::error::Error>> {
    nom_linux::start::run()
}
