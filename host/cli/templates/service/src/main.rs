//! The program.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use application_name::{Lines, PORT};
use nom_app::serve::{Ports, ServeError, serve};

nom_app::main!(main);

fn main() -> Result<u8, ServeError> {
    serve(&Ports { tcp: [PORT].into(), udp: [].into() }, |_| Lines::default())
}
