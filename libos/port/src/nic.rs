//! One queue pair of a network interface, as the stack of one core sees it.

use crate::buffer::{Buffer, Buffers, Chain, Slice, chain_len};
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

/// The most bytes of headers, Ethernet 14, IPv6 40 and TCP 60, and of a payload that is copied behind them
/// since it is so short.
pub const HEAD_MAX: usize = 240;

/// The headers of a frame to send, and maybe its payload.
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

    /// Makes it `len` bytes, of which none is as it was: they are to be written.
    ///
    /// # Panics
    /// If `len` is above [`HEAD_MAX`].
    #[inline]
    pub fn restart(&mut self, len: usize) {
        assert!(len <= HEAD_MAX, "a head of {len} bytes");
        self.len = len as u8;
    }

    /// Adds `bytes`, if there is room for them; whether there was.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let start = usize::from(self.len);
        let Some(place) = self.bytes.get_mut(start..start + bytes.len()) else { return false };
        place.copy_from_slice(bytes);
        self.len += bytes.len() as u8;
        true
    }

    /// Whether so many bytes could be added.
    #[inline]
    pub fn has_room(&self, bytes: usize) -> bool {
        bytes <= HEAD_MAX - usize::from(self.len)
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
    /// Ethernet, IP and transport headers, and what was copied behind them.
    pub head: Head,
    /// What follows them.
    pub payload: Chain<B>,
    /// What the interface is to finish; only if it offers that.
    pub checksum: Option<PartialChecksum>,
    /// How it is to be cut; only if the interface offers that.
    pub segmentation: Option<Segmentation>,
    /// For who measures; a driver does not look at it.
    pub tag: Option<Tag>,
}

/// What whoever sends a frame says of it to whoever stands between it and the device. Drivers neither read
/// nor keep it, and its bits mean what those two agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub [u64; 2]);

/// For whom something is done, said by a stack to whoever stands between it and the device. Its bits mean
/// what the one who chose it says; drivers do not look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label(pub u32);

/// The ring has no place for another frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFull;

impl<B: Buffer> Outgoing<B> {
    /// A frame of nothing.
    pub fn empty() -> Outgoing<B> {
        let head = Head::zeroed(0);
        Outgoing { head, payload: Chain::new(), checksum: None, segmentation: None, tag: None }
    }

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

/// One queue pair: frames in, frames out, and when to be told of them.
pub trait Nic: Buffers {
    /// What it is.
    fn properties(&self) -> Properties;

    /// The next received frame, if one is there.
    fn receive(&mut self) -> Option<Received<Self::Buffer>>;

    /// How many more frames can be queued for sending.
    fn room(&mut self) -> usize;

    /// Queues a frame, and takes its payload; a large one need not be moved for it. The device may not see it
    /// before [`Nic::kick`].
    ///
    /// # Errors
    /// [`RingFull`]; the frame is as it was.
    fn transmit(&mut self, frame: &mut Outgoing<Self::Buffer>) -> Result<(), RingFull>;

    /// The same with `short` behind the head, which [has room](Head::has_room) for it. A driver may copy it
    /// to where its device reads it; otherwise it is copied once more. If the ring is full, what the head has
    /// is not known.
    ///
    /// # Errors
    /// [`RingFull`].
    ///
    /// # Panics
    /// If there is no room.
    fn transmit_behind(&mut self, frame: &mut Outgoing<Self::Buffer>, short: &[u8]) -> Result<(), RingFull> {
        assert!(frame.head.append(short), "{} bytes behind a head of {}", short.len(), frame.head.len());
        self.transmit(frame)
    }

    /// How long the frame that was queued last may be held to batch it, in nanoseconds, if others may be held
    /// for longer. A driver does not know for whom frames are.
    #[inline]
    fn held_at_most_ns(&self) -> Option<u64> {
        None
    }

    /// Tells the device about everything queued, unless it is looking anyway.
    fn kick(&mut self);

    /// Asks for an interrupt at the next frame. `false` if frames are there already: poll again.
    fn arm(&mut self) -> bool;

    /// Asks for no more interrupts.
    fn disarm(&mut self);

    /// What was done since the last frame came, and what is done from here on, is for whom `label` says. A
    /// driver does not heed it.
    #[inline]
    fn attribute(&mut self, label: Label) {
        let _ = label;
    }

    /// Whether surely no frame waits to be received, where that is cheaper to tell than to try.
    #[inline]
    fn is_idle(&self) -> bool {
        false
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
}

/// A frame's bytes in one piece, for what must look at all of them.
pub fn gather<B: Buffer>(chain: &[Slice<B>]) -> Vec<u8> {
    chain.iter().flat_map(|slice| slice.iter().copied()).collect()
}
