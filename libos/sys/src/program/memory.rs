//! Memory of programs: at addresses that no region of the library is ever at.

use crate::raw;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use nom_abi::error::{Error, Result};
use nom_abi::layout::{OWN_HIGH, OWN_LOW};
use nom_abi::memory::{ANY_COLOUR, FRAME_BYTES};
use nom_abi::{PageSize, Protection};

/// Where programs are that were linked for a fixed address.
pub const LOW: Range<u64> = OWN_LOW;
/// Where all others are, and what they map.
pub const HIGH: Range<u64> = OWN_HIGH;
/// Most pages that one call concerns.
pub const PAGES_MAX: u64 = 512;

/// PageRun of one piece of memory, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// Where the first is mapped.
    pub address: u64,
    /// Its frame.
    pub frame: u64,
    /// How many they are.
    pub count: u64,
}

impl PageRun {
    /// Takes up to `count` zeroed pages in one piece, at least one, and maps them at `address`, readable and
    /// writable.
    ///
    /// # Errors
    /// OutsideUserSpace if that is no place of programs; as `memory_grant` and `memory_map` say.
    pub fn add(address: u64, count: u64) -> Result<PageRun> {
        let pages = PageRun::take(address, count)?;
        pages.map(Protection::ReadWrite).inspect_err(|_| pages.give_back())?;
        Ok(pages)
    }

    /// Takes pages as [`PageRun::add`] does, but does not map them yet.
    ///
    /// # Errors
    /// OutsideUserSpace if `address` is no place of programs; as `memory_grant` says.
    pub fn take(address: u64, count: u64) -> Result<PageRun> {
        let mut count = count.clamp(1, PAGES_MAX);
        check(address, count * FRAME_BYTES)?;
        let frame = loop {
            // SAFETY: a new grant is memory that nothing refers to yet.
            match unsafe { raw::memory_grant(PageSize::Small as u64, count, ANY_COLOUR) } {
                Ok(frame) => break frame,
                Err(Error::OutOfMemory | Error::OverMemoryCap) if count > 1 => count /= 2,
                Err(error) => return Err(error),
            }
        };
        Ok(PageRun { address, frame, count })
    }

    /// Changes what may be done with them.
    ///
    /// # Errors
    /// As `memory_protect` says.
    pub fn protect(self, protection: Protection) -> Result<()> {
        check(self.address, self.count * FRAME_BYTES)?;
        self.in_calls(|at, _, count| {
            // SAFETY: no region of the library is there (`check`), so nothing relies on it.
            unsafe { raw::memory_protect(at, count * FRAME_BYTES, protection as u64) }
        })
    }

    /// Unmaps them and gives them back.
    ///
    /// # Errors
    /// As `memory_unmap` says; then they stay.
    pub fn remove(self) -> Result<()> {
        self.unmap()?;
        self.give_back();
        Ok(())
    }

    /// Maps them, in the space that the core is in; they may be mapped elsewhere, too.
    ///
    /// # Errors
    /// As `memory_map` says; then none of them is mapped there.
    pub fn map(self, protection: Protection) -> Result<()> {
        check(self.address, self.count * FRAME_BYTES)?;
        let done = core::cell::Cell::new(0);
        let mapped = self.in_calls(|at, frame, count| {
            // SAFETY: no region of the library is there (`check`), so nothing relies on what is mapped there.
            unsafe { raw::memory_map(at, frame, PageSize::Small as u64, count, protection as u64) }
                .inspect(|_| done.set(done.get() + count))
        });
        mapped.inspect_err(|_| {
            if done.get() > 0 {
                // What was mapped just now can be unmapped.
                let _ = PageRun { count: done.get(), ..self }.unmap();
            }
        })
    }

    /// Unmaps them.
    ///
    /// # Errors
    /// As `memory_unmap` says; then they stay.
    pub fn unmap(self) -> Result<()> {
        check(self.address, self.count * FRAME_BYTES)?;
        self.in_calls(|at, _, count| {
            // SAFETY: as in `protect`.
            unsafe { raw::memory_unmap(at, count * FRAME_BYTES) }
        })
    }

    /// Gives them back; those that are mapped anywhere stay.
    pub fn give_back(self) {
        // SAFETY: the kernel refuses what is mapped, so nothing can refer to what it takes. What it refuses
        // stays this application's until it ends.
        let _ = self
            .in_calls(|_, frame, count| unsafe { raw::memory_release(frame, PageSize::Small as u64, count) });
    }

    /// Does something with as many at a time as a call takes: their address, frame and number. A large page
    /// among them is in one call.
    fn in_calls(self, call: impl Fn(u64, u64, u64) -> Result<u64>) -> Result<()> {
        let mut done = 0;
        while done < self.count {
            let address = self.address + done * FRAME_BYTES;
            let in_block = PAGES_MAX - address / FRAME_BYTES % PAGES_MAX;
            let count = (self.count - done).min(in_block);
            call(address, self.frame + done, count)?;
            done += count;
        }
        Ok(())
    }
}

/// Frames of one grant that are mapped by one entry, or as 4 KiB pages: they are given back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargePage {
    /// Its first frame.
    pub frame: u64,
}

impl LargePage {
    /// Bytes of one: where it is mapped, and where it lies, is a multiple of them.
    pub const BYTES: u64 = PageSize::Large.bytes();

    /// Takes one that is zeroed.
    ///
    /// # Errors
    /// As `memory_grant` says.
    pub fn take() -> Result<LargePage> {
        // SAFETY: a new grant is memory that nothing refers to yet.
        let frame = unsafe { raw::memory_grant(PageSize::Large as u64, 1, ANY_COLOUR) }?;
        Ok(LargePage { frame })
    }

    /// Maps it by one entry, in the space that the core is in: [`PageRun`] protects and unmaps it as a whole.
    ///
    /// # Errors
    /// OutsideUserSpace if `address` is no place of programs; as `memory_map` says.
    pub fn map(self, address: u64, protection: Protection) -> Result<()> {
        check(address, LargePage::BYTES)?;
        // SAFETY: no region of the library is there (`check`), so nothing relies on what is mapped there.
        unsafe { raw::memory_map(address, self.frame, PageSize::Large as u64, 1, protection as u64) }?;
        Ok(())
    }

    /// Gives it back, unless it or a part of it is mapped anywhere.
    pub fn give_back(self) {
        // SAFETY: as for `PageRun::give_back`.
        let _ = unsafe { raw::memory_release(self.frame, PageSize::Large as u64, 1) };
    }
}

/// Copies what a program has at `address`, where its pages are mapped and readable: else this is a page
/// fault.
///
/// # Panics
/// If that is no place of programs.
pub fn read(address: u64, bytes: &mut [u8]) {
    check(address, bytes.len() as u64).expect("memory of a program");
    // SAFETY: it is no memory of the library's (`check`), so no reference of Rust's is to it. Where its
    // program runs on another core meanwhile, bytes that it changes come as they were or as they are: words
    // that matter are read by `load`.
    unsafe { core::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), bytes.len()) };
}

/// Copies to where a program has mapped and writable pages: else this is a page fault.
///
/// # Panics
/// If that is no place of programs.
pub fn write(address: u64, bytes: &[u8]) {
    check(address, bytes.len() as u64).expect("memory of a program");
    // SAFETY: as in `read`.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}

/// The word at `address`, as one of those values that a program has there while it runs on other cores: else
/// as for [`read`].
///
/// # Panics
/// If that is no place of programs, or no multiple of four.
pub fn load(address: u64) -> u32 {
    word(address).load(SeqCst)
}

/// Changes the word at `address` to `new` if it is `old`, whatever cores do meanwhile: whether it was. The
/// page must be writable; else as for [`read`].
///
/// # Panics
/// As for [`load`].
pub fn exchange(address: u64, old: u32, new: u32) -> bool {
    word(address).compare_exchange(old, new, SeqCst, SeqCst).is_ok()
}

fn word(address: u64) -> &'static AtomicU32 {
    check(address, 4).expect("memory of a program");
    assert!(address.is_multiple_of(4), "a word is at {address:#x}");
    // SAFETY: it is aligned, and no memory of the library's (`check`): programs reach it by instructions that
    // this is a reference to an atomic for. It is used while the caller has the page there, and not kept.
    unsafe { AtomicU32::from_ptr(core::ptr::with_exposed_provenance_mut(address as usize)) }
}

/// Errors: OutsideUserSpace unless `bytes` at `address` are where programs are.
fn check(address: u64, bytes: u64) -> Result<()> {
    let end = address.checked_add(bytes).ok_or(Error::Overflow)?;
    let is_inside = |place: &Range<u64>| address >= place.start && end <= place.end;
    if is_inside(&LOW) || is_inside(&HIGH) { Ok(()) } else { Err(Error::OutsideUserSpace) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_where_no_region_is() {
        assert_eq!(check(LOW.start, LOW.end - LOW.start), Ok(()));
        assert_eq!(check(HIGH.start, HIGH.end - HIGH.start), Ok(()));
        for (address, bytes) in [
            (LOW.start - 1, 1),
            (LOW.end - 1, 2),
            (LOW.end, 1),
            (HIGH.start - 1, 2),
            (HIGH.end - 1, 2),
            (HIGH.end, 1),
            (LOW.end - 1, HIGH.end - LOW.end),
        ] {
            assert_eq!(check(address, bytes), Err(Error::OutsideUserSpace), "{address:#x}, {bytes:#x}");
        }
        assert_eq!(check(u64::MAX, 2), Err(Error::Overflow));
    }
}
