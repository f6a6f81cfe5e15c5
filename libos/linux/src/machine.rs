//! PageSource of the machine, and what gives memory back before anybody has too little.

use crate::family::ProcessFamily;
use crate::memory::holders::Holders;
use crate::memory::kept::KeptFrames;
use crate::memory::large::{Freed, LARGE_FRAMES, LargeFrames, LargePages};
use crate::memory::{FrameKeeper, PAGE, PageSource, WINDOW};
use crate::pressure::{FILES_RESERVE_BYTES, RESERVE_BYTES};
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, RefCell};
use core::ops::Range;
use nom_fs::MemoryRoom;
use nom_sys::Protection;
use nom_sys::memory::obtainable;
use nom_sys::program::ProgramSpace;
use nom_sys::program::memory::{self, LargePage, PageRun};

/// Below this no large page is taken: memory is not so plenty that a program should get more than it touches.
const LARGE_RESERVE_BYTES: u64 = 32 << 20;

/// Address spaces of processes, whose pages come from the kernel.
#[derive(Clone, Debug, Default)]
pub struct Spaces {
    holders: Rc<RefCell<Holders>>,
    kept: Rc<RefCell<KeptFrames>>,
    large: Rc<RefCell<LargeFrames>>,
    /// Whose processes they are of: one of these ends when there is no memory.
    family: Rc<RefCell<Weak<ProcessFamily>>>,
}

impl Spaces {
    /// One more, if there is memory.
    pub fn create(&self) -> Option<Rc<dyn PageSource>> {
        let space = ProgramSpace::new().ok()?;
        let (large, is_preferred) = (RefCell::default(), Cell::new(false));
        Some(Rc::new(Granted { space, spaces: self.clone(), large, is_preferred }))
    }

    /// Bytes that nobody has and only processes can get.
    pub fn idle_bytes(&self) -> u64 {
        self.large.borrow().idle() * PAGE
    }

    /// Bytes that were granted as large pages.
    pub fn large_bytes(&self) -> u64 {
        self.large.borrow().grants() * LargePage::BYTES
    }

    /// Nobody has these frames any more, and they are mapped nowhere.
    fn free(&self, frames: Range<u64>) {
        let freed = self.large.borrow_mut().free(frames);
        for freed in freed {
            match freed {
                // What is mapped nowhere has no address.
                Freed::Small(Range { start, end }) => {
                    PageRun { address: 0, frame: start, count: end - start }.give_back();
                }
                Freed::Large(frame) => LargePage { frame }.give_back(),
            }
        }
    }

    /// Frames for up to `count` pages, and how many: those that nobody has of large pages first, which have
    /// in them what was there.
    fn take(&self, address: u64, count: u64, is_preferred: bool) -> Option<(PageRun, Contents)> {
        if let Some(idle) = self.large.borrow_mut().take(count) {
            let pages = PageRun { address, frame: idle.start, count: idle.end - idle.start };
            return Some((pages, Contents::Old));
        }
        let pages = self.with_room(is_preferred, || PageRun::take(address, count).ok())?;
        Some((pages, Contents::Zeros))
    }

    /// Gives back what is kept and no process has; whether there was anything.
    fn give_back_kept(&self) -> bool {
        let holders = self.holders.borrow();
        let unused = self.kept.borrow_mut().drop_unused(|frame| holders.has_several(frame));
        let is_any = !unused.is_empty();
        unused.into_iter().for_each(|frames| self.free(frames));
        is_any
    }

    /// Gives back a part of what is only kept, to be made or read again when it is wanted; whether there was
    /// anything.
    pub fn give_back(&self) -> bool {
        let family = self.family.borrow().upgrade();
        self.give_back_kept() || family.is_some_and(|family| family.give_back())
    }

    /// Has a process of this family end when there is no memory.
    pub fn serve(&self, family: &Rc<ProcessFamily>) {
        *self.family.borrow_mut() = Rc::downgrade(family);
    }

    /// What `take` gets, if need be once what is kept has been given back; nothing of what the library needs
    /// itself, nor, unless it is preferred, of what those may need who are asked for memory.
    fn with_room<T>(&self, is_preferred: bool, take: impl Fn() -> Option<T>) -> Option<T> {
        let family = self.family.borrow().upgrade();
        let are_asked = family.as_ref().is_some_and(|family| family.heaps.are_asked());
        let reserve = if are_asked && !is_preferred { 2 * RESERVE_BYTES } else { RESERVE_BYTES };
        loop {
            let taken = if obtainable() > reserve { take() } else { None };
            if taken.is_some() {
                family.iter().for_each(ProcessFamily::watch_memory);
                return taken;
            }
            if !self.give_back() {
                return None;
            }
        }
    }
}

/// Room for files: the tree asks while somebody has it, so that of what is kept only pages of text go here,
/// and blocks of its disk by itself.
impl MemoryRoom for Spaces {
    fn bytes(&self, wanted: u64) -> u64 {
        let room = || obtainable().saturating_sub(FILES_RESERVE_BYTES);
        if room() < wanted {
            self.give_back_kept();
        }
        room()
    }
}

/// What is in frames that somebody gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Zeros,
    Old,
}

/// More than the kernel's tables for one large page as small ones take.
const TABLES_BYTES: u64 = 16 * PAGE;

/// Pages that the kernel grants, in a space.
#[derive(Debug)]
struct Granted {
    space: ProgramSpace,
    spaces: Spaces,
    large: RefCell<LargePages>,
    /// Whether its process is one that is to give memory back, which may take some first.
    is_preferred: Cell<bool>,
}

impl Granted {
    /// Pages of this space, in which the core is from now on.
    fn pages(&self, address: u64, count: u64, frame: u64) -> PageRun {
        self.space.enter();
        PageRun { address, frame, count }
    }

    /// Maps pages, large ones where frames and addresses are those of some.
    ///
    /// # Errors
    /// There was no room for all: how many are mapped.
    fn map(&self, pages: PageRun, protection: Protection) -> Result<(), u64> {
        let mut done = 0;
        while done < pages.count {
            let (address, frame) = (pages.address + done * PAGE, pages.frame + done);
            let left = pages.count - done;
            let to_block = LARGE_FRAMES - address / PAGE % LARGE_FRAMES;
            let is_large = to_block == LARGE_FRAMES
                && left >= LARGE_FRAMES
                && frame.is_multiple_of(LARGE_FRAMES)
                && self.spaces.large.borrow().has(frame);
            let count = left.min(to_block);
            let mapped = match is_large {
                true => LargePage { frame }.map(address, protection),
                false => PageRun { address, frame, count }.map(protection),
            };
            mapped.map_err(|_| done)?;
            if is_large {
                self.large.borrow_mut().add(address, frame, protection);
            }
            done += count;
        }
        Ok(())
    }

    /// Unmaps pages of this space, in which the core is.
    fn unmap(&self, address: u64, count: u64) {
        PageRun { address, frame: 0, count }.unmap().expect("they are mapped");
        self.large.borrow_mut().remove(address..address + count * PAGE);
    }
}

impl Spaces {
    /// Maps a frame for a moment, in whatever space the core is. Whether there was memory for that.
    fn through_window(&self, frame: u64, protection: Protection, act: impl FnOnce()) -> bool {
        let page = PageRun { address: WINDOW, frame, count: 1 };
        let is_mapped = page.map(protection).is_ok();
        if is_mapped {
            act();
            page.unmap().expect("it was mapped just now");
        }
        is_mapped
    }
}

impl FrameKeeper for Spaces {
    fn keep(&self, frame: u64, count: u64) {
        self.holders.borrow_mut().add(frame..frame + count);
    }

    fn leave(&self, frame: u64, count: u64) {
        let free = self.holders.borrow_mut().remove(frame..frame + count);
        free.into_iter().for_each(|frames| self.free(frames));
    }

    fn read(&self, frame: u64, start: u64, bytes: &mut [u8]) -> bool {
        self.through_window(frame, Protection::Read, || memory::read(WINDOW + start, bytes))
    }

    fn write(&self, frame: u64, start: u64, bytes: &[u8]) -> bool {
        self.through_window(frame, Protection::ReadWrite, || memory::write(WINDOW + start, bytes))
    }
}

impl PageSource for Granted {
    fn add(&self, address: u64, count: u64) -> Option<(u64, u64)> {
        self.space.enter();
        let (pages, contents) = self.spaces.take(address, count, self.is_preferred.get())?;
        if contents == Contents::Old {
            // Who runs here would see what others had.
            self.stop_others();
        }
        if pages.map(Protection::ReadWrite).is_err() {
            self.spaces.free(pages.frame..pages.frame + pages.count);
            return None;
        }
        if contents == Contents::Old {
            let zeros = [0; PAGE as usize];
            (0..pages.count).for_each(|page| memory::write(address + page * PAGE, &zeros));
        }
        Some((pages.frame, pages.count))
    }

    fn large_bytes(&self) -> u64 {
        LargePage::BYTES
    }

    fn add_large(&self, address: u64) -> Option<u64> {
        if obtainable() < LARGE_RESERVE_BYTES {
            return None;
        }
        self.space.enter();
        let page = LargePage::take().ok()?;
        if page.map(address, Protection::ReadWrite).is_err() {
            page.give_back();
            return None;
        }
        let family = self.spaces.family.borrow().upgrade();
        family.iter().for_each(ProcessFamily::watch_memory);
        self.spaces.large.borrow_mut().granted(page.frame);
        self.large.borrow_mut().add(address, page.frame, Protection::ReadWrite);
        Some(page.frame)
    }

    fn cut(&self, address: u64) -> bool {
        let over = self.large.borrow().over(address, LargePage::BYTES);
        let Some((start, frame, protection)) = over else { return true };
        if obtainable() < TABLES_BYTES {
            return false;
        }
        // Who runs here would find it missing meanwhile.
        self.stop_others();
        let small = self.pages(start, LARGE_FRAMES, frame);
        self.unmap(start, LARGE_FRAMES);
        let is_cut = small.map(protection).is_ok();
        if !is_cut {
            let page = LargePage { frame };
            page.map(start, protection).expect("there was room for it just now");
            self.large.borrow_mut().add(start, frame, protection);
        }
        is_cut
    }

    fn protect(&self, address: u64, count: u64, protection: Protection) {
        self.pages(address, count, 0).protect(protection).expect("they are mapped");
        self.large.borrow_mut().protect(address..address + count * PAGE, protection);
    }

    fn remove(&self, address: u64, pieces: &[(u64, u64)]) {
        self.space.enter();
        self.unmap(address, pieces.iter().map(|(_, count)| count).sum());
        pieces.iter().for_each(|(frame, count)| self.spaces.leave(*frame, *count));
    }

    fn enter(&self) {
        self.space.enter();
    }

    fn load(&self, address: u64) -> u32 {
        self.space.enter();
        memory::load(address)
    }

    fn exchange(&self, address: u64, old: u32, new: u32) -> bool {
        self.space.enter();
        memory::exchange(address, old, new)
    }

    fn stop_others(&self) {
        let family = self.spaces.family.borrow().upgrade();
        family.iter().for_each(|family| family.runners.recall(|space| space.is(&self.space)));
    }

    fn space(&self) -> Option<ProgramSpace> {
        Some(self.space.clone())
    }

    fn relieve(&self) -> bool {
        let family = self.spaces.family.borrow().upgrade();
        family.is_some_and(|family| family.end_largest())
    }

    fn prefer(&self) {
        self.is_preferred.set(true);
    }

    fn prefer_no_more(&self) {
        self.is_preferred.set(false);
    }

    fn keeper(&self) -> Rc<dyn FrameKeeper> {
        Rc::new(self.spaces.clone())
    }

    fn another(&self) -> Option<Rc<dyn PageSource>> {
        self.spaces.create()
    }

    fn show(&self, address: u64, count: u64, frame: u64, protection: Protection) -> bool {
        let shown = self.map(self.pages(address, count, frame), protection);
        match shown {
            Ok(()) => self.spaces.holders.borrow_mut().add(frame..frame + count),
            Err(0) => {}
            Err(done) => self.unmap(address, done),
        }
        shown.is_ok()
    }

    fn alone(&self, frame: u64, count: u64) -> u64 {
        self.spaces.holders.borrow().alone(frame..frame + count)
    }

    fn separate(&self, address: u64, frame: u64) -> Option<u64> {
        let page = self.pages(address, 1, frame);
        if !self.spaces.holders.borrow().has_several(frame) {
            page.protect(Protection::ReadWrite).expect("it is mapped");
            return Some(frame);
        }
        // Who runs here would find it missing, and then empty.
        self.stop_others();
        let (copy, _) = self.spaces.take(address, 1, self.is_preferred.get())?;
        let mut bytes = [0; PAGE as usize];
        memory::read(address, &mut bytes);
        page.unmap().expect("it is mapped");
        if copy.map(Protection::ReadWrite).is_err() {
            self.spaces.free(copy.frame..copy.frame + 1);
            page.map(Protection::Read).expect("there was room for it just now");
            return None;
        }
        memory::write(address, &bytes);
        self.spaces.leave(frame, 1);
        Some(copy.frame)
    }

    fn kept(&self, name: u64, count: u64) -> Option<(u64, u64)> {
        self.spaces.kept.borrow().find(name, count)
    }

    fn keep(&self, name: u64, count: u64, frame: u64) {
        let kept = self.spaces.kept.borrow_mut().keep(name, count, frame);
        kept.into_iter().for_each(|frames| self.spaces.holders.borrow_mut().add(frames));
    }

    fn read(&self, address: u64, bytes: &mut [u8]) {
        self.space.enter();
        memory::read(address, bytes);
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        self.space.enter();
        memory::write(address, bytes);
    }
}
