//! Has a device forge interrupts: it writes messages to the window of the local APICs by DMA, with vectors
//! of exceptions and of the kernel's own, for every processor. Neither the machine nor a neighbour may be
//! harmed.
#![no_std]
#![no_main]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::{board, println};
use nom_guest_tests::educational::{self, Educational};
use nom_guest_tests::processors::processors;
use nom_guest_tests::{Check, run};

nom_app::main!(main);

/// Where messages are written: the processor's local APIC identifier from bit 12 on.
const WINDOW: u64 = 0xfee0_0000;
/// Vectors that are exceptions. (QEMU delivers those below 16, too; processors do not.)
const EXCEPTIONS: core::ops::Range<u64> = 1..32;
/// Vectors of the kernel's own: the platform's, those of devices, timer, the kick, spurious interrupts.
const KERNELS: [u64; 7] = [0x30, 0x31, 0x70, 0x71, 0xfd, 0xfe, 0xff];

fn main() -> u8 {
    run(&[("forged-interrupts", forge)])
}

fn forge() -> Check {
    let device = Educational::open(educational::find()?)?;
    let vectors = EXCEPTIONS.chain(KERNELS);
    for core in 0..processors() as usize {
        let apic_id = board().cores[core].apic_id.load(Relaxed);
        for message in vectors.clone() {
            // SAFETY: no memory is there.
            unsafe { device.write(WINDOW | u64::from(apic_id) << 12, message) }?;
        }
        println!("forged for core {core}");
    }
    Ok(())
}
