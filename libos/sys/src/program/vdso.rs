//! Code that programs call in place of system calls that only read the clock: Linux's vDSO (vdso(7)). Who
//! makes an image of it puts it where a program may execute it, with the address of the board's clock and the
//! number of processors.

use core::arch::global_asm;
use core::mem::offset_of;
use nom_abi::board::{Board, Clock};

/// Its functions, in the order of their places in the code.
pub const FUNCTIONS: [&str; 5] = ["clock_gettime", "gettimeofday", "time", "clock_getres", "getcpu"];
/// Bytes of the address at its start, and of each function's offset behind it.
const ADDRESS_BYTES: usize = 8;
const OFFSET_BYTES: usize = 4;
/// Where behind those the number of processors is.
const PROCESSORS_AT: usize = ADDRESS_BYTES + FUNCTIONS.len() * OFFSET_BYTES;

/// Clocks by their numbers (linux/time.h) that it reads, and those among them that tell the time of day. All
/// others are asked for by a system call.
const CLOCKS: u32 = CLOCKS_OF_DAY | 1 << 1 | 1 << 4 | 1 << 6 | 1 << 7;
const CLOCKS_OF_DAY: u32 = 1 | 1 << 5 | 1 << 11;

/// Division by 10^9 of numbers of 64 bits: shifted by 9, times this, the upper half shifted by that (Granlund
/// and Montgomery, "Division by invariant integers using multiplication", PLDI 1994).
const PER_SECOND: u64 = 0x44_b82f_a09b_5a53;
const PER_SECOND_SHIFT: u32 = 11;

global_asm!(
    include_str!("vdso.S"),
    sequence = const offset_of!(Clock, sequence),
    tsc_base = const offset_of!(Clock, tsc_base),
    multiplier = const offset_of!(Clock, multiplier),
    unix_start = const offset_of!(Clock, unix_start),
    clocks = const CLOCKS,
    clocks_of_day = const CLOCKS_OF_DAY,
    per_second = const PER_SECOND,
    per_second_shift = const PER_SECOND_SHIFT,
    nr_clock_gettime = const 228,
    nr_clock_getres = const 229,
    nr_getcpu = const 309,
);

unsafe extern "C" {
    static nom_vdso_start: u8;
    static nom_vdso_end: u8;
}

fn template() -> &'static [u8] {
    let (start, end) = (&raw const nom_vdso_start, &raw const nom_vdso_end);
    // SAFETY: both symbols bound bytes of this image that are never written (condition 17).
    unsafe { core::slice::from_raw_parts(start, end as usize - start as usize) }
}

/// How many bytes it has.
pub fn bytes() -> usize {
    template().len()
}

/// Puts it there, for programs that see so many processors: `target` has as many bytes as it has.
pub fn write(target: &mut [u8], processors: u32) {
    target.copy_from_slice(template());
    let clock = crate::start::info().board + offset_of!(Board, clock) as u64;
    target[..ADDRESS_BYTES].copy_from_slice(&clock.to_le_bytes());
    target[PROCESSORS_AT..PROCESSORS_AT + 4].copy_from_slice(&processors.to_le_bytes());
}

/// Where in it a function begins, by its index among [`FUNCTIONS`].
pub fn offset(function: usize) -> u64 {
    let at = ADDRESS_BYTES + function * OFFSET_BYTES;
    let bytes = template()[at..at + OFFSET_BYTES].try_into().expect("as many bytes");
    u32::from_le_bytes(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_divided_exactly() {
        let divided =
            |ns: u64| ((u128::from(ns >> 9) * u128::from(PER_SECOND)) >> (64 + PER_SECOND_SHIFT)) as u64;
        let steps = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        let seconds = (0..64).map(|bit| (u64::MAX / 1_000_000_000) >> bit);
        let around = seconds.flat_map(|at| [at * 1_000_000_000, (at * 1_000_000_000).wrapping_sub(1)]);
        for ns in steps.chain(around).chain([u64::MAX]) {
            assert_eq!(divided(ns), ns / 1_000_000_000, "{ns}");
        }
    }

    #[test]
    fn functions_begin_behind_the_words_and_apart_from_each_other() {
        let mut before = (PROCESSORS_AT + 4) as u64;
        for function in 0..FUNCTIONS.len() {
            assert!(offset(function) >= before && offset(function) < bytes() as u64);
            before = offset(function) + 1;
        }
    }
}
