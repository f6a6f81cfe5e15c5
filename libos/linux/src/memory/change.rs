//! What a process changes about its memory: mmap(2), munmap(2), mprotect(2), mremap(2), madvise(2), brk(2).

use super::{
    Backing, GAP, LargeUse, MappedRegion, OnFork, PAGE, Part, ProcessMemory, Purpose, REGIONS_MAX, RangeMap,
    Rights, Run, SharedPages, SharedPart, Sharing, State, Touch, UNPACKED, cut,
};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;
use nom_fs::Errno;
#[cfg(test)]
use nom_sys::Protection;
use nom_sys::program::memory::{HIGH, LOW};

/// Where the library maps a page for a moment, which no process has anything at.
pub const WINDOW: u64 = HIGH.end - PAGE;
/// Where processes' mappings are.
pub const PLACE: Range<u64> = HIGH.start..WINDOW;

/// Where `MAP_32BIT` maps, as on Linux.
const IN_31_BITS: Range<u64> = 1 << 30..1 << 31;

/// Where something is to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// There, if it is free; else anywhere. Zero is no wish.
    Near(u64),
    /// There, whatever is there.
    At(u64),
    /// There, if it is free.
    AtIfFree(u64),
    /// There, if it is free; else where addresses fit into 31 bits (`MAP_32BIT`).
    Low(u64),
}

impl ProcessMemory {
    /// Maps a region of `bytes`, rounded up to pages: where it is.
    ///
    /// # Errors
    /// `EINVAL` (no bytes, no page's address), `ENOMEM` (no room, or no place of programs), `EEXIST`.
    pub fn map(&self, place: Where, bytes: u64, region: MappedRegion) -> Result<u64, Errno> {
        let bytes = whole_pages(bytes)?;
        let region = match (&region.backing, region.sharing) {
            (Backing::Zero, Sharing::Shared) => region.shared(SharedPages::new(self.keeper(), None)),
            _ => region,
        };
        let state = &mut *self.state.borrow_mut();
        if state.regions.count() >= REGIONS_MAX {
            return Err(Errno::ENOMEM);
        }
        let address = match place {
            Where::At(address) | Where::AtIfFree(address) => {
                let range = range_of(address, bytes)?;
                if matches!(place, Where::AtIfFree(_)) && !state.regions.is_free(range.clone()) {
                    return Err(Errno::EEXIST);
                }
                state.drop_pages(&*self.pages, range)?;
                address
            }
            Where::Low(wish) => {
                let wished = state.wished(wish - wish % PAGE, bytes);
                let place = || state.regions.place_below(IN_31_BITS, bytes, GAP);
                wished.or_else(place).ok_or(Errno::ENOMEM)?
            }
            Where::Near(wish) => {
                let align = if takes_large(&region, bytes, self.pages.large_bytes()) {
                    self.pages.large_bytes()
                } else {
                    PAGE
                };
                state.place_for(wish - wish % PAGE, bytes, align).ok_or(Errno::ENOMEM)?
            }
        };
        state.regions.insert(address..address + bytes, region);
        Ok(address)
    }

    /// Unmaps what is mapped there.
    ///
    /// # Errors
    /// `EINVAL`; `ENOMEM` as for [`cut`], and if there were too many regions then.
    pub fn unmap(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        let bytes = whole_pages(bytes)?;
        let range = range_of(address, bytes).map_err(|_| Errno::EINVAL)?;
        let state = &mut *self.state.borrow_mut();
        state.check_regions(state.more_without(&range))?;
        state.drop_pages(&*self.pages, range.clone())?;
        if range.end >= state.packed.0 {
            state.packed = UNPACKED;
        }
        state.regions.remove(range);
        Ok(())
    }

    /// Changes what may be done there, where all must be mapped.
    ///
    /// # Errors
    /// `EINVAL`, `ENOMEM` (not all is mapped, too many regions, or as for [`cut`]), `EACCES` (of a file that
    /// is open for reading).
    pub fn protect(&self, address: u64, bytes: u64, rights: Rights) -> Result<(), Errno> {
        let Some(range) = range_of_any(address, bytes)? else { return Ok(()) };
        let state = &mut *self.state.borrow_mut();
        if !state.regions.covers(range.clone()) {
            return Err(Errno::ENOMEM);
        }
        let is_refused = |(_, region): (_, MappedRegion)| match region.backing {
            Backing::Shared(part) => rights.has(Rights::WRITE) && !part.may_write,
            _ => false,
        };
        if state.regions.overlapping(range.clone()).any(is_refused) {
            return Err(Errno::EACCES);
        }
        state.check_regions(state.more_by_ends(&range))?;
        cut(&*self.pages, &range)?;
        for (part, region) in state.regions.remove(range.clone()) {
            state.regions.insert(part, MappedRegion { rights, ..region });
        }
        // What may be written and executed is writable until it is executed.
        let protection = rights.protection(Touch::Read);
        let parts: Vec<_> = state.runs.overlapping(range).collect();
        for (part, run) in parts {
            let allowed = run.allowed(protection);
            if allowed != run.protection {
                self.pages.protect(part.start, (part.end - part.start) / PAGE, allowed);
                state.runs.insert(part, Run { protection: allowed, ..run });
            }
        }
        Ok(())
    }

    /// Forgets what is there: the next touch finds what was there first.
    ///
    /// # Errors
    /// `EINVAL`, `ENOMEM` (not all is mapped; the rest is forgotten).
    pub fn forget(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        let Some(range) = range_of_any(address, bytes)? else { return Ok(()) };
        let state = &mut *self.state.borrow_mut();
        // What is shared stays where all find it.
        for (part, _) in state.regions.overlapping(range.clone()).collect::<Vec<_>>() {
            state.drop_pages(&*self.pages, part)?;
        }
        if state.regions.covers(range) { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Where a range has large pages from now on: those that are there stay.
    ///
    /// # Errors
    /// As for [`ProcessMemory::mark`].
    pub fn use_large(&self, address: u64, bytes: u64, large: LargeUse) -> Result<(), Errno> {
        self.mark(address, bytes, |region| {
            region.large = large;
            Ok(())
        })
    }

    /// What a child gets of a range.
    ///
    /// # Errors
    /// As for [`ProcessMemory::mark`]; `EINVAL` if what others have, too, is to be wiped.
    pub fn set_on_fork(&self, address: u64, bytes: u64, on_fork: OnFork) -> Result<(), Errno> {
        self.mark(address, bytes, |region| {
            if on_fork == OnFork::Wipe && !region.is_own_zeros() {
                return Err(Errno::EINVAL);
            }
            region.on_fork = on_fork;
            Ok(())
        })
    }

    /// Has all regions of a range be marked, so far as they can be.
    ///
    /// # Errors
    /// `EINVAL`; `ENOMEM` (not all is mapped; the rest is marked), if there were too many regions, and as for
    /// [`cut`].
    fn mark(
        &self,
        address: u64,
        bytes: u64,
        mark: impl Fn(&mut MappedRegion) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Some(range) = range_of_any(address, bytes)? else { return Ok(()) };
        let state = &mut *self.state.borrow_mut();
        state.check_regions(state.more_by_ends(&range))?;
        // A large page is in one region.
        cut(&*self.pages, &range)?;
        for (part, mut region) in state.regions.overlapping(range.clone()).collect::<Vec<_>>() {
            mark(&mut region)?;
            state.regions.insert(part, region);
        }
        if state.regions.covers(range) { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// The one region that all of a range is in, from there on.
    fn region_of(&self, range: Range<u64>) -> Result<MappedRegion, Errno> {
        let state = self.state.borrow();
        let (found, region) = state.regions.find(range.start).ok_or(Errno::EFAULT)?;
        if found.end < range.end { Err(Errno::EFAULT) } else { Ok(region.behind(range.start - found.start)) }
    }

    /// Moves what is in private memory of no file elsewhere, and leaves nothing of it where it was, which
    /// stays mapped (`MREMAP_DONTUNMAP`): where it is then.
    ///
    /// # Errors
    /// `EINVAL` (also for other memory), `EFAULT` (it is not one region), `ENOMEM`.
    pub fn empty(&self, address: u64, bytes: u64, to: Where) -> Result<u64, Errno> {
        let bytes = whole_pages(bytes)?;
        let range = range_of(address, bytes)?;
        let region = self.region_of(range.clone())?;
        if !region.is_own_zeros() {
            return Err(Errno::EINVAL);
        }
        let there = self.map(to, bytes, region)?;
        self.move_pages(range, there).inspect_err(|_| {
            // It was mapped just now.
            let _ = self.unmap(there, bytes);
        })?;
        Ok(there)
    }

    /// Makes a region longer or shorter, where it is or elsewhere: where it is then.
    ///
    /// # Errors
    /// `EINVAL`; `EFAULT` (it is not one region); `ENOMEM` (no room, and it may not move).
    pub fn remap(&self, address: u64, old: u64, new: u64, to: Option<Where>) -> Result<u64, Errno> {
        let (old, new) = (whole_pages(old)?, whole_pages(new)?);
        let range = range_of(address, old)?;
        let is_fixed = matches!(to, Some(Where::At(_) | Where::AtIfFree(_)));
        if !is_fixed && new <= old {
            // As on Linux, what is behind the first page may be anything.
            self.region_of(address..address + PAGE)?;
            if new < old {
                self.unmap(address + new, old - new)?;
            }
            return Ok(address);
        }
        let region = self.region_of(range.clone())?;
        let behind = range.end..address.saturating_add(new);
        let is_last =
            self.state.borrow().regions.find(address).is_some_and(|(found, _)| found.end == range.end);
        if !is_fixed && is_last && is_place(&behind) && self.state.borrow().regions.is_free(behind.clone()) {
            self.state.borrow_mut().regions.insert(address..address + new, region);
            return Ok(address);
        }
        {
            let state = self.state.borrow();
            state.check_regions(1 + state.more_without(&range))?;
        }
        let there = self.map(to.ok_or(Errno::ENOMEM)?, new, region)?;
        if let Err(error) = self.move_pages(address..address + old.min(new), there) {
            self.unmap(there, new)?;
            return Err(error);
        }
        self.unmap(address, old)?;
        Ok(there)
    }

    /// Moves the pages that are there, but not their region: all of them, or none. They are in both places
    /// until all have one in the new one.
    ///
    /// # Errors
    /// `ENOMEM` if there is no room for the kernel's tables.
    fn move_pages(&self, from: Range<u64>, to: u64) -> Result<(), Errno> {
        let state = &mut *self.state.borrow_mut();
        cut(&*self.pages, &from)?;
        let parts: Vec<_> = state.runs.overlapping(from.clone()).collect();
        let place = |part: &Range<u64>| (part.start - from.start + to, (part.end - part.start) / PAGE);
        for (index, (part, run)) in parts.iter().enumerate() {
            let (there, count) = place(part);
            if !self.pages.show(there, count, run.frame, run.protection) {
                for (part, run) in &parts[..index] {
                    let (there, count) = place(part);
                    self.pages.remove(there, &[(run.frame, count)]);
                }
                return Err(Errno::ENOMEM);
            }
        }
        state.runs.remove(from.clone());
        for (part, run) in parts {
            let (there, count) = place(&part);
            self.pages.remove(part.start, &[(run.frame, count)]);
            state.runs.insert(there..there + count * PAGE, run);
        }
        Ok(())
    }

    /// Whether a page that is mapped is in memory: what is of files is said to be, since these are, or come
    /// as soon as they are touched.
    pub fn is_resident(&self, page: u64) -> bool {
        let state = self.state.borrow();
        let Some((range, region)) = state.regions.find(page) else { return false };
        match &region.behind(page - range.start).backing {
            Backing::File(_) => true,
            Backing::Zero => state.runs.find(page).is_some(),
            Backing::Shared(part) => part.pages.holds(part.offset / PAGE),
        }
    }

    /// Whether all of a range is mapped.
    pub fn is_mapped(&self, range: Range<u64>) -> bool {
        self.state.borrow().regions.covers(range)
    }

    /// Where regions are placed.
    pub fn place(&self) -> Range<u64> {
        self.state.borrow().place.clone()
    }

    /// Puts an empty heap at `address`, which grows upwards.
    pub fn set_heap(&self, address: u64) {
        self.state.borrow_mut().heap = address..address;
    }

    /// Where the heap is.
    pub fn heap(&self) -> Range<u64> {
        self.state.borrow().heap.clone()
    }

    /// Moves the end of the heap to `end`, if that is possible: where it is then.
    pub fn set_heap_end(&self, end: u64) -> u64 {
        let heap = self.heap();
        let (Some(old), Some(new)) = (
            heap.end.checked_next_multiple_of(PAGE),
            end.checked_next_multiple_of(PAGE).filter(|_| end >= heap.start),
        ) else {
            return heap.end;
        };
        let changed = if new > old {
            let region = MappedRegion { purpose: Purpose::Heap, ..MappedRegion::zeros(Rights::READ_WRITE) };
            self.map(Where::AtIfFree(old), new - old, region).is_ok()
        } else {
            new == old || self.unmap(new, old - new).is_ok()
        };
        if changed {
            self.state.borrow_mut().heap.end = end;
        }
        self.heap().end
    }

    /// Unmaps everything.
    pub fn clear(&self) {
        let state = &mut *self.state.borrow_mut();
        // No large page reaches over the ends of all that there is.
        let _ = state.drop_pages(&*self.pages, 0..HIGH.end);
        (state.regions, state.packed) = (RangeMap::default(), UNPACKED);
        state.heap = 0..0;
    }

    /// What is shared at an address, from there on, and its region.
    pub fn shared_at(&self, address: u64) -> Option<(Range<u64>, SharedPart)> {
        let state = self.state.borrow();
        let (range, region) = state.regions.find(address)?;
        match region.behind(address - range.start).backing {
            Backing::Shared(part) => Some((range, part)),
            Backing::Zero | Backing::File(_) => None,
        }
    }

    /// Writes what is written of files mapped shared in a range to these, which are returned. All of it must
    /// be mapped.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn write_back(&self, range: Range<u64>) -> Result<Vec<Rc<SharedPages>>, Errno> {
        let parts: Vec<_> = self.state.borrow().regions.overlapping(range.clone()).collect();
        let mut files = Vec::new();
        for (there, region) in parts {
            if let Backing::Shared(part) = region.backing {
                let first = part.offset / PAGE;
                part.pages.write_back(first..first + (there.end - there.start).div_ceil(PAGE));
                files.push(part.pages);
            }
        }
        if self.is_mapped(range) { Ok(files) } else { Err(Errno::ENOMEM) }
    }

    /// Who keeps frames that several have.
    pub fn keeper(&self) -> Rc<dyn super::FrameKeeper> {
        self.pages.keeper()
    }
}

impl State {
    /// Whether there may be so many regions more.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn check_regions(&self, more: usize) -> Result<(), Errno> {
        if more > 0 && self.regions.count() + more > REGIONS_MAX { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// How many more there are if what is within a range is another than what is beside it.
    fn more_by_ends(&self, range: &Range<u64>) -> usize {
        let is_within = |end: &&u64| self.regions.find(**end).is_some_and(|(found, _)| found.start < **end);
        [range.start, range.end].iter().filter(is_within).count()
    }

    /// How many more there are without what is within a range: one, if that is amid a region.
    fn more_without(&self, range: &Range<u64>) -> usize {
        let around = self.regions.find(range.start).map(|(found, _)| found);
        usize::from(around.is_some_and(|found| found.start < range.start && range.end < found.end))
    }

    /// The place that is wished, if it is one and free; zero is no wish.
    fn wished(&self, wish: u64, bytes: u64) -> Option<u64> {
        let wished = wish..wish.checked_add(bytes)?;
        (wish != 0 && is_place(&wished) && self.regions.is_free(wished)).then_some(wish)
    }

    /// A free place for so many bytes, where it is wished or at a multiple of `align`.
    fn place_for(&mut self, wish: u64, bytes: u64, align: u64) -> Option<u64> {
        if let Some(place) = self.wished(wish, bytes) {
            return Some(place);
        }
        let (above, least) = self.packed;
        let needed = bytes.checked_add(align - PAGE)?;
        let end = if needed >= least { above.min(self.place.end) } else { self.place.end };
        let place = self.regions.place_below(self.place.start..end, needed, GAP)?;
        let last = place + (needed - bytes);
        let place = last - last % align;
        self.packed = (place, needed);
        Some(place)
    }
}

/// Whether a region of so many bytes is whole large pages of its own: as Linux, nothing else is placed so.
fn takes_large(region: &MappedRegion, bytes: u64, large_bytes: u64) -> bool {
    region.is_own_zeros() && bytes.is_multiple_of(large_bytes)
}

fn whole_pages(bytes: u64) -> Result<u64, Errno> {
    match bytes.checked_next_multiple_of(PAGE) {
        None => Err(Errno::ENOMEM),
        Some(0) => Err(Errno::EINVAL),
        Some(bytes) => Ok(bytes),
    }
}

fn is_place(range: &Range<u64>) -> bool {
    let is_in = |place: &Range<u64>| range.start >= place.start && range.end <= place.end;
    is_in(&LOW) || is_in(&PLACE)
}

/// The range of whole pages. Errors: `EINVAL`; `ENOMEM` if it is not where programs are.
fn range_of(address: u64, bytes: u64) -> Result<Range<u64>, Errno> {
    if !address.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let range = address..address.checked_add(bytes).ok_or(Errno::ENOMEM)?;
    if is_place(&range) { Ok(range) } else { Err(Errno::ENOMEM) }
}

/// The same, rounded up to pages; nothing of no bytes. Errors: as of [`range_of`].
fn range_of_any(address: u64, bytes: u64) -> Result<Option<Range<u64>>, Errno> {
    match bytes {
        _ if !address.is_multiple_of(PAGE) => Err(Errno::EINVAL),
        0 => Ok(None),
        _ => range_of(address, whole_pages(bytes)?).map(Some),
    }
}

/// For the test that what is there is what the regions say.
#[cfg(test)]
impl ProcessMemory {
    pub(super) fn runs(&self) -> Vec<(Range<u64>, u64, Protection)> {
        let state = self.state.borrow();
        state.runs.iter().map(|(range, run)| (range, run.frame, run.protection)).collect()
    }
}
