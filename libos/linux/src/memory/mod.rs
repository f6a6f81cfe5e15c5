//! A process's memory: what regions it has, and the pages behind them, which come when they are touched.
//!
//! Decisions are here, without a machine: [`PageSource`] maps, unmaps and copies. A region is what the
//! process asked for; a run of pages is what is there of it. PageSource that a program has not touched are
//! not there; the library's own accesses look first ([`ProcessMemory::read`], [`ProcessMemory::write`]), so a
//! bad pointer is `EFAULT` and never a fault.

mod change;
mod fork;
pub mod holders;
pub mod kept;
pub mod large;
mod ranges;
mod reached;
mod region;
mod runs;
mod shared;
#[cfg(test)]
pub(crate) mod tests;

pub use change::{PLACE, WINDOW, Where};
pub use large::LargeUse;
pub use ranges::{Part, RangeMap};
pub use reached::{Reached, ReachedPieces};
pub use region::{Backing, Contents, FilePart, MappedRegion, OnFork, Purpose, Rights, SharedPart, Sharing};
pub use shared::{FrameKeeper, SharedPages};

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::cmp::Ordering;
use core::fmt;
use core::ops::Range;
use nom_fs::{Errno, NodeId};
use nom_sys::Protection;
use nom_sys::program::ProgramSpace;
use runs::Runs;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// PageSource that come together when one is touched, as far as they are in its region.
const AROUND: u64 = 16;
/// Bytes that are free between what is placed without a wish.
const GAP: u64 = PAGE;

/// Maps, unmaps and copies, on the machine or in a test.
pub trait PageSource {
    /// Maps up to `count` zeroed pages, at least one, at `address`, readable and writable: their first frame,
    /// and how many they are. Nothing if there is no memory, or no room at that address.
    fn add(&self, address: u64, count: u64) -> Option<(u64, u64)>;
    /// Bytes of a large page.
    fn large_bytes(&self) -> u64;
    /// Maps a zeroed large page at `address`, a multiple of its bytes, readable and writable: its first
    /// frame. Nothing unless there is plenty of memory.
    fn add_large(&self, address: u64) -> Option<u64>;
    /// Has no large page reach over `address`: one that did is small pages then. What is done with pages, is
    /// done with all of a large one. Whether there was memory for that.
    fn cut(&self, address: u64) -> bool;
    /// Changes what may be done with pages that are there.
    fn protect(&self, address: u64, count: u64, protection: Protection);
    /// Unmaps pages that are in one piece at `address`, and gives them back: their frames are in `pieces`,
    /// each its first and how many.
    fn remove(&self, address: u64, pieces: &[(u64, u64)]);
    /// Has the running core be where these pages are.
    fn enter(&self);
    /// A place of its own for pages, where these can be mapped, too. Nothing if there is no memory.
    fn another(&self) -> Option<Rc<dyn PageSource>>;
    /// Maps pages that are mapped in another place: whoever removes them last gives them back. Whether there
    /// was room.
    fn show(&self, address: u64, count: u64, frame: u64, protection: Protection) -> bool;
    /// How many of `count` frames from this one on are in no other place, up to the first that is in one.
    fn alone(&self, frame: u64, count: u64) -> u64;
    /// Makes a readable page, which may be mapped in other places, too, one that is mapped here alone and can
    /// be written: its frame then. Nothing if there is no memory: it is as it was.
    fn separate(&self, address: u64, frame: u64) -> Option<u64>;
    /// A frame that is kept under a name, and how many behind it are kept under the names behind that, at
    /// most `count`.
    fn kept(&self, name: u64, count: u64) -> Option<(u64, u64)>;
    /// Keeps pages of this place for others, where they can be [shown](PageSource::show) by their names:
    /// numbers that stand for what is in them, which nobody changes. Those under whose name there is one
    /// already are not kept.
    fn keep(&self, name: u64, count: u64, frame: u64);
    /// Copies from pages that are there and readable.
    fn read(&self, address: u64, bytes: &mut [u8]);
    /// Copies to pages that are there and writable.
    fn write(&self, address: u64, bytes: &[u8]);
    /// The word at an address that is there and readable, as a program on another core may change it.
    fn load(&self, address: u64) -> u32 {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes);
        u32::from_le_bytes(bytes)
    }
    /// Changes the word at an address that is there and writable, if it is `old`, and nobody else changes it
    /// in between: whether it was.
    fn exchange(&self, address: u64, old: u32, new: u32) -> bool {
        let is_old = self.load(address) == old;
        if is_old {
            self.write(address, &new.to_le_bytes());
        }
        is_old
    }
    /// Until whoever calls is done with what it changes here, no program runs with these pages: it would see
    /// that halfway.
    fn stop_others(&self) {}
    /// The address space that these pages are in, on a machine.
    fn space(&self) -> Option<ProgramSpace> {
        None
    }
    /// There is no memory: makes some free, by ending somebody. Whether that may help.
    fn relieve(&self) -> bool {
        false
    }
    /// From now on these pages come first where memory is short.
    fn prefer(&self) {}
    /// From now on they do not.
    fn prefer_no_more(&self) {}
    /// Who keeps frames of these and of all other places.
    fn keeper(&self) -> Rc<dyn FrameKeeper>;
}

/// PageSource that are there, in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    frame: u64,
    protection: Protection,
    hold: Hold,
}

/// Whose pages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// This process's, or those of all who have it mapped shared.
    Own,
    /// Another process may have them, too, and neither is to see what the other writes: whoever writes first
    /// gets a copy.
    Common,
    /// All have it who have the file mapped shared; that somebody writes to it is to be noted first.
    Watched,
}

impl Run {
    /// What may be done with it of `wanted`: what is common is not written, nor what is watched.
    fn allowed(&self, wanted: Protection) -> Protection {
        if self.hold != Hold::Own && wanted.writable() { Protection::Read } else { wanted }
    }
}

impl Part for Run {
    fn behind(&self, bytes: u64) -> Run {
        Run { frame: self.frame + bytes / PAGE, ..*self }
    }

    fn goes_on_as(&self, bytes: u64, next: &Run) -> bool {
        self.behind(bytes) == *next
    }
}

/// How an instruction touched an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It read.
    Read,
    /// It wrote.
    Write,
    /// It was to be executed.
    Execute,
}

impl Touch {
    /// What a page fault's error code says (Intel SDM vol. 3A, 4.7).
    pub fn from_code(code: u64) -> Touch {
        match code {
            code if code & 1 << 4 != 0 => Touch::Execute,
            code if code & 1 << 1 != 0 => Touch::Write,
            _ => Touch::Read,
        }
    }

    /// Whether pages that are there with a protection can be touched so.
    fn is_allowed_by(self, protection: Protection) -> bool {
        match self {
            Touch::Read => protection != Protection::None,
            Touch::Write => protection.writable(),
            Touch::Execute => protection.executable(),
        }
    }
}

/// Why a touch is a fault to the program, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// There is no region.
    NoRegion,
    /// The region does not allow it.
    NotAllowed,
    /// It is behind the end of the file, or cannot be read.
    BehindFile,
    /// There is no memory.
    NoMemory,
}

/// A process's memory.
pub struct ProcessMemory {
    pages: Rc<dyn PageSource>,
    state: RefCell<State>,
    /// Whether there may be large pages (`PR_SET_THP_DISABLE`).
    takes_large: Cell<bool>,
    /// How often something was made there that was touched.
    faults: Cell<u64>,
}

struct State {
    regions: RangeMap<MappedRegion>,
    runs: Runs,
    /// Where regions are placed.
    place: Range<u64>,
    /// Where the heap begins, and where it ends.
    heap: Range<u64>,
    /// Above this address no place is free for so many bytes or more: where many regions are, who wants one
    /// more does not look at all of them.
    packed: (u64, u64),
}

/// Of which nothing is known: as [`State::packed`].
const UNPACKED: (u64, u64) = (u64::MAX, 0);
/// Most regions of a process, as on Linux (vm.max_map_count).
const REGIONS_MAX: usize = 65_530;

impl fmt::Debug for ProcessMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        write!(out, "ProcessMemory({} bytes, {} of them there)", state.regions.bytes(), state.runs.bytes())
    }
}

impl ProcessMemory {
    /// Of a process that has none yet, and whose regions are placed from the end of `place` on downwards.
    pub fn new(pages: Rc<dyn PageSource>, place: Range<u64>) -> ProcessMemory {
        let (regions, runs) = Default::default();
        ProcessMemory {
            pages,
            state: RefCell::new(State { regions, runs, place, heap: 0..0, packed: UNPACKED }),
            takes_large: Cell::new(true),
            faults: Cell::new(0),
        }
    }

    /// No large page comes from now on, whatever was said of a region: those that are there stay.
    pub fn refuse_large(&self) {
        self.takes_large.set(false);
    }

    /// Large pages come again where they are to.
    pub fn allow_large(&self) {
        self.takes_large.set(true);
    }

    /// Whether large pages come where they are to.
    pub fn takes_large(&self) -> bool {
        self.takes_large.get()
    }

    /// How often something was made there that was touched.
    pub fn faults(&self) -> u64 {
        self.faults.get()
    }

    /// The same memory's, before a program began that has this one.
    pub fn count_on(&self, faults: u64) {
        self.faults.set(faults);
    }

    /// The regions, by ascending address.
    pub fn regions(&self) -> Vec<(Range<u64>, MappedRegion)> {
        self.state.borrow().regions.iter().map(|(range, region)| (range, region.clone())).collect()
    }

    /// The file that is mapped at an address.
    pub fn file_at(&self, address: u64) -> Option<NodeId> {
        match &self.state.borrow().regions.find(address)?.1.backing {
            Backing::File(part) => part.contents.node(),
            Backing::Zero | Backing::Shared(_) => None,
        }
    }

    /// From now on it comes first where memory is short.
    pub fn prefer(&self) {
        self.pages.prefer();
    }

    /// From now on it does not.
    pub fn prefer_no_more(&self) {
        self.pages.prefer_no_more();
    }

    /// Bytes of all regions, and of the pages that are there.
    pub fn bytes(&self) -> (u64, u64) {
        let state = self.state.borrow();
        (state.regions.bytes(), state.runs.bytes())
    }

    /// Makes a touch of `address` possible, which the region that it is in must allow.
    ///
    /// # Errors
    /// Why it is not.
    pub fn touch(&self, address: u64, touch: Touch) -> Result<(), Bad> {
        loop {
            match self.try_touch(address, touch) {
                Err(Bad::NoMemory) if self.pages.relieve() => {}
                touched => return touched,
            }
        }
    }

    /// The same, but that nobody is made to give memory back.
    ///
    /// # Errors
    /// As [`ProcessMemory::touch`].
    pub fn try_touch(&self, address: u64, touch: Touch) -> Result<(), Bad> {
        self.faults.set(self.faults.get() + 1);
        let state = &mut *self.state.borrow_mut();
        let (range, region) = state.regions.find(address).ok_or(Bad::NoRegion)?;
        if !region.rights.allow(touch) {
            return Err(Bad::NotAllowed);
        }
        let page = address - address % PAGE;
        if let Some(behind) = region.backing.end_of_file(page - range.start) {
            return Err(behind);
        }
        let wanted = region.rights.protection(touch);
        if let Some((there, run)) = state.runs.find(page).map(|(there, run)| (there, run.clone())) {
            let mut run = run.behind(page - there.start);
            if run.hold == Hold::Common && wanted.writable() && touch == Touch::Write {
                let part = there.start.max(range.start)..there.end.min(range.end);
                return state.make_own(&*self.pages, page, part, run);
            }
            if let (Backing::Shared(part), Hold::Watched, Touch::Write) = (&region.backing, run.hold, touch) {
                part.pages.note_written((part.offset + page - range.start) / PAGE);
                run.hold = Hold::Own;
            }
            let wanted = run.allowed(wanted);
            if run.protection != wanted {
                cut(&*self.pages, &(page..page + PAGE)).map_err(|_| Bad::NoMemory)?;
                self.pages.protect(page, 1, wanted);
                state.runs.insert(page..page + PAGE, Run { protection: wanted, ..run });
            }
            return Ok(());
        }
        let region = region.clone();
        if self.takes_large.get() && state.bring_large(&*self.pages, &range, &region, page, wanted) {
            return Ok(());
        }
        let around = page - page % (AROUND * PAGE);
        let window = around.max(range.start)..(around + AROUND * PAGE).min(range.end);
        if let Backing::Shared(part) = region.behind(page - range.start).backing {
            return state.share(&*self.pages, &part, page..window.end, wanted, touch);
        }
        state.fill(&*self.pages, &range, &region, page, window, wanted)
    }

    /// Copies what the process has at `address`.
    ///
    /// # Errors
    /// `EFAULT` unless it could read all of that itself.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.reach(address, bytes.len() as u64, Touch::Read)?;
        // No bytes may be at any address.
        if !bytes.is_empty() {
            self.pages.read(address, bytes);
        }
        Ok(())
    }

    /// Copies to where the process has `address`.
    ///
    /// # Errors
    /// `EFAULT` unless it could write all of that itself.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.reach(address, bytes.len() as u64, Touch::Write)?;
        // No bytes may be at any address.
        if !bytes.is_empty() {
            self.pages.write(address, bytes);
        }
        Ok(())
    }

    /// Reads a structure.
    ///
    /// # Errors
    /// As for [`ProcessMemory::read`].
    pub fn read_value<T: FromBytes + IntoBytes>(&self, address: u64) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        self.read(address, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Writes a structure.
    ///
    /// # Errors
    /// As for [`ProcessMemory::write`].
    pub fn write_value<T: IntoBytes + Immutable>(&self, address: u64, value: &T) -> Result<(), Errno> {
        self.write(address, value.as_bytes())
    }

    /// The address space that it is in, on a machine.
    pub(crate) fn space(&self) -> Option<ProgramSpace> {
        self.pages.space()
    }

    /// Until the caller is done with what it does, no program runs here on another core.
    pub(crate) fn stop_others(&self) {
        self.pages.stop_others();
    }

    /// The word at an address, whatever other cores do.
    ///
    /// # Errors
    /// `EFAULT` as for [`ProcessMemory::read`]; `EINVAL` unless it is a multiple of four.
    #[inline]
    pub fn load_word(&self, address: u64) -> Result<u32, Errno> {
        self.reach_word(address, Touch::Read)?;
        Ok(self.pages.load(address))
    }

    /// Changes the word at an address to what `change` makes of it, in one step whatever other cores do; not
    /// if that is nothing. Returns what it was.
    ///
    /// # Errors
    /// `EFAULT` as for [`ProcessMemory::write`]; `EINVAL` unless it is a multiple of four.
    pub fn change_word(&self, address: u64, change: impl Fn(u32) -> Option<u32>) -> Result<u32, Errno> {
        self.reach_word(address, Touch::Write)?;
        loop {
            let old = self.pages.load(address);
            if change(old).is_none_or(|new| self.pages.exchange(address, old, new)) {
                return Ok(old);
            }
        }
    }

    fn reach_word(&self, address: u64, touch: Touch) -> Result<(), Errno> {
        const BYTES: u64 = size_of::<u32>() as u64;
        if !address.is_multiple_of(BYTES) {
            return Err(Errno::EINVAL);
        }
        self.reach(address, BYTES, touch)
    }

    /// Reads a string up to its zero, which is not part of what is returned.
    ///
    /// # Errors
    /// `EFAULT`; `ENAMETOOLONG` if there is no zero among the first `most` bytes.
    pub fn read_string(&self, address: u64, most: usize) -> Result<Vec<u8>, Errno> {
        let mut string = Vec::new();
        while string.len() < most {
            let at = address.checked_add(string.len() as u64).ok_or(Errno::EFAULT)?;
            let mut piece = [0; 64];
            let on_page = (PAGE - at % PAGE) as usize;
            let piece = &mut piece[..on_page.min(64).min(most - string.len())];
            self.read(at, piece)?;
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                string.extend_from_slice(&piece[..end]);
                return Ok(string);
            }
            string.extend_from_slice(piece);
        }
        Err(Errno::ENAMETOOLONG)
    }

    /// Reads a list of addresses up to its zero.
    ///
    /// # Errors
    /// `EFAULT`; `E2BIG` if there are more than `most`.
    pub fn read_pointers(&self, mut address: u64, most: usize) -> Result<Vec<u64>, Errno> {
        let mut pointers = Vec::new();
        loop {
            match self.read_value::<u64>(address)? {
                0 => return Ok(pointers),
                _ if pointers.len() == most => return Err(Errno::E2BIG),
                pointer => pointers.push(pointer),
            }
            address = address.checked_add(8).ok_or(Errno::EFAULT)?;
        }
    }

    /// Makes `bytes` at `address` there, as the process could touch them.
    ///
    /// # Errors
    /// `EFAULT`.
    #[inline]
    pub fn reach(&self, address: u64, bytes: u64, touch: Touch) -> Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        let end = address.checked_add(bytes).ok_or(Errno::EFAULT)?;
        // Nearly always.
        if self.state.borrow().runs.holds_lately(address..end, touch) {
            return Ok(());
        }
        self.reach_by_pages(address, end, touch)
    }

    fn reach_by_pages(&self, address: u64, end: u64, touch: Touch) -> Result<(), Errno> {
        let mut next = address - address % PAGE;
        while next < end {
            // What is there with the right protection need not be looked at page by page.
            let there = self.state.borrow().there(next, touch);
            match there {
                Some(until) => next = until,
                None => {
                    self.touch(next.max(address), touch).map_err(|_| Errno::EFAULT)?;
                    next += PAGE;
                }
            }
        }
        Ok(())
    }
}

impl State {
    /// The end of what is there around an address, if it can be touched so.
    fn there(&self, address: u64, touch: Touch) -> Option<u64> {
        let (end, protection) = self.runs.around(address)?;
        touch.is_allowed_by(protection).then_some(end)
    }

    /// Makes a page writable that was common, in a part of a region that is there in one piece: a copy if
    /// others have it; if nobody has any of those around it, these, too.
    fn make_own(&mut self, pages: &dyn PageSource, page: u64, part: Range<u64>, run: Run) -> Result<(), Bad> {
        let block = page - page % pages.large_bytes();
        let around = block.max(part.start)..part.end.min(block.saturating_add(pages.large_bytes()));
        let count = (around.end - around.start) / PAGE;
        let first = run.frame - (page - around.start) / PAGE;
        let own = |frame| Run { frame, protection: Protection::ReadWrite, hold: Hold::Own };
        if pages.alone(first, count) == count {
            pages.protect(around.start, count, Protection::ReadWrite);
            self.runs.insert(around, own(first));
            return Ok(());
        }
        cut(pages, &(page..page + PAGE)).map_err(|_| Bad::NoMemory)?;
        let frame = pages.separate(page, run.frame).ok_or(Bad::NoMemory)?;
        self.runs.insert(page..page + PAGE, own(frame));
        Ok(())
    }

    /// Makes a large page there that has `page` in it, if there can be one.
    fn bring_large(
        &mut self,
        pages: &dyn PageSource,
        range: &Range<u64>,
        region: &MappedRegion,
        page: u64,
        wanted: Protection,
    ) -> bool {
        let Some(block) = self.large_block(pages, range, region, page) else { return false };
        let Some(frame) = pages.add_large(block.start) else { return false };
        if wanted != Protection::ReadWrite {
            pages.protect(block.start, (block.end - block.start) / PAGE, wanted);
        }
        self.runs.insert(block, Run { frame, protection: wanted, hold: Hold::Own });
        true
    }

    /// Makes pages of a region there: `page`, and those around it within `window` that are not there yet.
    fn fill(
        &mut self,
        pages: &dyn PageSource,
        range: &Range<u64>,
        region: &MappedRegion,
        page: u64,
        window: Range<u64>,
        wanted: Protection,
    ) -> Result<(), Bad> {
        let end = self.runs.overlapping(page..window.end).next().map_or(window.end, |(run, _)| run.start);
        let start = self.runs.overlapping(window.start..page).last().map_or(window.start, |(run, _)| run.end);
        let end = region.backing.fillable(range.start, end).max(page + PAGE);
        if matches!(region.backing, Backing::File(_)) {
            // They are there before what is in them is.
            pages.stop_others();
        }
        let mut next = start;
        while next < end {
            if let Some((frame, count)) = region.kept_pages(pages, next - range.start, end - next)
                && pages.show(next, count, frame, wanted)
            {
                let hold = Hold::Common;
                self.runs.insert(next..next + count * PAGE, Run { frame, protection: wanted, hold });
                next += count * PAGE;
                continue;
            }
            let Some((frame, count)) = pages.add(next, (end - next) / PAGE) else {
                // Without memory for those around it, the page alone will do.
                return match next {
                    next if next > page => Ok(()),
                    next if next < page => self.fill(pages, range, region, page, page..page + PAGE, wanted),
                    _ => Err(Bad::NoMemory),
                };
            };
            let bytes = count * PAGE;
            if region.backing.write_to(pages, next, next - range.start, bytes).is_err() {
                pages.remove(next, &[(frame, count)]);
                // What cannot be read is nobody's affair but of who touches it.
                return match (next.cmp(&page), count) {
                    (Ordering::Greater, _) => Ok(()),
                    (Ordering::Equal, 1) => Err(Bad::BehindFile),
                    _ => self.fill(pages, range, region, page, page..page + PAGE, wanted),
                };
            }
            if wanted != Protection::ReadWrite {
                pages.protect(next, count, wanted);
            }
            let hold = region.keep_pages(pages, next - range.start, count, frame);
            self.runs.insert(next..next + bytes, Run { frame, protection: wanted, hold });
            next += bytes;
        }
        Ok(())
    }

    /// Makes pages that are shared there, from the first of `window` on, as many as are in one piece.
    fn share(
        &mut self,
        pages: &dyn PageSource,
        part: &SharedPart,
        window: Range<u64>,
        wanted: Protection,
        touch: Touch,
    ) -> Result<(), Bad> {
        let (page, index) = (window.start, part.offset / PAGE);
        let end = self.runs.overlapping(window.clone()).next().map_or(window.end, |(run, _)| run.start);
        let end = part.fillable(page, end).max(page + PAGE);
        let writes = wanted.writable() && touch == Touch::Write;
        let most = if writes && part.pages.is_written_back() { 1 } else { (end - page) / PAGE };
        let (there, mut count) = part.pages.piece(index, most);
        let frame = match there {
            Some(frame) => frame,
            None => {
                if part.pages.file().is_some() {
                    // As in `fill`.
                    pages.stop_others();
                }
                let (frame, added) = pages.add(page, count).ok_or(Bad::NoMemory)?;
                if part.pages.bring(pages, page, index, (frame, added)).is_err() {
                    pages.remove(page, &[(frame, added)]);
                    return match added {
                        1 => Err(Bad::BehindFile),
                        _ => self.share(pages, part, page..page + PAGE, wanted, touch),
                    };
                }
                count = added;
                frame
            }
        };
        let hold = match part.pages.is_written_back() {
            true if writes => {
                part.pages.note_written(index);
                Hold::Own
            }
            true => Hold::Watched,
            false => Hold::Own,
        };
        let run = Run { frame, protection: wanted, hold };
        let protection = run.allowed(wanted);
        if there.is_some() {
            if !pages.show(page, count, frame, protection) {
                return Err(Bad::NoMemory);
            }
        } else if protection != Protection::ReadWrite {
            pages.protect(page, count, protection);
        }
        self.runs.insert(page..page + count * PAGE, Run { protection, ..run });
        Ok(())
    }

    /// Gives back what is there of `range`: what is side by side is unmapped at once, since the kernel looks
    /// each time whether its tables are empty.
    ///
    /// # Errors
    /// As [`cut`].
    fn drop_pages(&mut self, pages: &dyn PageSource, range: Range<u64>) -> Result<(), Errno> {
        cut(pages, &range)?;
        for beside in self.runs.remove(range).chunk_by(|(part, _), (next, _)| part.end == next.start) {
            let piece = |(part, run): &(Range<u64>, Run)| (run.frame, (part.end - part.start) / PAGE);
            let pieces: Vec<_> = beside.iter().map(piece).collect();
            pages.remove(beside[0].0.start, &pieces);
        }
        Ok(())
    }
}

/// Something else than around it is to be done with `range`: no large page reaches over its ends then.
///
/// # Errors
/// `ENOMEM` if there is no memory for the tables of small pages.
fn cut(pages: &dyn PageSource, range: &Range<u64>) -> Result<(), Errno> {
    let is_cut = pages.cut(range.start) && pages.cut(range.end);
    if is_cut { Ok(()) } else { Err(Errno::ENOMEM) }
}

impl Drop for ProcessMemory {
    fn drop(&mut self) {
        // No large page reaches over the ends of all that there is.
        let _ = self.state.get_mut().drop_pages(&*self.pages, 0..u64::MAX - PAGE + 1);
    }
}
