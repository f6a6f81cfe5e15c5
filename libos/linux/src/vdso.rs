//! The library that every program finds in its memory without asking (vdso(7)): its C library and runtimes
//! look there for functions that tell the time, and call them in place of system calls.
//!
//! The code is [`nom_sys::program::vdso`]; here it becomes an ELF image as loaders want it: dynamic symbols
//! of version `LINUX_2.6` (gABI, "Dynamic Linking"; LSB, "Symbol Versioning"). Addresses in it count from its
//! start.

use crate::memory::{Contents, PAGE};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use nom_fs::Errno;
use nom_sys::program::vdso;

const NAME: &str = "linux-vdso.so.1";
const VERSION: &str = "LINUX_2.6";
const HEADER_BYTES: u16 = 64;
const ENTRY_BYTES: u16 = 56;
const SYMBOL_BYTES: u64 = 24;
const CODE_ALIGN: usize = 16;
/// What an ELF file begins with: 64 bits, little-endian.
const IDENTITY: [u8; 16] = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0";
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const READ: u32 = 4;
const READ_EXECUTE: u32 = 5;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SYMENT: u64 = 11;
const DT_SONAME: u64 = 14;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERDEFNUM: u64 = 0x6fff_fffd;
/// A global function.
const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;
/// Of a symbol that is defined: there are no sections, so any number will do that says nothing else.
const SOME_SECTION: u16 = 1;
/// The version that stands for the library itself, and the one of its functions.
const BASE: u16 = 1;
const OWN: u16 = 2;

/// The image in memory, which is mapped into each process.
#[derive(Debug)]
pub(crate) struct VdsoImage(Vec<u8>);

impl VdsoImage {
    /// The one of this machine.
    pub fn new() -> Rc<VdsoImage> {
        let mut code = vec![0; vdso::bytes()];
        vdso::write(&mut code, crate::runners::processors());
        let functions = vdso::FUNCTIONS.iter().enumerate();
        let functions: Vec<_> = functions.map(|(index, name)| (*name, vdso::offset(index))).collect();
        Rc::new(VdsoImage(image(&code, &functions)))
    }

    /// Bytes of the pages that it takes.
    pub fn mapped_bytes(&self) -> u64 {
        self.len().next_multiple_of(PAGE)
    }
}

impl Contents for VdsoImage {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        let start = offset.min(self.len()) as usize;
        let count = (self.0.len() - start).min(bytes.len());
        bytes[..count].copy_from_slice(&self.0[start..start + count]);
        Ok(count)
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// The hash of a symbol's name (gABI, "Hash Table").
fn hash(name: &str) -> u32 {
    name.bytes().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        (hash ^ (hash & 0xf000_0000) >> 24) & 0x0fff_ffff
    })
}

/// Strings, one behind the other.
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, string: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend_from_slice(string.as_bytes());
        self.0.push(0);
        at
    }
}

/// The tables that loaders look functions up in.
struct Tables {
    symbols: Vec<u8>,
    hashes: Vec<u8>,
    versions: Vec<u8>,
    definitions: Vec<u8>,
    strings: Vec<u8>,
    name: u32,
}

impl Tables {
    /// Of functions at these offsets behind `code`.
    fn of(functions: &[(&str, u64)], code: u64) -> Tables {
        let mut strings = Strings(vec![0]);
        let (mut symbols, mut versions) = (vec![0; SYMBOL_BYTES as usize], vec![0; 2]);
        for (name, offset) in functions {
            let name: String = format!("__vdso_{name}");
            symbols.extend(strings.add(&name).to_le_bytes());
            symbols.extend([GLOBAL_FUNCTION, 0]);
            symbols.extend(SOME_SECTION.to_le_bytes());
            [code + offset, 0].iter().for_each(|word| symbols.extend(word.to_le_bytes()));
            versions.extend(OWN.to_le_bytes());
        }
        // One bucket, whose chain has all.
        let count = functions.len() as u32 + 1;
        let chain = (1..count).map(|index| (index + 1) % count);
        let words: Vec<u32> = [1, count, 1, 0].into_iter().chain(chain).collect();
        let hashes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (name, version) = (strings.add(NAME), strings.add(VERSION));
        let definitions =
            [definition(BASE, NAME, name, DEFINITION_BYTES), definition(OWN, VERSION, version, 0)];
        let (definitions, strings) = (definitions.concat(), strings.0);
        Tables { symbols, hashes, versions, definitions, strings, name }
    }
}

/// Bytes of a version's definition with its name.
const DEFINITION_BYTES: u32 = 28;

/// A version's definition: its number, and where the next is.
fn definition(number: u16, name: &str, string: u32, next: u32) -> Vec<u8> {
    const ONE_NAME: u16 = 1;
    const NAME_AT: u32 = 20;
    let is_base = u16::from(number == BASE);
    let halves = [1, is_base, number, ONE_NAME];
    let words = [hash(name), NAME_AT, next, string, 0];
    let halves = halves.iter().flat_map(|half| half.to_le_bytes());
    halves.chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
}

/// An image with this code, in which functions are at these offsets.
fn image(code: &[u8], functions: &[(&str, u64)]) -> Vec<u8> {
    const DYNAMIC_WORDS: usize = 20;
    let sized = Tables::of(functions, 0);
    let parts = [&sized.symbols, &sized.hashes, &sized.definitions, &sized.versions, &sized.strings];
    let mut at = usize::from(HEADER_BYTES + 2 * ENTRY_BYTES) + 8 * DYNAMIC_WORDS;
    let dynamic_at = (at - 8 * DYNAMIC_WORDS) as u64;
    let places = parts.map(|part| {
        let place = at as u64;
        at = (at + part.len()).next_multiple_of(8);
        place
    });
    let code_at = at.next_multiple_of(CODE_ALIGN);
    let tables = Tables::of(functions, code_at as u64);
    let [symbols, hashes, definitions, versions, strings] = places;
    let dynamic: [u64; DYNAMIC_WORDS] = [
        [DT_SONAME, tables.name.into()],
        [DT_HASH, hashes],
        [DT_STRTAB, strings],
        [DT_SYMTAB, symbols],
        [DT_STRSZ, tables.strings.len() as u64],
        [DT_SYMENT, SYMBOL_BYTES],
        [DT_VERSYM, versions],
        [DT_VERDEF, definitions],
        [DT_VERDEFNUM, 2],
        [0, 0],
    ]
    .concat()
    .try_into()
    .expect("as many words");
    let mut image = header();
    image.extend(entry(PT_LOAD, READ_EXECUTE, 0, (code_at + code.len()) as u64, PAGE));
    image.extend(entry(PT_DYNAMIC, READ, dynamic_at, 8 * DYNAMIC_WORDS as u64, 8));
    dynamic.iter().for_each(|word| image.extend(word.to_le_bytes()));
    let parts = [tables.symbols, tables.hashes, tables.definitions, tables.versions, tables.strings];
    for (place, part) in places.into_iter().zip(parts) {
        image.resize(place as usize, 0);
        image.extend(part);
    }
    image.resize(code_at, 0);
    image.extend_from_slice(code);
    image
}

fn header() -> Vec<u8> {
    const SHARED: u16 = 3;
    const X86_64: u16 = 62;
    let mut header = IDENTITY.to_vec();
    [SHARED, X86_64].iter().for_each(|half| header.extend(half.to_le_bytes()));
    header.extend(1_u32.to_le_bytes());
    // No entry, no sections.
    [0, u64::from(HEADER_BYTES), 0].iter().for_each(|word| header.extend(word.to_le_bytes()));
    header.extend([0; 4]);
    let halves = [HEADER_BYTES, ENTRY_BYTES, 2, 64, 0, 0];
    halves.iter().for_each(|half| header.extend(half.to_le_bytes()));
    header
}

fn entry(kind: u32, flags: u32, at: u64, bytes: u64, align: u64) -> Vec<u8> {
    let words = [at, at, at, bytes, bytes, align];
    let head = [kind, flags].into_iter().flat_map(u32::to_le_bytes);
    head.chain(words.into_iter().flat_map(u64::to_le_bytes)).collect()
}

#[cfg(test)]
mod tests;
