//! The calendar: the CMOS real-time clock (Motorola MC146818).

use crate::cpu::{in8, out8};
use nom_kernel_pure::calendar::Reading;

/// Readings after which a clock is not believed that never shows the same twice.
const ATTEMPTS: usize = 8;
const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
const IS_UPDATING: u8 = 0x80;

/// Seconds since 1970, UTC; `None` if there is no clock. A reading that an update tore is taken again.
pub fn seconds() -> Option<u64> {
    let mut last = reading();
    for _ in 0..ATTEMPTS {
        let next = reading();
        if next == last && register(STATUS_A) & IS_UPDATING == 0 {
            return next.seconds();
        }
        last = next;
    }
    None
}

fn reading() -> Reading {
    // Seconds, minutes, hours, day, month, year.
    Reading { fields: [0, 2, 4, 7, 8, 9].map(register), status: register(STATUS_B) }
}

fn register(index: u8) -> u8 {
    // SAFETY: bit 7 of the index masks NMI while it is selected, and selects it again with the next; reading
    // these registers has no side effect.
    unsafe {
        out8(0x70, index);
        in8(0x71)
    }
}
