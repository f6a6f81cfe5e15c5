//! The kernel, with a look at what it made of the machine before it lets applications run.
//!
//! `unsafe` stands here for one attribute, as in the kernel that ships: `docs/safety/kernel-selfcheck.md`. A
//! system test holds that both boot by the same list.
#![no_std]
#![no_main]

use nom_kernel_x86::{Boot, enter};

/// Called by `nom-kernel-x86` on the first processor, on the boot stack, with interrupts off.
#[unsafe(no_mangle)]
fn kernel_main(mut boot: Boot) -> ! {
    boot.read_command_line(); //     log level
    boot.find_bundle(); //           the applications, behind the kernel image
    boot.map_memory(); //            our own page tables: W^X, no execute, guard pages
    boot.load_tables(); //           from here on a fault is reported
    boot.read_firmware_tables(); //  processors, PCI, remapping units
    boot.start_clock(); //           time, and the timer
    boot.start_cores(); //           the other processors, which wait
    let kernel = boot.into_kernel(); // memory, devices, DMA protection, board, channels
    kernel.start_applications(); //  each in an address space of its own
    nom_kernel_selfcheck::run(); //  what that made of every processor and of the page tables
    enter(kernel) //                 all cores, from now on only when something happens
}
