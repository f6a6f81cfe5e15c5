//! How the files of a program of Linux lie on a disk: what `nom-image` writes and `nom-fs` reads.
//!
//! ```text
//! 0             header, one sector
//! 512           index: an archive in cpio's "newc" format of which larger files say where their contents are
//!               ([`Extent`], and 1 in the field `check`); behind it a sum of each block
//! data_at       blocks with the contents of files, each of which begins on a page
//! ```
//! Numbers are little-endian. Sums are CRC-32s, as Ethernet and gzip have them: they tell a disk that was
//! damaged or cut, not one that somebody has changed on purpose.

use crate::disk::SECTOR_BYTES;

/// What is read, summed and kept together.
pub const BLOCK_BYTES: u64 = 64 << 10;
/// Where contents begin: multiples of this.
pub const PAGE_BYTES: u64 = 4096;
/// In the field `check` of an entry whose contents are elsewhere.
pub const ELSEWHERE: u32 = 1;

const MAGIC: &[u8; 8] = b"nom-root";
const VERSION: u64 = 1;
/// Bytes of the header that are summed.
const SUMMED: usize = 40;

/// The first sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootHeader {
    /// Bytes of the archive.
    pub archive_bytes: u64,
    /// Blocks with contents.
    pub blocks: u64,
    /// Sum of the index.
    pub index_sum: u32,
}

impl RootHeader {
    /// Bytes of the index, if there can be as many.
    pub fn index_bytes(&self) -> Option<u64> {
        self.blocks.checked_mul(4)?.checked_add(self.archive_bytes)
    }

    /// Where the blocks begin.
    pub fn data_at(&self) -> Option<u64> {
        self.index_bytes()?.checked_add(SECTOR_BYTES)?.checked_next_multiple_of(BLOCK_BYTES)
    }

    /// Bytes of the whole disk.
    pub fn bytes(&self) -> Option<u64> {
        self.blocks.checked_mul(BLOCK_BYTES)?.checked_add(self.data_at()?)
    }

    /// As it is written.
    pub fn encode(&self) -> [u8; SECTOR_BYTES as usize] {
        let mut sector = [0; SECTOR_BYTES as usize];
        sector[..8].copy_from_slice(MAGIC);
        let numbers = [VERSION, self.archive_bytes, self.blocks, self.index_sum.into()];
        for (field, number) in sector[8..].as_chunks_mut().0.iter_mut().zip(numbers) {
            *field = number.to_le_bytes();
        }
        let sum = sum(&sector[..SUMMED]);
        sector[SUMMED..SUMMED + 4].copy_from_slice(&sum.to_le_bytes());
        sector
    }

    /// Reads what was written.
    ///
    /// # Errors
    /// What it is instead.
    pub fn decode(sector: &[u8; SECTOR_BYTES as usize]) -> Result<RootHeader, &'static str> {
        if sector[..8] != *MAGIC {
            return Err("no root of nom's");
        }
        let field =
            |index: usize| sector[8..].as_chunks().0.get(index).map_or(0, |word| u64::from_le_bytes(*word));
        let said = sector[SUMMED..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        if said != sum(&sector[..SUMMED]) {
            return Err("damaged: its first sector does not add up");
        }
        if field(0) != VERSION {
            return Err("of another version");
        }
        Ok(RootHeader { archive_bytes: field(1), blocks: field(2), index_sum: field(3) as u32 })
    }
}

/// Where the contents of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// From the first block on.
    pub start: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Extent {
    /// As the index has it.
    pub fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.start.to_le_bytes());
        bytes[8..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Reads what the index has, if that is one, within so many blocks.
    pub fn decode(bytes: &[u8], blocks: u64) -> Option<Extent> {
        let bytes: &[u8; 16] = bytes.try_into().ok()?;
        let [start, bytes] =
            [0, 8].map(|at| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
        let end = start.checked_add(bytes)?;
        let is_whole = start.is_multiple_of(PAGE_BYTES) && end <= blocks.checked_mul(BLOCK_BYTES)?;
        is_whole.then_some(Extent { start, bytes })
    }
}

/// The sum of these bytes.
pub fn sum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let header = RootHeader { archive_bytes: 70_000, blocks: 3, index_sum: 0xdead_beef };
        let sector = header.encode();
        assert_eq!(RootHeader::decode(&sector), Ok(header));
        assert_eq!((header.data_at(), header.bytes()), (Some(128 << 10), Some(320 << 10)));
        for at in 0..SUMMED + 4 {
            let mut damaged = sector;
            damaged[at] ^= 0x10;
            assert!(RootHeader::decode(&damaged).is_err(), "byte {at}");
        }
        let endless = RootHeader { blocks: u64::MAX / 4, ..header };
        assert_eq!(endless.bytes(), None);

        let extent = Extent { start: 8192, bytes: 5000 };
        assert_eq!(Extent::decode(&extent.encode(), 1), Some(extent));
        assert_eq!(Extent::decode(&extent.encode()[1..], 1), None);
        for (start, bytes) in [(1, 1), (0, BLOCK_BYTES + 1), (4096, u64::MAX)] {
            assert_eq!(Extent::decode(&Extent { start, bytes }.encode(), 1), None);
        }
    }
}
