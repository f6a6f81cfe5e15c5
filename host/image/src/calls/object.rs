//! A program or a library, as far as it matters for which system calls it can make: where its functions
//! begin, what it offers and wants by name, and which words hold addresses of functions.

use crate::error::Result;
use crate::root::error;
use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind, SymbolKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a word that is filled when the object is loaded will hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The address of what has this name.
    Named(String),
    /// An address in the object itself.
    Own(u64),
}

/// A program or a library.
pub(super) struct ElfObject {
    /// Its path in the root.
    pub path: String,
    /// Its code: address and bytes of each section.
    code: Vec<(u64, Vec<u8>)>,
    /// Where its functions begin, in order.
    starts: Vec<u64>,
    /// Names of functions, for people.
    names: BTreeMap<u64, String>,
    /// What it offers by name.
    pub exports: BTreeMap<String, Vec<u64>>,
    /// Words that are filled when it is loaded.
    pub words: BTreeMap<u64, Word>,
    /// Functions whose addresses are in its data.
    pub pointed: BTreeSet<u64>,
    /// Where it begins if it is run.
    pub entry: u64,
}

impl ElfObject {
    /// Reads one.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn read(path: &str, data: &[u8]) -> Result<ElfObject> {
        let damaged = |problem: object::Error| error(Path::new(path), format!("damaged: {problem}"));
        let file: ElfFile64<'_, Endianness> = ElfFile64::parse(data).map_err(damaged)?;
        let mut object = ElfObject {
            path: path.to_owned(),
            code: Vec::new(),
            starts: Vec::new(),
            names: BTreeMap::new(),
            exports: BTreeMap::new(),
            words: BTreeMap::new(),
            pointed: BTreeSet::new(),
            entry: file.elf_header().e_entry(Endianness::Little),
        };
        let mut starts = BTreeSet::from([object.entry]);
        for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
            let bytes = section.uncompressed_data().map_err(damaged)?.into_owned();
            starts.insert(section.address());
            if section.name().is_ok_and(|name| name.starts_with(".plt")) {
                // Each entry is a way to a function of another object.
                const ENTRY: usize = 16;
                let entries = (0..bytes.len() as u64).step_by(ENTRY);
                starts.extend(entries.map(|at| section.address().wrapping_add(at)));
            }
            object.code.push((section.address(), bytes));
        }
        object.add_symbols(&file, &mut starts);
        if let Some(section) = file.section_by_name(".eh_frame_hdr") {
            let table = section.data().map_err(damaged)?;
            starts.extend(unwound(table, section.address()));
        }
        object.starts = starts.into_iter().filter(|start| object.is_code(*start)).collect();
        object.add_words(&file);
        Ok(object)
    }

    fn add_symbols(&mut self, file: &ElfFile64<'_, Endianness>, starts: &mut BTreeSet<u64>) {
        let is_function = |kind| matches!(kind, SymbolKind::Text | SymbolKind::Unknown);
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if let Ok(name) = symbol.name()
                && !symbol.is_undefined()
                && is_function(symbol.kind())
            {
                starts.insert(symbol.address());
                self.names.entry(symbol.address()).or_insert_with(|| name.to_owned());
            }
        }
        for symbol in file.dynamic_symbols().filter(|symbol| !symbol.is_undefined()) {
            if let Ok(name) = symbol.name() {
                self.exports.entry(name.to_owned()).or_default().push(symbol.address());
            }
        }
    }

    fn add_words(&mut self, file: &ElfFile64<'_, Endianness>) {
        for (place, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let word = match relocation.target() {
                RelocationTarget::Symbol(index) => file
                    .dynamic_symbol_table()
                    .and_then(|table| object::ObjectSymbolTable::symbol_by_index(&table, index).ok())
                    .and_then(|symbol| symbol.name().ok().map(|name| Word::Named(name.to_owned()))),
                _ => u64::try_from(relocation.addend()).ok().map(Word::Own),
            };
            if let Some(Word::Own(address)) = word
                && self.begins(address)
            {
                self.pointed.insert(address);
            }
            self.words.extend(word.map(|word| (place, word)));
        }
        // Relative ones may be in a form that leaves the address in the data (RELR), and programs at a fixed
        // address have no others.
        let data = [SectionKind::Data, SectionKind::ReadOnlyData];
        for section in file.sections().filter(|section| data.contains(&section.kind())) {
            let bytes = section.data().unwrap_or_default();
            let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
            let found: Vec<u64> = words.filter(|word| self.begins(*word)).collect();
            self.pointed.extend(found);
        }
    }

    /// The functions' places.
    pub fn functions(&self) -> impl Iterator<Item = u64> {
        self.starts.iter().copied()
    }

    /// Whether a function begins there.
    fn begins(&self, address: u64) -> bool {
        self.starts.binary_search(&address).is_ok()
    }

    /// Whether there is code.
    fn is_code(&self, address: u64) -> bool {
        self.section(address).is_some()
    }

    fn section(&self, address: u64) -> Option<&(u64, Vec<u8>)> {
        self.code.iter().find(|(start, bytes)| address >= *start && address - start < bytes.len() as u64)
    }

    /// Where the function begins that has this address in it.
    pub fn function_at(&self, address: u64) -> Option<u64> {
        self.section(address)?;
        let behind = self.starts.partition_point(|start| *start <= address);
        self.starts.get(behind.checked_sub(1)?).copied()
    }

    /// The bytes of a function: those before the next.
    pub fn bytes(&self, function: u64) -> &[u8] {
        let Some((start, bytes)) = self.section(function) else { return &[] };
        let behind = self.starts.partition_point(|start| *start <= function);
        let end = self.starts.get(behind).map_or(u64::MAX, |next| next - start);
        &bytes[(function - start) as usize..bytes.len().min(usize::try_from(end).unwrap_or(usize::MAX))]
    }

    /// What people call a function.
    pub fn name(&self, function: u64) -> String {
        let file = self.path.rsplit('/').next().unwrap_or(&self.path);
        match self.names.get(&function) {
            Some(name) => format!("{name} ({file})"),
            None => format!("{function:#x} ({file})"),
        }
    }
}

/// Where functions begin, by the table that unwinding looks them up in (Linux Standard Base,
/// `.eh_frame_hdr`), if that has the usual form.
fn unwound(table: &[u8], address: u64) -> Vec<u64> {
    /// Version 1, a relative pointer, a count of 4 bytes, pairs of 4 bytes that count from the table.
    const USUAL: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    const HEAD: usize = 12;
    const PAIR: usize = 8;
    if !table.starts_with(&USUAL) {
        return Vec::new();
    }
    let pairs = table.get(HEAD..).unwrap_or_default().chunks_exact(PAIR);
    let start = |pair: &[u8]| i32::from_le_bytes(pair[..4].try_into().expect("four bytes"));
    pairs.map(|pair| address.wrapping_add_signed(start(pair).into())).collect()
}
