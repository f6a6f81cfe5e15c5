use super::*;
use crate::elf::{HEADER_BYTES as ELF_HEADER_BYTES, Header};
use crate::memory::Rights;

const CODE: [u8; 40] = [0x90; 40];
const FUNCTIONS: [(&str, u64); 3] = [("clock_gettime", 0), ("time", 16), ("getcpu", 32)];

fn word(image: &[u8], at: u64) -> u64 {
    u64::from_le_bytes(image[at as usize..][..8].try_into().unwrap())
}

fn half(image: &[u8], at: u64) -> u32 {
    u32::from_le_bytes(image[at as usize..][..4].try_into().unwrap())
}

fn string(image: &[u8], at: u64) -> &str {
    let from = &image[at as usize..];
    core::str::from_utf8(&from[..from.iter().position(|byte| *byte == 0).unwrap()]).unwrap()
}

/// What the dynamic section says under a tag.
fn dynamic(image: &[u8], tag: u64) -> u64 {
    let at = word(image, 64 + 56 + 16);
    let found = (0..).map(|index| at + 16 * index).find(|at| [tag, 0].contains(&word(image, *at))).unwrap();
    assert_eq!(word(image, found), tag, "there is such an entry");
    word(image, found + 8)
}

/// Looks a function up as loaders do: the address, and the version's name.
fn look_up<'a>(image: &'a [u8], name: &str) -> Option<(u64, &'a str)> {
    let (hashes, symbols) = (dynamic(image, DT_HASH), dynamic(image, DT_SYMTAB));
    let strings = dynamic(image, DT_STRTAB);
    let buckets = half(image, hashes);
    let mut index = half(image, hashes + 8 + 4 * u64::from(hash(name) % buckets));
    while index != 0 {
        let symbol = symbols + SYMBOL_BYTES * u64::from(index);
        if string(image, strings + u64::from(half(image, symbol))) == name {
            let version = half(image, dynamic(image, DT_VERSYM) + 2 * u64::from(index)) & 0x7fff;
            return Some((word(image, symbol + 8), version_name(image, version)));
        }
        index = half(image, hashes + 8 + 4 * u64::from(buckets + index));
    }
    None
}

/// The name of the version with this number, whose hash is its name's.
fn version_name(image: &[u8], number: u32) -> &str {
    let mut at = dynamic(image, DT_VERDEF);
    loop {
        if half(image, at + 4) & 0xffff == number {
            let name_at = at + u64::from(half(image, at + 12));
            let name = string(image, dynamic(image, DT_STRTAB) + u64::from(half(image, name_at)));
            assert_eq!(half(image, at + 8), hash(name));
            return name;
        }
        let next = half(image, at + 16);
        assert_ne!(next, 0, "there is such a version");
        at += u64::from(next);
    }
}

#[test]
fn functions_are_found_by_name_and_version() {
    let image = image(&CODE, &FUNCTIONS);
    assert!(image.len() <= PAGE as usize && image.ends_with(&CODE));
    let code = (image.len() - CODE.len()) as u64;
    assert_eq!(code % CODE_ALIGN as u64, 0);
    for (name, offset) in FUNCTIONS {
        let found = look_up(&image, &format!("__vdso_{name}"));
        assert_eq!(found, Some((code + offset, "LINUX_2.6")), "{name}");
    }
    assert_eq!(look_up(&image, "__vdso_gettimeofday"), None);
    let soname = dynamic(&image, DT_STRTAB) + dynamic(&image, DT_SONAME);
    assert_eq!(string(&image, soname), "linux-vdso.so.1");
    assert_eq!(dynamic(&image, DT_VERDEFNUM), 2);
}

#[test]
fn the_hash_is_the_one_that_runtimes_have_written_down() {
    // Go's runtime/vdso_linux_amd64.go and glibc's sysdeps/unix/sysv/linux/dl-vdso.h.
    assert_eq!(hash("LINUX_2.6"), 0x3ae_75f6);
    assert_eq!(hash("__vdso_clock_gettime"), 0xd35_ec75);
    assert_eq!(hash("__vdso_gettimeofday"), 0x315_ca59);
}

#[test]
fn loaders_take_it_for_one_segment_that_is_never_written() {
    let image = image(&CODE, &FUNCTIONS);
    let header = Header::parse(&image[..ELF_HEADER_BYTES]).unwrap();
    let (at, length) = header.table();
    let table = &image[at as usize..][..length];
    let program = header.program(table, image.len() as u64).unwrap();
    assert!(program.is_movable && program.interpreter.is_none());
    let [segment] = program.segments[..] else { panic!("{:?}", program.segments) };
    assert_eq!((segment.address, segment.offset), (0, 0));
    assert_eq!((segment.file_bytes, segment.memory_bytes), (image.len() as u64, image.len() as u64));
    assert_eq!(segment.rights, Rights::READ_EXECUTE);
}

#[test]
fn its_bytes_are_read_as_far_as_they_go() {
    let image = VdsoImage((0..100).collect());
    let mut bytes = [0; 60];
    assert_eq!(image.read_at(0, &mut bytes), Ok(60));
    assert_eq!(image.read_at(60, &mut bytes), Ok(40));
    assert_eq!((bytes[0], bytes[39]), (60, 99));
    assert_eq!(image.read_at(200, &mut bytes), Ok(0));
    assert_eq!(image.mapped_bytes(), PAGE);
}
