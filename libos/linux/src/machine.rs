//! PageSource of the machine.

use crate::memory::holders::Holders;
use crate::memory::kept::KeptFrames;
use crate::memory::{PAGE, PageSource};
use alloc::rc::Rc;
use core::cell::RefCell;
use nom_sys::Protection;
use nom_sys::program::ProgramSpace;
use nom_sys::program::memory::{self, PageRun};

/// Address spaces of processes, whose pages come from the kernel.
#[derive(Clone, Debug, Default)]
pub struct Spaces {
    holders: Rc<RefCell<Holders>>,
    kept: Rc<RefCell<KeptFrames>>,
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

    /// What `take` gets, if need be once what is kept has been given back.
    fn with_room<T>(&self, take: impl Fn() -> Option<T>) -> Option<T> {
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

impl PageSource for Granted {
    fn add(&self, address: u64, count: u64) -> Option<(u64, u64)> {
        self.space.enter();
        let pages = self.spaces.with_room(|| PageRun::add(address, count).ok())?;
        Some((pages.frame, pages.count))
    }

    fn protect(&self, address: u64, count: u64, protection: Protection) {
        self.pages(address, count, 0).protect(protection).expect("they are mapped");
    }

    fn remove(&self, address: u64, count: u64, frame: u64) {
        let pages = self.pages(address, count, frame);
        pages.unmap().expect("they are mapped");
        self.give_back(pages);
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
