//! The first serial port, and the kernel's log on it.

use crate::clock;
use crate::cpu::{in8, out8};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use nom_kernel_pure::list::List;
use nom_kernel_pure::machine::Level;

const COM1: u16 = 0x3f8;
/// Bytes that fit in the transmit FIFO of a 16550 once it is empty.
const FIFO_BYTES: usize = 16;

static LEVEL: AtomicU8 = AtomicU8::new(Level::Warn as u8);

/// 115,200 baud, 8 bits, FIFO on (16550 data sheet).
pub fn init() {
    for (register, value) in [(1, 0x00), (3, 0x80), (0, 0x01), (1, 0x00), (3, 0x03), (2, 0xc7), (4, 0x0b)] {
        // SAFETY: COM1's registers; the port does no DMA.
        unsafe { out8(COM1 + register, value) };
    }
}

/// Takes the level from the kernel command line: `log=error|warn|info|debug`; others keep the default.
pub fn set_level(name: &str) {
    match Level::NAMES.iter().position(|known| *known == name) {
        Some(level) => LEVEL.store(level as u8, Relaxed),
        None => log(Level::Warn, format_args!("log={name}: expected error, warn, info or debug")),
    }
}

/// Lets the port interrupt, as it does while its FIFO is empty, or not.
pub fn let_interrupt(on: bool) {
    // SAFETY: COM1's interrupt enable register; the port does no DMA.
    unsafe { out8(COM1 + 1, u8::from(on) << 1) };
}

/// Writes bytes as they are; waits for the FIFO, not for the wire.
pub fn write(bytes: &[u8]) {
    for chunk in bytes.chunks(FIFO_BYTES) {
        // SAFETY: reading COM1's line status and writing its data register touch nothing but the port.
        unsafe {
            while in8(COM1 + 5) & 0x20 == 0 {}
            chunk.iter().for_each(|byte| out8(COM1, *byte));
        }
    }
}

/// One line of log: `[  seconds] level  text`.
pub fn log(level: Level, text: fmt::Arguments) {
    if level as u8 > LEVEL.load(Relaxed) {
        return;
    }
    let name = Level::NAMES[level as usize];
    let now_us = clock::now_ns() / 1000;
    let mut line = Line(List::default());
    let _ = writeln!(line, "[{:>3}.{:06}] {name:5} {text}", now_us / 1_000_000, now_us % 1_000_000);
    write(&line.0);
}

/// Gathers a line so that lines of several cores do not mix and the FIFO is used.
struct Line(List<u8, 256>);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if !self.0.push(byte) {
                write(&self.0);
                self.0 = List::default();
                self.0.push(byte);
            }
        }
        Ok(())
    }
}
