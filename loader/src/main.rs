//! The first program of a boot image: it unpacks the kernel and the bundle, moves the kernel to a random
//! place of its address space, and starts it.
//!
//! `host/image` compresses what the kernel's ELF file and the bundle put into memory, as a whole. The loader
//! lies below the place of the kernel, the compressed stream behind that of the bundle; the kernel knows of
//! neither, and gives the memory of both to applications.
//!
//! It may be unsafe, because it stands for the machine's memory: `docs/safety/loader.md`.
#![no_std]
#![no_main]

use core::arch::x86::__cpuid;
use core::arch::{asm, global_asm};
use core::ffi::{CStr, c_char};
use core::panic::PanicInfo;
use miniz_oxide::inflate::decompress_slice_iter_to_slice;
use nom_abi::branches;
use nom_abi::image::{PackedPart, Payload};
use nom_abi::layout::{KERNEL_SLOT, KERNEL_SLOTS};

global_asm!(include_str!("loader.S"), unpack = sym unpack, options(att_syntax));

/// The first serial port, and QEMU's debug console and debug exit, as in the kernel.
const COM1: u16 = 0x3f8;
const DEBUG_CONSOLE: u16 = 0xe9;
const DEBUG_EXIT: u16 = 0xf4;
/// What the exit tells QEMU after a panic.
const PANIC: u8 = 0x11;

/// On the command line: the kernel is where it was linked, as a debugger expects it (as Linux has it).
const STAY: &[u8] = b"nokaslr";
/// The first word of the start info.
const START_MAGIC: u32 = 0x336e_c578;

/// The beginning of the start info (Xen `xen/include/public/arch-x86/hvm/start_info.h`).
#[repr(C)]
struct StartInfo {
    magic: u32,
    _version_flags_modules: [u32; 3],
    _modules_address: u64,
    command_line: u32,
}

unsafe extern "C" {
    static payload: Payload;
}

/// Unpacks the payload to its place, moves the kernel, and returns its entry point.
extern "C" fn unpack(start_info: *const StartInfo) -> u32 {
    // SAFETY: `host/image` has put it there, behind the loader.
    let Payload { parts, entry, relocations, .. } = unsafe { payload };
    for (PackedPart { stream, target }, list_bytes) in parts.into_iter().zip([relocations as usize, 0]) {
        // SAFETY: the machine's monitor has put the stream there; nobody writes it.
        let stream = unsafe { core::slice::from_raw_parts(stream.start as *const u8, stream.bytes as usize) };
        // SAFETY: the image asks the monitor for this memory; neither loader, stack nor stream are in it.
        let memory =
            unsafe { core::slice::from_raw_parts_mut(target.start as *mut u8, target.bytes as usize) };
        let unpacked = decompress_slice_iter_to_slice(memory, core::iter::once(stream), false, true);
        assert!(unpacked == Ok(memory.len()), "the image is damaged");
        branches::to_distances(memory);
        let (image, list) = memory.split_at_mut(memory.len() - list_bytes);
        if !list.is_empty() {
            nom_abi::relocations::apply(image, list, slide(start_info));
            list.fill(0);
        }
    }
    entry
}

/// How far the kernel is moved: at random, or not at all where the processor has no random numbers, or the
/// command line says [`STAY`].
fn slide(start_info: *const StartInfo) -> u32 {
    // SAFETY: the monitor has put it there, by the PVH ABI.
    let start_info = unsafe { start_info.read_unaligned() };
    if start_info.magic == START_MAGIC && start_info.command_line != 0 && stays(start_info.command_line) {
        return 0;
    }
    random().unwrap_or(0) % KERNEL_SLOTS as u32 * KERNEL_SLOT as u32
}

/// Whether one of the words at `address`, which a zero ends, is [`STAY`].
fn stays(address: u32) -> bool {
    // SAFETY: by the PVH ABI there is a string, which a zero ends, so that nothing behind that is read.
    let line = unsafe { CStr::from_ptr(address as *const c_char) };
    line.to_bytes().split(|byte| *byte == b' ').any(|word| word == STAY)
}

/// A random number of the processor's (Intel SDM vol. 1, 7.3.17), which may have none at the moment.
fn random() -> Option<u32> {
    const RDRAND: u32 = 1 << 30;
    const TRIES: u32 = 10;
    if __cpuid(0).eax < 1 || __cpuid(1).ecx & RDRAND == 0 {
        return None;
    }
    (0..TRIES).find_map(|_| {
        let (value, is_valid): (u32, u8);
        // SAFETY: the processor has the instruction, which changes no memory.
        unsafe {
            asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) is_valid, options(nomem, nostack))
        };
        (is_valid != 0).then_some(value)
    })
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
