//! Uses every cycle that it gets.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

nom_app::main!(main);

fn main() {
    loop {
        core::hint::spin_loop();
    }
}
