//! A disk (section 5.2), which is read.
//!
//! One request is under way at a time, and its core looks for the answer until it is there, as with
//! [`crate::ninep`]: most of what is read lies in the memory of the host. A request lends several pieces of
//! memory, so that one answer brings as much as many small ones would.

use crate::error::Result;
use crate::polled::{LentWords, PolledDevice, lend};
use crate::queue::Descriptor;
use crate::transport::{self, Transport};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use nom_port::device::{Dma, PciFunction, Registers};
use nom_port::disk::{Disk, SECTOR_BYTES, Unreadable};

/// Type of the device, and its identifier where it is transitional.
const KIND: u16 = 2;
const TRANSITIONAL: u16 = 0x1001;
/// VIRTIO_BLK_F_SIZE_MAX and VIRTIO_BLK_F_SEG_MAX: the configuration bounds a piece, and their number.
const SIZE_MAX: u64 = 1 << 1;
const SEG_MAX: u64 = 1 << 2;
/// VIRTIO_BLK_T_IN: the device writes what the disk has.
const READ: u64 = 0;
/// VIRTIO_BLK_S_OK: it has.
const DONE: u8 = 0;
/// Pieces of memory that a request lends at most, and bytes of each.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 64 << 10;
/// Entries of the queue: the request's head, its pieces, its status.
const ENTRIES: u16 = 8;
const HEAD_BYTES: u32 = 16;
const WORD: usize = size_of::<u64>();

/// A disk behind a virtio device.
pub struct BlockDevice<R: Registers> {
    device: PolledDevice<R>,
    sectors: u64,
    /// What is wanted.
    head: LentWords,
    /// What came of it.
    status: LentWords,
    /// What is read.
    pieces: Vec<LentWords>,
    piece_bytes: usize,
}

impl<R: Registers> fmt::Debug for BlockDevice<R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "BlockDevice({} sectors)", self.sectors)
    }
}

impl<R: Registers> BlockDevice<R> {
    /// Brings up the device behind `function`, with memory of `world`.
    ///
    /// # Errors
    /// If it is no such device, lacks what a driver needs, or memory is exhausted.
    pub fn open<F: PciFunction<Registers = R>>(
        mut function: F,
        world: &mut impl Dma,
    ) -> Result<BlockDevice<R>> {
        let transport = Transport::open(&mut function, KIND, TRANSITIONAL)?;
        let features = transport.negotiate(transport::feature::EVENT_INDEX | SIZE_MAX | SEG_MAX)?;
        let config = transport.config::<16>()?;
        let words = config.as_chunks::<WORD>().0;
        let [capacity, bounds] =
            [0, 1].map(|index| words.get(index).map_or(0, |word| u64::from_le_bytes(*word)));
        let bound = |feature: u64, said: u64, own: usize| match features & feature != 0 {
            true => (said as u32 as usize).clamp(1, own),
            false => own,
        };
        let count = bound(SEG_MAX, bounds >> 32, PIECES);
        let sector = SECTOR_BYTES as usize;
        let piece_bytes = (bound(SIZE_MAX, bounds, PIECE_BYTES) / sector * sector).max(sector);
        let (head, status) = (lend(world, HEAD_BYTES as usize / WORD)?, lend(world, 1)?);
        let pieces = (0..count).map(|_| lend(world, piece_bytes / WORD)).collect::<Result<_>>()?;
        let device = PolledDevice::start(transport, features, ENTRIES, world)?;
        let sectors = capacity.min(u64::MAX / SECTOR_BYTES);
        Ok(BlockDevice { device, sectors, head, status, pieces, piece_bytes })
    }

    /// Has the device read `bytes` from a sector on into the pieces, and waits until it has.
    fn request(&mut self, sector: u64, bytes: usize) -> core::result::Result<(), Unreadable> {
        for (word, value) in self.head.0.iter().zip([READ, sector]) {
            word.store(value.to_le(), Relaxed);
        }
        // What the device is to replace: no status is this one.
        self.status.0[0].store(u64::MAX, Relaxed);
        let mut chain = Vec::with_capacity(ENTRIES.into());
        chain.push(Descriptor::readable(self.head.1, HEAD_BYTES));
        let mut rest = bytes;
        for (_, bus) in &self.pieces {
            let part = rest.min(self.piece_bytes);
            if part > 0 {
                chain.push(Descriptor::writable(*bus, part as u32));
            }
            rest -= part;
        }
        chain.push(Descriptor::writable(self.status.1, 1));
        self.device.exchange(&chain).ok_or(Unreadable)?;
        match self.status.0[0].load(Acquire).to_ne_bytes()[0] {
            DONE => Ok(()),
            _ => Err(Unreadable),
        }
    }
}

impl<R: Registers> Disk for BlockDevice<R> {
    fn bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES
    }

    fn read(&mut self, offset: u64, target: &mut [u8]) -> core::result::Result<(), Unreadable> {
        let is_whole = |value: u64| value.is_multiple_of(SECTOR_BYTES);
        let end = offset.checked_add(target.len() as u64).ok_or(Unreadable)?;
        if !is_whole(offset) || !is_whole(end) || end > self.bytes() {
            return Err(Unreadable);
        }
        let mut sector = offset / SECTOR_BYTES;
        for part in target.chunks_mut(self.pieces.len() * self.piece_bytes) {
            self.request(sector, part.len())?;
            for (bytes, (words, _)) in part.chunks_mut(self.piece_bytes).zip(&self.pieces) {
                for (bytes, word) in bytes.as_chunks_mut::<WORD>().0.iter_mut().zip(*words) {
                    *bytes = word.load(Relaxed).to_ne_bytes();
                }
            }
            sector += part.len() as u64 / SECTOR_BYTES;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_virtio_fake::{FakeFunction, FakeMemory, FakeOptions, FakeRegisters};

    /// The sector that cannot be read.
    const BAD: u64 = 100;
    /// The sector that the device never answers for.
    const SILENT: u64 = 200;
    const SECTORS: u64 = 4096;

    fn byte(offset: u64) -> u8 {
        (offset / 512 * 31 + offset % 512 * 7) as u8
    }

    /// What the device answers: contents of so many bytes of the disk, and the status.
    fn answer(request: &[u8], room: usize) -> Option<Vec<u8>> {
        assert_eq!((request.len(), &request[..8]), (16, &[0; 8][..]), "a read");
        let sector = u64::from_le_bytes(request[8..].try_into().expect("8 bytes"));
        let sectors = sector..sector + (room as u64 - 1) / 512;
        let status = u8::from(sectors.contains(&BAD));
        let contents = (sector * 512..).take(room - 1).map(byte);
        (!sectors.contains(&SILENT)).then(|| contents.chain([status]).collect())
    }

    /// A disk whose device bounds what one request lends: the size of a piece, and their number.
    fn disk(bounds: Option<(u32, u32)>) -> BlockDevice<FakeRegisters> {
        let mut memory = FakeMemory::new(1 << 20);
        let bits = if bounds.is_some() { SIZE_MAX | SEG_MAX } else { 0 };
        let features = bits | transport::feature::VERSION_1 | transport::feature::EVENT_INDEX;
        let (size, count) = bounds.unwrap_or_default();
        let config = [SECTORS.to_le_bytes(), (u64::from(count) << 32 | u64::from(size)).to_le_bytes()];
        let options = FakeOptions {
            features,
            identifier: 0x1042_1af4,
            config: Some(config.concat()),
            ..FakeOptions::default()
        };
        let function = FakeFunction::new(options, memory.clone());
        function.serve_in_room(answer);
        BlockDevice::open(function, &mut memory).expect("it is one")
    }

    #[test]
    fn what_is_read_is_what_the_disk_has_whatever_pieces_the_device_takes() {
        for bounds in [None, Some((4096, 254)), Some((u32::MAX, 2)), Some((1000, 1)), Some((0, 0))] {
            let mut disk = disk(bounds);
            assert_eq!(disk.bytes(), SECTORS * 512);
            for (first, sectors) in [(0, 1), (3, 7), (300, 129), (300, 513), (4095, 1), (2000, 1100)] {
                let mut bytes = vec![0; sectors * 512];
                disk.read(first * 512, &mut bytes).expect("it is there");
                let expected = (first * 512..).take(bytes.len()).map(byte);
                assert!(bytes.iter().copied().eq(expected), "{bounds:?}, {sectors} sectors from {first} on");
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_the_rest_is_read_on() {
        let mut disk = disk(None);
        let mut bytes = vec![0; 1024];
        assert_eq!(disk.read((BAD - 1) * 512, &mut bytes), Err(Unreadable));
        assert_eq!(disk.read((BAD + 1) * 512, &mut bytes), Ok(()));
        for (offset, len) in [(1, 512), (0, 511), (SECTORS * 512, 512), ((SECTORS - 1) * 512, 1024)] {
            assert_eq!(disk.read(offset, &mut bytes[..len]), Err(Unreadable), "{len} bytes at {offset}");
        }
        assert_eq!(disk.read(u64::MAX - 511, &mut bytes), Err(Unreadable));
    }

    #[test]
    fn a_device_that_breaks_is_asked_nothing_any_more() {
        let mut disk = disk(None);
        let mut bytes = vec![0; 512];
        assert_eq!(disk.read(SILENT * 512, &mut bytes), Err(Unreadable));
        assert_eq!(disk.read(0, &mut bytes), Err(Unreadable));
    }
}
