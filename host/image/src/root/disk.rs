//! The root as a disk that its machine reads on demand: see [`nom_port::root_disk`].

use super::{Body, FILE, Packed, Root, TYPE_MASK, error, unreadable};
use crate::error::Result;
use nom_port::root_disk::{BLOCK_BYTES, Extent, PAGE_BYTES, RootHeader, sum};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

impl Root {
    /// Writes a disk to a new file, for its owner alone.
    ///
    /// # Errors
    /// A file of the root that cannot be read, or changes meanwhile; a disk that cannot be written.
    pub fn write_disk(&self, path: &Path) -> Result<()> {
        let written = |reason: io::Error| error(path, format!("cannot be written: {reason}"));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(written)?;
        let (header, index) = self.lay(Some(&mut file), path)?;
        file.seek(SeekFrom::Start(0)).map_err(written)?;
        file.write_all(&header.encode()).and_then(|()| file.write_all(&index)).map_err(written)?;
        file.set_len(header.bytes().unwrap_or(u64::MAX)).map_err(written)
    }

    /// The first sector of the disk, by which one whose files have changed is told: it sums up all sums.
    ///
    /// # Errors
    /// A file of the root that cannot be read, or changes meanwhile.
    pub fn disk_header(&self) -> Result<Vec<u8>> {
        self.lay(None, Path::new("the disk")).map(|(header, _)| header.encode().to_vec())
    }

    /// The header and the index of a disk, whose blocks are written to a file if there is one.
    fn lay(&self, file: Option<&mut File>, path: &Path) -> Result<(RootHeader, Vec<u8>)> {
        let (mut files, mut end) = (Vec::new(), 0);
        let archive = self.pack(u64::MAX, |entry| {
            let bytes = entry.body.len()?;
            if entry.mode & TYPE_MASK != FILE || bytes < PAGE_BYTES {
                return Ok(Packed { bytes: entry.body.contents()?, is_elsewhere: false });
            }
            let extent = Extent { start: end, bytes };
            end = (end + bytes).next_multiple_of(PAGE_BYTES);
            files.push((&entry.body, extent));
            Ok(Packed { bytes: extent.encode().to_vec(), is_elsewhere: true })
        })?;
        let blocks = end.div_ceil(BLOCK_BYTES);
        let header = RootHeader { archive_bytes: archive.len() as u64, blocks, index_sum: 0 };
        let written = |reason: io::Error| error(path, format!("cannot be written: {reason}"));
        let data_at = header.data_at().ok_or_else(|| error(path, "the root is larger than any disk"))?;
        let mut out = Blocks { file, block: Vec::new(), at: 0, sums: Vec::new() };
        if let Some(file) = &mut out.file {
            file.seek(SeekFrom::Start(data_at)).map_err(written)?;
        }
        for (body, extent) in files {
            out.fill(extent.start).map_err(written)?;
            body.copy_to(extent.bytes, |bytes| out.put(bytes).map_err(written))?;
        }
        out.fill(blocks * BLOCK_BYTES).map_err(written)?;
        let index = [archive, out.sums].concat();
        Ok((RootHeader { index_sum: sum(&index), ..header }, index))
    }
}

/// The blocks of a disk, as they are written.
struct Blocks<'f> {
    file: Option<&'f mut File>,
    block: Vec<u8>,
    /// How much there is already.
    at: u64,
    sums: Vec<u8>,
}

impl Blocks<'_> {
    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = BLOCK_BYTES as usize - self.block.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            self.at += now.len() as u64;
            bytes = later;
            if self.block.len() as u64 == BLOCK_BYTES {
                self.sums.extend(sum(&self.block).to_le_bytes());
                match &mut self.file {
                    // A hole takes no room of this computer's.
                    Some(file) if self.block.iter().all(|byte| *byte == 0) => {
                        file.seek(SeekFrom::Current(BLOCK_BYTES as i64))?;
                    }
                    Some(file) => file.write_all(&self.block)?,
                    None => {}
                }
                self.block.clear();
            }
        }
        Ok(())
    }

    /// Zeros up to `at`.
    fn fill(&mut self, at: u64) -> io::Result<()> {
        self.put(&vec![0; (at - self.at) as usize])
    }
}

impl Body {
    /// Copies its contents, of which there are to be so many.
    fn copy_to(&self, bytes: u64, mut put: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let host = match self {
            Body::Nothing => return Ok(()),
            Body::Bytes(bytes) => return put(bytes),
            Body::Host(host, _) => host,
        };
        let mut file = File::open(host).map_err(|reason| unreadable(host, &reason))?;
        let (mut piece, mut left) = (vec![0; BLOCK_BYTES as usize], bytes);
        loop {
            let count = file.read(&mut piece).map_err(|reason| unreadable(host, &reason))? as u64;
            if count > left || (count == 0 && left > 0) {
                return Err(error(host, format!("changed while it was read: {bytes} bytes were expected")));
            }
            if count == 0 {
                return Ok(());
            }
            put(&piece[..count as usize])?;
            left -= count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_holds_what_the_files_hold() {
        let directory = tempfile::tempdir().expect("a directory");
        let host = directory.path().join("host");
        let contents: Vec<u8> = (0..150_000_u32).map(|at| (at / 7) as u8).collect();
        std::fs::write(&host, &contents).expect("written");
        let mut root = Root::new();
        root.write("etc/small", b"small");
        root.write("zeros", &[0; 200_000]);
        root.copy("usr/host", &host).expect("it is there");
        let path = directory.path().join("disk");
        root.write_disk(&path).expect("written");
        let disk = std::fs::read(&path).expect("read");
        let header = RootHeader::decode(disk.first_chunk().expect("a sector")).expect("it is one");
        assert_eq!((header.blocks, header.bytes()), (6, Some(disk.len() as u64)));
        assert_eq!(root.disk_header().expect("read"), disk[..512]);
        let index = &disk[512..512 + header.index_bytes().expect("few") as usize];
        assert_eq!(sum(index), header.index_sum);
        let data = &disk[header.data_at().expect("few") as usize..];
        for (block, stored) in
            data.chunks(BLOCK_BYTES as usize).zip(index[header.archive_bytes as usize..].chunks(4))
        {
            assert_eq!(sum(block).to_le_bytes(), stored);
        }
        // In the order of their paths.
        assert_eq!(data[..150_000], contents);
        assert!(data[150_000..].iter().all(|byte| *byte == 0));
        assert!(index.windows(5).any(|bytes| bytes == b"small"));

        let error = root.write_disk(&path).expect_err("it is there").to_string();
        assert!(error.contains("cannot be written"), "{error}");
        let long = Body::Host(host, None).copy_to(149_999, |_| Ok(())).expect_err("longer").to_string();
        assert!(long.contains("149999 bytes were expected"), "{long}");
    }
}
