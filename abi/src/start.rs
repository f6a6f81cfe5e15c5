//! The start page: what the kernel tells an application about itself, read-only, in `rdi` at its entry.
//!
//! The page is followed by argument and environment strings; all offsets count from the page's start.
//! `rsp` is the top of the first stack, 16-byte aligned; `rsi` is the number of the core it starts on.

use crate::layout::CHANNELS_MAX;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First word of the start page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"nomstart");
/// Most bytes of the start page with its strings.
pub const START_BYTES_MAX: usize = 64 * 1024;

/// The start page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Start {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`crate::VERSION`].
    pub version: u32,
    /// The application's own index on the board.
    pub application: u32,
    /// Address of the bulletin board.
    pub board: u64,
    /// Lowest address of the program image, where it was placed at random.
    pub image_base: u64,
    /// Bytes of the program image.
    pub image_bytes: u64,
    /// Lowest address of the first stack; the page below is a guard.
    pub stack_base: u64,
    /// Bytes of the first stack.
    pub stack_bytes: u64,
    /// Most frames that the application may hold.
    pub frames_max: u64,
    /// Most cores that the application may hold.
    pub cores_max: u32,
    /// Number of channels.
    pub channels: u32,
    /// What the manifest says of it, see [`crate::image::flag`].
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// The arguments, without the program's name.
    pub arguments: Strings,
    /// The environment, each `NAME=value`.
    pub environment: Strings,
    /// Random bytes, different at each start.
    pub seed: [u8; 32],
    /// The channels.
    pub channel: [Channel; CHANNELS_MAX],
}

/// A run of NUL-terminated strings behind the start page.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Strings {
    /// Offset of the first string from the start page.
    pub offset: u32,
    /// Bytes of all strings with their terminators.
    pub bytes: u32,
}

/// One end of an IPC channel.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Channel {
    /// Where the shared memory is mapped.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The peer's index on the board.
    pub peer: u32,
    /// Which end this is: 0 the one named first in the manifest, 1 the other.
    pub end: u32,
}

const _: () = assert!(size_of::<Start>() <= 4096);
