//! PageSource of the machine.

use crate::family::ProcessFamily;
use crate::memory::holders::Holders;
use crate::memory::kept::KeptFrames;
use crate::memory::{FrameKeeper, PAGE, PageSource, WINDOW};
use crate::pressure::RESERVE_BYTES;
use alloc::rc::{Rc, Weak};
use core::cell::RefCell;
use nom_sys::Protection;
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
        Some(Rc::new(Granted { space, spaces: self.clone() }))
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

    /// Has a process of this family end when there is no memory.
    pub fn serve(&self, family: &Rc<ProcessFamily>) {
        *self.family.borrow_mut() = Rc::downgrade(family);
    }

    /// What `take` gets, if need be once what is kept has been given back; nothing of what the library needs
    /// itself.
    fn with_room<T>(&self, take: impl Fn() -> Option<T>) -> Option<T> {
        let take = || if nom_sys::memory::obtainable() > RESERVE_BYTES { take() } else { None };
        take().or_else(|| if self.give_back_kept() { take() } else { None })
    }
}

/// Pages that the kernel grants, in a space.
#[derive(Debug)]
struct Granted {
    space: ProgramSpace,
    spaces: Spaces,
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
        let pages = self.spaces.with_room(|| PageRun::add(address, count).ok())?;
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

    fn relocate(&self, address: u64, count: u64, frame: u64, to: u64, protection: Protection) -> bool {
        let pages = self.pages(address, count, frame);
        pages.unmap().expect("they are mapped");
        let there = PageRun { address: to, ..pages };
        there.map(protection).inspect_err(|_| self.give_back(there)).is_ok()
    }

    fn enter(&self) {
        self.space.enter();
    }

    fn relieve(&self) -> bool {
        let family = self.spaces.family.borrow().upgrade();
        family.is_some_and(|family| family.end_largest())
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
        let copy = self.spaces.with_room(|| PageRun::take(address, 1).ok())?;
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
