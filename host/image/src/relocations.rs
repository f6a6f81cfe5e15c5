//! What an application relocates itself at its start must be simple, and it must be able to.

use crate::elf::{ENDIAN, Elf, Load};
use crate::error::Result;
use object::elf::{self, Rela64};
use object::endian::{Endianness, U64};
use object::pod;
use object::read::elf::{Dyn, ProgramHeader, Rela};

/// The dynamic section's entries that matter here.
#[derive(Default)]
struct Dynamic {
    rela: u64,
    rela_bytes: u64,
    relr: u64,
    relr_bytes: u64,
    plt_bytes: u64,
}

/// Checks that every relocation is relative to where the program lies, and changes a writable segment.
pub(crate) fn check(elf: &Elf<'_>, loads: &[Load<'_>]) -> Result<()> {
    let dynamic = dynamic(elf)?;
    if dynamic.plt_bytes != 0 {
        return Err(elf.error("has a procedure linkage table, expected a static executable"));
    }
    let relocations: &[Rela64<Endianness>] = table(elf, loads, (dynamic.rela, dynamic.rela_bytes))?;
    relocations.iter().try_for_each(|relocation| check_one(elf, loads, relocation))?;
    let packed: &[U64<Endianness>] = table(elf, loads, (dynamic.relr, dynamic.relr_bytes))?;
    let places = unpacked(packed.iter().map(|entry| entry.get(ENDIAN)));
    places.into_iter().try_for_each(|target| check_place(elf, loads, target))
}

/// The places of a table of relative relocations (System V gABI): an even entry is one, an odd one says which
/// of the next 63 words are others.
fn unpacked(entries: impl Iterator<Item = u64>) -> Vec<u64> {
    let (mut places, mut next) = (Vec::new(), 0_u64);
    for entry in entries {
        if entry & 1 == 0 {
            places.push(entry);
            next = entry.wrapping_add(8);
            continue;
        }
        places
            .extend((0..63).filter(|bit| entry >> (bit + 1) & 1 != 0).map(|bit| next.wrapping_add(8 * bit)));
        next = next.wrapping_add(8 * 63);
    }
    places
}

fn dynamic(elf: &Elf<'_>) -> Result<Dynamic> {
    let mut found = Dynamic::default();
    for segment in elf.segments(elf::PT_DYNAMIC) {
        let entries = segment.dynamic(ENDIAN, elf.data);
        let entries = entries.map_err(|problem| elf.error(format!("damaged dynamic section: {problem}")))?;
        for entry in entries.unwrap_or_default() {
            let value = entry.d_val(ENDIAN);
            match entry.d_tag(ENDIAN) {
                elf::DT_NULL => break,
                elf::DT_RELA => found.rela = value,
                elf::DT_RELASZ => found.rela_bytes = value,
                elf::DT_PLTRELSZ => found.plt_bytes = value,
                elf::DT_NEEDED => {
                    return Err(elf.error("needs shared libraries, expected a static executable"));
                }
                elf::DT_RELR => found.relr = value,
                elf::DT_RELRSZ => found.relr_bytes = value,
                elf::DT_REL => {
                    return Err(elf.error(
                        "has relocations in a table of DT_REL, expected DT_RELA and DT_RELR: link with \
                         `-z rela`",
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// A table of relocations, so many bytes at an address.
fn table<'d, T: pod::Pod>(
    elf: &Elf<'d>,
    loads: &[Load<'d>],
    (address, length): (u64, u64),
) -> Result<&'d [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    let bytes = loads.iter().filter(|load| load.contains(address, length)).find_map(|load| {
        let start = usize::try_from(address - load.address).ok()?;
        load.contents.get(start..start.checked_add(usize::try_from(length).ok()?)?)
    });
    let table = bytes.and_then(|bytes| {
        let (table, rest) = pod::slice_from_bytes(bytes, bytes.len() / size_of::<T>()).ok()?;
        rest.is_empty().then_some(table)
    });
    table.ok_or_else(|| {
        elf.error(format!("its relocations at {address:#x} ({length} bytes) are not in a segment"))
    })
}

fn check_one(elf: &Elf<'_>, loads: &[Load<'_>], relocation: &Rela64<Endianness>) -> Result<()> {
    let kind = relocation.r_type(ENDIAN, false);
    let target = relocation.r_offset(ENDIAN);
    if kind != elf::R_X86_64_RELATIVE || relocation.r_sym(ENDIAN, false) != 0 {
        return Err(elf.error(format!(
            "the relocation of {} is of kind {}, expected R_X86_64_RELATIVE alone: link statically",
            describe(elf, target),
            kind.0
        )));
    }
    check_place(elf, loads, target)
}

fn check_place(elf: &Elf<'_>, loads: &[Load<'_>], target: u64) -> Result<()> {
    if loads.iter().any(|load| load.writable && load.contains(target, 8)) {
        return Ok(());
    }
    Err(elf.error(format!(
        "{} must be relocated but is in no writable segment, expected it in .data or .data.rel.ro: link \
         with `-z text`, which tells the object file",
        describe(elf, target)
    )))
}

/// An address with the symbol that it is in, if there is one.
fn describe(elf: &Elf<'_>, address: u64) -> String {
    let symbols = elf.symbols().ok();
    let around = symbols
        .iter()
        .flat_map(|symbols| symbols.iter())
        .find(|symbol| address.checked_sub(symbol.address).is_some_and(|offset| offset < symbol.bytes));
    match around {
        Some(symbol) => format!("`{}` at {address:#x}", crate::symbols::readable(symbol.name)),
        None => format!("address {address:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_entry_says_which_of_the_next_words_are_relocated() {
        // As the linker packs 0x1000, 0x1008, 0x1018, 63 words behind the first 0x1200, and 0x2000.
        let entries = [0x1000, 0b1011, 1 | 1 << 2, 0x2000];
        let places = unpacked(entries.into_iter());
        assert_eq!(places, [0x1000, 0x1008, 0x1018, 0x1208, 0x2000]);
    }
}
