//! What the loader tells: the PVH start info (Xen public/arch-x86/hvm/start_info.h).

use crate::memory::Physical;
use core::ffi::CStr;
use nom_kernel_pure::list::List;
use nom_kernel_pure::machine::{PhysAddr, PhysicalMemory};

const MAGIC: u64 = 0x336e_c578;
/// Most entries of the memory map that are kept.
const REGIONS_MAX: usize = 32;
/// Longest command line that is kept.
const COMMAND_LINE_MAX: usize = 2048;

/// One range of physical addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    /// Whether it is ordinary memory that nobody uses.
    pub usable: bool,
    /// Whether it is memory that holds firmware's tables.
    pub tables: bool,
}

/// The start info, copied out of the memory that it lies in.
pub struct StartInfo {
    /// What the loader says of memory.
    pub regions: List<Region, REGIONS_MAX>,
    /// Ends with a zero, if it is not longer.
    command_line: [u8; COMMAND_LINE_MAX],
    /// Physical address of the ACPI root pointer, or 0.
    pub rsdp: u64,
}

impl StartInfo {
    /// Reads the start info at `address`. `None` if there is none or it is older than version 1, which has no
    /// memory map.
    pub fn read(memory: &Physical, address: PhysAddr) -> Option<StartInfo> {
        if memory.read(address) & 0xffff_ffff != MAGIC || memory.read(address) >> 32 < 1 {
            return None;
        }
        let (map, entries) = (memory.read(address + 40), memory.read(address + 48) & 0xffff_ffff);
        let mut info = StartInfo {
            regions: List::default(),
            command_line: [0; COMMAND_LINE_MAX],
            rsdp: memory.read(address + 32),
        };
        for index in 0..entries.min(REGIONS_MAX as u64) {
            let entry = PhysAddr::new(map) + 24 * index;
            let kind = memory.read(entry + 16) & 0xffff_ffff;
            let start = memory.read(entry);
            let end = start + memory.read(entry + 8);
            info.regions.push(Region { start, end, usable: kind == 1, tables: kind == 2 || kind == 3 });
        }
        let command_line = memory.read(address + 24);
        if command_line != 0 {
            memory.read_bytes(PhysAddr::new(command_line), &mut info.command_line);
        }
        Some(info)
    }

    /// The values of `name=value` on the command line.
    pub fn options(&self, name: &'static str) -> impl Iterator<Item = &str> {
        let line = CStr::from_bytes_until_nul(&self.command_line).unwrap_or_default();
        line.to_str()
            .unwrap_or_default()
            .split_ascii_whitespace()
            .filter_map(move |word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// End of the memory below 4 GiB: ordinary memory and the tables that adjoin it.
    pub fn low_end(&self) -> u64 {
        let usable = self.regions.iter().filter(|region| region.usable && region.end <= 1 << 32);
        let mut end = usable.map(|region| region.end).max().unwrap_or(0);
        while let Some(next) = self.regions.iter().find(|region| region.tables && region.start == end) {
            end = next.end;
        }
        end
    }

    /// End of all memory.
    pub fn high_end(&self) -> u64 {
        let usable = self.regions.iter().filter(|region| region.usable);
        usable.map(|region| region.end).max().unwrap_or(0).max(self.low_end())
    }
}
