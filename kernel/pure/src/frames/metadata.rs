//! What is remembered of each frame and of each 2 MiB block, and the names of those who hold them.

use crate::ids::AppId;
use nom_abi::layout::{APPLICATIONS_MAX, CHANNELS_MAX};
use nom_abi::memory::PageSize;
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// Frames in one 2 MiB block.
pub const BLOCK_FRAMES: u64 = PageSize::Large.frames();
/// 2 MiB blocks in one 1 GiB unit.
pub(super) const HUGE_BLOCKS: usize = (PageSize::Huge.frames() / BLOCK_FRAMES) as usize;

/// Who holds a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromZeros, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Owner(u16);

impl Owner {
    /// Not memory that the kernel may hand out: holes, firmware, device registers.
    pub const RESERVED: Owner = Owner(0);
    /// Nobody.
    pub const FREE: Owner = Owner(1);
    /// The kernel itself.
    pub const KERNEL: Owner = Owner(2);
    /// Number of owners that there can be.
    pub(super) const COUNT: usize = Self::CHANNELS + CHANNELS_MAX;

    /// The first of those that are an application's: each has four, for four kinds of frames.
    const APPLICATIONS: usize = 3;
    const CHANNELS: usize = Self::APPLICATIONS + 4 * APPLICATIONS_MAX;

    const fn of(app: AppId, kind: usize) -> Owner {
        assert!(app.index() < APPLICATIONS_MAX, "no application has that index");
        Owner((Self::APPLICATIONS + kind * APPLICATIONS_MAX + app.index()) as u16)
    }

    /// What application `app` was granted: it may map and release these frames.
    pub const fn grants(app: AppId) -> Owner {
        Owner::of(app, 0)
    }

    /// What application `app` runs from but cannot name: its image's copies, first stack and start page.
    pub const fn program(app: AppId) -> Owner {
        Owner::of(app, 1)
    }

    /// The page tables of application `app`.
    pub const fn tables(app: AppId) -> Owner {
        Owner::of(app, 2)
    }

    /// The tables by which the devices of application `app` reach its grants.
    pub const fn dma(app: AppId) -> Owner {
        Owner::of(app, 3)
    }

    /// The shared memory of channel `channel` of the bundle.
    pub const fn channel(channel: usize) -> Owner {
        assert!(channel < CHANNELS_MAX, "no channel has that index");
        Owner((Self::CHANNELS + channel) as u16)
    }

    /// Index of this owner among all.
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The bit that stands for this owner in [`Block::Split::owners`]. Owners may share one.
    pub(super) const fn bit(self) -> u64 {
        1 << (self.index().wrapping_sub(Self::APPLICATIONS) % 64)
    }
}

/// What is remembered of one 4 KiB frame, while its block is split; its value means nothing before that.
#[derive(Clone, Copy, Debug, Default, FromZeros, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct FrameInfo(u32);

impl FrameInfo {
    const OWNER_BITS: u32 = 10;
    /// Most times that one 4 KiB frame can be mapped.
    pub(super) const MAPS_MAX: u64 = (1 << (32 - Self::OWNER_BITS)) - 1;

    pub(super) const fn new(owner: Owner, maps: u64) -> FrameInfo {
        FrameInfo((maps as u32) << Self::OWNER_BITS | owner.0 as u32)
    }

    pub(super) const fn owner(self) -> Owner {
        Owner((self.0 & ((1 << Self::OWNER_BITS) - 1)) as u16)
    }

    pub(super) const fn maps(self) -> u64 {
        (self.0 >> Self::OWNER_BITS) as u64
    }
}

/// What is remembered of one 2 MiB block of frames. All bytes zero is a block that is not memory.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct BlockInfo(pub(super) Block);

impl BlockInfo {
    /// A block that is not memory.
    pub const RESERVED: BlockInfo = BlockInfo(Block::Reserved);
}

/// State of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub(super) enum Block {
    /// None of its frames is memory to hand out.
    Reserved = 0,
    /// All of its frames are free.
    Free,
    /// Each of its frames has an owner of its own.
    Split {
        /// Number of free frames.
        free: u16,
        /// No frame below this one of the block is free.
        hint: u16,
        /// [`Owner::bit`] of everybody who holds a frame here, perhaps of others too.
        owners: u64,
    },
    /// One 2 MiB unit, or the first block of one of 1 GiB.
    Unit {
        /// Which of the two.
        is_huge: bool,
        /// Who holds it.
        owner: Owner,
        /// Pages mapped onto it.
        maps: u32,
    },
    /// Another block of the 1 GiB unit that it lies in.
    HugeRest,
}

const _: () = {
    assert!(size_of::<FrameInfo>() == 4 && size_of::<BlockInfo>() == 16);
    assert!(Owner::COUNT <= 1 << FrameInfo::OWNER_BITS);
};
