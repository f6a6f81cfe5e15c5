//! Upcalls: what the kernel tells an application without being asked.
//!
//! There are two kinds. *Faults* concern the instruction that was running and are delivered at once, or
//! end the application if it registered no handler on this core or is inside its handler already.
//! *Events* are bits that stay pending until delivered, together in one upcall, as soon as the core runs
//! the application outside its handler; or until `core_wait` takes them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! upcalls {
    ($($(#[doc = $doc:literal])+ $bit:literal $name:ident,)+) => {
        /// Why an upcall handler was entered; the value is the bit in [`Events::pending`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u64)]
        pub enum Upcall { $($(#[doc = $doc])+ $name = $bit,)+ }

        impl Upcall {
            /// Every upcall with its documentation, in order of its bit.
            pub const ALL: &'static [(Upcall, &'static str)] =
                &[$((Upcall::$name, concat!($($doc),+)),)+];

            /// This upcall's bit in [`Events::pending`].
            pub const fn mask(self) -> u64 { 1 << self as u64 }

            /// The upcall's name as it is written here.
            pub const fn name(self) -> &'static str {
                match self { $(Upcall::$name => stringify!($name),)+ }
            }
        }
    };
}

upcalls! {
    /// The running instruction touched an address that its page tables do not allow: `fault_address` is
    /// the address (CR2), `fault_code` the processor's page-fault error code. Returning retries.
    0 PageFault,
    /// The running instruction raised another exception: `fault_address` is the vector, `fault_code`
    /// its error code. Returning retries, so the handler must change `registers` or end the application.
    1 Exception,
    /// A bound MSI-X vector fired: `interrupts` has the bits that were named when it was bound.
    2 Interrupt,
    /// A peer notified a channel: `messages` has one bit for each channel number.
    3 Message,
    /// The core was taken from the application by force and has been given back.
    4 CoreGranted,
    /// The core is wanted elsewhere: it is taken when the board's clock passes `revoke_deadline_ns`,
    /// unless `core_yield`, `core_wait` or `core_release` gives it up first.
    5 CoreRevoking,
    /// A device appeared on the board.
    6 DeviceArrived,
    /// A device is about to leave, or has left, the board; or devices of this application are silenced,
    /// because 64 of their DMA accesses were blocked. `device_release` lets one go at once.
    7 DeviceLeft,
    /// A device of this application was stopped from reaching memory that it was not granted:
    /// `fault_address` is the bus address.
    8 DmaBlocked,
    /// An application at the other end of a channel ended or started: see the board.
    9 PeerChanged,
    /// Another core of the application has something to say (`core_notify`).
    10 CoreNotified,
    /// The machine is to end: its power button was pressed. The application ends what it is at, and itself.
    /// Told once, on its first core, if it has made the call `shutdown_handle`.
    11 Shutdown,
    /// The time that the application named for this core has come (`core_timer`).
    12 Timer,
}

/// Everything that is pending on one core, as `core_wait` and an upcall deliver it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Events {
    /// One bit for each [`Upcall`].
    pub pending: u64,
    /// Address (page fault, blocked DMA) or vector (exception).
    pub fault_address: u64,
    /// The processor's error code.
    pub fault_code: u64,
    /// Bits of the interrupts that fired since last delivered.
    pub interrupts: u64,
    /// Bits of the channels that were notified since last delivered.
    pub messages: u64,
    /// Board time, in nanoseconds, at which the core is taken; 0 if it is not wanted.
    pub revoke_deadline_ns: u64,
}

impl Events {
    /// Bytes of the structure in user memory.
    pub const BYTES: usize = size_of::<Events>();

    /// Whether `upcall` is pending.
    pub const fn has(&self, upcall: Upcall) -> bool {
        self.pending & upcall.mask() != 0
    }
}

/// General registers of an interrupted computation, in the order the kernel keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the processor's")]
pub struct Registers {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub rsp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rip: u64,
    pub rflags: u64,
}

impl Registers {
    /// Number of 64-bit words.
    pub const WORDS: usize = size_of::<Registers>() / 8;
    /// All of them zero.
    pub const ZERO: Registers = zerocopy::transmute!([0_u64; Registers::WORDS]);
}

/// What an upcall handler finds at `rdi`: the events, and the computation to go back to with
/// `upcall_return`. Vector registers are left as they were: a handler that uses them saves them first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UpcallFrame {
    /// What happened.
    pub events: Events,
    /// Where the application was; the handler may change it.
    pub registers: Registers,
}

impl UpcallFrame {
    /// Bytes of the structure on the upcall stack.
    pub const BYTES: usize = size_of::<UpcallFrame>();
}

const _: () = assert!(Events::BYTES == 48 && Registers::WORDS == 18 && UpcallFrame::BYTES == 192);
