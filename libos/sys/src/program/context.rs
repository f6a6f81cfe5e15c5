//! One of a program's threads while it does not run.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use nom_abi::upcall::Registers;

/// Bytes of the x87 and SSE registers as FXSAVE stores them.
pub const VECTOR_BYTES: usize = 512;
/// Where in an XSAVE area the rest begins.
pub const EXTENDED_AT: usize = VECTOR_BYTES;
/// MXCSR and the x87 control word of a program that begins.
pub(super) const MXCSR: u32 = 0x1f80;
pub(super) const CONTROL_WORD: u16 = 0x37f;

/// Why a program stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// It executed `syscall`: the number is in `rax`, and `rip` is behind it.
    Syscall,
    /// It touched an address that its page tables do not allow.
    PageFault {
        /// The address.
        address: u64,
        /// The processor's error code: bit 0 the page is there, bit 1 a write, bit 4 an instruction fetch.
        code: u64,
    },
    /// It raised another exception.
    Exception {
        /// Its vector.
        vector: u64,
        /// Its error code.
        code: u64,
    },
    /// Something happened on its core that others may have to see to: it wants nothing, and goes on where it
    /// is.
    Interrupted,
}

/// What [`ProgramContext::trap`] holds for [`Trap::Syscall`], for a page fault, an exception, and
/// [`Trap::Interrupted`].
pub(super) const SYSCALL: u64 = 0;
pub(super) const PAGE_FAULT: u64 = 1;
#[cfg(target_os = "none")]
pub(super) const EXCEPTION: u64 = 2;
pub(super) const INTERRUPTED: u64 = 3;

/// Where in there MXCSR and the SSE registers are, 16 bytes each (Intel SDM vol. 1, 10.5.1).
pub(super) const MXCSR_AT: usize = 24;
#[cfg(target_os = "none")]
pub(super) const SSE_AT: usize = 160;

/// x87 and SSE registers, as FXSAVE stores them. While the core has the thread's x87 registers, what is here
/// of those is old.
#[derive(Clone)]
#[repr(C, align(16))]
pub(super) struct Vector(pub [u8; VECTOR_BYTES]);

impl Vector {
    /// As a program finds them when it begins.
    pub(super) fn new() -> Vector {
        let mut vector = [0; VECTOR_BYTES];
        vector[..2].copy_from_slice(&CONTROL_WORD.to_le_bytes());
        vector[MXCSR_AT..][..4].copy_from_slice(&MXCSR.to_le_bytes());
        Vector(vector)
    }
}

/// The registers of one of a program's threads. It stays on its core:
/// ```compile_fail
/// fn moves<T: Send>() {}
/// moves::<nom_sys::program::ProgramContext>();
/// ```
/// but for what no core has anything of:
/// ```
/// fn moves<T: Send>() {}
/// moves::<nom_sys::program::DetachedContext>();
/// ```
#[repr(C, align(64))]
pub struct ProgramContext {
    pub(super) vector: Vector,
    pub(super) registers: Registers,
    /// Stack pointer of who runs it, while it runs.
    pub(super) host_stack: u64,
    /// Why it stopped: one of the numbers above, the address or vector, and the error code.
    pub(super) trap: [u64; 3],
    /// Whether what is stored of the x87 registers is other than in a program that begins.
    pub(super) uses_x87: bool,
    /// Base of FS, while this core has another's.
    pub(super) thread_pointer: u64,
    /// The rest of the vector registers, as XSAVE stores them, while this core has another's.
    pub(super) extended: Box<[Line]>,
    /// A core has a part of it, so that it stays with that one: see [`DetachedContext`].
    place: PhantomData<*mut ()>,
}

/// One of a program's threads of which no core has anything: any core can go on with it.
pub struct DetachedContext(Box<ProgramContext>);

// SAFETY: all of it is stored in the box, and no core's block has its address (`ProgramContext::detach`), so
// that whoever has the box is the only one who reaches it (condition 19).
unsafe impl Send for DetachedContext {}

impl fmt::Debug for DetachedContext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("DetachedContext").field(&self.0).finish()
    }
}

impl DetachedContext {
    /// On the running core, and on no other.
    pub fn attach(self) -> Box<ProgramContext> {
        self.0
    }
}

/// XSAVE wants its area aligned.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub [u8; 64]);

impl ProgramContext {
    /// One that begins with these registers.
    pub fn new(registers: Registers) -> Box<ProgramContext> {
        Box::new(ProgramContext {
            vector: Vector::new(),
            uses_x87: false,
            registers,
            host_stack: 0,
            trap: [0; 3],
            thread_pointer: 0,
            extended: vec![Line([0; 64]); area_bytes().div_ceil(64)].into(),
            place: PhantomData,
        })
    }

    /// With all that the running core has of it stored, for another core.
    pub fn detach(mut self: Box<Self>) -> DetachedContext {
        self.give_up();
        DetachedContext(self)
    }

    /// Another that goes on with what this one has.
    pub fn duplicate(&mut self) -> Box<ProgramContext> {
        let mut copy = ProgramContext::new(self.registers);
        copy.thread_pointer = self.thread_pointer();
        copy.extended.copy_from_slice(self.extended_lines());
        // Now that what the processor had of it is there, too.
        copy.vector = self.vector.clone();
        copy.uses_x87 = self.uses_x87;
        copy
    }

    /// The general registers.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// The general registers with which it goes on.
    pub fn registers_mut(&mut self) -> &mut Registers {
        &mut self.registers
    }

    /// Sets x87 and SSE registers, as FXSAVE stores them. Bits of MXCSR that no processor has are cleared.
    pub fn set_vector(&mut self, vector: &[u8; VECTOR_BYTES]) {
        /// Those that every processor with SSE2 has (Intel SDM vol. 1, 10.2.3).
        const MXCSR_BITS: u32 = 0xffff;
        self.give_up();
        self.vector.0 = *vector;
        // For all that is known.
        self.uses_x87 = true;
        let place = &mut self.vector.0[MXCSR_AT..][..4];
        let mxcsr = u32::from_le_bytes([place[0], place[1], place[2], place[3]]) & MXCSR_BITS;
        place.copy_from_slice(&mxcsr.to_le_bytes());
    }

    /// All vector registers, as XSAVE stores them; as FXSAVE does, where there is no XSAVE.
    pub fn vector_area(&mut self) -> Vec<u8> {
        self.extended_lines();
        let mut area = self.vector.0.to_vec();
        area.extend(self.extended.iter().skip(EXTENDED_AT / 64).flat_map(|line| line.0));
        if let Some(features) = area.get_mut(EXTENDED_AT..EXTENDED_AT + 8) {
            // The header says what is there; x87 and SSE are.
            features[0] |= 3;
        }
        area
    }

    /// Sets all vector registers; what the header says that no processor could have stored is not taken. An
    /// area of another length sets none.
    pub fn set_vector_area(&mut self, area: &[u8]) {
        if area.len() != self.vector_area().len() {
            return;
        }
        let (vector, rest) = area.split_at(EXTENDED_AT);
        self.set_vector(vector.try_into().expect("it has the bytes that were split off"));
        let known = extended_features();
        for (line, bytes) in self.extended.iter_mut().skip(EXTENDED_AT / 64).zip(rest.as_chunks::<64>().0) {
            line.0 = *bytes;
        }
        if let Some(header) = self.extended.get_mut(EXTENDED_AT / 64) {
            let features = u64::from_le_bytes(header.0[..8].try_into().expect("8 bytes")) & known;
            header.0 = [0; 64];
            header.0[..8].copy_from_slice(&features.to_le_bytes());
        }
    }

    pub(super) fn stopped(&self) -> Trap {
        let [kind, first, code] = self.trap;
        match kind {
            SYSCALL => Trap::Syscall,
            PAGE_FAULT => Trap::PageFault { address: first, code },
            INTERRUPTED => Trap::Interrupted,
            _ => Trap::Exception { vector: first, code },
        }
    }
}

#[cfg(not(target_os = "none"))]
mod elsewhere {
    use super::{Line, ProgramContext, Trap};

    pub(super) fn area_bytes() -> usize {
        0
    }

    pub(super) fn extended_features() -> u64 {
        0
    }

    impl ProgramContext {
        /// The base of FS.
        pub fn thread_pointer(&self) -> u64 {
            self.thread_pointer
        }

        /// Sets the base of FS.
        pub fn set_thread_pointer(&mut self, address: u64) {
            self.thread_pointer = address;
        }

        pub(super) fn extended_lines(&mut self) -> &[Line] {
            &self.extended
        }

        pub(super) fn give_up(&mut self) {}

        /// Programs run on nom's kernel alone.
        ///
        /// # Panics
        /// Always.
        pub fn run(&mut self) -> Trap {
            let _ = self.stopped();
            unreachable!("programs run on nom's kernel alone")
        }
    }
}
#[cfg(target_os = "none")]
use super::vectors::{area_bytes, extended_features};
#[cfg(not(target_os = "none"))]
use elsewhere::{area_bytes, extended_features};

impl fmt::Debug for ProgramContext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ProgramContext").field("registers", &self.registers).finish_non_exhaustive()
    }
}
