//! The first program of a boot image: it unpacks the kernel and the bundle, and starts the kernel.
//!
//! `host/image` compresses what the kernel's ELF file and the bundle put into memory, as a whole. The loader
//! lies below the place of the kernel, the compressed stream behind that of the bundle; the kernel knows of
//! neither, and gives the memory of both to applications.
//!
//! It may be unsafe, because it stands for the machine's memory: `docs/safety/loader.md`.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::panic::PanicInfo;
use miniz_oxide::inflate::decompress_slice_iter_to_slice;
use nom_abi::branches;
use nom_abi::image::{PackedPart, Payload};

global_asm!(include_str!("loader.S"), unpack = sym unpack, options(att_syntax));

/// The first serial port, and QEMU's debug console and debug exit, as in the kernel.
const COM1: u16 = 0x3f8;
const DEBUG_CONSOLE: u16 = 0xe9;
const DEBUG_EXIT: u16 = 0xf4;
/// What the exit tells QEMU after a panic.
const PANIC: u8 = 0x11;

unsafe extern "C" {
    static payload: Payload;
}

/// Unpacks the payload to its place, and returns the entry point of the kernel.
extern "C" fn unpack() -> u32 {
    // SAFETY: `host/image` has put it there, behind the loader.
    let Payload { parts, entry, .. } = unsafe { payload };
    for PackedPart { stream, target } in parts {
        // SAFETY: the machine's monitor has put the stream there; nobody writes it.
        let stream = unsafe { core::slice::from_raw_parts(stream.start as *const u8, stream.bytes as usize) };
        // SAFETY: the image asks the monitor for this memory; neither loader, stack nor stream are in it.
        let memory =
            unsafe { core::slice::from_raw_parts_mut(target.start as *mut u8, target.bytes as usize) };
        let unpacked = decompress_slice_iter_to_slice(memory, core::iter::once(stream), false, true);
        assert!(unpacked == Ok(memory.len()), "the image is damaged");
        branches::to_distances(memory);
    }
    entry
}

/// Says that it ends, and ends the machine where it can; there are no applications to run.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    say(COM1, b"the image is damaged: build it again with `nom build`\n");
    say(DEBUG_CONSOLE, b"panic\nhalt status=125\n");
    say(DEBUG_EXIT, &[PANIC]);
    loop {
        // SAFETY: interrupts are off; a halted processor does nothing.
        unsafe { asm!("hlt") };
    }
}

fn say(port: u16, bytes: &[u8]) {
    for &byte in bytes {
        // SAFETY: these ports take bytes, or nobody is there.
        unsafe { asm!("out dx, al", in("dx") port, in("al") byte, options(nomem, nostack)) };
    }
}
