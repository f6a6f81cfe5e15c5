//! What a range of a process's addresses is to be.

use super::{Bad, Hold, LargeUse, PAGE, PageSource, Part, Run, SharedPages, Touch};
use alloc::rc::Rc;
use core::fmt;
use core::ops::Range;
use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE};
use nom_fs::{Errno, NodeId};
use nom_sys::Protection;

/// What a process may do with a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u32);

impl Rights {
    /// Nothing.
    pub const NONE: Rights = Rights(0);
    /// To read.
    pub const READ: Rights = Rights(PROT_READ);
    /// To write.
    pub const WRITE: Rights = Rights(PROT_WRITE);
    /// To execute.
    pub const EXECUTE: Rights = Rights(PROT_EXEC);
    /// To read and write.
    pub const READ_WRITE: Rights = Rights(PROT_READ | PROT_WRITE);
    /// To read and execute.
    pub const READ_EXECUTE: Rights = Rights(PROT_READ | PROT_EXEC);

    /// As `mmap` and ELF's loaders name them; other bits are no rights.
    pub fn from_bits(bits: u32) -> Rights {
        Rights(bits & (PROT_READ | PROT_WRITE | PROT_EXEC))
    }

    /// As `mmap` names them.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of these are among them.
    pub fn has(self, others: Rights) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether they allow a touch. What can be written or executed can be read: the processor has it so.
    pub fn allow(self, touch: Touch) -> bool {
        match touch {
            Touch::Read => self.0 != 0,
            Touch::Write => self.0 & PROT_WRITE != 0,
            Touch::Execute => self.0 & PROT_EXEC != 0,
        }
    }

    /// The protection of a page that was touched so, which they allow. What may be written and executed is
    /// one of both at a time, whichever was wanted last, since the kernel lets no page be both.
    pub fn protection(self, touch: Touch) -> Protection {
        let (writes, executes) = (self.0 & PROT_WRITE != 0, self.0 & PROT_EXEC != 0);
        match touch {
            _ if self.0 == 0 => Protection::None,
            Touch::Execute => Protection::ReadExecute,
            _ if writes => Protection::ReadWrite,
            _ if executes => Protection::ReadExecute,
            _ => Protection::Read,
        }
    }
}

/// Whether others see what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody.
    Private,
    /// Whoever has the same mapped.
    Shared,
}

/// What a region is for, as `/proc/self/maps` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Whatever was mapped.
    Mapping,
    /// The heap of `brk`.
    Heap,
    /// The first stack.
    Stack,
    /// The image of functions that tell the time.
    Vdso,
}

/// The contents of a file, which stay what they are while it is mapped.
pub trait Contents {
    /// Reads from an offset on; how many bytes there were.
    ///
    /// # Errors
    /// What the file system says.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno>;

    /// Writes at an offset, what a process wrote where it has the file mapped shared.
    ///
    /// # Errors
    /// What the file system says; `EBADF` of what is not written.
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<(), Errno> {
        Err(Errno::EBADF)
    }

    /// The file's length.
    fn len(&self) -> u64;

    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it, if that lies in memory for good: nobody changes it as long as the machine runs.
    fn unchanging(&self) -> Option<&'static [u8]> {
        None
    }

    /// By which its first byte is told from all others that never change, and those behind it by the numbers
    /// that follow: if nobody changes it as long as the machine runs.
    fn first_name(&self) -> Option<u64> {
        self.unchanging().map(|all| all.as_ptr().addr() as u64)
    }

    /// Which file it is, for `/proc/self/maps`.
    fn node(&self) -> Option<NodeId> {
        None
    }
}

/// A part of a file.
#[derive(Clone)]
pub struct FilePart {
    /// The file.
    pub contents: Rc<dyn Contents>,
    /// Where it begins.
    pub offset: u64,
    /// Bytes of it; what a region has behind them is zero. `u64::MAX`: as many as the file has, and a touch
    /// of a page behind its end is a bus error.
    pub bytes: u64,
}

impl fmt::Debug for FilePart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x} bytes at {:#x}", self.bytes, self.offset)
    }
}

/// A part of what is shared.
#[derive(Clone, Debug)]
pub struct SharedPart {
    /// All of it.
    pub pages: Rc<SharedPages>,
    /// Where the part begins, in bytes.
    pub offset: u64,
    /// Whether who has it mapped may be allowed to write.
    pub may_write: bool,
}

impl SharedPart {
    /// As [`Backing::fillable`].
    pub(super) fn fillable(&self, start: u64, end: u64) -> u64 {
        let Some(file) = self.pages.file() else { return end };
        let bytes = file.len().saturating_sub(self.offset).next_multiple_of(PAGE);
        end.min(start.saturating_add(bytes))
    }
}

/// Where a region's first contents come from.
#[derive(Clone, Debug)]
pub enum Backing {
    /// They are zeros.
    Zero,
    /// From a file.
    File(FilePart),
    /// They are what others have who have the same mapped.
    Shared(SharedPart),
}

impl Backing {
    /// Why a page at `offset` cannot be touched, if it is behind the end of the file.
    pub(super) fn end_of_file(&self, offset: u64) -> Option<Bad> {
        match self {
            Backing::File(FilePart { contents, offset: start, bytes: u64::MAX })
                if start + offset >= contents.len() =>
            {
                Some(Bad::BehindFile)
            }
            Backing::Shared(part) => {
                let is_behind = |file: &Rc<dyn Contents>| part.offset + offset >= file.len();
                part.pages.file().is_some_and(is_behind).then_some(Bad::BehindFile)
            }
            _ => None,
        }
    }

    /// The end of the pages that can be filled in advance of a region that begins at `start`, of those before
    /// `end`.
    pub(super) fn fillable(&self, start: u64, end: u64) -> u64 {
        match self {
            Backing::File(FilePart { contents, offset, bytes: u64::MAX }) => {
                let bytes = contents.len().saturating_sub(*offset).next_multiple_of(PAGE);
                end.min(start.saturating_add(bytes))
            }
            _ => end,
        }
    }

    /// Writes what a region has from `offset` on to pages at `address`, which are zero.
    ///
    /// # Errors
    /// What cannot be read.
    pub(super) fn write_to(
        &self,
        pages: &dyn PageSource,
        address: u64,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Errno> {
        let Backing::File(file) = self else { return Ok(()) };
        let bytes = bytes.min(file.bytes.saturating_sub(offset));
        if let Some(all) = file.contents.unchanging() {
            let start = (file.offset + offset).min(all.len() as u64);
            let end = (start + bytes).min(all.len() as u64);
            pages.write(address, &all[start as usize..end as usize]);
            return Ok(());
        }
        let mut piece = [0; PAGE as usize];
        let mut done = 0;
        while done < bytes {
            let length = (bytes - done).min(PAGE) as usize;
            let count = file.contents.read_at(file.offset + offset + done, &mut piece[..length])?;
            if count == 0 {
                break;
            }
            pages.write(address + done, &piece[..count]);
            done += count as u64;
        }
        Ok(())
    }
}

/// A range of addresses that a process asked for.
#[derive(Clone, Debug)]
pub struct MappedRegion {
    /// What it may do there.
    pub rights: Rights,
    /// Whether others see what is written.
    pub sharing: Sharing,
    /// What is there first.
    pub backing: Backing,
    /// What it is for.
    pub purpose: Purpose,
    /// Where it has large pages.
    pub large: LargeUse,
    /// What a child gets of it.
    pub on_fork: OnFork,
}

/// What a child gets of a region by fork(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFork {
    /// What is in it.
    #[default]
    Keep,
    /// Zeros (`MADV_WIPEONFORK`): generators of random numbers rely on it.
    Wipe,
    /// Nothing at all (`MADV_DONTFORK`).
    Leave,
}

impl MappedRegion {
    /// Zeros of the process's own.
    pub fn zeros(rights: Rights) -> MappedRegion {
        MappedRegion {
            rights,
            sharing: Sharing::Private,
            backing: Backing::Zero,
            purpose: Purpose::Mapping,
            large: LargeUse::default(),
            on_fork: OnFork::default(),
        }
    }

    /// Whether it is zeros at first, and nobody else's.
    pub fn is_own_zeros(&self) -> bool {
        matches!((&self.backing, self.sharing), (Backing::Zero, Sharing::Private))
    }

    /// The same of what is shared, from its beginning on.
    #[must_use]
    pub fn shared(self, pages: Rc<SharedPages>) -> MappedRegion {
        let backing = Backing::Shared(SharedPart { pages, offset: 0, may_write: true });
        MappedRegion { sharing: Sharing::Shared, backing, ..self }
    }
}

/// Pages of files that never change, program text above all: all processes have the same, and those that
/// begin later find them there.
impl MappedRegion {
    /// The name of the page at `offset`, and how many pages from there on have names.
    fn names(&self, offset: u64) -> Option<(u64, u64)> {
        let Backing::File(FilePart { contents, offset: start, bytes }) = &self.backing else { return None };
        if self.sharing == Sharing::Shared || self.rights.has(Rights::WRITE) {
            return None;
        }
        let first = contents.first_name()?;
        let at = start + offset;
        let here = contents.len().saturating_sub(at).min(bytes.saturating_sub(offset));
        let name = first + at;
        (name.is_multiple_of(PAGE) && here >= PAGE).then_some((name, here / PAGE))
    }

    /// Pages that are kept of what is at `offset`, within `bytes`: their first frame, and how many.
    pub(super) fn kept_pages(&self, pages: &dyn PageSource, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        let (name, count) = self.names(offset)?;
        pages.kept(name, count.min(bytes / PAGE))
    }

    /// Whether all of `run`, which is there of what is at `offset`, is kept, as it is.
    pub(super) fn keeps(&self, pages: &dyn PageSource, offset: u64, there: &Range<u64>, run: &Run) -> bool {
        let bytes = there.end - there.start;
        self.kept_pages(pages, offset, bytes) == Some((run.frame, bytes / PAGE))
    }

    /// Keeps these pages for others, as far as they have names; whose they are then.
    pub(super) fn keep_pages(&self, pages: &dyn PageSource, offset: u64, count: u64, frame: u64) -> Hold {
        let Some((name, named)) = self.names(offset) else { return Hold::Own };
        pages.keep(name, count.min(named), frame);
        Hold::Common
    }
}

impl Part for MappedRegion {
    fn behind(&self, count: u64) -> MappedRegion {
        let backing = match &self.backing {
            Backing::Zero => Backing::Zero,
            Backing::File(FilePart { contents, offset, bytes }) => {
                let left = if *bytes == u64::MAX { u64::MAX } else { bytes.saturating_sub(count) };
                Backing::File(FilePart { contents: contents.clone(), offset: offset + count, bytes: left })
            }
            Backing::Shared(part) => {
                Backing::Shared(SharedPart { offset: part.offset + count, ..part.clone() })
            }
        };
        MappedRegion { backing, ..self.clone() }
    }

    fn goes_on_as(&self, count: u64, next: &MappedRegion) -> bool {
        let advised = |region: &MappedRegion| (region.large, region.on_fork);
        let what = |region: &MappedRegion| (region.rights, region.sharing, region.purpose);
        let same = what(self) == what(next) && advised(self) == advised(next);
        same && match (&self.behind(count).backing, &next.backing) {
            (Backing::Zero, Backing::Zero) => true,
            (Backing::File(own), Backing::File(other)) => {
                Rc::ptr_eq(&own.contents, &other.contents)
                    && (own.offset, own.bytes) == (other.offset, other.bytes)
            }
            (Backing::Shared(own), Backing::Shared(other)) => {
                Rc::ptr_eq(&own.pages, &other.pages)
                    && (own.offset, own.may_write) == (other.offset, other.may_write)
            }
            _ => false,
        }
    }
}
