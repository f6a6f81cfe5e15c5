//! Where the kernel's image has addresses of itself, by the relocations that its linker kept
//! (`--emit-relocs`): the loader adds to each how far it moves the image.

use crate::elf::{ENDIAN, Elf, Header};
use crate::error::Result;
use nom_abi::layout::{KERNEL_IMAGE, KERNEL_LOAD};
use nom_abi::relocations::FAR;
use object::elf::{self, Rela64};
use object::read::SectionIndex;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::{Endianness, elf::SectionHeader64};
use std::collections::BTreeSet;

/// Bytes of an entry of the global offset table.
const ENTRY_BYTES: u64 = 8;

/// The list, as `nom_abi::relocations` has it; empty if the linker kept no relocations.
///
/// # Errors
/// If the file is damaged, or has relocations of a kind that nobody knows how to move.
pub(crate) fn list(elf: &Elf<'_>) -> Result<Vec<u8>> {
    let damaged = |problem: object::Error| elf.error(format!("damaged section table: {problem}"));
    let sections = elf.header.sections(ENDIAN, elf.data).map_err(damaged)?;
    let symbols = sections.symbols(ENDIAN, elf.data, elf::SHT_SYMTAB).map_err(damaged)?;
    let mut places = BTreeSet::new();
    for section in sections.iter() {
        let Some((relocations, _)) = section.rela(ENDIAN, elf.data).map_err(damaged)? else { continue };
        if is_in_memory(&sections, section) {
            for relocation in relocations {
                places.extend(place(elf, &symbols, relocation)?);
            }
        }
    }
    if !places.is_empty() {
        // What the linker makes itself it keeps no relocations for.
        let table = sections.section_by_name(ENDIAN, b".got").map(|(_, section)| section);
        let range = table.map(|it| it.sh_addr(ENDIAN)..it.sh_addr(ENDIAN) + it.sh_size(ENDIAN));
        places.extend(range.into_iter().flat_map(|it| it.step_by(ENTRY_BYTES as usize)));
    }
    encode(&places).map_err(|place| elf.error(format!("{place:#x} is relocated but not in the image")))
}

/// Whether a section has relocations of something that is loaded.
fn is_in_memory(sections: &SectionTable<'_, Header>, section: &SectionHeader64<Endianness>) -> bool {
    let target = sections.section(SectionIndex(section.sh_info(ENDIAN) as usize));
    target.is_ok_and(|target| target.sh_flags(ENDIAN).contains(elf::SHF_ALLOC))
}

/// Where a relocation put an address that moves with the image, if it did.
fn place(
    elf: &Elf<'_>,
    symbols: &SymbolTable<'_, Header>,
    relocation: &Rela64<Endianness>,
) -> Result<Option<u64>> {
    let at = relocation.r_offset.get(ENDIAN);
    match relocation.r_type(ENDIAN, false) {
        elf::R_X86_64_64 | elf::R_X86_64_32S => {
            let symbol = symbols.symbol(object::SymbolIndex(relocation.r_sym(ENDIAN, false) as usize));
            let is_fixed = symbol.is_ok_and(|symbol| symbol.st_shndx(ENDIAN) == elf::SHN_ABS);
            Ok((!is_fixed).then_some(at))
        }
        // Distances; and physical addresses, which stay.
        elf::R_X86_64_NONE
        | elf::R_X86_64_PC32
        | elf::R_X86_64_PC64
        | elf::R_X86_64_PLT32
        | elf::R_X86_64_GOTPCREL
        | elf::R_X86_64_GOTPCRELX
        | elf::R_X86_64_REX_GOTPCRELX
        | elf::R_X86_64_32 => Ok(None),
        kind => Err(elf.error(format!(
            "the relocation of {at:#x} is of kind {}, expected addresses of 64 or 32 bits, or distances",
            kind.0
        ))),
    }
}

/// The list of these places, by ascending address; or the first that is in no image.
fn encode(places: &BTreeSet<u64>) -> std::result::Result<Vec<u8>, u64> {
    let (mut list, mut last) = (Vec::new(), KERNEL_IMAGE + KERNEL_LOAD);
    for place in places {
        let distance = place.checked_sub(last).and_then(|distance| u32::try_from(distance).ok());
        let distance = distance.ok_or(*place)?;
        match u8::try_from(distance) {
            Ok(near) if near != FAR => list.push(near),
            _ => {
                list.push(FAR);
                list.extend_from_slice(&distance.to_le_bytes());
            }
        }
        last = *place;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_loader_moves_what_is_listed_and_nothing_else(
            words in prop::collection::btree_set(0..20_000_u64, 0..300),
        ) {
            let start = KERNEL_IMAGE + KERNEL_LOAD;
            let places: BTreeSet<u64> = words.iter().map(|word| start + word * 4).collect();
            let mut image = vec![0; 80_000];
            nom_abi::relocations::apply(&mut image, &encode(&places).unwrap(), 0x20_0000);
            for (word, bytes) in (0..).zip(image.chunks_exact(4)) {
                let expected = if words.contains(&word) { 0x20_0000_u32 } else { 0 };
                prop_assert_eq!(bytes, expected.to_le_bytes(), "word {}", word);
            }
        }
    }

    #[test]
    fn what_is_in_no_image_is_named() {
        let below = KERNEL_IMAGE;
        assert_eq!(encode(&BTreeSet::from([below, below + KERNEL_LOAD])), Err(below));
    }
}
