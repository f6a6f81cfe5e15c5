//! Pointers that an application passes to the kernel: claims to be checked before they are followed.
//!
//! The kernel reads and writes user memory through its own map of physical memory, after it looked the
//! address up in the application's tables. So it needs no access to user pages itself (SMAP stays on), a
//! page that is unmapped meanwhile cannot fault in the kernel, and the kernel's privilege lends nothing.

use super::Space;
use super::tables::entry_address;
use crate::machine::{PhysAddr, PhysicalMemory};
use crate::paging::{Caching, Entry, Meaning, index};
use nom_abi::error::Result;
use nom_abi::layout::{USER_END, USER_START};
use nom_abi::memory::FRAME_BYTES;
use nom_abi::{Error, Protection};

/// An address that an application passed, and that is no address of the kernel's. What is there, and whether
/// anything is, is looked up each time:
///
/// ```compile_fail,E0308
/// use nom_kernel_pure::{machine::PhysicalMemory, space::Space};
/// fn read(memory: &impl PhysicalMemory, space: Space, argument: u64) {
///     let _ = space.read_user(memory, argument, &mut [0; 8]);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct UserAddr(u64);

impl UserAddr {
    /// Of data. Errors: BadPointer (behind user space).
    pub fn pointer(word: u64) -> Result<UserAddr> {
        if word <= USER_END { Ok(UserAddr(word)) } else { Err(Error::BadPointer) }
    }

    /// Of an instruction: a processor can return there. Errors: OutsideUserSpace.
    pub fn code(word: u64) -> Result<UserAddr> {
        (USER_START..USER_END).contains(&word).then_some(UserAddr(word)).ok_or(Error::OutsideUserSpace)
    }

    /// Of the end of a stack, a page at least. Errors: OutsideUserSpace, Misaligned (16 bytes).
    pub fn stack(top: u64) -> Result<UserAddr> {
        let inside = (USER_START + FRAME_BYTES..=USER_END).contains(&top).then_some(UserAddr(top));
        if top.is_multiple_of(16) { inside.ok_or(Error::OutsideUserSpace) } else { Err(Error::Misaligned) }
    }

    /// What processors are told.
    pub const fn word(self) -> u64 {
        self.0
    }
}

impl Space {
    /// Fills `bytes` from user memory at `address`. Errors: BadPointer, unless user code could read every
    /// byte itself and all are in memory rather than a device.
    pub fn read_user(self, memory: &impl PhysicalMemory, at: UserAddr, bytes: &mut [u8]) -> Result<()> {
        if let Some(physical) = self.page(memory, at, bytes.len() as u64, false) {
            memory.read_bytes(physical, bytes);
            return Ok(());
        }
        self.check(memory, at, bytes.len() as u64, is_readable)?;
        let (mut address, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let (physical, length) = self.piece(memory, address, is_readable)?;
            let (piece, behind) = rest.split_at_mut(rest.len().min(length as usize));
            memory.read_bytes(physical, piece);
            (address, rest) = (UserAddr(address.0 + length), behind);
        }
        Ok(())
    }

    /// Copies `bytes` to user memory at `address`. Errors: BadPointer, unless user code could write every
    /// byte itself and all are in memory rather than a device.
    pub fn write_user(self, memory: &mut impl PhysicalMemory, at: UserAddr, bytes: &[u8]) -> Result<()> {
        if let Some(physical) = self.page(memory, at, bytes.len() as u64, true) {
            memory.write_bytes(physical, bytes);
            return Ok(());
        }
        self.check(memory, at, bytes.len() as u64, Protection::writable)?;
        let (mut address, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let (physical, length) = self.piece(memory, address, Protection::writable)?;
            let (piece, behind) = rest.split_at(rest.len().min(length as usize));
            memory.write_bytes(physical, piece);
            (address, rest) = (UserAddr(address.0 + length), behind);
        }
        Ok(())
    }

    /// Whether [`Space::write_user`] of `length` bytes at `address` would succeed. Errors: BadPointer.
    pub fn check_writable(self, memory: &impl PhysicalMemory, at: UserAddr, length: u64) -> Result<()> {
        match self.page(memory, at, length, true) {
            Some(_) => Ok(()),
            None => self.check(memory, at, length, Protection::writable),
        }
    }

    /// What is nearly always meant, in a third of the instructions: where `length` bytes at `address` are in
    /// physical memory, if they are on one small page that user code could read, or write.
    fn page(self, memory: &impl PhysicalMemory, at: UserAddr, length: u64, write: bool) -> Option<PhysAddr> {
        let offset = at.0 % FRAME_BYTES;
        if offset + length > FRAME_BYTES {
            return None;
        }
        let entry = |table, level| Entry(memory.read(entry_address(table, index(at.0, level))));
        let below = |table, level| match entry(table, level).meaning(level) {
            Meaning::Table(next) => Some(next),
            _ => None,
        };
        let page = entry(below(below(below(self.root, 4)?, 3)?, 2)?, 1);
        page.allows(write).then(|| PhysAddr::of_frame(page.frame()) + offset)
    }

    /// Looks at all pages before anything is done.
    #[cold]
    fn check(self, memory: &impl PhysicalMemory, at: UserAddr, length: u64, allows: Allows) -> Result<()> {
        let end = at.0.checked_add(length).filter(|end| *end <= USER_END).ok_or(Error::BadPointer)?;
        let mut next = at.0;
        while next < end {
            next += self.piece(memory, UserAddr(next), allows)?.1;
        }
        Ok(())
    }

    /// Where the byte at an address is in physical memory, and how many follow from there on the same page.
    fn piece(self, memory: &impl PhysicalMemory, at: UserAddr, allows: Allows) -> Result<(PhysAddr, u64)> {
        let leaf = self.translate(memory, at).ok_or(Error::BadPointer)?;
        if !allows(leaf.protection) || leaf.caching == Caching::Uncached {
            return Err(Error::BadPointer);
        }
        let offset = at.0 - leaf.address;
        Ok((PhysAddr::of_frame(leaf.frame) + offset, leaf.size.bytes() - offset))
    }
}

/// What a page must be for.
type Allows = fn(Protection) -> bool;

fn is_readable(protection: Protection) -> bool {
    protection != Protection::None
}
