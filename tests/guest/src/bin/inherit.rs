//! Gives a device back that cannot be reset: nobody may have it any more.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::Error;
use nom_app::devices::Device;
use nom_guest_tests::{Check, educational, expect, run};

nom_app::main!(main);

fn main() -> u8 {
    run(&[("one-owner", one_owner)])
}

fn one_owner() -> Check {
    let index = educational::find()?;
    drop(Device::acquire(index)?);
    expect("its next owner", Device::acquire(index).map(|it| it.index()), Err(Error::NotPermitted))
}
