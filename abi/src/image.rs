//! The bundle: every application of a machine, lowered to tables that the kernel only has to check.
//!
//! `host/image` packs it behind the kernel, on the first page boundary after it, in one bootable ELF file,
//! where both are compressed: see [`Payload`]. All offsets count from the bundle's first byte; everything
//! the kernel maps in place (a segment's file part) starts on a page boundary.
//!
//! ```text
//! Bundle header | ApplicationRecord.. | ChannelRecord.. | SegmentRecord.. | DeviceSelector.. |
//! strings | symbol tables | (page boundary) segment contents
//! ```

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian};

/// First word of a bundle.
pub const MAGIC: u64 = u64::from_le_bytes(*b"nombundl");

/// What the loader is to do; it stands directly behind the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Payload {
    /// The kernel, but for the memory that starts as zeros, and the bundle.
    pub parts: [PackedPart; 2],
    /// Physical address of the kernel's entry point, in 32-bit protected mode.
    pub entry: u32,
    /// Bytes at the end of the kernel's part that list its addresses ([`crate::relocations`]), in memory that
    /// starts as zeros; 0 if it cannot be moved.
    pub relocations: u32,
    /// Zero.
    pub reserved: [u32; 2],
}

/// A piece of memory that the loader fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PackedPart {
    /// Where its contents are, as a DEFLATE stream (RFC 1951).
    pub stream: Extent,
    /// Where they are unpacked to.
    pub target: Extent,
}

/// A piece of physical memory below 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Extent {
    /// Physical address of its first byte.
    pub start: u32,
    /// Bytes.
    pub bytes: u32,
}

/// A run of `count` records, or of bytes, at `offset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Run {
    /// Offset from the bundle's start, in bytes.
    pub offset: u32,
    /// Number of records (tables) or bytes (strings, symbols).
    pub count: u32,
}

/// The bundle's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Bundle {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`crate::VERSION`].
    pub version: u32,
    /// Bytes of the whole bundle.
    pub bytes: u32,
    /// [`ApplicationRecord`]s.
    pub applications: Run,
    /// [`ChannelRecord`]s.
    pub channels: Run,
    /// The kernel's own symbol table, see [`SymbolTable`]; addresses count from
    /// [`crate::layout::KERNEL_IMAGE`].
    pub symbols: Run,
}

/// One application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ApplicationRecord {
    /// UTF-8, padded with zeros.
    pub name: [u8; 32],
    /// Entry point, from the image's base.
    pub entry: u64,
    /// Bytes of address space that the image spans.
    pub image_bytes: u64,
    /// Bytes of the first stack, a multiple of 4096.
    pub stack_bytes: u64,
    /// Most frames that it may hold.
    pub frames_max: u64,
    /// Applications that it may start and end, one bit each.
    pub manages: u64,
    /// Most cores that it may hold.
    pub cores_max: u32,
    /// Share weight on a contended core, 1 to 10,000.
    pub weight: u32,
    /// See [`flag`].
    pub flags: u32,
    /// System calls that it may make, the bit of each by its number.
    pub calls: u32,
    /// [`SegmentRecord`]s, by ascending address, not overlapping.
    pub segments: Run,
    /// [`DeviceSelector`]s: what it may acquire.
    pub devices: Run,
    /// Arguments: NUL-terminated strings (count in bytes).
    pub arguments: Run,
    /// Environment: NUL-terminated strings (count in bytes).
    pub environment: Run,
    /// Symbol table; addresses count from the image's base.
    pub symbols: Run,
}

/// Bits of [`ApplicationRecord::flags`].
pub mod flag {
    /// Started at boot.
    pub const AUTOSTART: u32 = 1;
    /// When it ends the machine ends with its status, though others may still run.
    pub const ESSENTIAL: u32 = 2;
    /// It publishes prices: the board's prices are mapped writable for it, and for it alone. At most one
    /// application of a bundle has this.
    pub const PUBLISHES_PRICES: u32 = 4;
    /// It makes code: it may map and protect its memory executable. Others run what their image has.
    pub const MAKES_CODE: u32 = 8;
    /// It monitors: what every application of the bundle uses is shown to it.
    pub const MONITORS: u32 = 16;
    /// All that there are.
    pub const ALL: u32 = AUTOSTART | ESSENTIAL | PUBLISHES_PRICES | MAKES_CODE | MONITORS;
}

/// One loadable part of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SegmentRecord {
    /// First byte, from the image's base; a multiple of 4096.
    pub address: u64,
    /// Bytes in memory, a multiple of 4096; those past the file's are zero.
    pub memory_bytes: u64,
    /// Contents in the bundle; a multiple of 4096. If the segment is not writable its pages are mapped in
    /// place, so the file part is padded with zeros to a whole page.
    pub file_offset: u32,
    /// Bytes of contents.
    pub file_bytes: u32,
    /// A [`crate::Protection`].
    pub protection: u32,
    /// Zero.
    pub reserved: u32,
}

/// Which devices an application may acquire: those whose fields match. `0xffff` and `0xff_ffff` match any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceSelector {
    /// PCI vendor identifier, or `0xffff`.
    pub vendor: u16,
    /// PCI device identifier, or `0xffff`.
    pub device: u16,
    /// PCI class code, or `0xff_ffff`.
    pub class: u32,
}

/// A shared-memory channel between two applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ChannelRecord {
    /// The two applications, by index.
    pub ends: [u32; 2],
    /// Bytes of shared memory, a multiple of 4096, see [`crate::ipc`].
    pub bytes: u64,
}

/// A symbol table: `count` bytes made of this header, a [`SymbolRecord`] of each function, sorted by their
/// starts, and demangled names, each with a zero byte behind it. Functions may share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SymbolTable {
    /// Number of functions.
    pub symbols: u32,
    /// Bytes of names.
    pub names: u32,
}

/// A function in a symbol table, which need not be aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SymbolRecord {
    /// Its first byte, from the image's base.
    pub start: little_endian::U32,
    /// Which of the names it has.
    pub name: little_endian::U16,
}

const _: () = {
    assert!(size_of::<Payload>() == 48 && size_of::<Bundle>() == 40 && size_of::<ApplicationRecord>() == 128);
    assert!(size_of::<SegmentRecord>() == 32 && size_of::<ChannelRecord>() == 16);
};
