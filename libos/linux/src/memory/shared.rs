//! Pages that whoever maps the same finds: of a file, of a segment of shmget(2), or of nobody who has a name.
//! They stay while anybody has them mapped, or keeps them otherwise, and are brought when they are touched.

use super::{Contents, PAGE, PageSource};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::fmt;
use core::ops::Range;
use nom_fs::Errno;

/// Keeps frames that may be mapped nowhere, and reaches what is in them.
pub trait FrameKeeper {
    /// Keeps frames that a process has.
    fn keep(&self, frame: u64, count: u64);
    /// Keeps them no more: who has them mapped still has them.
    fn leave(&self, frame: u64, count: u64);
    /// Copies what is in a frame from `start` on. Whether there was memory for that.
    fn read(&self, frame: u64, start: u64, bytes: &mut [u8]) -> bool;
    /// Copies to a frame, from `start` on. Whether there was memory for that.
    fn write(&self, frame: u64, start: u64, bytes: &[u8]) -> bool;
}

/// Pages that are shared.
pub struct SharedPages {
    keeper: Rc<dyn FrameKeeper>,
    /// What they are of; zeros otherwise.
    file: Option<Rc<dyn Contents>>,
    /// The frame of each that was touched.
    frames: RefCell<BTreeMap<u64, u64>>,
    /// Those that a process could write to since they were brought.
    written: RefCell<BTreeSet<u64>>,
}

impl fmt::Debug for SharedPages {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SharedPages({} there)", self.frames.borrow().len())
    }
}

impl SharedPages {
    /// None yet: of a file, or zeros.
    pub fn new(keeper: Rc<dyn FrameKeeper>, file: Option<Rc<dyn Contents>>) -> Rc<SharedPages> {
        Rc::new(SharedPages { keeper, file, frames: RefCell::default(), written: RefCell::default() })
    }

    /// What they are of.
    pub fn file(&self) -> Option<&Rc<dyn Contents>> {
        self.file.as_ref()
    }

    /// The frame of a page that is there.
    pub(super) fn frame(&self, page: u64) -> Option<u64> {
        self.frames.borrow().get(&page).copied()
    }

    /// Whether a page is in memory, as all of a file is said to be.
    pub(super) fn holds(&self, page: u64) -> bool {
        self.file.is_some() || self.frame(page).is_some()
    }

    /// How many pages from `page` on, of at most `most`, are there in one piece, from a frame on that is
    /// returned; none, and how many are not there.
    pub(super) fn piece(&self, page: u64, most: u64) -> (Option<u64>, u64) {
        let frames = self.frames.borrow();
        let first = frames.get(&page).copied();
        let goes_on = |count: &u64| match first {
            Some(first) => frames.get(&(page + count)) == Some(&(first + count)),
            None => !frames.contains_key(&(page + count)),
        };
        (first, 1 + (1..most).take_while(goes_on).count() as u64)
    }

    /// Has these pages from now on, which `pages` has mapped at `address`, zeroed: it brings what is in them.
    ///
    /// # Errors
    /// What cannot be read.
    pub(super) fn bring(
        &self,
        pages: &dyn PageSource,
        address: u64,
        page: u64,
        piece: (u64, u64),
    ) -> Result<(), Errno> {
        let (frame, count) = piece;
        if let Some(file) = &self.file {
            let mut bytes = [0; PAGE as usize];
            for index in 0..count {
                let read = file.read_at((page + index) * PAGE, &mut bytes)?;
                pages.write(address + index * PAGE, &bytes[..read]);
            }
        }
        self.keeper.keep(frame, count);
        self.frames.borrow_mut().extend((0..count).map(|index| (page + index, frame + index)));
        Ok(())
    }

    /// A process can write to a page from now on.
    pub(super) fn note_written(&self, page: u64) {
        self.written.borrow_mut().insert(page);
    }

    /// Whether writes are to be noted: what is of no file goes nowhere.
    pub(super) fn is_written_back(&self) -> bool {
        self.file.is_some()
    }

    /// Writes to the file what processes could write to, as far as the file goes.
    pub fn write_back(&self, pages: Range<u64>) {
        let Some(file) = &self.file else { return };
        if pages.is_empty() {
            return;
        }
        let len = file.len();
        let mut bytes = [0; PAGE as usize];
        for page in self.written.borrow().range(pages) {
            let count = len.saturating_sub(page * PAGE).min(PAGE) as usize;
            let Some(frame) = self.frame(*page).filter(|_| count > 0) else { continue };
            if self.keeper.read(frame, 0, &mut bytes[..count]) {
                // Whoever waits for it, by msync(2) or fsync(2), is told of what fails then.
                let _ = file.write_at(page * PAGE, &bytes[..count]);
            }
        }
    }

    /// Changes what was read of the file to what processes have written.
    pub fn overlay(&self, offset: u64, bytes: &mut [u8]) {
        self.each_part(offset, bytes.len() as u64, |page, frame, start, part| {
            if self.written.borrow().contains(&page) {
                self.keeper.read(frame, start, &mut bytes[part]);
            }
        });
    }

    /// Somebody wrote this to the file, which processes are to see.
    pub fn put(&self, offset: u64, bytes: &[u8]) {
        self.each_part(offset, bytes.len() as u64, |_, frame, start, part| {
            self.keeper.write(frame, start, &bytes[part]);
        });
    }

    /// Calls `act` with each page that is there of a part of the file: its number, its frame, where in it the
    /// part begins, and which bytes of the part those are.
    fn each_part(&self, offset: u64, len: u64, mut act: impl FnMut(u64, u64, u64, Range<usize>)) {
        let end = offset.saturating_add(len);
        let pages = offset / PAGE..end.div_ceil(PAGE);
        if pages.is_empty() {
            return;
        }
        for (page, frame) in self.frames.borrow().range(pages) {
            let first = offset.max(page * PAGE);
            let last = end.min((page + 1) * PAGE);
            act(*page, *frame, first - page * PAGE, (first - offset) as usize..(last - offset) as usize);
        }
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        // One after the other, so that what is written back takes no more memory than goes.
        while let Some((page, frame)) =
            self.frames.get_mut().first_key_value().map(|(page, frame)| (*page, *frame))
        {
            if self.written.get_mut().contains(&page) {
                self.write_back(page..page + 1);
            }
            self.frames.get_mut().remove(&page);
            self.keeper.leave(frame, 1);
        }
    }
}
