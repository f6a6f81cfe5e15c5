//! Packs bundles of small programs, and takes the bundle out of the image again.

use super::elf as file;
use nom_image::{Image, Symbols, lower, manifest, pack};
use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

/// Packs the bundle that `manifest` is with a kernel of `code`; every program is [`file::program`].
pub fn packed(manifest: &str, code: Vec<u8>, symbols: Symbols) -> Image {
    let directory = super::directory(manifest);
    let [program, kernel] = ["program.elf", "kernel.elf"].map(|name| directory.path().join(name));
    std::fs::write(&program, file::program().build()).expect("a file");
    std::fs::write(&kernel, file::kernel(code).build()).expect("a file");
    let bundle = manifest::load(directory.path()).unwrap_or_else(|error| panic!("{error}"));
    let lowered = lower(&bundle, |_| Ok(program.clone())).unwrap_or_else(|error| panic!("{error}"));
    pack(&kernel, &lowered, symbols).unwrap_or_else(|error| panic!("{error}"))
}

/// A loadable segment of an image as a loader puts it into memory.
pub struct Loaded {
    pub address: u64,
    pub physical: u64,
    pub flags: u32,
    pub memory: Vec<u8>,
}

/// What a loader makes of an image.
pub fn load(image: &[u8]) -> Vec<Loaded> {
    let header = FileHeader64::<Endianness>::parse(image).expect("an ELF file");
    let endian = header.endian().expect("an endianness");
    let segments = header.program_headers(endian, image).expect("program headers");
    let loads = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    loads
        .map(|segment| {
            let mut memory = segment.data(endian, image).expect("contents in the file").to_vec();
            memory.resize(segment.p_memsz(endian) as usize, 0);
            Loaded {
                address: segment.p_vaddr(endian),
                physical: segment.p_paddr(endian),
                flags: segment.p_flags(endian).0,
                memory,
            }
        })
        .collect()
}

/// The bundle of an image: its last loadable segment.
pub fn bundle(image: &[u8]) -> Vec<u8> {
    load(image).pop().expect("a segment").memory
}
