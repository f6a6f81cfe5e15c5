//! Packs bundles of small programs, and takes the bundle out of the image again.

use super::elf as file;
use nom_abi::image::{Extent, PackedPart, Payload};
use nom_image::{Image, Packing, lower, manifest, pack};
use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use std::path::{Path, PathBuf};
use zerocopy::FromBytes;

/// A loader that does nothing.
const LOADER: [u8; 8] = [0xf4; 8];

/// Packs the bundle that `manifest` is with a kernel of `code`; every program is [`file::program`].
pub fn packed(manifest: &str, code: Vec<u8>, packing: impl Into<Packing>) -> Image {
    packed_behind(&LOADER, manifest, code, packing)
}

/// Likewise, with a loader of one's own.
pub fn packed_behind(loader: &[u8], manifest: &str, code: Vec<u8>, packing: impl Into<Packing>) -> Image {
    let directory = super::directory(manifest);
    let [program, kernel] = ["program.elf", "kernel.elf"].map(|name| directory.path().join(name));
    std::fs::write(&program, file::program().build()).expect("a file");
    std::fs::write(&kernel, file::kernel(code).build()).expect("a file");
    let bundle = manifest::load(directory.path()).unwrap_or_else(|error| panic!("{error}"));
    let lowered = lower(&bundle, |_| Ok(program.clone())).unwrap_or_else(|error| panic!("{error}"));
    let loader = self::loader(directory.path(), loader);
    pack(&loader, &kernel, &lowered, packing).unwrap_or_else(|error| panic!("{error}"))
}

/// Writes the loader of the tests, or of one of them.
pub fn loader(directory: &Path, bytes: &[u8]) -> PathBuf {
    let path = directory.join("loader");
    std::fs::write(&path, bytes).expect("a file");
    path
}

/// Writes a loader that does nothing.
pub fn any_loader(directory: &Path) -> PathBuf {
    loader(directory, &LOADER)
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

/// What the loader of an image is told.
pub fn payload(image: &[u8]) -> Payload {
    let loads = load(image);
    let loader = image.windows(LOADER.len()).position(|bytes| bytes == LOADER).expect("the loader");
    assert_eq!(loads[0].memory[..LOADER.len()], LOADER);
    Payload::read_from_prefix(&image[loader + LOADER.len()..]).expect("a payload").0
}

/// What the loader of an image unpacks: kernel and bundle.
pub fn parts(image: &[u8]) -> [(Extent, Vec<u8>); 2] {
    let streams = load(image).pop().expect("a segment");
    payload(image).parts.map(|PackedPart { stream, target }| {
        let start = stream.start as usize - streams.physical as usize;
        let stream = &streams.memory[start..start + stream.bytes as usize];
        let mut memory = miniz_oxide::inflate::decompress_to_vec(stream).expect("a stream");
        nom_abi::branches::to_distances(&mut memory);
        assert_eq!(memory.len(), target.bytes as usize);
        (target, memory)
    })
}

/// The bundle of an image: what is unpacked of it, and what lies behind that as it is, if anything does.
pub fn bundle(image: &[u8]) -> Vec<u8> {
    let [_, (place, mut bundle)] = parts(image);
    let end = u64::from(place.start + place.bytes);
    let streams = load(image).len() - 1;
    let plain = load(image).into_iter().take(streams).find(|part| part.physical == end);
    bundle.extend(plain.map_or(Vec::new(), |plain| plain.memory));
    let header = nom_abi::image::Bundle::read_from_prefix(&bundle).expect("a bundle").0;
    bundle.truncate(header.bytes as usize);
    bundle
}
