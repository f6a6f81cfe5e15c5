//! What the host's tools read: one line for each happening on the debug console, and the end.

use crate::cpu::{in8, out8, stop};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// QEMU's and Bochs' debug console: reading it returns its own number if it is there.
const DEBUG_CONSOLE: u16 = 0xe9;
/// QEMU's `isa-debug-exit`, configured here.
const DEBUG_EXIT: u16 = 0xf4;

static PRESENT: AtomicBool = AtomicBool::new(false);

struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the debug console only takes bytes.
        text.bytes().for_each(|byte| unsafe { out8(DEBUG_CONSOLE, byte) });
        Ok(())
    }
}

/// Finds out whether anybody listens.
pub fn init() {
    // SAFETY: reading this port has no side effect, whether it exists or not.
    PRESENT.store(unsafe { in8(DEBUG_CONSOLE) } == DEBUG_CONSOLE as u8, Relaxed);
}

/// Writes one line, `word key=value key=value`, to the control channel if there is one.
pub fn control(line: fmt::Arguments) {
    if PRESENT.load(Relaxed) {
        let _ = writeln!(Console, "{line}");
    }
}

/// How the machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum End {
    /// Its applications are done.
    Orderly = 0x10,
    /// The kernel found a bug in itself.
    Panic = 0x11,
}

/// Ends the machine: by the debug-exit device, else as ACPI says. Where there is neither: a triple fault,
/// which resets it or, with QEMU's `-no-reboot`, ends it.
pub fn end(how: End, status: u8) -> ! {
    control(format_args!("halt status={status}"));
    // SAFETY: the debug-exit device ends the machine; where there is none the write goes nowhere.
    unsafe { out8(DEBUG_EXIT, how as u8) };
    crate::power::off();
    crate::tables::triple_fault();
    stop()
}
