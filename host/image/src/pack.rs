//! The bootable ELF file: the loader, the PVH note, and kernel and bundle. In an image that is kept they are
//! compressed; in one that is run and forgotten the monitor puts the bundle where the kernel looks for it.

use crate::bundle;
use crate::elf::ENDIAN;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, XEN_ELFNOTE_PHYS32_ENTRY, XEN_NOTE_NAME};
use crate::loader;
use crate::lower::Lowered;
use crate::report::ImageReport;
use crate::symbols::Symbols;
use miniz_oxide::deflate::compress_to_vec;
use nom_abi::branches;
use nom_abi::image::{Extent, PackedPart, Payload};
use nom_abi::layout::{KERNEL_IMAGE, KERNEL_LOAD, LOADER_LOAD};
use nom_abi::memory::FRAME_BYTES;
use object::elf::{self, FileHeader64, Ident, ProgramFlags, ProgramHeader64};
use object::{Endianness, U16, U32, U64, pod};
use std::fmt;
use std::num::NonZeroU64;
use std::path::Path;
use zerocopy::IntoBytes;

type Header = FileHeader64<Endianness>;
type Segment = ProgramHeader64<Endianness>;

/// Alignment of a note's fields, and of its segment, by which loaders step over it.
const NOTE_ALIGN: u64 = 4;
/// Nothing is compressed: a stream of blocks that are stored, which is unpacked at the pace of a copy.
const QUICK_LEVEL: u8 = 0;
/// Zopfli's passes over the whole; more save 0.4% and take twice as long.
const SMALL_PASSES: u64 = 2;
/// Most memory of the kernel itself; a file that asks for more is damaged.
const KERNEL_MAX: u64 = 64 << 20;

/// How hard the image is compressed; what unpacks it is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all, for an image that is run and forgotten: to unpack the files of a program would take nearly
    /// all of the time to its first answer.
    #[default]
    Quick,
    /// To less than half, in about a second, for one that is kept.
    Small,
}

impl Compression {
    /// A DEFLATE stream (RFC 1951) of `contents`.
    fn compress(self, contents: &[u8]) -> Vec<u8> {
        if self == Compression::Quick {
            return compress_to_vec(contents, QUICK_LEVEL);
        }
        let passes = const { NonZeroU64::new(SMALL_PASSES).expect("at least one") };
        let options = zopfli::Options { iteration_count: passes, ..zopfli::Options::default() };
        let mut stream = Vec::new();
        zopfli::compress(options, zopfli::Format::Deflate, contents, &mut stream)
            .expect("memory is read and written without errors");
        stream
    }
}

/// How an image is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// What is left out.
    pub symbols: Symbols,
    /// What is spent on making it small.
    pub compression: Compression,
}

impl Packing {
    /// An image that is kept, with everything.
    pub const SMALL: Packing = Packing { symbols: Symbols::Keep, compression: Compression::Small };
}

impl From<Symbols> for Packing {
    fn from(symbols: Symbols) -> Packing {
        Packing { symbols, ..Packing::default() }
    }
}

/// A bootable image.
#[derive(Clone)]
pub struct Image {
    /// The ELF file.
    pub elf: Vec<u8>,
    /// What each part of it costs.
    pub report: ImageReport,
}

impl fmt::Debug for Image {
    /// The report without the contents.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(out)
    }
}

/// Packs loader, kernel and bundle into one bootable ELF file.
///
/// The kernel's sections and debug information are left out; the bundle follows at the first page boundary
/// behind the kernel. What both are in memory is compressed, and lies behind the places to which the loader
/// unpacks it.
///
/// # Errors
/// A file that cannot be read; a loader that reaches into the kernel; a kernel file that is no PVH kernel of
/// nom; an image beyond the 2 GiB that the kernel is linked for.
pub fn pack(loader: &Path, kernel: &Path, bundle: &Lowered, packing: impl Into<Packing>) -> Result<Image> {
    let Packing { symbols, compression } = packing.into();
    let read =
        |path: &Path| std::fs::read(path).map_err(|reason| Error::Read { path: path.to_owned(), reason });
    let (loader, data) = (loader::parse(loader, read(loader)?)?, read(kernel)?);
    let kernel = Kernel::parse(kernel, &data)?;
    let encoded = bundle::encode(bundle, &kernel.symbols, symbols)?;
    let (packed, plain) = match compression {
        Compression::Quick => (&[][..], &encoded.bytes[..]),
        Compression::Small => (&encoded.bytes[..], &[][..]),
    };
    let (payload, streams) = payload(&kernel, packed, plain.len(), compression)?;
    let elf = write(&[&loader, payload.as_bytes()].concat(), &payload, plain, &streams);
    let packed_bytes = plain.len() + streams.len();
    let report = ImageReport::new((elf.len(), packed_bytes), &kernel, bundle, &encoded, symbols);
    Ok(Image { elf, report })
}

/// What the loader is told, and both streams, one behind the other, which lie on the pages behind the bundle:
/// behind `packed` and `plain_bytes` of it that are not compressed.
fn payload(
    kernel: &Kernel<'_>,
    packed: &[u8],
    plain_bytes: usize,
    compression: Compression,
) -> Result<(Payload, Vec<u8>)> {
    let bundle_at = kernel.physical_end();
    let end = (bundle_at + (packed.len() + plain_bytes) as u64).next_multiple_of(FRAME_BYTES);
    if bundle_at > KERNEL_LOAD + KERNEL_MAX || end > KERNEL_IMAGE.wrapping_neg() {
        return Err(Error::TooLarge(format!(
            "the kernel ends at physical address {bundle_at:#x} and the bundle at {end:#x}, expected at most \
             {:#x} and 2 GiB",
            KERNEL_LOAD + KERNEL_MAX
        )));
    }
    let mut streams = Vec::new();
    let mut part = |physical: u64, contents: &[u8]| {
        let mut translated = contents.to_vec();
        branches::to_places(&mut translated);
        let stream = compression.compress(&translated);
        let start = end as u32 + streams.len() as u32;
        streams.extend_from_slice(&stream);
        PackedPart {
            stream: Extent { start, bytes: stream.len() as u32 },
            target: Extent { start: physical as u32, bytes: contents.len() as u32 },
        }
    };
    let parts = [part(KERNEL_LOAD, &kernel_memory(kernel)?), part(bundle_at, packed)];
    let relocations = kernel.relocations.len() as u32;
    Ok((Payload { parts, entry: kernel.pvh_entry, relocations, reserved: [0; 2] }, streams))
}

/// What the kernel has in memory from [`KERNEL_LOAD`] on when it starts, and behind it, where zeros follow
/// once the loader has used it, the list of its addresses.
fn kernel_memory(kernel: &Kernel<'_>) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    for load in &kernel.loads {
        memory.resize((load.physical - KERNEL_LOAD) as usize, 0);
        memory.extend_from_slice(load.contents);
    }
    let bytes = memory.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    memory.truncate(bytes);
    memory.extend_from_slice(&kernel.relocations);
    let room = kernel.physical_end() - KERNEL_LOAD;
    if memory.len() as u64 > room {
        return Err(Error::TooLarge(format!(
            "the kernel and the list of its addresses take {:#x} bytes, expected at most the {room:#x} that \
             it has in memory",
            memory.len()
        )));
    }
    Ok(memory)
}

/// Headers, note and contents, one directly behind the other: no monitor needs contents aligned in the file,
/// and the format allows it for segments that say so.
fn write(loader: &[u8], payload: &Payload, plain: &[u8], streams: &[u8]) -> Vec<u8> {
    let note = note(LOADER_LOAD as u32);
    let streams_start = u64::from(payload.parts[0].stream.start);
    let bundle = payload.parts[1].target;
    let plain_start = if plain.is_empty() { streams_start } else { u64::from(bundle.start + bundle.bytes) };
    // Contents, their place, and where their memory ends: the loader's has what it unpacks into.
    let parts = [
        (elf::PF_X, LOADER_LOAD, loader, plain_start),
        (elf::PF_R, plain_start, plain, streams_start),
        (elf::PF_R, streams_start, streams, streams_start + streams.len() as u64),
    ];
    let parts = parts.into_iter().filter(|(.., contents, _)| !contents.is_empty());
    let segments = 1 + parts.clone().count();
    let note_offset = size_of::<Header>() + segments * size_of::<Segment>();
    let mut headers = vec![note_segment(note_offset, note.len())];
    let mut bytes = note;
    for (flags, physical, contents, end) in parts {
        let place = (note_offset + bytes.len(), contents.len());
        headers.push(load_segment(flags, physical, place, end - physical));
        bytes.extend_from_slice(contents);
    }
    let header = header(LOADER_LOAD, segments as u16);
    [pod::bytes_of(&header), pod::bytes_of_slice(&headers), &bytes].concat()
}

fn note(pvh_entry: u32) -> Vec<u8> {
    let name_bytes = XEN_NOTE_NAME.len() as u32 + 1;
    let fields = [name_bytes, size_of::<u32>() as u32, XEN_ELFNOTE_PHYS32_ENTRY];
    let mut note: Vec<u8> = fields.into_iter().flat_map(u32::to_le_bytes).collect();
    note.extend_from_slice(XEN_NOTE_NAME);
    note.resize((note.len() + 1).next_multiple_of(NOTE_ALIGN as usize), 0);
    note.extend_from_slice(&pvh_entry.to_le_bytes());
    note
}

fn note_segment(offset: usize, bytes: usize) -> Segment {
    Segment {
        p_type: U32::new(ENDIAN, elf::PT_NOTE),
        p_flags: U32::new(ENDIAN, elf::PF_R),
        p_offset: U64::new(ENDIAN, offset as u64),
        p_vaddr: U64::new(ENDIAN, 0),
        p_paddr: U64::new(ENDIAN, 0),
        p_filesz: U64::new(ENDIAN, bytes as u64),
        p_memsz: U64::new(ENDIAN, bytes as u64),
        p_align: U64::new(ENDIAN, NOTE_ALIGN),
    }
}

/// A segment at a physical address, of which the file has `contents`: offset and bytes.
fn load_segment(flags: ProgramFlags, physical: u64, contents: (usize, usize), memory_bytes: u64) -> Segment {
    let (offset, file_bytes) = contents;
    Segment {
        p_type: U32::new(ENDIAN, elf::PT_LOAD),
        p_flags: U32::new(ENDIAN, flags | elf::PF_R),
        p_offset: U64::new(ENDIAN, offset as u64),
        p_vaddr: U64::new(ENDIAN, physical),
        p_paddr: U64::new(ENDIAN, physical),
        p_filesz: U64::new(ENDIAN, file_bytes as u64),
        p_memsz: U64::new(ENDIAN, memory_bytes),
        p_align: U64::new(ENDIAN, 1),
    }
}

fn header(entry: u64, segments: u16) -> Header {
    Header {
        e_ident: Ident {
            magic: elf::ELFMAG,
            class: elf::ELFCLASS64,
            data: elf::ELFDATA2LSB,
            version: elf::EV_CURRENT,
            os_abi: elf::ELFOSABI_SYSV,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: U16::new(ENDIAN, elf::ET_EXEC),
        e_machine: U16::new(ENDIAN, elf::EM_X86_64),
        e_version: U32::new(ENDIAN, elf::EV_CURRENT.0.into()),
        e_entry: U64::new(ENDIAN, entry),
        e_phoff: U64::new(ENDIAN, size_of::<Header>() as u64),
        e_shoff: U64::new(ENDIAN, 0),
        e_flags: U32::new(ENDIAN, elf::FileFlags(0)),
        e_ehsize: U16::new(ENDIAN, size_of::<Header>() as u16),
        e_phentsize: U16::new(ENDIAN, size_of::<Segment>() as u16),
        e_phnum: U16::new(ENDIAN, segments),
        e_shentsize: U16::new(ENDIAN, 0),
        e_shnum: U16::new(ENDIAN, 0),
        e_shstrndx: U16::new(ENDIAN, elf::SHN_UNDEF),
    }
}
