//! One queue pair of a network interface, as the stack of one core sees it.

use crate::buffer::{Buffer, Chain, Slice, chain_len};
use alloc::vec::Vec;

/// What the interface does that the stack would otherwise have to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Finishes transport checksums on the way out.
    pub checksum: bool,
    /// Cuts large IPv4 TCP segments.
    pub segment_tcp4: bool,
    /// Cuts large IPv6 TCP segments.
    pub segment_tcp6: bool,
}

/// What an interface is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Most bytes of an IP packet on the link.
    pub mtu: u16,
    /// What it does by itself.
    pub offloads: Offloads,
}

/// Whether somebody has looked at the transport checksum of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Nobody has.
    Unknown,
    /// The interface has, or the packet never left this computer.
    Good,
}

/// A received frame.
#[derive(Clone, Debug)]
pub struct Received<B> {
    /// The frame from its Ethernet header on. All headers are in the first slice.
    pub frame: Chain<B>,
    /// Of its transport header.
    pub checksum: Checksum,
    /// When the driver first saw it, in nanoseconds of the world's clock.
    pub at_ns: u64,
}

/// The most bytes of headers in front of a payload: Ethernet 14, IPv6 40, TCP 60, and some to spare.
pub const HEAD_MAX: usize = 128;

/// The headers of a frame to send.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; HEAD_MAX],
    len: u8,
}

impl Head {
    /// A head of `len` zero bytes.
    ///
    /// # Panics
    /// If `len` is above [`HEAD_MAX`].
    #[inline]
    pub fn zeroed(len: usize) -> Head {
        assert!(len <= HEAD_MAX, "a head of {len} bytes");
        Head { bytes: [0; HEAD_MAX], len: len as u8 }
    }

    /// All that it has room for, to be written.
    #[inline]
    pub fn storage_mut(&mut self) -> &mut [u8; HEAD_MAX] {
        &mut self.bytes
    }

    /// Its bytes with the unused ones behind them: a driver copies a fixed number faster than the right one.
    #[inline]
    pub fn storage(&self) -> &[u8; HEAD_MAX] {
        &self.bytes
    }
}

impl core::ops::Deref for Head {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl core::ops::DerefMut for Head {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.len)]
    }
}

/// A checksum that the interface finishes: over everything from `start`, into the 2 bytes `offset` further
/// on, which already hold the sum of the pseudo-header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Where the sum starts, from the frame's first byte.
    pub start: u16,
    /// Where the result goes, from `start`.
    pub offset: u16,
}

/// How the interface cuts a large TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Most bytes of payload in each piece.
    pub payload_max: u16,
    /// Whether it is IPv6.
    pub is_ipv6: bool,
}

/// A frame to send: headers, then slices that are gathered and never copied if the device can reach them.
#[derive(Clone, Debug)]
pub struct Outgoing<B> {
    /// Ethernet, IP and transport headers.
    pub head: Head,
    /// What follows them.
    pub payload: Chain<B>,
    /// What the interface is to finish; only if it offers that.
    pub checksum: Option<PartialChecksum>,
    /// How it is to be cut; only if the interface offers that.
    pub segmentation: Option<Segmentation>,
    /// What it answers: for the latency that clients see.
    pub answers: Option<Answer>,
}

/// What a frame answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When the oldest of the requests arrived ([`Received::at_ns`]).
    pub arrived_ns: u64,
    /// How many requests they are; none if the frame opens a connection.
    pub requests: u32,
    /// The connection, by the number that its stack knows it by; a datagram has none.
    pub flow: Option<u32>,
}

impl Answer {
    /// That to a datagram which arrived at `arrived_ns`.
    pub fn to_datagram(arrived_ns: u64) -> Answer {
        Answer { arrived_ns, requests: 1, flow: None }
    }
}

impl<B: Buffer> Outgoing<B> {
    /// Bytes of the frame.
    #[inline]
    pub fn len(&self) -> usize {
        self.head.len() + chain_len(&self.payload)
    }

    /// Whether there is no byte at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What became of memory that nobody uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes given back.
    pub released_bytes: usize,
    /// Bytes that could have been given back, too, and will be next time.
    pub left_bytes: usize,
    /// Bytes of memory that could be given back if the little in use there lay elsewhere:
    /// [`Buffer::is_sparse`] says of which buffers that is so.
    pub sparse_bytes: usize,
}

/// One queue pair.
pub trait Nic {
    /// Memory of received frames and of payloads to send.
    type Buffer: Buffer;

    /// What it is.
    fn properties(&self) -> Properties;

    /// The next received frame, if one is there.
    fn receive(&mut self) -> Option<Received<Self::Buffer>>;

    /// Whether surely no frame waits to be received, where that is cheaper to tell than to try.
    #[inline]
    fn is_idle(&self) -> bool {
        false
    }

    /// How many more frames can be queued for sending.
    fn room(&mut self) -> usize;

    /// Queues a frame. The device may not see it before [`Nic::kick`].
    ///
    /// # Errors
    /// Gives the frame back if the ring is full.
    #[expect(
        clippy::result_large_err,
        reason = "a full ring is rare; a box would be an allocation for every frame"
    )]
    fn transmit(&mut self, frame: Outgoing<Self::Buffer>) -> Result<(), Outgoing<Self::Buffer>>;

    /// Queues a frame where it lies, for who would rather not move it: takes its payload, or returns `false`
    /// and leaves all as it is if the ring is full.
    #[inline]
    fn queue(&mut self, frame: &mut Outgoing<Self::Buffer>) -> bool {
        let taken = Outgoing { payload: core::mem::take(&mut frame.payload), ..*frame };
        match self.transmit(taken) {
            Ok(()) => true,
            Err(back) => {
                frame.payload = back.payload;
                false
            }
        }
    }

    /// Tells the device about everything queued, unless it is looking anyway.
    fn kick(&mut self);

    /// Bytes of a connection came, or the end of its handshake, in a frame that was first seen at `at_ns`:
    /// for who measures paths. A driver does not.
    fn arrived(&mut self, flow: u32, at_ns: u64) {
        let _ = (flow, at_ns);
    }

    /// Puts bytes into memory that the device reaches; `None` if that is exhausted.
    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Self::Buffer>>;

    /// The same for bytes that are kept for long: leaves enough to send from.
    fn keep(&mut self, bytes: &[u8]) -> Option<Slice<Self::Buffer>> {
        self.buffer(bytes)
    }

    /// Gives memory for buffers that nobody uses back to the world, all but `keep_bytes`: a bounded part at a
    /// time. A driver that cannot gives nothing.
    fn trim(&mut self, keep_bytes: usize) -> Trimmed {
        let _ = keep_bytes;
        Trimmed::default()
    }

    /// The time, in nanoseconds of the clock of [`Received::at_ns`], for who was last told that it is
    /// `told_ns`: a device without a clock knows no better.
    fn now_ns(&self, told_ns: u64) -> u64 {
        told_ns
    }

    /// Tells everything that the driver counts, each with its name, in a fixed order.
    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        let _ = count;
    }

    /// Asks for an interrupt at the next frame. `false` if frames are there already: poll again.
    fn arm(&mut self) -> bool;

    /// Asks for no more interrupts.
    fn disarm(&mut self);
}

/// A frame's bytes in one piece, for what must look at all of them.
pub fn gather<B: Buffer>(chain: &[Slice<B>]) -> Vec<u8> {
    chain.iter().flat_map(|slice| slice.iter().copied()).collect()
}
