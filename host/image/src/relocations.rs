//! What an application relocates itself at its start must be simple, and it must be able to.

use crate::elf::{ENDIAN, Elf, Load};
use crate::error::Result;
use object::Endianness;
use object::elf::{self, Rela64};
use object::pod;
use object::read::elf::{Dyn, ProgramHeader, Rela};

const RELA_BYTES: u64 = size_of::<Rela64<Endianness>>() as u64;

/// The dynamic section's entries that matter here.
#[derive(Default)]
struct Dynamic {
    rela: u64,
    rela_bytes: u64,
    plt_bytes: u64,
}

/// Checks that every relocation is `R_X86_64_RELATIVE` and changes a writable segment.
pub(crate) fn check(elf: &Elf<'_>, loads: &[Load<'_>]) -> Result<()> {
    let dynamic = dynamic(elf)?;
    if dynamic.plt_bytes != 0 {
        return Err(elf.error("has a procedure linkage table, expected a static executable"));
    }
    relocations(elf, loads, &dynamic)?.iter().try_for_each(|relocation| check_one(elf, loads, relocation))
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
                elf::DT_REL | elf::DT_RELR => {
                    return Err(elf.error(
                        "has relocations in another table than DT_RELA, expected that one alone: link \
                         with `-z rela -z nopack-relative-relocs`",
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

fn relocations<'d>(elf: &Elf<'d>, loads: &[Load<'d>], dynamic: &Dynamic) -> Result<&'d [Rela64<Endianness>]> {
    let Dynamic { rela, rela_bytes, .. } = *dynamic;
    if rela_bytes == 0 {
        return Ok(&[]);
    }
    let bytes = loads.iter().filter(|load| load.contains(rela, rela_bytes)).find_map(|load| {
        let start = usize::try_from(rela - load.address).ok()?;
        load.contents.get(start..start.checked_add(usize::try_from(rela_bytes).ok()?)?)
    });
    let table = bytes.and_then(|bytes| {
        let count = (rela_bytes / RELA_BYTES) as usize;
        let (table, rest) = pod::slice_from_bytes(bytes, count).ok()?;
        rest.is_empty().then_some(table)
    });
    table.ok_or_else(|| {
        elf.error(format!("its relocations at {rela:#x} ({rela_bytes} bytes) are not in a segment"))
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
