//! `memcpy` for the sizes that packets have, and for pages, and `memcmp` for those of names.
//!
//! The compiler's own, for targets without a C library, is a string instruction: right for pages, but tens of
//! cycles before its first byte. Requests copy heads and short answers, so up to [`SHORT_MAX`] bytes go
//! through vector registers here. What is longer goes by words of 8 bytes: processors with fast string
//! operations take them as fast as bytes, and where the processor is emulated each step of a string is an
//! instruction.

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
use core::ffi::{c_int, c_void};

/// From here on, processors with fast string operations are faster by themselves.
const SHORT_MAX: usize = 512;

/// Copies `length` bytes; the C library's function, which the compiler calls.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `length` bytes, and the two do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void {
    let (destination, from) = (to, from.cast::<u8>());
    let to = destination.cast::<u8>();
    // SAFETY: each piece lies inside `length` bytes of both sides: those from the start stop before the end,
    // and the last ends with it, overlapping the one before if it must.
    unsafe {
        match length {
            0 => {}
            1 => *to = *from,
            2..4 => ends::<u16>(to, from, length),
            4..8 => ends::<u32>(to, from, length),
            8..16 => ends::<u64>(to, from, length),
            16..=SHORT_MAX => {
                let mut at = 0;
                while at + 64 < length {
                    block(to.add(at), from.add(at));
                    block(to.add(at + 16), from.add(at + 16));
                    block(to.add(at + 32), from.add(at + 32));
                    block(to.add(at + 48), from.add(at + 48));
                    at += 64;
                }
                while at + 16 < length {
                    block(to.add(at), from.add(at));
                    at += 16;
                }
                block(to.add(length - 16), from.add(length - 16));
            }
            _ => {
                let last = length - 8;
                let end = from.add(last).cast::<u64>().read_unaligned();
                asm!(
                    "rep movsq",
                    inout("rcx") length / 8 => _, inout("rsi") from => _, inout("rdi") to => _,
                    options(nostack, preserves_flags)
                );
                to.add(last).cast::<u64>().write_unaligned(end);
            }
        }
    }
    destination
}

/// Compares `length` bytes, as numbers from the first one on; the C library's function, which the compiler
/// calls. Its own, where it is to be small, looks at one byte after the other.
///
/// # Safety
/// `left` and `right` are valid for reads of `length` bytes.
#[unsafe(no_mangle)]
// The compiler knows better what to do where the length is known, which it finds out late.
#[inline(never)]
pub unsafe extern "C" fn memcmp(left: *const c_void, right: *const c_void, length: usize) -> c_int {
    let (left, right) = (left.cast::<u8>(), right.cast::<u8>());
    let mut at = 0;
    // SAFETY: each word lies inside `length` bytes of both sides, and so does each byte.
    unsafe {
        if length >= 8 {
            while at + 8 < length {
                let order = words(left.add(at), right.add(at));
                if order != 0 {
                    return order;
                }
                at += 8;
            }
            // The last ends with the last byte; what it has in common with the one before is equal.
            return words(left.add(length - 8), right.add(length - 8));
        }
        while at < length {
            let order = c_int::from(*left.add(at)) - c_int::from(*right.add(at));
            if order != 0 {
                return order;
            }
            at += 1;
        }
    }
    0
}

/// The order of 8 bytes each.
///
/// # Safety
/// As for [`memcmp`] with a length of 8.
#[inline(always)]
unsafe fn words(left: *const u8, right: *const u8) -> c_int {
    // SAFETY: the caller's condition; they need no alignment.
    let (left, right) =
        unsafe { (left.cast::<u64>().read_unaligned(), right.cast::<u64>().read_unaligned()) };
    if left == right {
        return 0;
    }
    if left.swap_bytes() < right.swap_bytes() { -1 } else { 1 }
}

/// Copies the first and the last `T` of `length` bytes.
///
/// # Safety
/// As for [`memcpy`], and `length` is between one and two `T`.
#[inline(always)]
unsafe fn ends<T: Copy>(to: *mut u8, from: *const u8, length: usize) {
    let last = length - size_of::<T>();
    // SAFETY: both lie inside, by the caller's condition; they need no alignment.
    unsafe {
        let (front, back) = (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>().read_unaligned());
        to.cast::<T>().write_unaligned(front);
        to.add(last).cast::<T>().write_unaligned(back);
    }
}

/// Copies 16 bytes.
///
/// # Safety
/// As for [`memcpy`] with a length of 16.
#[inline(always)]
unsafe fn block(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's condition; the instructions need no alignment, and every x86-64 has them.
    unsafe { _mm_storeu_si128(to.cast::<__m128i>(), _mm_loadu_si128(from.cast::<__m128i>())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cmp::Ordering;

    /// By the standard library's way, a byte after the other.
    fn by_bytes(left: &[u8], right: &[u8]) -> Ordering {
        left.iter().cmp(right.iter())
    }

    #[test]
    fn bytes_are_compared_as_numbers_from_the_first_on() {
        let text: [u8; 40] = core::array::from_fn(|at| (at * 37) as u8);
        for length in 0..text.len() {
            for changed in 0..length {
                for by in [1, 0x80, 0xff] {
                    let mut other = text;
                    other[changed] = other[changed].wrapping_add(by);
                    // What lies behind does not count.
                    other[length..].fill(by);
                    // SAFETY: both have as many bytes.
                    let order = unsafe { memcmp(text.as_ptr().cast(), other.as_ptr().cast(), length) };
                    assert_eq!(
                        order.cmp(&0),
                        by_bytes(&text[..length], &other[..length]),
                        "{changed} of {length}"
                    );
                }
            }
            // SAFETY: as above.
            assert_eq!(unsafe { memcmp(text.as_ptr().cast(), text.as_ptr().cast(), length) }, 0);
        }
    }
}
