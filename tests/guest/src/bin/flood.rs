//! Has its device try to reach the kernel's memory until the kernel has had enough of that.
#![no_std]
#![no_main]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::devices::Device;
use nom_app::{Error, Upcall, board, events, println, time};
use nom_guest_tests::{Check, entropy, expect, expect_that, run};
use nom_sys::abi::layout::KERNEL_LOAD;

nom_app::main!(main);

/// Attempts, far more than any kernel should bear.
const ROUNDS: u32 = 500;
/// How long one may take to be noticed.
const TIMEOUT_NS: u64 = 5_000_000_000;

fn main() -> u8 {
    run(&[("flood", flood)])
}

fn flood() -> Check {
    let index = entropy::find()?;
    let (mut was_told, mut rounds) = (false, 0);
    while !was_told && rounds < ROUNDS {
        let mut device = entropy::Entropy::open(index)?;
        // SAFETY: an IOMMU stands between the device and the kernel.
        unsafe { device.request(KERNEL_LOAD, 64) };
        let deadline = time::now_ns() + TIMEOUT_NS;
        loop {
            let events = events::wait(Some(deadline));
            was_told |= events.has(Upcall::DeviceLeft);
            if events.has(Upcall::DmaBlocked) {
                break;
            }
            expect_that("the blocked access is reported", time::now_ns() < deadline)?;
        }
        rounds += 1;
    }
    let blocked = board().devices[index].dma_blocked.load(Relaxed);
    println!("flood rounds={rounds} blocked={blocked}");
    expect_that("the kernel has had enough", was_told && rounds < ROUNDS && blocked < 2 * ROUNDS)?;
    let again = Device::acquire(index).map(|device| device.index());
    expect("acquiring the device once more", again, Err(Error::NotPermitted))
}
