//! What is said to a virtio-iommu and what it answers. Source: VIRTIO 1.2, section 5.13.6.

use core::ops::Range;
use nom_abi::memory::FRAME_SHIFT;

/// Where interrupt messages are written.
pub(super) const MESSAGE_PAGE: u64 = 0xfee0_0000;

/// A request, as the bytes that the device reads.
pub(super) struct Request {
    pub bytes: [u8; 40],
    pub length: u32,
}

impl Request {
    pub fn new(kind: u8, first: u32) -> Request {
        let request = Request { bytes: [0; 40], length: 0 };
        request.word(u32::from(kind)).word(first)
    }

    fn word(mut self, value: u32) -> Request {
        let at = self.length as usize;
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.length += 4;
        self
    }

    fn double(self, value: u64) -> Request {
        self.word(value as u32).word((value >> 32) as u32)
    }

    pub fn attach(domain: u32, endpoint: u32) -> Request {
        Request::new(1, domain).word(endpoint).word(0).word(0)
    }

    pub fn detach(domain: u32, endpoint: u32) -> Request {
        Request::new(2, domain).word(endpoint).double(0)
    }

    /// Maps frames to themselves.
    pub fn map(domain: u32, frames: Range<u64>) -> Request {
        const READ_WRITE: u32 = 3;
        let start = frames.start << FRAME_SHIFT;
        Request::new(3, domain).addresses(frames).double(start).word(READ_WRITE)
    }

    pub fn unmap(domain: u32, frames: Range<u64>) -> Request {
        Request::new(4, domain).addresses(frames).word(0)
    }

    /// The first address of these frames and the last one.
    fn addresses(self, frames: Range<u64>) -> Request {
        self.double(frames.start << FRAME_SHIFT).double((frames.end << FRAME_SHIFT) - 1)
    }
}
