//! What a processor remembers: translations until it is told to forget them, and vector registers.

use crate::machine::{PhysAddr, Reflection};
use crate::testing::FakeMemory;
use std::collections::BTreeMap;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// One core's state that the kernel changes through its machine.
#[derive(Default)]
pub struct Processor {
    /// The root that is loaded; `None` for the kernel's own.
    pub root: Option<PhysAddr>,
    /// Physical page of each page that it has touched, and whether it may write there. Nothing leaves this
    /// but by [`Processor::load`] and [`Processor::forget`], as in hardware that never evicts.
    known: BTreeMap<u64, (u64, bool)>,
    /// Stands for its vector registers.
    pub vector: u64,
    /// Where FS and GS begin.
    pub bases: [u64; 2],
    /// Where system calls go that are not for this kernel.
    pub reflection: Option<Reflection>,
}

impl Processor {
    /// Loads a root. The same one again changes nothing.
    pub fn load(&mut self, root: Option<PhysAddr>) {
        if self.root != root {
            self.root = root;
            self.forget();
        }
    }

    /// Forgets all translations.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// Forgets translations of so many bytes, and no other.
    pub fn forget_pages(&mut self, address: u64, length: u64) {
        self.known.retain(|page, _| page.wrapping_sub(address) >= length);
    }

    /// The physical address that ring 3 reaches at `address`, if it does.
    pub fn touch(&mut self, memory: &FakeMemory, address: u64, write: bool) -> Option<u64> {
        let page = address & !0xfff;
        let is_known = self.known.get(&page).is_some_and(|(_, writable)| *writable || !write);
        if !is_known {
            let found = walk(memory, self.root?, address)?;
            self.known.insert(page, found);
        }
        let (physical, writable) = self.known[&page];
        (writable || !write).then_some(physical | address & 0xfff)
    }
}

/// Walks the page tables as the processor does: the physical page, and whether it may be written.
fn walk(memory: &FakeMemory, root: PhysAddr, address: u64) -> Option<(u64, bool)> {
    let (mut table, mut rights) = (root.word(), WRITABLE | USER);
    for level in (1..=4).rev() {
        let shift = 12 + 9 * (level - 1);
        let entry = memory.read(table + (address >> shift & 0x1ff) * 8);
        if entry & PRESENT == 0 {
            return None;
        }
        rights &= entry;
        let base = entry & ADDRESS;
        if level == 1 || entry & LARGE != 0 {
            let page = (base | address & ((1 << shift) - 1)) & !0xfff;
            return (rights & USER != 0).then_some((page, rights & WRITABLE != 0));
        }
        table = base;
    }
    None
}
