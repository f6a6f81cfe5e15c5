//! What a handler finds on its stack, and what `rt_sigreturn` makes of it: linux's `struct rt_sigframe`.

use super::{Action, Info, SignalSet};
use alloc::vec::Vec;
use linux_raw_sys::general::{SA_ONSTACK, SS_DISABLE, SS_ONSTACK};
use nom_sys::abi::upcall::Registers;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes below a stack pointer that belong to who uses the stack (psABI, "The Stack Frame").
const RED_ZONE: u64 = 128;
/// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS` and `UC_STRICT_RESTORE_SS`.
const CONTEXT_FLAGS: u64 = 7;
/// `FP_XSTATE_MAGIC1` and `FP_XSTATE_MAGIC2`.
const MAGIC_1: u32 = 0x4650_5853;
const MAGIC_2: u32 = 0x4650_5845;
/// Where in FXSAVE's area software has bytes of its own, and its length.
const SOFTWARE_AT: usize = 464;
const LEGACY_BYTES: usize = 512;
/// Selectors of ring 3's code and data.
const CODE: u64 = 0x33;
const DATA: u64 = 0x2b;

/// A stack for handlers, as `sigaltstack` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Alternate {
    /// Where it begins.
    pub start: u64,
    /// `SS_*`.
    pub flags: u32,
    /// Zero.
    pub padding: u32,
    /// How long it is.
    pub bytes: u64,
}

impl Alternate {
    /// That there is none.
    pub const NONE: Alternate = Alternate { start: 0, flags: SS_DISABLE, padding: 0, bytes: 0 };

    /// Whether a stack pointer is on it.
    pub fn holds(&self, pointer: u64) -> bool {
        self.flags & SS_DISABLE == 0 && pointer > self.start && pointer - self.start <= self.bytes
    }
}

/// The interrupted registers, in linux's order: `struct sigcontext`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Machine {
    general: [u64; 18],
    segments: u64,
    error: u64,
    trap: u64,
    mask: u64,
    address: u64,
    vector: u64,
    reserved: [u64; 8],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Layout {
    return_address: u64,
    flags: u64,
    link: u64,
    stack: Alternate,
    machine: Machine,
    mask: SignalSet,
    info: Info,
}

/// What was interrupted.
#[derive(Clone, Debug)]
pub struct Interrupted {
    /// Its registers.
    pub registers: Registers,
    /// Signals that it had blocked.
    pub mask: SignalSet,
    /// The stack for handlers.
    pub stack: Alternate,
    /// Vector registers, as XSAVE stores them, or FXSAVE.
    pub vector: Vec<u8>,
    /// Of a fault: its vector, error code and address.
    pub fault: [u64; 3],
}

/// What is written for a handler, and how it is entered.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Where the bytes go: the handler's stack pointer.
    pub pointer: u64,
    /// Up to the end of the vector registers.
    pub bytes: Vec<u8>,
    /// With which the handler begins.
    pub registers: Registers,
}

impl Frame {
    /// For a handler that is about to be entered.
    pub fn build(action: &Action, info: &Info, interrupted: &Interrupted) -> Frame {
        let stack = interrupted.stack;
        let is_on = stack.holds(interrupted.registers.rsp);
        let uses_alternate = action.has(SA_ONSTACK) && stack.flags & SS_DISABLE == 0 && !is_on;
        let top = match uses_alternate {
            true => stack.start.wrapping_add(stack.bytes),
            false => interrupted.registers.rsp.wrapping_sub(RED_ZONE),
        };
        let vector = vector_bytes(&interrupted.vector);
        let vector_at = top.wrapping_sub(vector.len() as u64) & !63;
        // As after a call: 8 bytes below a multiple of 16.
        let pointer = (vector_at.wrapping_sub(size_of::<Layout>() as u64) & !15).wrapping_sub(8);
        let mut layout = Layout::new_zeroed();
        (layout.return_address, layout.flags) = (action.restorer, CONTEXT_FLAGS);
        layout.stack = Alternate { flags: if is_on { SS_ONSTACK } else { stack.flags }, ..stack };
        layout.machine = machine(interrupted, vector_at);
        (layout.mask, layout.info) = (interrupted.mask, *info);
        let mut bytes = layout.as_bytes().to_vec();
        bytes.resize((vector_at - pointer) as usize, 0);
        bytes.extend_from_slice(&vector);
        let info_at = pointer + core::mem::offset_of!(Layout, info) as u64;
        let context_at = pointer + core::mem::offset_of!(Layout, flags) as u64;
        let registers = Registers {
            rip: action.handler,
            rsp: pointer,
            rdi: info.signal.into(),
            rsi: info_at,
            rdx: context_at,
            rflags: 0x202,
            ..interrupted.registers
        };
        Frame { pointer, bytes, registers: Registers { rax: 0, ..registers } }
    }
}

/// XSAVE's area as programs find it: with linux's words in FXSAVE's part, and one behind the end.
fn vector_bytes(area: &[u8]) -> Vec<u8> {
    let mut bytes = area.to_vec();
    if area.len() > LEGACY_BYTES {
        let (total, features) = (area.len() as u32 + 4, &area[LEGACY_BYTES..LEGACY_BYTES + 8]);
        bytes[SOFTWARE_AT..SOFTWARE_AT + 4].copy_from_slice(&MAGIC_1.to_le_bytes());
        bytes[SOFTWARE_AT + 4..SOFTWARE_AT + 8].copy_from_slice(&total.to_le_bytes());
        bytes[SOFTWARE_AT + 8..SOFTWARE_AT + 16].copy_from_slice(features);
        bytes[SOFTWARE_AT + 16..SOFTWARE_AT + 20].copy_from_slice(&(area.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&MAGIC_2.to_le_bytes());
    }
    bytes
}

fn machine(interrupted: &Interrupted, vector: u64) -> Machine {
    let r = &interrupted.registers;
    let [trap, error, address] = interrupted.fault;
    Machine {
        general: [
            r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax,
            r.rcx, r.rsp, r.rip, r.rflags,
        ],
        segments: CODE | DATA << 48,
        error,
        trap,
        mask: interrupted.mask.0,
        address,
        vector,
        reserved: [0; 8],
    }
}

/// What `rt_sigreturn` goes back to: registers, mask, the stack for handlers, and where the vector registers
/// are, if they are anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return {
    /// The registers.
    pub registers: Registers,
    /// Signals that are blocked again.
    pub mask: SignalSet,
    /// The stack for handlers.
    pub stack: Alternate,
    /// Address of the vector registers, or 0.
    pub vector: u64,
}

/// Bytes that [`on_return`] takes.
pub const RETURN_BYTES: usize = size_of::<Layout>() - size_of::<u64>();

/// What is to be gone back to, of the frame whose return address was taken: its other bytes.
pub fn on_return(bytes: &[u8; RETURN_BYTES]) -> Return {
    let mut layout = Layout::new_zeroed();
    layout.as_mut_bytes()[size_of::<u64>()..].copy_from_slice(bytes);
    let Machine { general, vector, .. } = layout.machine;
    let [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags] = general;
    let registers = Registers {
        rax,
        rbx,
        rcx,
        rdx,
        rsi,
        rdi,
        rbp,
        rsp,
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rip,
        rflags,
    };
    Return { registers, mask: layout.mask.blockable(), stack: layout.stack, vector }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Signal;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_handler_returns_to_what_it_interrupted(
            words in any::<[u64; 18]>(),
            mask in any::<u64>(),
            on in any::<bool>(),
            extended in any::<bool>(),
        ) {
            let mut registers = Registers::read_from_bytes(words.as_bytes()).unwrap();
            registers.rsp = 0x7000_0000 + registers.rsp % 0x1_0000;
            let stack = Alternate { start: 0x10_0000, flags: 0, bytes: 0x4000, ..Alternate::NONE };
            let vector = std::vec![7; if extended { 832 } else { 512 }];
            let mask = SignalSet(mask).blockable();
            let interrupted = Interrupted { registers, mask, stack, vector, fault: [0; 3] };
            let flags = if on { SA_ONSTACK.into() } else { 0 };
            let action = Action { handler: 0x40_1000, flags, restorer: 0x40_2000, ..Action::default() };
            let frame = Frame::build(&action, &Info::sent(Signal::TERM, 0, 1, 0), &interrupted);
            prop_assert_eq!(frame.pointer % 16, 8, "as after a call");
            prop_assert_eq!(&frame.bytes[..8], &0x40_2000u64.to_le_bytes());
            let end = frame.pointer + frame.bytes.len() as u64;
            if on {
                prop_assert!(frame.pointer > stack.start && end <= stack.start + stack.bytes);
            } else {
                prop_assert!(end <= registers.rsp - RED_ZONE);
            }
            let back = on_return(frame.bytes[8..8 + RETURN_BYTES].try_into().unwrap());
            prop_assert_eq!(back.registers, registers);
            prop_assert_eq!((back.mask, back.stack), (interrupted.mask, stack));
            prop_assert_eq!(back.vector % 64, 0);
            let at = (back.vector - frame.pointer) as usize;
            prop_assert_eq!(&frame.bytes[at..at + 400], &[7; 400][..]);
        }
    }

    #[test]
    fn who_is_on_the_alternate_stack_stays_there() {
        let stack = Alternate { start: 0x10_0000, flags: 0, bytes: 0x4000, ..Alternate::NONE };
        let registers = Registers { rsp: 0x10_2000, ..Registers::ZERO };
        let interrupted =
            Interrupted { registers, mask: SignalSet(0), stack, vector: std::vec![0; 512], fault: [0; 3] };
        let action = Action { flags: SA_ONSTACK.into(), ..Action::default() };
        let frame = Frame::build(&action, &Info::fault(Signal::SEGV, 1, 0), &interrupted);
        assert!(frame.pointer + frame.bytes.len() as u64 <= 0x10_2000 - RED_ZONE);
    }
}
