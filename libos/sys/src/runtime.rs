//! What a program needs to run at all: entry point, relocation, heap, panic handler.

use crate::local::Local;
use crate::{contain, exit, exit_with_backtrace, heap, println, start};
use core::arch::naked_asm;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};
use nom_abi::start::Start;

/// Exit status of a program that panicked, as on Linux.
const STATUS_PANIC: u8 = 101;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

static FIRST_CORE: Local = Local::new(None);

unsafe extern "Rust" {
    /// The program's main function, see [`crate::main!`].
    safe fn nom_main() -> u8;
}

/// Where the kernel starts the program: `rdi` is the start page, `rsi` the core's number, `rsp` the top of
/// the first stack.
///
/// # Safety
/// Only the kernel may enter here.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn _start() -> ! {
    naked_asm!(
        "xor ebp, ebp",
        "mov rbx, rdi",
        "mov r12, rsi",
        "lea rdi, [rip + __ehdr_start]",
        "lea rsi, [rip + _DYNAMIC]",
        "call {relocate}",
        "mov rdi, rbx",
        "mov rsi, r12",
        "call {run}",
        "ud2",
        relocate = sym relocate,
        run = sym run,
    )
}

/// One entry of the dynamic section (System V gABI, "Dynamic Section").
#[repr(C)]
struct Dynamic {
    tag: u64,
    value: u64,
}

/// One relocation with addend (System V gABI, "Relocation").
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: u64,
}

const DT_NULL: u64 = 0;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;
/// The only kind that a program without shared libraries has: base plus addend.
const R_X86_64_RELATIVE: u64 = 8;

/// Adds the image's base to every address in its data.
///
/// # Safety
/// `base` is the lowest address of the image and `dynamic` its dynamic section; it was not relocated yet.
/// Runs before any pointer in the image's data is right, so it reads none.
unsafe extern "C" fn relocate(base: u64, mut dynamic: *const Dynamic) {
    let (mut table, mut bytes, mut packed, mut packed_bytes) = (0, 0, 0, 0);
    // SAFETY: the linker ends the section with `DT_NULL`, and each relocation names a word of a writable
    // segment of the image.
    unsafe {
        while (*dynamic).tag != DT_NULL {
            match (*dynamic).tag {
                DT_RELA => table = base + (*dynamic).value,
                DT_RELASZ => bytes = (*dynamic).value,
                DT_RELR => packed = base + (*dynamic).value,
                DT_RELRSZ => packed_bytes = (*dynamic).value,
                _ => {}
            }
            dynamic = dynamic.add(1);
        }
        let mut relocation = table as *const Relocation;
        let end = (table + bytes) as *const Relocation;
        while relocation < end {
            if (*relocation).info & 0xffff_ffff == R_X86_64_RELATIVE {
                ((base + (*relocation).offset) as *mut u64).write(base + (*relocation).addend);
            }
            relocation = relocation.add(1);
        }
        relocate_packed(base, packed as *const u64, (packed + packed_bytes) as *const u64);
    }
}

/// The same for words that have their addends in place (System V gABI, "Relative Relocation Table"): an even
/// entry is where one is, an odd one says which of the next 63 are others.
///
/// # Safety
/// As for [`relocate`]; `entry` and `end` are those of that table.
unsafe fn relocate_packed(base: u64, mut entry: *const u64, end: *const u64) {
    let mut place = core::ptr::null_mut::<u64>();
    // SAFETY: as in `relocate`.
    unsafe {
        while entry < end {
            let value = *entry;
            if value & 1 == 0 {
                place = (base + value) as *mut u64;
                *place += base;
                place = place.add(1);
            } else {
                for word in (0..63).filter(|word| value >> (word + 1) & 1 != 0) {
                    *place.add(word) += base;
                }
                place = place.add(63);
            }
            entry = entry.add(1);
        }
    }
}

/// # Safety
/// Called once, by `_start`, with what the kernel gave it.
unsafe extern "C" fn run(page: *const Start, core: u64) -> ! {
    // SAFETY: it is the start page.
    unsafe { start::set(page) };
    // SAFETY: a static stays in place.
    unsafe { FIRST_CORE.install(core) };
    exit(nom_main())
}

/// Says what happened; ends what panicked, if that can be ended alone, else the program, and has the kernel
/// say where, which knows the functions' names.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    contain::escape(|| println!("{info}"));
    static PANICKED: AtomicBool = AtomicBool::new(false);
    if !PANICKED.swap(true, Ordering::Relaxed) {
        println!("{info}");
        exit_with_backtrace(STATUS_PANIC);
    }
    exit(STATUS_PANIC)
}
