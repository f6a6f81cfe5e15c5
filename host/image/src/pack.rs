//! The bootable ELF file: the kernel's segments, the PVH note, and the bundle behind the kernel.

use crate::bundle;
use crate::elf::{ENDIAN, Load};
use crate::error::{Error, Result};
use crate::kernel::{Kernel, XEN_ELFNOTE_PHYS32_ENTRY, XEN_NOTE_NAME};
use crate::lower::Lowered;
use crate::report::ImageReport;
use nom_abi::layout::KERNEL_IMAGE;
use object::elf::{self, FileHeader64, Ident, ProgramHeader64};
use object::{Endianness, U16, U32, U64, pod};
use std::fmt;
use std::path::Path;

type Header = FileHeader64<Endianness>;
type Segment = ProgramHeader64<Endianness>;

/// Alignment of a note's fields, and of its segment, by which loaders step over it.
const NOTE_ALIGN: u64 = 4;

/// Whether the image carries the symbol tables behind readable backtraces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symbols {
    /// Of the kernel and of every application.
    #[default]
    Keep,
    /// None: addresses stay numbers.
    Omit,
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

/// Packs the kernel and the bundle into one bootable ELF file.
///
/// The kernel's sections and debug information are left out; the bundle is loaded at the first page
/// boundary behind the kernel.
///
/// # Errors
/// A kernel file that cannot be read or is no PVH kernel of nom; an image beyond the 2 GiB that the kernel
/// is linked for.
pub fn pack(kernel: &Path, bundle: &Lowered, symbols: Symbols) -> Result<Image> {
    let data = std::fs::read(kernel).map_err(|source| Error::Read { path: kernel.to_owned(), source })?;
    let kernel = Kernel::parse(kernel, &data)?;
    let encoded = bundle::encode(bundle, &kernel.symbols, symbols)?;
    let bundle_load = bundle_load(&kernel, &encoded.bytes)?;
    let elf = write(&kernel, &bundle_load);
    let report = ImageReport::new(elf.len(), &kernel, bundle, &encoded, symbols);
    Ok(Image { elf, report })
}

fn bundle_load<'b>(kernel: &Kernel<'_>, bytes: &'b [u8]) -> Result<Load<'b>> {
    let physical = kernel.physical_end();
    let memory_bytes = bytes.len() as u64;
    if physical + memory_bytes > KERNEL_IMAGE.wrapping_neg() {
        return Err(Error::TooLarge(format!(
            "kernel and bundle end at physical address {:#x}, expected at most 2 GiB",
            physical + memory_bytes
        )));
    }
    let address = KERNEL_IMAGE + physical;
    Ok(Load { address, physical, memory_bytes, contents: bytes, writable: false, executable: false })
}

/// Headers, note and contents, one directly behind the other: no loader needs contents aligned in the file,
/// and the format allows it for segments that say so.
fn write(kernel: &Kernel<'_>, bundle: &Load<'_>) -> Vec<u8> {
    let loads: Vec<&Load<'_>> = kernel.loads.iter().chain([bundle]).collect();
    let note = note(kernel.pvh_entry);
    let note_offset = size_of::<Header>() + (loads.len() + 1) * size_of::<Segment>();
    let mut headers = vec![note_segment(note_offset, note.len())];
    let mut body = note;
    for load in loads {
        let contents = without_trailing_zeros(load.contents);
        headers.push(load_segment(load, note_offset + body.len(), contents.len()));
        body.extend_from_slice(contents);
    }
    let header = header(kernel.entry, headers.len());
    [pod::bytes_of(&header), pod::bytes_of_slice(&headers), &body].concat()
}

/// A loader zeroes what memory has more than the file.
fn without_trailing_zeros(contents: &[u8]) -> &[u8] {
    let bytes = contents.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &contents[..bytes]
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

fn load_segment(load: &Load<'_>, offset: usize, file_bytes: usize) -> Segment {
    let mut flags = elf::PF_R;
    if load.writable {
        flags |= elf::PF_W;
    }
    if load.executable {
        flags |= elf::PF_X;
    }
    Segment {
        p_type: U32::new(ENDIAN, elf::PT_LOAD),
        p_flags: U32::new(ENDIAN, flags),
        p_offset: U64::new(ENDIAN, offset as u64),
        p_vaddr: U64::new(ENDIAN, load.address),
        p_paddr: U64::new(ENDIAN, load.physical),
        p_filesz: U64::new(ENDIAN, file_bytes as u64),
        p_memsz: U64::new(ENDIAN, load.memory_bytes),
        p_align: U64::new(ENDIAN, 1),
    }
}

fn header(entry: u64, segments: usize) -> Header {
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
        e_phnum: U16::new(ENDIAN, segments as u16),
        e_shentsize: U16::new(ENDIAN, 0),
        e_shnum: U16::new(ENDIAN, 0),
        e_shstrndx: U16::new(ENDIAN, elf::SHN_UNDEF),
    }
}
