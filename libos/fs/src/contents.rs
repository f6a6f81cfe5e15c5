//! What a file holds: bytes of the image or of a disk as they lie there, and pages that were written.

use crate::disk::FirstBytes;
use crate::errno::Errno;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// What is in a hole.
static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

type Page = Box<[u8; PAGE as usize]>;

/// A sparse sequence of bytes. A page that was written counts; else the packed bytes do; else there are
/// zeros.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    len: u64,
    /// What it came with, as far as nothing cut that.
    packed: FirstBytes,
    pages: BTreeMap<u64, Page>,
}

impl Contents {
    /// What a file came with.
    pub fn packed(bytes: FirstBytes) -> Contents {
        Contents { len: bytes.len(), packed: bytes, pages: BTreeMap::new() }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// All of it, if it is as it came.
    pub fn untouched(&self) -> Option<&FirstBytes> {
        let is_whole = self.pages.is_empty() && self.len == self.packed.len();
        is_whole.then_some(&self.packed)
    }

    /// Pages of memory that it has.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Blocks of 512 bytes, as `stat` counts them.
    pub fn blocks(&self) -> u64 {
        let packed = self.packed.len().div_ceil(PAGE);
        let beside = self.pages.range(packed..).count() as u64;
        (packed + beside) * (PAGE / 512)
    }

    /// Pages that writing this range would add.
    pub fn missing(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE, (offset + len - 1) / PAGE);
        (last - first + 1) - self.pages.range(first..=last).count() as u64
    }

    /// Copies from `offset`; says how much there was.
    ///
    /// # Errors
    /// `EIO` if a disk cannot be read.
    pub fn read(&self, offset: u64, target: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        self.show(offset, target.len() as u64, &mut |bytes| {
            target[done..done + bytes.len()].copy_from_slice(bytes);
            done += bytes.len();
        })
    }

    /// Shows up to `len` bytes from `offset` where they lie, piece after piece; says how many there were.
    ///
    /// # Errors
    /// `EIO` if a disk cannot be read: what is before that was shown.
    pub fn show(&self, offset: u64, len: u64, show: &mut dyn FnMut(&[u8])) -> Result<usize, Errno> {
        let count = self.len.saturating_sub(offset).min(len);
        let (mut at, end) = (offset, offset + count);
        let mut pages = self.pages.range(offset / PAGE..).peekable();
        while at < end {
            match pages.peek() {
                Some((number, page)) if **number == at / PAGE => {
                    let within = (at % PAGE) as usize;
                    let part = (PAGE as usize - within).min((end - at) as usize);
                    show(&page[within..within + part]);
                    at += part as u64;
                    pages.next();
                }
                next => {
                    let until = next.map_or(end, |(number, _)| end.min(**number * PAGE));
                    self.show_packed(at..until, show)?;
                    at = until;
                }
            }
        }
        Ok(count as usize)
    }

    /// Shows a range in which no page was written.
    fn show_packed(&self, range: Range<u64>, show: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
        let inside = |at: u64| at.min(self.packed.len());
        let packed = inside(range.start)..inside(range.end);
        let mut zeros = range.end - range.start - (packed.end - packed.start);
        if !packed.is_empty() {
            self.packed.show(packed, show)?;
        }
        while zeros > 0 {
            let part = zeros.min(PAGE);
            show(&ZEROS[..part as usize]);
            zeros -= part;
        }
        Ok(())
    }

    /// The page, as it is now, to be written.
    fn page(&mut self, number: u64) -> Result<&mut Page, Errno> {
        if !self.pages.contains_key(&number) {
            let mut page = Box::new([0; PAGE as usize]);
            let start = (number * PAGE).min(self.packed.len());
            let end = (start + PAGE).min(self.packed.len());
            let mut done = 0;
            self.packed.show(start..end, &mut |bytes| {
                page[done..done + bytes.len()].copy_from_slice(bytes);
                done += bytes.len();
            })?;
            self.pages.insert(number, page);
        }
        self.pages.get_mut(&number).ok_or(Errno::EIO)
    }

    /// Writes `len` bytes at `offset`, which `fill` puts where they are to lie, piece after piece; the file
    /// grows if that is behind its end. Says how many were written.
    ///
    /// # Errors
    /// `EIO` if a disk cannot be read, of which the first page is a part.
    pub fn write(&mut self, offset: u64, len: u64, fill: &mut dyn FnMut(&mut [u8])) -> Result<u64, Errno> {
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let within = (at % PAGE) as usize;
            let part = (PAGE as usize - within).min((len - done) as usize);
            match self.page(at / PAGE) {
                Ok(page) => fill(&mut page[within..within + part]),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += part as u64;
        }
        if done > 0 {
            self.len = self.len.max(offset + done);
        }
        Ok(done)
    }

    /// Cuts the file, or lets it end later.
    pub fn truncate(&mut self, len: u64) {
        if len < self.len {
            self.packed.cut(len);
            drop(self.pages.split_off(&len.div_ceil(PAGE)));
            if let Some(page) = self.pages.get_mut(&(len / PAGE)) {
                page[(len % PAGE) as usize..].fill(0);
            }
        }
        self.len = len;
    }

    /// Makes zeros of a range, and gives up the pages that are wholly within.
    ///
    /// # Errors
    /// `EIO` if a disk cannot be read: what is before that is zero.
    pub fn punch(&mut self, offset: u64, len: u64) -> Result<(), Errno> {
        let end = offset.saturating_add(len).min(self.len.next_multiple_of(PAGE));
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset / PAGE, (end - 1) / PAGE);
        // What came with the file has no pages yet, and what is beside that may be far longer than memory.
        let came = first..(last + 1).min(self.packed.len().div_ceil(PAGE)).max(first);
        for number in came.clone() {
            self.clear(number, offset..end)?;
        }
        let beside: Vec<u64> = self.pages.range(came.end..last + 1).map(|(number, _)| *number).collect();
        for number in beside {
            let is_whole = offset <= number * PAGE && (number + 1) * PAGE <= end;
            match is_whole {
                true => drop(self.pages.remove(&number)),
                false => self.clear(number, offset..end)?,
            }
        }
        Ok(())
    }

    /// Makes zeros of what a page has of a range, of which it has some.
    fn clear(&mut self, number: u64, range: Range<u64>) -> Result<(), Errno> {
        let start = number * PAGE;
        let within = |at: u64| (at.clamp(start, start + PAGE) - start) as usize;
        self.page(number)?[within(range.start)..within(range.end)].fill(0);
        Ok(())
    }

    /// Gives a range pages of its own, and lets the file reach its end.
    ///
    /// # Errors
    /// `EIO` if a disk cannot be read.
    pub fn allocate(&mut self, offset: u64, len: u64) -> Result<(), Errno> {
        for number in offset / PAGE..(offset + len).div_ceil(PAGE) {
            self.page(number)?;
        }
        Ok(())
    }

    fn has(&self, number: u64) -> bool {
        number * PAGE < self.packed.len() || self.pages.contains_key(&number)
    }

    /// The first place at or after `offset` that is no hole.
    pub fn data_from(&self, offset: u64) -> Option<u64> {
        let number = offset / PAGE;
        let found = if self.has(number) {
            Some(number)
        } else {
            self.pages.range(number..).map(|(at, _)| *at).next()
        };
        found.map(|number| offset.max(number * PAGE)).filter(|at| *at < self.len)
    }

    /// The first place at or after `offset` that is a hole; the end is one.
    pub fn hole_from(&self, offset: u64) -> u64 {
        let mut number = offset / PAGE;
        while self.has(number) {
            number += 1;
        }
        offset.max(number * PAGE).min(self.len)
    }
}
