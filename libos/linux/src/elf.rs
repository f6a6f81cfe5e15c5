//! ELF files (System V gABI; x86-64 psABI): what a loader has to know of them. Bytes in, a description or a
//! clear refusal out.

use crate::memory::{PAGE, Rights};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 4] = *b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const MACHINE_X86_64: u16 = 62;
const TYPE_FIXED: u16 = 2;
const TYPE_MOVABLE: u16 = 3;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_PHDR: u32 = 6;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;
/// Most segments that a program may have, and most bytes of its interpreter's name.
const SEGMENTS_MAX: u16 = 128;
const NAME_MAX: u64 = 4096;

/// The header of an ELF file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    magic: [u8; 4],
    class: u8,
    order: u8,
    version: u8,
    abi: u8,
    padding: [u8; 8],
    kind: u16,
    machine: u16,
    version_again: u32,
    entry: u64,
    table: u64,
    sections: u64,
    flags: u32,
    bytes: u16,
    entry_bytes: u16,
    entries: u16,
    section_bytes: u16,
    section_count: u16,
    section_names: u16,
}

/// One entry of the program header table.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Entry {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_bytes: u64,
    memory_bytes: u64,
    align: u64,
}

/// Bytes of the header, and of an entry of the table.
pub const HEADER_BYTES: usize = size_of::<Header>();
const ENTRY_BYTES: usize = size_of::<Entry>();

/// A part of a program that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSegment {
    /// Where, from the program's base on.
    pub address: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Where its contents are in the file; as far into a page as the address.
    pub offset: u64,
    /// How many; the rest is zero.
    pub file_bytes: u64,
    /// What may be done with it.
    pub rights: Rights,
}

/// A program, as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Whether it may be anywhere; else its addresses are what they are.
    pub is_movable: bool,
    /// Where it begins.
    pub entry: u64,
    /// Its parts, by ascending address, apart from each other.
    pub segments: Vec<LoadSegment>,
    /// Where in the file the name of its interpreter is, without its zero.
    pub interpreter: Option<Range<u64>>,
    /// Address of the program header table, if it is loaded, and how many entries it has.
    pub table: Option<u64>,
    /// How many entries the table has.
    pub table_entries: u16,
    /// What its base has to be a multiple of.
    pub align: u64,
}

/// Why a file is no program that can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadProgram {
    /// It is not an ELF file, nor a script.
    NotElf,
    /// It is for another processor: its number.
    Machine(u16),
    /// It is not of 64 bits, little-endian.
    Class,
    /// It is not a program: its kind.
    Kind(u16),
    /// It ends before what it says it has.
    Short,
    /// What it says of itself is wrong: what.
    Wrong(&'static str),
}

impl fmt::Display for BadProgram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadProgram::NotElf => {
                out.write_str("neither an ELF file nor a script: a program of Linux is expected")
            }
            BadProgram::Machine(machine) => {
                let name = match machine {
                    3 => " (i386)",
                    40 => " (ARM)",
                    183 => " (aarch64)",
                    243 => " (RISC-V)",
                    _ => "",
                };
                write!(out, "for processor number {machine}{name}: x86-64 (62) is expected")
            }
            BadProgram::Class => {
                out.write_str("not of 64 bits and little-endian, as programs for x86-64 are")
            }
            BadProgram::Kind(kind) => {
                write!(out, "an ELF file of kind {kind}: a program (2 or 3) is expected")
            }
            BadProgram::Short => out.write_str("cut off: it ends before what its header says"),
            BadProgram::Wrong(what) => write!(out, "damaged: {what}"),
        }
    }
}

impl core::error::Error for BadProgram {}

impl Header {
    /// Reads the header at the beginning of a file.
    ///
    /// # Errors
    /// Why it is no program's.
    pub fn parse(bytes: &[u8]) -> Result<Header, BadProgram> {
        if !bytes.starts_with(&MAGIC) {
            return Err(BadProgram::NotElf);
        }
        let (header, _) = Header::read_from_prefix(bytes).map_err(|_| BadProgram::Short)?;
        if (header.class, header.order) != (CLASS_64, LITTLE_ENDIAN) {
            return Err(BadProgram::Class);
        }
        if header.machine != MACHINE_X86_64 {
            return Err(BadProgram::Machine(header.machine));
        }
        if ![TYPE_FIXED, TYPE_MOVABLE].contains(&header.kind) {
            return Err(BadProgram::Kind(header.kind));
        }
        if usize::from(header.entry_bytes) != ENTRY_BYTES || header.entries > SEGMENTS_MAX {
            return Err(BadProgram::Wrong("its table of segments"));
        }
        Ok(header)
    }

    /// Where in the file the program header table is.
    pub fn table(&self) -> (u64, usize) {
        (self.table, usize::from(self.entries) * ENTRY_BYTES)
    }

    /// Reads the program header table of a file of `length` bytes, the places in which it names.
    ///
    /// # Errors
    /// Why it is no program's.
    pub fn program(&self, table: &[u8], length: u64) -> Result<Program, BadProgram> {
        let (mut segments, mut interpreter, mut named) = (Vec::<LoadSegment>::new(), None, None);
        let mut align = PAGE;
        for bytes in table.chunks_exact(ENTRY_BYTES) {
            let entry = Entry::read_from_bytes(bytes).map_err(|_| BadProgram::Short)?;
            match entry.kind {
                PT_LOAD if entry.memory_bytes > 0 => {
                    let segment = entry.segment(length)?;
                    if segments.last().is_some_and(|last| last.pages().end > segment.pages().start) {
                        return Err(BadProgram::Wrong("its segments overlap, or are out of order"));
                    }
                    align = align.max(if entry.align.is_power_of_two() { entry.align } else { PAGE });
                    segments.push(segment);
                }
                PT_INTERP => interpreter = Some(entry.name(length)?),
                PT_PHDR => named = Some(entry.address),
                _ => {}
            }
        }
        if table.len() != usize::from(self.entries) * ENTRY_BYTES {
            return Err(BadProgram::Short);
        }
        let Some(first) = segments.first() else { return Err(BadProgram::Wrong("it has nothing to load")) };
        let in_first = (first.offset..first.offset + first.file_bytes).contains(&self.table);
        let table = named.or(in_first.then(|| first.address + (self.table - first.offset)));
        Ok(Program {
            is_movable: self.kind == TYPE_MOVABLE,
            entry: self.entry,
            segments,
            interpreter,
            table,
            table_entries: self.entries,
            align: align.min(1 << 30),
        })
    }
}

impl Entry {
    fn segment(&self, length: u64) -> Result<LoadSegment, BadProgram> {
        const END: u64 = 1 << 47;
        let file_end = self.offset.checked_add(self.file_bytes).ok_or(BadProgram::Short)?;
        if file_end > length {
            return Err(BadProgram::Short);
        }
        if self.file_bytes > self.memory_bytes {
            return Err(BadProgram::Wrong("a segment has less memory than contents"));
        }
        if self.address.checked_add(self.memory_bytes).is_none_or(|end| end > END) {
            return Err(BadProgram::Wrong("a segment lies outside of what addresses there are"));
        }
        if self.address % PAGE != self.offset % PAGE {
            return Err(BadProgram::Wrong("a segment is not where its pages are in the file"));
        }
        let bit = |flag, right| if self.flags & flag != 0 { right } else { 0 };
        let rights = bit(PF_R, PROT_READ) | bit(PF_W, PROT_WRITE) | bit(PF_X, PROT_EXEC);
        Ok(LoadSegment {
            address: self.address,
            memory_bytes: self.memory_bytes,
            offset: self.offset,
            file_bytes: self.file_bytes,
            rights: Rights::from_bits(rights),
        })
    }

    /// Where the interpreter's name is, without its zero.
    fn name(&self, length: u64) -> Result<Range<u64>, BadProgram> {
        if !(2..=NAME_MAX).contains(&self.file_bytes) {
            return Err(BadProgram::Wrong("the name of its interpreter"));
        }
        let end = self.offset.checked_add(self.file_bytes).filter(|end| *end <= length);
        Ok(self.offset..end.ok_or(BadProgram::Short)? - 1)
    }
}

impl LoadSegment {
    /// The whole pages that it lies in.
    pub fn pages(&self) -> Range<u64> {
        let end = self.address + self.memory_bytes;
        self.address - self.address % PAGE..end.next_multiple_of(PAGE)
    }
}

impl Program {
    /// The whole pages that it spans.
    pub fn pages(&self) -> Range<u64> {
        let first = self.segments.first().map_or(0..0, LoadSegment::pages);
        let last = self.segments.last().map_or(0..0, LoadSegment::pages);
        first.start..last.end
    }
}

/// What a script's first line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The program that runs it.
    pub interpreter: Vec<u8>,
    /// What it is told before the script's path: one argument, whatever is in it.
    pub argument: Option<Vec<u8>>,
}

/// Bytes of a file that are looked at for a script's first line, as on Linux.
pub const SCRIPT_LINE_MAX: usize = 255;

/// The first line of a script (execve(2)); nothing if the file is none.
pub fn script(bytes: &[u8]) -> Option<Script> {
    let line = bytes.get(..bytes.len().min(SCRIPT_LINE_MAX))?.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | 0);
    let line = trim(line, is_blank);
    let end = line.iter().position(is_blank).unwrap_or(line.len());
    let (interpreter, rest) = line.split_at(end);
    let rest = trim(rest, is_blank);
    let argument = (!rest.is_empty()).then(|| rest.to_vec());
    (!interpreter.is_empty()).then(|| Script { interpreter: interpreter.to_vec(), argument })
}

fn trim(bytes: &[u8], is_blank: impl Fn(&u8) -> bool) -> &[u8] {
    let start = bytes.iter().position(|byte| !is_blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

#[cfg(test)]
mod tests;
