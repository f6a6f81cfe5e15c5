//! An ELF file with what kernel and applications have in common.

use crate::error::{Error, Result};
use nom_abi::Protection;
use nom_abi::memory::FRAME_BYTES;
use object::Endianness;
use object::elf::{self, FileHeader64, ProgramHeader64, Sym64};
use object::read::SectionIndex;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use std::path::Path;

pub(crate) type Header = FileHeader64<Endianness>;
type Segment = ProgramHeader64<Endianness>;

/// The byte order of every file that gets past [`Elf::parse`].
pub(crate) const ENDIAN: Endianness = Endianness::Little;

/// A 64-bit little-endian ELF file for x86-64.
pub(crate) struct Elf<'d> {
    pub path: &'d Path,
    pub data: &'d [u8],
    pub header: &'d Header,
    pub headers: &'d [Segment],
}

/// A loadable segment (`PT_LOAD`) that is not empty; its ranges do not overflow and its contents are in
/// the file.
#[derive(Clone, Copy)]
pub(crate) struct Load<'d> {
    pub address: u64,
    pub physical: u64,
    pub memory_bytes: u64,
    pub contents: &'d [u8],
    pub writable: bool,
    pub executable: bool,
}

impl<'d> Elf<'d> {
    pub fn parse(path: &'d Path, data: &'d [u8]) -> Result<Elf<'d>> {
        let error = |problem: &str| Error::Elf { path: path.to_owned(), problem: problem.to_owned() };
        let header = Header::parse(data)
            .map_err(|_| error("no 64-bit ELF file, expected an executable for x86-64"))?;
        let machine = (header.is_little_endian(), header.e_machine(ENDIAN));
        if machine != (true, elf::EM_X86_64) {
            return Err(error("made for another processor, expected x86-64"));
        }
        let headers = header
            .program_headers(ENDIAN, data)
            .map_err(|problem| error(&format!("damaged program headers: {problem}")))?;
        Ok(Elf { path, data, header, headers })
    }

    pub fn error(&self, problem: impl Into<String>) -> Error {
        Error::Elf { path: self.path.to_owned(), problem: problem.into() }
    }

    /// The loadable segments, by ascending address and apart from each other.
    pub fn loads(&self) -> Result<Vec<Load<'d>>> {
        let loadable = self.segments(elf::PT_LOAD).filter(|segment| segment.p_memsz(ENDIAN) != 0);
        let mut loads = loadable.map(|segment| self.load(segment)).collect::<Result<Vec<_>>>()?;
        if loads.is_empty() {
            return Err(self.error("nothing to load, expected an executable"));
        }
        loads.sort_by_key(|load| load.address);
        for pair in loads.windows(2) {
            self.check_apart(&pair[0], &pair[1])?;
        }
        Ok(loads)
    }

    pub fn segments(&self, kind: elf::ProgramType) -> impl Iterator<Item = &'d Segment> + use<'d> {
        self.headers.iter().filter(move |segment| segment.p_type(ENDIAN) == kind)
    }

    fn load(&self, segment: &'d Segment) -> Result<Load<'d>> {
        let flags = segment.p_flags(ENDIAN);
        let load = Load {
            address: segment.p_vaddr(ENDIAN),
            physical: segment.p_paddr(ENDIAN),
            memory_bytes: segment.p_memsz(ENDIAN),
            contents: segment.data(ENDIAN, self.data).unwrap_or_default(),
            writable: flags.contains(elf::PF_W),
            executable: flags.contains(elf::PF_X),
        };
        let address = load.address;
        let fits = |start: u64| start.checked_add(load.memory_bytes)?.checked_next_multiple_of(FRAME_BYTES);
        if fits(address).is_none() || fits(load.physical).is_none() {
            return Err(self.error(format!("the segment at {address:#x} leaves the address space")));
        }
        let file_bytes = segment.p_filesz(ENDIAN);
        if file_bytes > load.memory_bytes {
            return Err(
                self.error(format!("the segment at {address:#x} is larger in the file than in memory"))
            );
        }
        if load.contents.len() as u64 != file_bytes {
            return Err(self.error(format!("the segment at {address:#x} is not wholly in the file")));
        }
        if load.writable && load.executable {
            return Err(self.error(format!(
                "the segment at {address:#x} is writable and executable, expected one or the other"
            )));
        }
        Ok(load)
    }

    fn check_apart(&self, low: &Load<'_>, high: &Load<'_>) -> Result<()> {
        if low.page_end() <= high.page() {
            return Ok(());
        }
        Err(self.error(format!(
            "the segments at {:#x} and {:#x} share a page, expected pages of their own: link with \
             `-z separate-loadable-segments`",
            low.address, high.address
        )))
    }

    /// Contents of the section with this name, if there is one.
    pub fn section(&self, name: &str) -> Result<Option<&'d [u8]>> {
        let damaged = |problem: object::Error| self.error(format!("damaged section table: {problem}"));
        let sections = self.header.sections(ENDIAN, self.data).map_err(damaged)?;
        let found = sections.section_by_name(ENDIAN, name.as_bytes());
        found.map(|(_, section)| section.data(ENDIAN, self.data).map_err(damaged)).transpose()
    }

    /// All symbols; none if the file is stripped.
    pub fn symbols(&self) -> Result<Symbols<'d>> {
        let damaged = |problem: object::Error| self.error(format!("damaged symbol table: {problem}"));
        let sections = self.header.sections(ENDIAN, self.data).map_err(damaged)?;
        let table = sections.symbols(ENDIAN, self.data, elf::SHT_SYMTAB).map_err(damaged)?;
        Ok(Symbols { sections, table })
    }
}

impl Load<'_> {
    /// First byte of the first page.
    pub fn page(&self) -> u64 {
        self.address & !(FRAME_BYTES - 1)
    }

    /// End of the last page.
    pub fn page_end(&self) -> u64 {
        (self.address + self.memory_bytes).next_multiple_of(FRAME_BYTES)
    }

    pub fn protection(&self) -> Protection {
        match (self.writable, self.executable) {
            (true, _) => Protection::ReadWrite,
            (false, true) => Protection::ReadExecute,
            (false, false) => Protection::Read,
        }
    }

    /// Whether `bytes` bytes at `address` are inside.
    pub fn contains(&self, address: u64, bytes: u64) -> bool {
        let offset = address.checked_sub(self.address);
        offset.and_then(|offset| offset.checked_add(bytes)).is_some_and(|end| end <= self.memory_bytes)
    }
}

/// Symbol table with the sections that the symbols are in.
pub(crate) struct Symbols<'d> {
    sections: SectionTable<'d, Header>,
    table: SymbolTable<'d, Header>,
}

/// A defined symbol with a name.
pub(crate) struct Named<'d> {
    pub name: &'d str,
    pub address: u64,
    pub bytes: u64,
    pub kind: elf::SymbolType,
    /// Index of its section.
    section: usize,
}

impl<'d> Symbols<'d> {
    pub fn iter(&self) -> impl Iterator<Item = Named<'d>> {
        self.table.iter().filter_map(|symbol| self.named(symbol))
    }

    fn named(&self, symbol: &'d Sym64<Endianness>) -> Option<Named<'d>> {
        let name = str::from_utf8(self.table.symbol_name(ENDIAN, symbol).ok()?).ok()?;
        let section = symbol.st_shndx(ENDIAN);
        (!name.is_empty() && section != elf::SHN_UNDEF && section.0 < elf::SHN_LORESERVE).then(|| Named {
            name,
            address: symbol.st_value(ENDIAN),
            bytes: symbol.st_size(ENDIAN),
            kind: symbol.st_type(),
            section: section.0.into(),
        })
    }

    /// Whether a symbol is inside of a section with instructions, not at its end.
    pub fn in_text(&self, symbol: &Named<'_>) -> bool {
        self.sections.section(SectionIndex(symbol.section)).is_ok_and(|section| {
            let offset = symbol.address.checked_sub(section.sh_addr(ENDIAN));
            section.sh_flags(ENDIAN).contains(elf::SHF_EXECINSTR)
                && offset.is_some_and(|offset| offset < section.sh_size(ENDIAN))
        })
    }
}
