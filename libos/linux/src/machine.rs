//! PageSource of the machine, and what gives memory back before anybody has too little.

use crate::family::ProcessFamily;
use crate::memory::holders::Holders;
use crate::memory::kept::KeptFrames;
use crate::memory::{FrameKeeper, PAGE, PageSource, WINDOW};
use crate::pressure::{FILES_RESERVE_BYTES, RESERVE_BYTES};
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, RefCell};
use nom_fs::MemoryRoom;
use nom_sys::Protection;
use nom_sys::memory::obtainable;
use nom_sys::program::ProgramSpace;
use nom_sys::program::memory::{self, PageRun};

/// Address spaces of processes, whose pages come from the kernel.
#[derive(Clone, Debug, Default)]
pub struct Spaces {
    holders: Rc<RefCell<Holders>>,
    kept: Rc<RefCell<KeptFrames>>,
    /// Whose processes they are of: one of these ends when there is no memory.
    family: Rc<RefCell<Weak<ProcessFamily>>>,
}

impl Spaces {
    /// One more, if there is memory.
    pub fn create(&self) -> Option<Rc<dyn PageSource>> {
        let space = ProgramSpace::new().ok()?;
        Some(Rc::new(Granted { space, spaces: self.clone(), is_preferred: Cell::new(false) }))
    }

    /// Gives back what is kept and no process has; whether there was anything.
    fn give_back_kept(&self) -> bool {
        let holders = self.holders.borrow();
        let unused = self.kept.borrow_mut().drop_unused(|frame| holders.has_several(frame));
        for frames in &unused {
            let (frame, count) = (frames.start, frames.end - frames.start);
            // They are mapped nowhere, so that the address says nothing.
            PageRun { address: 0, frame, count }.give_back();
        }
        !unused.is_empty()
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

/// Pages that the kernel grants, in a space.
#[derive(Debug)]
struct Granted {
    space: ProgramSpace,
    spaces: Spaces,
    /// Whether its process is one that is to give memory back, which may take some first.
    is_preferred: Cell<bool>,
}

impl Granted {
    /// Pages of this space, in which the core is from now on.
    fn pages(&self, address: u64, count: u64, frame: u64) -> PageRun {
        self.space.enter();
        PageRun { address, frame, count }
    }

    /// This space has them no more: those that no other has are given back.
    fn give_back(&self, pages: PageRun) {
        let free = self.spaces.holders.borrow_mut().remove(pages.frame..pages.frame + pages.count);
        for frames in free {
            let (frame, count) = (frames.start, frames.end - frames.start);
            PageRun { frame, count, ..pages }.give_back();
        }
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
        for frames in free {
            PageRun { address: WINDOW, frame: frames.start, count: frames.end - frames.start }.give_back();
        }
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
        let pages = self.spaces.with_room(self.is_preferred.get(), || PageRun::add(address, count).ok())?;
        Some((pages.frame, pages.count))
    }

    fn protect(&self, address: u64, count: u64, protection: Protection) {
        self.pages(address, count, 0).protect(protection).expect("they are mapped");
    }

    fn remove(&self, address: u64, pieces: &[(u64, u64)]) {
        let count = pieces.iter().map(|(_, count)| count).sum();
        self.pages(address, count, 0).unmap().expect("they are mapped");
        for (frame, count) in pieces {
            self.give_back(PageRun { address, frame: *frame, count: *count });
        }
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
        let shown = self.pages(address, count, frame).map(protection).is_ok();
        if shown {
            self.spaces.holders.borrow_mut().add(frame..frame + count);
        }
        shown
    }

    fn separate(&self, address: u64, frame: u64) -> Option<u64> {
        let page = self.pages(address, 1, frame);
        if !self.spaces.holders.borrow().has_several(frame) {
            page.protect(Protection::ReadWrite).expect("it is mapped");
            return Some(frame);
        }
        // Who runs here would find it missing, and then empty.
        self.stop_others();
        let copy = self.spaces.with_room(self.is_preferred.get(), || PageRun::take(address, 1).ok())?;
        let mut bytes = [0; PAGE as usize];
        memory::read(address, &mut bytes);
        page.unmap().expect("it is mapped");
        if copy.map(Protection::ReadWrite).is_err() {
            copy.give_back();
            page.map(Protection::Read).expect("there was room for it just now");
            return None;
        }
        memory::write(address, &bytes);
        self.give_back(page);
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
