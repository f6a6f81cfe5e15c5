//! Entries of x86-64 page tables and the arithmetic of their four levels.
//!
//! Source: Intel SDM volume 3A, section 4.5 (4-level paging), tables 4-14 to 4-20; AMD APM volume 2,
//! section 5.3 agrees. Level 4 is the root (PML4); a level-1 entry maps 4 KiB, level 2 2 MiB, level 3 1 GiB.

use crate::machine::{Frame, PhysAddr};
use nom_abi::layout::{DEVICE_MAP, DIRECT_MAP};
use nom_abi::memory::FRAME_SHIFT;
use nom_abi::{PageSize, Protection};

/// Entries in one table.
pub const ENTRIES: usize = 512;
/// Bytes of the largest page.
const HUGE: u64 = 1 << 30;
/// Level of the root table.
pub const ROOT_LEVEL: u32 = 4;
/// First entry of the root that belongs to the kernel's half of every address space.
pub const KERNEL_HALF: usize = 256;
/// End (exclusive) of the frame numbers that an entry can hold: physical addresses have at most 52 bits.
pub const FRAMES_END: u64 = 1 << (52 - FRAME_SHIFT);

/// Where the direct map of memory up to `end` begins: at any GiB of its part, by `random`.
pub fn direct_map_base(random: u64, end: u64) -> u64 {
    let places = (DEVICE_MAP - DIRECT_MAP - end).div_euclid(HUGE) + 1;
    DIRECT_MAP + random % places * HUGE
}

/// How the processor caches what is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Ordinary memory.
    WriteBack,
    /// Device registers: every access reaches the device, in order.
    Uncached,
}

/// Who may use a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Ring 3 (and, but for SMAP and SMEP, ring 0): this address space only.
    User,
    /// Ring 0 alone. The mapping is global: the same in every address space.
    Kernel,
}

/// One entry of a page table, at any level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Entry(pub u64);

/// What an entry means at its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing.
    Empty,
    /// The table of the next lower level.
    Table(PhysAddr),
    /// A page that starts at `frame`.
    Leaf {
        /// First frame.
        frame: Frame,
        /// What user code may do there; for a kernel page, what the kernel may do.
        protection: Protection,
        /// How it is cached.
        caching: Caching,
    },
}

impl Entry {
    /// Nothing is mapped.
    pub const EMPTY: Entry = Entry(0);

    const PRESENT: u64 = 1 << 0;
    const WRITE: u64 = 1 << 1;
    const USER: u64 = 1 << 2;
    const WRITE_THROUGH: u64 = 1 << 3;
    const CACHE_DISABLE: u64 = 1 << 4;
    const ACCESSED: u64 = 1 << 5;
    const DIRTY: u64 = 1 << 6;
    /// At levels 2 and 3: this is a page, not a table.
    const PAGE_SIZE: u64 = 1 << 7;
    const GLOBAL: u64 = 1 << 8;
    /// Ours (the processor ignores bits 9 to 11): a page that is mapped with [`Protection::None`], which
    /// the processor must see as not present.
    const GUARD: u64 = 1 << 9;
    const NO_EXECUTE: u64 = 1 << 63;
    const ADDRESS: u64 = (FRAMES_END - 1) << FRAME_SHIFT;
    const UNCACHED: u64 = Self::CACHE_DISABLE | Self::WRITE_THROUGH;

    /// Points to the table of the next lower level. What its pages allow is said by their leaves alone.
    /// The accessed bit is set from the start, here and in leaves also the dirty bit: nobody looks at them,
    /// and so the processor never has to write to a table.
    pub const fn table(table: PhysAddr, privilege: Privilege) -> Entry {
        let user = if matches!(privilege, Privilege::User) { Self::USER } else { 0 };
        Entry(table.word() | Self::PRESENT | Self::WRITE | Self::ACCESSED | user)
    }

    /// Maps the page of `size` that starts at `frame`.
    pub const fn leaf(
        frame: Frame,
        size: PageSize,
        protection: Protection,
        caching: Caching,
        privilege: Privilege,
    ) -> Entry {
        let mut bits = PhysAddr::of_frame(frame).word() | Self::ACCESSED | Self::DIRTY;
        bits |= if matches!(protection, Protection::None) { Self::GUARD } else { Self::PRESENT };
        bits |= if matches!(size, PageSize::Small) { 0 } else { Self::PAGE_SIZE };
        bits |= if protection.writable() { Self::WRITE } else { 0 };
        bits |= if protection.executable() { 0 } else { Self::NO_EXECUTE };
        bits |= if matches!(caching, Caching::Uncached) { Self::UNCACHED } else { 0 };
        bits |= if matches!(privilege, Privilege::User) { Self::USER } else { Self::GLOBAL };
        Entry(bits)
    }

    /// What the entry means in a table of `level`.
    #[inline(always)]
    pub const fn meaning(self, level: u32) -> Meaning {
        if self.0 & (Self::PRESENT | Self::GUARD) == 0 {
            return Meaning::Empty;
        }
        if level > 1 && self.0 & Self::PAGE_SIZE == 0 {
            return Meaning::Table(PhysAddr::new(self.0 & Self::ADDRESS));
        }
        Meaning::Leaf { frame: self.frame(), protection: self.protection(), caching: self.caching() }
    }

    /// The frame that it names, if it is a leaf.
    pub const fn frame(self) -> Frame {
        PhysAddr::new(self.0 & Self::ADDRESS).frame()
    }

    /// Whether it is the leaf of memory, no device's, that the processor lets its user read, or `writes`.
    #[inline(always)]
    pub const fn allows(self, writes: bool) -> bool {
        let needed = Self::PRESENT | if writes { Self::WRITE } else { 0 };
        self.0 & (needed | Self::CACHE_DISABLE) == needed
    }

    const fn protection(self) -> Protection {
        if self.0 & Self::PRESENT == 0 {
            Protection::None
        } else if self.0 & Self::WRITE != 0 {
            Protection::ReadWrite
        } else if self.0 & Self::NO_EXECUTE == 0 {
            Protection::ReadExecute
        } else {
            Protection::Read
        }
    }

    const fn caching(self) -> Caching {
        if self.0 & Self::CACHE_DISABLE != 0 { Caching::Uncached } else { Caching::WriteBack }
    }
}

/// Level of the tables whose entries map pages of `size`.
pub const fn leaf_level(size: PageSize) -> u32 {
    size as u32 + 1
}

/// Size of the pages that entries of `level` map, if they can map any.
pub fn leaf_size(level: u32) -> Option<PageSize> {
    PageSize::ALL.get(level.wrapping_sub(1) as usize).copied()
}

/// Bytes of address space behind one entry of a table of `level` (1 to 4).
pub const fn entry_bytes(level: u32) -> u64 {
    1 << (FRAME_SHIFT + 9 * (level - 1))
}

/// Index of the entry for `address` in its table of `level` (1 to 4).
pub const fn index(address: u64, level: u32) -> usize {
    (address >> (FRAME_SHIFT + 9 * (level - 1))) as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cases;
    use proptest::prelude::*;

    const FRAME: u64 = 0x12_3456_7000 >> FRAME_SHIFT;

    fn user(size: PageSize, protection: Protection, caching: Caching) -> u64 {
        Entry::leaf(Frame::new(FRAME), size, protection, caching, Privilege::User).0
    }

    #[test]
    fn entries_are_those_of_the_manual() {
        let (small, memory) = (PageSize::Small, Caching::WriteBack);
        assert_eq!(Entry::table(PhysAddr::of_frame(Frame::new(FRAME)), Privilege::User).0, 0x12_3456_7027);
        assert_eq!(Entry::table(PhysAddr::of_frame(Frame::new(FRAME)), Privilege::Kernel).0, 0x12_3456_7023);
        assert_eq!(user(small, Protection::Read, memory), 0x8000_0012_3456_7065);
        assert_eq!(user(small, Protection::ReadWrite, memory), 0x8000_0012_3456_7067);
        assert_eq!(user(small, Protection::ReadExecute, memory), 0x0000_0012_3456_7065);
        assert_eq!(user(PageSize::Large, Protection::Read, memory), 0x8000_0012_3456_70e5);
        assert_eq!(user(small, Protection::ReadWrite, Caching::Uncached), 0x8000_0012_3456_707f);
        let kernel =
            Entry::leaf(Frame::new(FRAME), PageSize::Huge, Protection::ReadWrite, memory, Privilege::Kernel);
        assert_eq!(kernel.0, 0x8000_0012_3456_71e3);
    }

    #[test]
    fn the_processor_sees_a_guard_as_not_present() {
        for size in PageSize::ALL {
            assert_eq!(user(size, Protection::None, Caching::WriteBack) & 1, 0);
        }
    }

    #[test]
    fn indices_are_nine_bits_each() {
        let address = 1 << 39 | 2 << 30 | 3 << 21 | 4 << 12 | 5;
        assert_eq!([4, 3, 2, 1].map(|level| index(address, level)), [1, 2, 3, 4]);
        assert_eq!(index(nom_abi::layout::DIRECT_MAP, ROOT_LEVEL), KERNEL_HALF);
        assert_eq!(index(nom_abi::layout::USER_END - 1, ROOT_LEVEL), KERNEL_HALF - 1);
        for size in PageSize::ALL {
            assert_eq!(leaf_size(leaf_level(size)), Some(size));
            assert_eq!(entry_bytes(leaf_level(size)), size.bytes());
        }
        assert_eq!(leaf_size(ROOT_LEVEL), None);
    }

    #[test]
    fn the_direct_map_begins_at_the_first_gib_of_its_part_or_the_last_that_leaves_room() {
        assert_eq!(direct_map_base(0, 64 << 30), DIRECT_MAP);
        assert_eq!(direct_map_base(1, 64 << 30), DIRECT_MAP + HUGE);
        let last = (1 << 16) - 64;
        assert_eq!(direct_map_base(last, 64 << 30), DEVICE_MAP - (64 << 30));
        assert_eq!(direct_map_base(last + 1, 64 << 30), DIRECT_MAP);
    }

    proptest! {
        #![proptest_config(cases(256))]

        #[test]
        fn the_direct_map_has_room_wherever_it_begins(random: u64, end in 1..=64_u64 << 40) {
            let base = direct_map_base(random, end);
            prop_assert!(base >= DIRECT_MAP && base.is_multiple_of(HUGE));
            prop_assert!(base + end <= DEVICE_MAP);
        }

        #[test]
        fn a_leaf_means_what_it_was_made_of(
            unit in 0..FRAMES_END >> 18,
            size in prop::sample::select(&PageSize::ALL),
            protection in prop::sample::select(&[
                Protection::None, Protection::Read, Protection::ReadWrite, Protection::ReadExecute,
            ]),
            caching in prop::sample::select(&[Caching::WriteBack, Caching::Uncached]),
            privilege in prop::sample::select(&[Privilege::User, Privilege::Kernel]),
        ) {
            let frame = unit * size.frames();
            let entry = Entry::leaf(Frame::new(frame), size, protection, caching, privilege);
            let expected = Meaning::Leaf { frame: Frame::new(frame), protection, caching };
            prop_assert_eq!(entry.meaning(leaf_level(size)), expected);
            let at = PhysAddr::of_frame(Frame::new(frame));
            let table = Entry::table(at, privilege);
            prop_assert_eq!(table.meaning(leaf_level(size) + 1), Meaning::Table(at));
        }

        #[test]
        fn any_word_means_something(word: u64, level in 1..=ROOT_LEVEL) {
            match Entry(word).meaning(level) {
                Meaning::Empty => prop_assert_eq!(word & 1, 0),
                Meaning::Table(table) => prop_assert!(level > 1 && table.frame() < Frame::new(FRAMES_END)),
                Meaning::Leaf { frame, .. } => prop_assert!(frame < Frame::new(FRAMES_END)),
            }
        }
    }
}
