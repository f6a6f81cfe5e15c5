//! An application's ELF file, checked and turned into what the kernel maps.

use crate::elf::{ENDIAN, Elf, Load};
use crate::error::Result;
use crate::relocations;
use crate::symbols::SymbolTable;
use nom_abi::Protection;
use nom_abi::layout::WINDOW_BYTES;
use nom_abi::memory::FRAME_BYTES;
use nom_abi::syscall::{CALLS_SECTION, Syscall};
use object::elf;
use object::read::elf::FileHeader;
use std::path::Path;

/// A position-independent program.
#[derive(Clone)]
pub(crate) struct Program {
    /// Entry point, from the image's base.
    pub entry: u64,
    /// Bytes of address space that it spans.
    pub image_bytes: u64,
    /// By ascending address.
    pub segments: Vec<Segment>,
    pub symbols: SymbolTable,
    /// System calls that it contains, the bit of each by its number; all if it does not say.
    pub calls: u32,
}

/// Whole pages of a program with one protection.
#[derive(Clone)]
pub(crate) struct Segment {
    /// From the image's base.
    pub address: u64,
    pub memory_bytes: u64,
    pub protection: Protection,
    /// From the first page's start; whole pages unless the segment is writable.
    pub contents: Vec<u8>,
}

impl Program {
    pub fn parse(path: &Path, data: &[u8]) -> Result<Program> {
        let elf = Elf::parse(path, data)?;
        if elf.header.e_type(ENDIAN) != elf::ET_DYN {
            return Err(elf.error(
                "no position-independent executable (ET_DYN), expected one: link with \
                 `-pie --no-dynamic-linker`",
            ));
        }
        if elf.segments(elf::PT_INTERP).next().is_some() {
            return Err(elf.error(
                "asks for a dynamic linker, expected a static executable: link with `--no-dynamic-linker`",
            ));
        }
        let loads = elf.loads()?;
        let image_bytes = image_bytes(&elf, &loads)?;
        relocations::check(&elf, &loads)?;
        Ok(Program {
            entry: entry(&elf, &loads)?,
            image_bytes,
            segments: loads.iter().map(Segment::new).collect(),
            symbols: SymbolTable::new(&elf, 0)?,
            calls: elf.section(CALLS_SECTION)?.map_or(Syscall::EVERY, calls),
        })
    }
}

/// The bits of the calls in [`CALLS_SECTION`]. What names none can be any: it was made for another table.
fn calls(section: &[u8]) -> u32 {
    let bit = |number: &u8| if *number < 32 { 1 << number } else { Syscall::EVERY };
    section.iter().fold(0, |calls, number| calls | bit(number)) & Syscall::EVERY
}

fn image_bytes(elf: &Elf<'_>, loads: &[Load<'_>]) -> Result<u64> {
    let end = loads.last().map_or(0, Load::page_end);
    // The image starts at a random place in its window, so all but half of it must stay for that.
    if end > WINDOW_BYTES / 2 {
        return Err(elf.error(format!("spans {end:#x} bytes from address 0, expected a smaller image")));
    }
    Ok(end)
}

fn entry(elf: &Elf<'_>, loads: &[Load<'_>]) -> Result<u64> {
    let entry = elf.header.e_entry(ENDIAN);
    match loads.iter().any(|load| load.executable && load.contains(entry, 1)) {
        true => Ok(entry),
        false => Err(elf.error(format!(
            "the entry point {entry:#x} is in no executable segment, expected the address of `_start`"
        ))),
    }
}

impl Segment {
    fn new(load: &Load<'_>) -> Segment {
        let mut contents = vec![0; (load.address - load.page()) as usize];
        contents.extend_from_slice(load.contents);
        let file_bytes = contents.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        contents.truncate(file_bytes);
        if !load.writable {
            contents.resize(file_bytes.next_multiple_of(FRAME_BYTES as usize), 0);
        }
        Segment {
            address: load.page(),
            memory_bytes: load.page_end() - load.page(),
            protection: load.protection(),
            contents,
        }
    }

    /// Pages with these contents, which nobody changes.
    pub fn read_only(address: u64, mut contents: Vec<u8>) -> Segment {
        contents.resize(contents.len().next_multiple_of(FRAME_BYTES as usize), 0);
        Segment { address, memory_bytes: contents.len() as u64, protection: Protection::Read, contents }
    }

    /// Frames that the application is charged for it: contents that nobody changes are shared.
    pub fn frames(&self) -> u64 {
        let shared = if self.protection.writable() { 0 } else { self.contents.len() as u64 };
        (self.memory_bytes - shared) / FRAME_BYTES
    }
}
