//! The kernel's ELF file, checked and reduced to what a loader reads.

use crate::elf::{ENDIAN, Elf, Load};
use crate::error::Result;
use crate::places;
use crate::symbols::SymbolTable;
use nom_abi::layout::{KERNEL_IMAGE, KERNEL_LOAD};
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use std::path::Path;

/// Type of the note that gives the PVH entry point (Xen, `xen/include/public/elfnote.h`).
pub(crate) const XEN_ELFNOTE_PHYS32_ENTRY: u32 = 18;
/// Owner of that note.
pub(crate) const XEN_NOTE_NAME: &[u8] = b"Xen";

/// A kernel that a PVH loader can start.
pub(crate) struct Kernel<'d> {
    /// Physical entry point in 32-bit protected mode.
    pub pvh_entry: u32,
    pub loads: Vec<Load<'d>>,
    /// Addresses from [`KERNEL_IMAGE`].
    pub symbols: SymbolTable,
    /// List of the places from [`KERNEL_LOAD`] on with addresses of the image, as `nom_abi::relocations` has
    /// it; nothing if the file does not tell.
    pub relocations: Vec<u8>,
}

impl<'d> Kernel<'d> {
    pub fn parse(path: &'d Path, data: &'d [u8]) -> Result<Kernel<'d>> {
        let elf = Elf::parse(path, data)?;
        if elf.header.e_type(ENDIAN) != elf::ET_EXEC {
            return Err(elf.error("no executable at fixed addresses (ET_EXEC), expected the kernel"));
        }
        let loads = elf.loads()?;
        loads.iter().try_for_each(|load| check_place(&elf, load))?;
        Ok(Kernel {
            pvh_entry: pvh_entry(&elf, &loads)?,
            loads,
            symbols: SymbolTable::new(&elf, KERNEL_IMAGE)?,
            relocations: places::list(&elf)?,
        })
    }

    /// Physical address of the first page behind the kernel.
    pub fn physical_end(&self) -> u64 {
        physical_end(&self.loads)
    }
}

fn physical_end(loads: &[Load<'_>]) -> u64 {
    loads.iter().map(|load| load.page_end() - load.address + load.physical).max().unwrap_or(0)
}

/// Bytes of physical memory that reach to the end of a bootable image, `data`, which `path` names. What the
/// kernel and the applications take when they run comes on top.
///
/// # Errors
/// If it is no ELF file with segments to load.
pub fn image_end(path: &Path, data: &[u8]) -> Result<u64> {
    Ok(physical_end(&Elf::parse(path, data)?.loads()?))
}

/// Whether a file is something that boots: it has a PVH entry point.
pub fn is_bootable(path: &Path, data: &[u8]) -> bool {
    let elf = Elf::parse(path, data);
    elf.and_then(|elf| pvh_entry(&elf, &elf.loads()?)).is_ok()
}

fn check_place(elf: &Elf<'_>, load: &Load<'_>) -> Result<()> {
    let linked = load.physical.checked_add(KERNEL_IMAGE);
    if linked == Some(load.address) && load.physical >= KERNEL_LOAD {
        return Ok(());
    }
    Err(elf.error(format!(
        "the segment at {:#x} is loaded at {:#x}, expected a kernel linked at {KERNEL_IMAGE:#x} plus its \
         physical address, which is {KERNEL_LOAD:#x} or higher",
        load.address, load.physical
    )))
}

fn pvh_entry(elf: &Elf<'_>, loads: &[Load<'_>]) -> Result<u32> {
    let missing = || elf.error("has no PVH entry point, expected a note `Xen` of type 18 with its address");
    let entry = elf
        .segments(elf::PT_NOTE)
        .filter_map(|segment| segment.notes(ENDIAN, elf.data).ok()?)
        .flat_map(|notes| notes.filter_map(std::result::Result::ok))
        .find(|note| note.name() == XEN_NOTE_NAME && note.n_type(ENDIAN).0 == XEN_ELFNOTE_PHYS32_ENTRY)
        .and_then(|note| note.desc().first_chunk().map(|bytes| u32::from_le_bytes(*bytes)))
        .ok_or_else(missing)?;
    let inside = |load: &Load<'_>| {
        u64::from(entry).checked_sub(load.physical).is_some_and(|offset| offset < load.memory_bytes)
    };
    match loads.iter().any(|load| load.executable && inside(load)) {
        true => Ok(entry),
        false => Err(elf.error(format!("its PVH entry point {entry:#x} is in no executable segment"))),
    }
}
