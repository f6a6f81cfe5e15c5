//! A root whose files lie on a disk: the index is read at once, contents a block at a time when somebody
//! wants them. Blocks that were read are kept, as many as there is room for.
//!
//! The layout is nom's own ([`nom_port::root_disk`]): ARCHITECTURE.md says why.

use crate::errno::Errno;
use crate::packed::BadArchive;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::ops::Range;
use nom_port::disk::{Disk, SECTOR_BYTES};
use nom_port::root_disk::{BLOCK_BYTES, Extent, RootHeader, sum};

/// What was read of a block.
type Block = Rc<[u8]>;

/// A disk with the contents of files.
pub(crate) struct RootDisk {
    disk: RefCell<Box<dyn Disk>>,
    data_at: u64,
    sums: Vec<u32>,
    kept: RefCell<Kept>,
}

/// Blocks that were read.
struct Kept {
    blocks: BTreeMap<u64, (Block, Cell<bool>)>,
    /// In the order in which they may go, those that nobody looked at meanwhile first.
    order: VecDeque<u64>,
    most: usize,
}

impl fmt::Debug for RootDisk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RootDisk({} blocks)", self.sums.len())
    }
}

impl RootDisk {
    /// The disk, and its archive. So many blocks of 64 KiB are kept in memory at most.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(mut disk: Box<dyn Disk>, blocks: usize) -> Result<(RootDisk, &'static [u8]), BadArchive> {
        let bad = |problem: &str| BadArchive::new(format!("the disk is {problem}"));
        let mut sector = [0; SECTOR_BYTES as usize];
        disk.read(0, &mut sector).map_err(|_| bad("unreadable where it begins"))?;
        let header = RootHeader::decode(&sector).map_err(bad)?;
        let (there, said) = (disk.bytes(), header.bytes());
        let (Some(index_bytes), Some(data_at)) =
            (header.index_bytes(), header.data_at().filter(|_| said.is_some_and(|said| said <= there)))
        else {
            let said = said.map_or("more than there can be".into(), |said| format!("{said}"));
            return Err(bad(&format!("cut: it has {there} bytes, expected {said}")));
        };
        let mut index = Vec::new();
        let padded = index_bytes.next_multiple_of(SECTOR_BYTES) as usize;
        index
            .try_reserve_exact(padded)
            .map_err(|_| bad(&format!("too large: an index of {index_bytes} bytes")))?;
        index.resize(padded, 0);
        disk.read(SECTOR_BYTES, &mut index).map_err(|_| bad("unreadable in its index"))?;
        index.truncate(index_bytes as usize);
        if sum(&index) != header.index_sum {
            return Err(bad("damaged: its index does not add up"));
        }
        // It is read as long as the machine runs.
        let (archive, sums) = index.leak().split_at(header.archive_bytes as usize);
        let sums = sums.as_chunks().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
        let kept = Kept { blocks: BTreeMap::new(), order: VecDeque::new(), most: blocks.max(1) };
        Ok((RootDisk { disk: RefCell::new(disk), data_at, sums, kept: RefCell::new(kept) }, archive))
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u64 {
        self.sums.len() as u64
    }

    fn block(&self, number: u64) -> Result<Block, Errno> {
        if let Some(block) = self.kept.borrow().find(number) {
            return Ok(block);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(BLOCK_BYTES as usize).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(BLOCK_BYTES as usize, 0);
        let at = self.data_at + number * BLOCK_BYTES;
        self.disk.borrow_mut().read(at, &mut bytes).map_err(|_| Errno::EIO)?;
        if self.sums.get(number as usize) != Some(&sum(&bytes)) {
            return Err(Errno::EIO);
        }
        let block: Block = bytes.into();
        self.kept.borrow_mut().keep(number, block.clone());
        Ok(block)
    }

    /// Forgets half of what it keeps, that which nobody has looked at for longest; whether it kept anything.
    pub fn give_back(&self) -> bool {
        let Ok(mut kept) = self.kept.try_borrow_mut() else { return false };
        let before = kept.blocks.len();
        kept.shrink(before / 2);
        before > 0
    }

    /// Shows bytes of the blocks, piece after piece.
    fn show(&self, range: Range<u64>, show: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
        let mut at = range.start;
        while at < range.end {
            let within = at % BLOCK_BYTES;
            let part = (BLOCK_BYTES - within).min(range.end - at);
            let block = self.block(at / BLOCK_BYTES)?;
            show(&block[within as usize..(within + part) as usize]);
            at += part;
        }
        Ok(())
    }
}

impl Kept {
    fn find(&self, number: u64) -> Option<Block> {
        let (block, was_used) = self.blocks.get(&number)?;
        was_used.set(true);
        Some(block.clone())
    }

    /// Keeps a block, in the place of one that was not looked at for as long as it took to ask about all.
    fn keep(&mut self, number: u64, block: Block) {
        self.shrink(self.most - 1);
        self.blocks.insert(number, (block, Cell::new(false)));
        self.order.push_back(number);
    }

    /// Keeps at most so many.
    fn shrink(&mut self, most: usize) {
        while self.blocks.len() > most {
            let Some(oldest) = self.order.pop_front() else { break };
            match self.blocks.get(&oldest) {
                Some((_, was_used)) if was_used.replace(false) => self.order.push_back(oldest),
                _ => drop(self.blocks.remove(&oldest)),
            }
        }
    }
}

/// Where the first contents of a file lie, of which the front is still its own.
#[derive(Clone, Debug)]
pub(crate) struct FirstBytes {
    len: u64,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Image(&'static [u8]),
    Disk(Rc<RootDisk>, u64),
}

/// Where names of a disk's bytes begin: those of memory are its addresses, which are below.
const DISK_NAMES: u64 = 1 << 62;

impl Default for FirstBytes {
    fn default() -> FirstBytes {
        FirstBytes::image(&[])
    }
}

impl FirstBytes {
    /// Bytes of the image.
    pub fn image(bytes: &'static [u8]) -> FirstBytes {
        FirstBytes { len: bytes.len() as u64, place: Place::Image(bytes) }
    }

    /// Bytes of a disk.
    pub fn disk(disk: &Rc<RootDisk>, extent: Extent) -> FirstBytes {
        FirstBytes { len: extent.bytes, place: Place::Disk(disk.clone(), extent.start) }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// Forgets what is behind `len`.
    pub fn cut(&mut self, len: u64) {
        self.len = self.len.min(len);
    }

    /// All of them, if they lie in memory.
    pub fn in_memory(&self) -> Option<&'static [u8]> {
        match &self.place {
            Place::Image(bytes) => Some(&bytes[..self.len as usize]),
            Place::Disk(..) => None,
        }
    }

    /// By which the first byte is told from every other that never changes, and those behind it by the
    /// numbers that follow.
    pub fn name(&self) -> u64 {
        match &self.place {
            Place::Image(bytes) => bytes.as_ptr().addr() as u64,
            Place::Disk(_, start) => DISK_NAMES + start,
        }
    }

    /// Shows a range, which is within them, piece after piece.
    ///
    /// # Errors
    /// `EIO` if a disk cannot be read there.
    pub fn show(&self, range: Range<u64>, show: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
        match &self.place {
            Place::Image(bytes) => show(&bytes[range.start as usize..range.end as usize]),
            Place::Disk(disk, start) => disk.show(start + range.start..start + range.end, show)?,
        }
        Ok(())
    }
}
