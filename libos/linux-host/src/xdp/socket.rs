//! An XDP socket (AF_XDP) with its four rings and its memory: which chunk is whose.
//!
//! A chunk is the kernel's from when it is put into the fill ring or sent, until it comes back by the receive
//! ring or the completion ring. All that is not the kernel's is in `free` or in the caller's hands.

use super::ring::{Consumer, Frames, Producer};
use rustix::io::{Errno, Result};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with, sockopt};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Frames that may wait to be received, and as many to be sent.
pub(super) const DEPTH: u32 = 1024;
/// Bytes of a chunk. The kernel keeps the first 256 of each that it receives into (XDP_PACKET_HEADROOM).
const CHUNK_BYTES: u32 = 2048;
/// Bytes that fit into a chunk beside those.
pub(super) const FRAME_MAX: usize = CHUNK_BYTES as usize - 256;
/// How often the kernel is told of the same frames before somebody else gets a turn: it takes 32 at a time.
const ATTEMPTS: u32 = 2 * DEPTH / 32;

/// Where a chunk that is ours starts.
#[derive(Debug)]
pub(super) struct Chunk(u64);

#[derive(Debug)]
pub(super) struct XdpSocket {
    file: Rc<OwnedFd>,
    fill: Producer<u64>,
    received: Consumer<XdpDesc>,
    sending: Producer<XdpDesc>,
    sent: Consumer<u64>,
    /// Chunks to send from.
    free: Vec<Chunk>,
    /// Chunks on their way back to the fill ring. The kernel shows a frame before it says that it took its
    /// chunk from there, so that a full ring may have no room for a moment.
    returning: Vec<Chunk>,
    /// Unmapped after the rings and the socket are gone.
    frames: Frames,
}

impl XdpSocket {
    /// The socket of one queue of the interface with number `interface`.
    ///
    /// # Errors
    /// What Linux says: `EINVAL` for a queue that the interface does not have.
    pub fn open(interface: u32, queue: u32) -> Result<XdpSocket> {
        let frames = Frames::map((2 * DEPTH * CHUNK_BYTES) as usize)?;
        let file = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let (addr, len) = frames.place();
        let flags = XdpUmemRegFlags::empty();
        let memory =
            XdpUmemReg { addr, len, chunk_size: CHUNK_BYTES, headroom: 0, flags, tx_metadata_len: 0 };
        sockopt::set_xdp_umem_reg(&file, memory)?;
        sockopt::set_xdp_umem_fill_ring_size(&file, DEPTH)?;
        sockopt::set_xdp_umem_completion_ring_size(&file, DEPTH)?;
        sockopt::set_xdp_rx_ring_size(&file, DEPTH)?;
        sockopt::set_xdp_tx_ring_size(&file, DEPTH)?;
        let offsets = sockopt::xdp_mmap_offsets(&file)?;
        let mut fill = Producer::map(&file, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, DEPTH)?;
        let sent = Consumer::map(&file, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, DEPTH)?;
        let received = Consumer::map(&file, XDP_PGOFF_RX_RING, offsets.rx, DEPTH)?;
        let sending = Producer::map(&file, XDP_PGOFF_TX_RING, offsets.tx, DEPTH)?;
        let chunk = |number: u32| u64::from(number * CHUNK_BYTES);
        (0..DEPTH).for_each(|number| assert!(fill.push(chunk(number)), "the ring has room for all"));
        fill.publish();
        let free = (DEPTH..2 * DEPTH).map(|number| Chunk(chunk(number))).collect();
        bind(&file, &SocketAddrXdp::new(SocketAddrXdpFlags::empty(), interface, queue))?;
        let returning = Vec::new();
        Ok(XdpSocket { file: Rc::new(file), fill, received, sending, sent, free, returning, frames })
    }

    /// The file that can be read when a frame is there.
    pub fn file(&self) -> &Rc<OwnedFd> {
        &self.file
    }

    /// Whether no frame waits to be received.
    pub fn is_idle(&self) -> bool {
        self.received.is_empty()
    }

    /// Takes the next received frame by `copy`, which is told its length and returns where it is to be copied
    /// to and what to make of that; `None` if there is no frame.
    pub fn receive<T>(&mut self, copy: impl FnOnce(usize, &dyn Fn(&mut [u8])) -> T) -> Option<T> {
        let found = self.received.pop();
        if !self.returning.is_empty() {
            self.give_back();
        }
        let found = found?;
        let offset = found.addr as usize;
        let value = copy(found.len as usize, &|into| self.frames.read(offset, into));
        // The chunk that it was in is where it was to begin with, the kernel's room in front of the frame
        // included.
        self.returning.push(Chunk(found.addr & !u64::from(CHUNK_BYTES - 1)));
        self.give_back();
        Some(value)
    }

    /// Lets the kernel receive into the chunks again; whether it has room for all.
    pub fn give_back(&mut self) -> bool {
        while let Some(Chunk(chunk)) = self.returning.last()
            && self.fill.push(*chunk)
        {
            self.returning.pop();
        }
        self.fill.publish();
        self.returning.is_empty()
    }

    /// How many frames can be sent before others have left.
    pub fn room(&mut self) -> usize {
        while let Some(chunk) = self.sent.pop() {
            self.free.push(Chunk(chunk));
        }
        self.free.len()
    }

    /// Puts a frame of these `pieces`, of at most [`FRAME_MAX`] bytes, where the kernel will find it when it
    /// is told ([`XdpSocket::tell`]); whether there was room.
    pub fn put<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> bool {
        if self.free.is_empty() && self.room() == 0 {
            return false;
        }
        let Some(Chunk(addr)) = self.free.pop() else { return false };
        let mut len = 0;
        for piece in pieces {
            assert!(len + piece.len() <= FRAME_MAX, "a frame of more than {FRAME_MAX} bytes");
            self.frames.write(addr as usize + len, piece);
            len += piece.len();
        }
        let frame = XdpDesc { addr, len: len as u32, options: XdpDescOptions::empty() };
        let pushed = self.sending.push(frame);
        if !pushed {
            // It was said to have left before its place in the ring was said to be free.
            self.free.push(Chunk(addr));
        }
        pushed
    }

    /// Whether the kernel has not yet taken all that was put.
    pub fn has_unsent(&self) -> bool {
        self.sending.held() > 0
    }

    /// Tells the kernel of all that was put, until it has taken it or has no room. Returns how often it was
    /// called.
    ///
    /// # Errors
    /// What Linux says, but for want of room.
    pub fn tell(&mut self) -> (u32, Result<()>) {
        self.sending.publish();
        let mut calls = 0;
        while self.has_unsent() && calls < ATTEMPTS {
            calls += 1;
            match send(&*self.file, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => drop(self.room()),
                Err(errno) => return (calls, Err(errno)),
            }
        }
        (calls, Ok(()))
    }
}
