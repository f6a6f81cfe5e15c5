//! System calls as they are: registers in, registers out.
//!
//! Every stub is `unsafe`, because what a call does to memory depends on its arguments: the safe types of
//! this crate are what makes a combination of arguments harmless. None of them may be called on anything
//! but nom's kernel, so on the host they only compile.

use core::arch::asm;
use nom_abi::error::{Result, decode};
use nom_abi::syscall::ANY_CALL;

/// Notes in the program that it contains a system call, so that whoever packs it knows what to allow: see
/// [`nom_abi::syscall::CALLS_SECTION`]. Part of every `asm!` with a `syscall`, with the operand `noted`.
macro_rules! note_call {
    () => {
        ".pushsection .nom.calls,\"\",@progbits\n.byte {noted}\n.popsection"
    };
}
pub(crate) use note_call;

macro_rules! instruction {
    ($noted:expr, $number:expr; ) => { instruction!(@two $noted, $number;) };
    ($noted:expr, $number:expr; $a:ident) => { instruction!(@two $noted, $number; in("rdi") $a) };
    ($noted:expr, $number:expr; $a:ident, $b:ident) => {
        instruction!(@two $noted, $number; in("rdi") $a, in("rsi") $b)
    };
    ($noted:expr, $number:expr; $a:ident, $b:ident, $c:ident) => {
        instruction!(@three $noted, $number, $c; in("rdi") $a, in("rsi") $b)
    };
    ($noted:expr, $number:expr; $a:ident, $b:ident, $c:ident, $d:ident) => {
        instruction!(@three $noted, $number, $c; in("rdi") $a, in("rsi") $b, in("r10") $d)
    };
    ($noted:expr, $number:expr; $a:ident, $b:ident, $c:ident, $d:ident, $e:ident) => {
        instruction!(@three $noted, $number, $c; in("rdi") $a, in("rsi") $b, in("r10") $d, in("r8") $e)
    };
    ($noted:expr, $number:expr; $a:ident, $b:ident, $c:ident, $d:ident, $e:ident, $f:ident) => {
        instruction!(
            @three $noted, $number, $c;
            in("rdi") $a, in("rsi") $b, in("r10") $d, in("r8") $e, in("r9") $f
        )
    };
    (@two $noted:expr, $number:expr; $($operand:tt)*) => {{
        let (code, value): (u64, u64);
        asm!(note_call!(), "syscall", noted = const $noted,
            inlateout("rax") $number => code, lateout("rdx") value,
            lateout("rcx") _, lateout("r11") _, options(nostack), $($operand)*);
        decode(code, value)
    }};
    (@three $noted:expr, $number:expr, $c:ident; $($operand:tt)*) => {{
        let (code, value): (u64, u64);
        asm!(note_call!(), "syscall", noted = const $noted,
            inlateout("rax") $number => code, inlateout("rdx") $c => value,
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
                unsafe { instruction!($number as u8, $number as u64; $($argument),*) }
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
    unsafe { instruction!(ANY_CALL, number; a, b, c, d, e, f) }
}
