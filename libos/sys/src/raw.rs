//! System calls as they are: registers in, registers out.
//!
//! Every stub is `unsafe`, because what a call does to memory depends on its arguments: the safe types of
//! this crate are what makes a combination of arguments harmless. None of them may be called on anything
//! but nom's kernel, so on the host they only compile.

use core::arch::asm;
use nom_abi::error::{Result, decode};

macro_rules! instruction {
    ($number:expr; ) => { instruction!(@two $number;) };
    ($number:expr; $a:ident) => { instruction!(@two $number; in("rdi") $a) };
    ($number:expr; $a:ident, $b:ident) => { instruction!(@two $number; in("rdi") $a, in("rsi") $b) };
    ($number:expr; $a:ident, $b:ident, $c:ident) => {
        instruction!(@three $number, $c; in("rdi") $a, in("rsi") $b)
    };
    ($number:expr; $a:ident, $b:ident, $c:ident, $d:ident) => {
        instruction!(@three $number, $c; in("rdi") $a, in("rsi") $b, in("r10") $d)
    };
    ($number:expr; $a:ident, $b:ident, $c:ident, $d:ident, $e:ident) => {
        instruction!(@three $number, $c; in("rdi") $a, in("rsi") $b, in("r10") $d, in("r8") $e)
    };
    ($number:expr; $a:ident, $b:ident, $c:ident, $d:ident, $e:ident, $f:ident) => {
        instruction!(@three $number, $c; in("rdi") $a, in("rsi") $b, in("r10") $d, in("r8") $e, in("r9") $f)
    };
    (@two $number:expr; $($operand:tt)*) => {{
        let (code, value): (u64, u64);
        asm!("syscall", inlateout("rax") $number => code, lateout("rdx") value,
            lateout("rcx") _, lateout("r11") _, options(nostack), $($operand)*);
        decode(code, value)
    }};
    (@three $number:expr, $c:ident; $($operand:tt)*) => {{
        let (code, value): (u64, u64);
        asm!("syscall", inlateout("rax") $number => code, inlateout("rdx") $c => value,
            lateout("rcx") _, lateout("r11") _, options(nostack), $($operand)*);
        decode(code, value)
    }};
}

macro_rules! stubs {
    ($($(#[doc = $doc:literal])+ $number:literal $variant:ident $name:ident($($argument:ident),*))+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// # Safety
            /// What the call does to memory, mappings, cores and devices must not invalidate anything that
            /// the rest of the program relies on.
            #[inline]
            pub unsafe fn $name($($argument: u64),*) -> Result<u64> {
                // SAFETY: the register assignment is the one in `nom_abi::syscall`; the effect on memory
                // is the caller's condition.
                unsafe { instruction!($number as u64; $($argument),*) }
            }
        )+
    };
}
nom_abi::for_each_syscall!(stubs);

/// Any number with any arguments, also those that name no system call.
///
/// # Safety
/// As for the stub of the call that `number` names.
#[inline]
pub unsafe fn call(number: u64, arguments: [u64; 6]) -> Result<u64> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: as in the stubs.
    unsafe { instruction!(number; a, b, c, d, e, f) }
}
