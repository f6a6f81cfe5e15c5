//! Makes small ELF files, good ones and bad ones.

use object::Endianness::{self, Little};
use object::elf::{self, FileHeader64, Ident, ProgramHeader64, SectionHeader64, Sym64};
use object::{U16, U32, U64, pod};

pub const R: u32 = 4;
pub const RX: u32 = 5;
pub const RW: u32 = 6;

/// An ELF file to be written.
pub struct ElfFile {
    pub class: elf::FileClass,
    pub data: elf::DataEncoding,
    pub machine: elf::Machine,
    pub kind: elf::FileType,
    pub entry: u64,
    pub segments: Vec<Segment>,
    pub symbols: Vec<Symbol>,
}

pub struct Segment {
    pub kind: elf::ProgramType,
    pub flags: u32,
    pub address: u64,
    pub physical: u64,
    pub memory_bytes: u64,
    /// Bytes in the file, as the header has it.
    pub file_bytes: u64,
    pub contents: Vec<u8>,
}

/// A symbol; its section is the executable one if its address is in there.
pub struct Symbol {
    pub name: &'static str,
    pub address: u64,
    pub bytes: u64,
    pub kind: elf::SymbolType,
}

impl Segment {
    pub fn new(kind: elf::ProgramType, flags: u32, address: u64, contents: Vec<u8>) -> Segment {
        let bytes = contents.len() as u64;
        Segment { kind, flags, address, physical: address, memory_bytes: bytes, file_bytes: bytes, contents }
    }
}

impl Symbol {
    pub fn function(name: &'static str, address: u64, bytes: u64) -> Symbol {
        Symbol { name, address, bytes, kind: elf::STT_FUNC }
    }
}

/// A relocation of the program that [`program`] makes.
pub fn relocation(target: u64, kind: u32) -> Vec<u8> {
    words(&[target, kind.into(), 0x1000])
}

pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The dynamic section of a program with `count` relocations at address 0x40.
pub fn dynamic(count: u64) -> Vec<u8> {
    words(&[7, 0x40, 8, 24 * count, 9, 24, 0, 0])
}

/// Where the program's writable segment starts: not at a page's first byte.
pub const DATA: u64 = 0x3010;

/// A good application: read-only data with one relocation, 0x1100 bytes of code, data of which most is zero.
pub fn program() -> ElfFile {
    let rodata = [vec![0xaa; 0x40], relocation(DATA, 8)].concat();
    let code: Vec<u8> = (0..0x1100).map(|byte| (byte % 251) as u8 | 1).collect();
    let data = [vec![1, 2, 3, 4, 5, 6, 7, 8], vec![0; 0x20]].concat();
    let mut segments = vec![
        Segment::new(elf::PT_LOAD, R, 0, rodata),
        Segment::new(elf::PT_LOAD, RX, 0x1000, code),
        Segment::new(elf::PT_LOAD, RW, DATA, data),
        Segment::new(elf::PT_DYNAMIC, RW, DATA + 8, dynamic(1)),
    ];
    segments[2].memory_bytes = 0x2000;
    ElfFile {
        class: elf::ELFCLASS64,
        data: elf::ELFDATA2LSB,
        machine: elf::EM_X86_64,
        kind: elf::ET_DYN,
        entry: 0x1010,
        segments,
        symbols: vec![
            Symbol::function("_start", 0x1010, 0x20),
            Symbol::function("_RNvNtCs1dzzKqUvCVo_4core3fmt5write", 0x1040, 0x40),
            Symbol { name: "VALUE", address: DATA, bytes: 8, kind: elf::STT_OBJECT },
        ],
    }
}

/// Where the kernel of the tests starts.
pub const KERNEL: u64 = nom_abi::layout::KERNEL_LOAD;

/// A kernel whose only segments are `code` at [`KERNEL`] and some memory behind it.
pub fn kernel(code: Vec<u8>) -> ElfFile {
    const IMAGE: u64 = nom_abi::layout::KERNEL_IMAGE;
    let at = |physical: u64, flags, contents: Vec<u8>| Segment {
        physical,
        ..Segment::new(elf::PT_LOAD, flags, IMAGE + physical, contents)
    };
    let note = [4_u32, 4, 18, u32::from_le_bytes(*b"Xen\0"), KERNEL as u32];
    let note = note.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut segments = vec![
        at(KERNEL, RX, code),
        at(KERNEL + 0x1000, RW, vec![7; 16]),
        Segment::new(elf::PT_NOTE, R, 0, note),
    ];
    segments[1].memory_bytes = 0x1800;
    ElfFile {
        kind: elf::ET_EXEC,
        entry: IMAGE + KERNEL,
        segments,
        symbols: vec![Symbol::function("kernel_entry", IMAGE + KERNEL, 8)],
        ..program()
    }
}

impl ElfFile {
    pub fn build(&self) -> Vec<u8> {
        let headers_end = size_of::<FileHeader64<Endianness>>()
            + self.segments.len() * size_of::<ProgramHeader64<Endianness>>();
        let mut body: Vec<u8> = Vec::new();
        let mut headers = Vec::new();
        for segment in &self.segments {
            headers.push(segment.header(headers_end + body.len()));
            body.extend_from_slice(&segment.contents);
        }
        let sections = self.sections(headers_end, &mut body);
        let header = self.header(headers_end + body.len(), sections.len());
        let headers = [pod::bytes_of(&header), pod::bytes_of_slice(&headers)].concat();
        [headers, body, pod::bytes_of_slice(&sections).to_vec()].concat()
    }

    /// No section, the text, the symbol table, and the strings of symbols and sections.
    fn sections(&self, start: usize, body: &mut Vec<u8>) -> Vec<SectionHeader64<Endianness>> {
        let mut strings = b"\0.text\0".to_vec();
        let mut symbols = vec![self.symbol(None, 0)];
        for symbol in &self.symbols {
            symbols.push(self.symbol(Some(symbol), strings.len()));
            strings.extend_from_slice(symbol.name.as_bytes());
            strings.push(0);
        }
        let mut add = |bytes: &[u8]| {
            body.extend_from_slice(bytes);
            (start + body.len() - bytes.len(), bytes.len())
        };
        let symbols = add(pod::bytes_of_slice(&symbols));
        let strings = add(&strings);
        let text = self.text();
        let text = text.map_or((0, 0), |text| (text.address, text.contents.len() as u64));
        vec![
            section(elf::SHT_NULL, 0, 0, (0, 0), 0),
            section(elf::SHT_NOBITS, 6, text.0, (0, text.1 as usize), 0),
            section(elf::SHT_SYMTAB, 0, 0, symbols, 3),
            section(elf::SHT_STRTAB, 0, 0, strings, 0),
        ]
    }

    fn text(&self) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.flags == RX)
    }

    fn symbol(&self, symbol: Option<&Symbol>, name: usize) -> Sym64<Endianness> {
        let in_text = |address: u64| {
            self.text().is_some_and(|text| (text.address..text.address + 0x10_0000).contains(&address))
        };
        let section = match symbol {
            Some(symbol) if in_text(symbol.address) => 1,
            Some(_) => 3,
            None => 0,
        };
        Sym64 {
            st_name: U32::new(Little, if symbol.is_some() { name as u32 } else { 0 }),
            st_info: elf::SymbolInfo(symbol.map_or(0, |symbol| 0x10 | symbol.kind.0)),
            st_other: elf::SymbolOther(0),
            st_shndx: U16::new(Little, elf::SymbolSection(section)),
            st_value: U64::new(Little, symbol.map_or(0, |symbol| symbol.address)),
            st_size: U64::new(Little, symbol.map_or(0, |symbol| symbol.bytes)),
        }
    }

    fn header(&self, section_offset: usize, sections: usize) -> FileHeader64<Endianness> {
        FileHeader64 {
            e_ident: Ident {
                magic: elf::ELFMAG,
                class: self.class,
                data: self.data,
                version: elf::EV_CURRENT,
                os_abi: elf::ELFOSABI_SYSV,
                abi_version: 0,
                padding: [0; 7],
            },
            e_type: U16::new(Little, self.kind),
            e_machine: U16::new(Little, self.machine),
            e_version: U32::new(Little, 1),
            e_entry: U64::new(Little, self.entry),
            e_phoff: U64::new(Little, size_of::<FileHeader64<Endianness>>() as u64),
            e_shoff: U64::new(Little, section_offset as u64),
            e_flags: U32::new(Little, elf::FileFlags(0)),
            e_ehsize: U16::new(Little, size_of::<FileHeader64<Endianness>>() as u16),
            e_phentsize: U16::new(Little, size_of::<ProgramHeader64<Endianness>>() as u16),
            e_phnum: U16::new(Little, self.segments.len() as u16),
            e_shentsize: U16::new(Little, size_of::<SectionHeader64<Endianness>>() as u16),
            e_shnum: U16::new(Little, sections as u16),
            e_shstrndx: U16::new(Little, elf::SymbolSection(3)),
        }
    }
}

impl Segment {
    fn header(&self, offset: usize) -> ProgramHeader64<Endianness> {
        ProgramHeader64 {
            p_type: U32::new(Little, self.kind),
            p_flags: U32::new(Little, elf::ProgramFlags(self.flags)),
            p_offset: U64::new(Little, offset as u64),
            p_vaddr: U64::new(Little, self.address),
            p_paddr: U64::new(Little, self.physical),
            p_filesz: U64::new(Little, self.file_bytes),
            p_memsz: U64::new(Little, self.memory_bytes),
            p_align: U64::new(Little, 4),
        }
    }
}

fn section(
    kind: elf::SectionType,
    flags: u64,
    address: u64,
    (offset, bytes): (usize, usize),
    link: u32,
) -> SectionHeader64<Endianness> {
    let entry = if kind == elf::SHT_SYMTAB { size_of::<Sym64<Endianness>>() } else { 0 };
    SectionHeader64 {
        sh_name: U32::new(Little, 1),
        sh_type: U32::new(Little, kind),
        sh_flags: U64::new(Little, elf::SectionFlags(flags)),
        sh_addr: U64::new(Little, address),
        sh_offset: U64::new(Little, offset as u64),
        sh_size: U64::new(Little, bytes as u64),
        sh_link: U32::new(Little, link),
        sh_info: U32::new(Little, 1),
        sh_addralign: U64::new(Little, 1),
        sh_entsize: U64::new(Little, entry as u64),
    }
}
