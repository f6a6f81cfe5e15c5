//! A bug in the kernel: what happened, where, and the end of the machine.

use crate::control::{End, control, end};
use crate::lock::Lock;
use crate::mapping;
use crate::serial::{self, log};
use core::arch::asm;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use nom_kernel_pure::machine::Level;
use nom_kernel_pure::symbols::Call;

/// Status of a machine whose kernel panicked.
const PANIC_STATUS: u8 = 125;
const DEPTH_MAX: usize = 32;

/// The kernel's own symbol table.
pub static SYMBOLS: Lock<&[u8]> = Lock::new(&[]);
static PANICKING: AtomicBool = AtomicBool::new(false);

/// Prints the calls that led to `rip`, following frame pointers from `frame`.
pub fn print(rip: u64, mut frame: u64) {
    print_frame(0, rip);
    for depth in 1..DEPTH_MAX {
        if !mapping::is_kernel_stack(frame) {
            break;
        }
        // SAFETY: inside a kernel stack, aligned; a frame pointer there points to a frame pointer and a
        // return address.
        let (next, rip) = unsafe { ((frame as *const u64).read(), (frame as *const u64).add(1).read()) };
        print_frame(depth, rip);
        frame = next;
    }
}

fn print_frame(depth: usize, address: u64) {
    // Set before any other core ran, and not looked at but here.
    let table = SYMBOLS.try_lock().map_or(&[][..], |symbols| *symbols);
    log(Level::Error, format_args!("{}", Call { depth, address, base: mapping::image_base(), table }));
}

/// Ends the machine after `report` said why; if that fails too, at once.
pub fn die(rip: u64, frame: u64, report: impl FnOnce()) -> ! {
    if !PANICKING.swap(true, Relaxed) {
        serial::write(b"\n");
        report();
        print(rip, frame);
        control(format_args!("panic"));
    }
    end(End::Panic, PANIC_STATUS)
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    let (rip, frame): (u64, u64);
    // SAFETY: reads two registers.
    unsafe { asm!("lea {}, [rip]", "mov {}, rbp", out(reg) rip, out(reg) frame, options(nomem, nostack)) };
    die(rip, frame, || log(Level::Error, format_args!("kernel {info}")))
}
