//! Layers as archives: decompressed, counted, and compared with the digest of what they hold.

use super::layout::Hasher;
use flate2::read::MultiGzDecoder;
use oci_spec::image::Digest;
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, Read};

/// What all layers of an image may hold at most, in bytes: a small layer can hold much that is alike.
pub(super) const UNPACKED_BYTES_MAX: u64 = 1 << 30;
/// Bytes of the head of a frame of zstd that holds nothing (RFC 8878, section 3.1.2), and what its magic
/// number begins with.
const SKIPPED_HEAD: usize = 8;
const SKIPPED_MAGIC: u32 = 0x184d_2a50;

/// How a layer is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    None,
    Gzip,
    Zstd,
}

impl Packing {
    /// How a layer of this media type is compressed.
    ///
    /// # Errors
    /// If it is no layer's.
    pub fn of(media_type: &str) -> Result<Packing, String> {
        match media_type {
            "application/vnd.oci.image.layer.v1.tar" | "application/vnd.docker.image.rootfs.diff.tar" => {
                Ok(Packing::None)
            }
            "application/vnd.oci.image.layer.v1.tar+gzip"
            | "application/vnd.docker.image.rootfs.diff.tar.gzip" => Ok(Packing::Gzip),
            "application/vnd.oci.image.layer.v1.tar+zstd"
            | "application/vnd.docker.image.rootfs.diff.tar.zstd" => Ok(Packing::Zstd),
            other => Err(format!(
                "a layer of the media type {other}, expected application/vnd.oci.image.layer.v1.tar, with \
                 +gzip or +zstd, or Docker's"
            )),
        }
    }

    /// The archive.
    fn unpacked(self, bytes: &[u8]) -> Box<dyn Read + '_> {
        match self {
            Packing::None => Box::new(bytes),
            Packing::Gzip => Box::new(MultiGzDecoder::new(bytes)),
            Packing::Zstd => Box::new(Frames { rest: bytes, frame: None }),
        }
    }
}

/// A layer as an archive.
pub(super) struct Unpacked<'b> {
    bytes: Box<dyn Read + 'b>,
    hasher: Hasher,
    left: u64,
}

impl<'b> Unpacked<'b> {
    /// The archive in `bytes`, which may hold `left` bytes, and whose digest is to be like `digest`.
    ///
    /// # Errors
    /// If nom knows no digests like that.
    pub fn new(
        bytes: &'b [u8],
        packing: Packing,
        digest: &Digest,
        left: u64,
    ) -> Result<Unpacked<'b>, String> {
        Ok(Unpacked { bytes: packing.unpacked(bytes), hasher: Hasher::new(digest)?, left })
    }

    /// Bytes that are left for other layers, once all of it was read.
    ///
    /// # Errors
    /// If its digest is another one.
    pub fn conclude(self, digest: &Digest) -> Result<u64, String> {
        self.hasher.check(digest).map(|()| self.left)
    }
}

impl Read for Unpacked<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(target)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            io::Error::other(format!("the layers hold more than {UNPACKED_BYTES_MAX} bytes in all"))
        })?;
        self.hasher.update(&target[..count]);
        Ok(count)
    }
}

/// Frames of zstd, one behind the other.
struct Frames<'b> {
    rest: &'b [u8],
    frame: Option<Box<StreamingDecoder<&'b [u8], ruzstd::decoding::FrameDecoder>>>,
}

impl Read for Frames<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let count = frame.read(target)?;
                if count > 0 || target.is_empty() {
                    return Ok(count);
                }
                self.rest = frame.get_ref();
                self.frame = None;
            }
            if self.rest.is_empty() {
                return Ok(0);
            }
            if !self.skip()? {
                let frame = StreamingDecoder::new(self.rest).map_err(io::Error::other)?;
                self.frame = Some(Box::new(frame));
            }
        }
    }
}

impl Frames<'_> {
    /// Goes behind a frame that holds nothing, if there is one.
    fn skip(&mut self) -> io::Result<bool> {
        let word = |at: usize| {
            let bytes = self.rest.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        if word(0).is_none_or(|magic| magic & !0xf != SKIPPED_MAGIC) {
            return Ok(false);
        }
        let end = word(4).map(|bytes| SKIPPED_HEAD + bytes as usize);
        let rest = end.and_then(|end| self.rest.get(end..));
        self.rest = rest.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(true)
    }
}
