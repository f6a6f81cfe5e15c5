//! The program that a device runs for each frame that it receives (XDP): to the socket of the frame's queue,
//! or, for a queue without one, on to Linux.
//!
//! Instructions and calls are those of linux/bpf.h; the instruction set is RFC 9669's.
//! `docs/safety/libos-linux-host.md` says why the unsafe calls are sound.

use rustix::io::{Errno, Result};
use std::ffi::c_long;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Commands of `bpf(2)`.
const MAP_CREATE: c_long = 0;
const MAP_UPDATE: c_long = 2;
const PROGRAM_LOAD: c_long = 5;
const LINK_CREATE: c_long = 28;

/// `BPF_MAP_TYPE_XSKMAP`: from a queue's number to an XDP socket.
const SOCKETS: u32 = 17;
/// `BPF_PROG_TYPE_XDP`, and the place where such a program is attached, `BPF_XDP`.
const KIND: u32 = 6;
const PLACE: u32 = 37;

/// Bytes of a `union bpf_attr` up to the last field that is used here; the kernel takes what is missing for
/// zero.
const ATTRIBUTE_BYTES: usize = 72;

/// The fields of a `union bpf_attr`, in their order, as the machine has them.
struct Attributes {
    bytes: [u8; ATTRIBUTE_BYTES],
    len: usize,
}

impl Attributes {
    fn new() -> Attributes {
        Attributes { bytes: [0; ATTRIBUTE_BYTES], len: 0 }
    }

    fn number(mut self, value: u32) -> Attributes {
        self.bytes[self.len..self.len + 4].copy_from_slice(&value.to_ne_bytes());
        self.len += 4;
        self
    }

    fn file(self, file: &OwnedFd) -> Attributes {
        self.number(file.as_raw_fd() as u32)
    }

    /// A pointer, aligned to its own size as the union has it.
    fn pointer<T>(mut self, to: *const T) -> Attributes {
        self.len = self.len.next_multiple_of(8);
        let address = to.expose_provenance() as u64;
        self.bytes[self.len..self.len + 8].copy_from_slice(&address.to_ne_bytes());
        self.len += 8;
        self
    }

    /// Calls the kernel; what it returns, which is not negative.
    ///
    /// # Safety
    /// Where `command` takes a pointer, there is one to what it takes, which lives.
    unsafe fn call(&self, command: c_long) -> Result<i32> {
        // SAFETY: the kernel reads as many bytes of the attributes as it is told, and the caller vouches for
        // what they point to (condition 7).
        let outcome =
            unsafe { libc::syscall(libc::SYS_bpf, command, self.bytes.as_ptr(), ATTRIBUTE_BYTES as c_long) };
        match i32::try_from(outcome) {
            Ok(value @ 0..) => Ok(value),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }

    /// The same for a command that returns a new file.
    ///
    /// # Safety
    /// As for [`Attributes::call`].
    unsafe fn open(&self, command: c_long) -> Result<OwnedFd> {
        // SAFETY: the caller vouches for the pointers; what is returned is a file that nobody else has.
        unsafe { self.call(command).map(|file| OwnedFd::from_raw_fd(file)) }
    }
}

/// One instruction: its code, its registers (destination in the low half), an offset and a value.
const fn instruction(code: u8, registers: u8, offset: i16, value: i32) -> u64 {
    code as u64 | (registers as u64) << 8 | (offset as u16 as u64) << 16 | (value as u32 as u64) << 32
}

/// `return bpf_redirect_map(sockets, context->rx_queue_index, XDP_PASS)`.
fn instructions(sockets: &OwnedFd) -> [u64; 6] {
    const LOAD_WORD: u8 = 0x61; // BPF_LDX | BPF_MEM | BPF_W
    const LOAD_LONG: u8 = 0x18; // BPF_LD | BPF_IMM | BPF_DW, of two instructions' width
    const MOVE: u8 = 0xb7; // BPF_ALU64 | BPF_MOV | BPF_K
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    /// In place of a source register: the value is a file, of a map (BPF_PSEUDO_MAP_FD).
    const A_MAP: u8 = 1;
    /// Where `struct xdp_md` has `rx_queue_index`.
    const QUEUE: i16 = 16;
    const PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    [
        instruction(LOAD_WORD, 0x12, QUEUE, 0),
        instruction(LOAD_LONG, A_MAP << 4 | 1, 0, sockets.as_raw_fd()),
        instruction(0, 0, 0, 0),
        instruction(MOVE, 3, 0, PASS),
        instruction(CALL, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0),
    ]
}

/// The program on its device, until it is dropped.
#[derive(Debug)]
pub(super) struct Program {
    sockets: OwnedFd,
    /// Holds the program at the device: with the last file of it both are gone, however the process ends.
    _link: OwnedFd,
}

impl Program {
    /// Attaches one to the interface with number `interface` for sockets of up to `queues` queues.
    ///
    /// # Errors
    /// What Linux says, and to which step: it may be `EBUSY` where another program is attached.
    pub fn attach(interface: u32, queues: u32) -> std::result::Result<Program, (&'static str, Errno)> {
        let number = size_of::<u32>() as u32;
        let map = Attributes::new().number(SOCKETS).number(number).number(number).number(queues);
        // SAFETY: a map is made of numbers alone.
        let sockets = unsafe { map.open(MAP_CREATE) }.map_err(|errno| ("make a map of sockets", errno))?;
        let instructions = instructions(&sockets);
        let attributes = Attributes::new().number(KIND).number(instructions.len() as u32);
        let attributes = attributes.pointer(instructions.as_ptr()).pointer(c"MIT".as_ptr());
        // SAFETY: there are as many instructions as it says, and the licence ends in a zero; both live.
        let program = unsafe { attributes.open(PROGRAM_LOAD) }.map_err(|errno| ("load a program", errno))?;
        let attributes = Attributes::new().file(&program).number(interface).number(PLACE);
        // SAFETY: a link is made of numbers alone.
        let link = unsafe { attributes.open(LINK_CREATE) }.map_err(|errno| ("attach a program", errno))?;
        Ok(Program { sockets, _link: link })
    }

    /// Sends what the queue receives to `socket`.
    ///
    /// # Errors
    /// What Linux says.
    pub fn redirect(&self, queue: u32, socket: &OwnedFd) -> Result<()> {
        let socket = socket.as_raw_fd() as u32;
        let attributes = Attributes::new().file(&self.sockets);
        let attributes = attributes.pointer(&raw const queue).pointer(&raw const socket);
        // SAFETY: the map's keys and values are of 32 bits, and both live (condition 7).
        unsafe { attributes.call(MAP_UPDATE) }.map(drop)
    }
}
