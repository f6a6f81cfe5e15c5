//! A network interface whose cable ends at Linux: a TAP device, with checksums and segmentation left to the
//! other side both ways.
//!
//! Each frame is one system call, which gathers what is sent from where it lies, and puts what is received
//! where the application will read it.

mod device;
mod header;

pub use device::plug;

use crate::nic::{NicError, Options, Way};
use crate::pool::{Pool, PoolBuffer, PoolSlot};
use crate::time::now_ns;
use nom_port::buffer::{Buffers, Chain, Slice};
use nom_port::nic::{Nic, Outgoing, Properties, Received, RingFull, gather};
use rustix::io::{Errno, readv, retry_on_intr, writev};
use std::io::{IoSlice, IoSliceMut};
use std::mem::replace;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Bytes that a frame fills first: an ordinary frame wholly.
const FRONT_BYTES: usize = 2048;
/// Bytes for the rest: the largest packet of IP.
const REST_BYTES: usize = 64 * 1024;
/// A rest below this is copied to memory of its own size, lest a few bytes pin 64 KiB.
const COPY_BELOW: usize = REST_BYTES / 2;
/// Frames that the kernel takes before it has to be asked again: it has no ring, so any number.
const ROOM: usize = 1024;
/// Most pieces of a frame that are gathered where they lie, header and head included.
const PIECES: usize = 32;

nom_port::counters! {
    /// System calls that asked for a frame.
    reads,
    /// Those of them that found none.
    reads_empty,
    /// Those of them that failed: the interface is down, or gone.
    reads_failed,
    /// System calls that sent a frame.
    writes,
    /// Those of them that the kernel refused: the frame is lost.
    writes_refused,
    /// Those of them for which the kernel had no room: the frame is still the stack's.
    writes_full,
    /// Frames received.
    received_frames,
    /// Bytes of them.
    received_bytes,
    /// Frames received that were too short to be any.
    received_short,
    /// Frames received for which no memory was left.
    received_lost,
    /// Frames sent.
    sent_frames,
    /// Bytes of them.
    sent_bytes,
    /// Frames sent of so many slices that they were copied together.
    sent_copied,
    /// Times that the core was about to sleep until a frame comes.
    arms,
}

/// A queue of a TAP device on its way to its core.
#[derive(Debug)]
pub struct Queue {
    name: String,
    file: OwnedFd,
    properties: Properties,
}

impl Queue {
    /// Opens up to `queues` queues, but at least one, of the TAP device `name` of the process's network
    /// namespace; a device that is not there is made, one that is made for one queue has one.
    ///
    /// # Errors
    /// If the process may not do that, or the device is not to be had.
    pub fn open(name: &str, queues: usize) -> Result<Vec<Queue>, NicError> {
        let (files, properties) = device::attach(name, queues)?;
        Ok(files.into_iter().map(|file| Queue { name: name.to_owned(), file, properties }).collect())
    }

    /// Makes it the running core's.
    ///
    /// # Errors
    /// If `options` leave it no memory.
    pub fn start(self, options: &Options) -> Result<TapNic, NicError> {
        let Queue { name, file, properties } = self;
        let none = NicError { way: Way::Tap, name, step: "have buffers", errno: Errno::NOMEM };
        TapNic::over(file, properties, options).ok_or(none)
    }
}

/// One end of a TAP device, as the stack of one core sees it.
#[derive(Debug)]
pub struct TapNic {
    file: Rc<OwnedFd>,
    properties: Properties,
    pool: Pool,
    /// Where the next frame goes.
    front: PoolSlot,
    /// Where what is too large for `front` goes.
    rest: PoolSlot,
    counters: Counters,
}

impl TapNic {
    /// Opens the TAP device `name` of the process's network namespace; it is made if there is none.
    ///
    /// # Errors
    /// If the process may not do that, or the device is not to be had.
    pub fn open(name: &str, options: &Options) -> Result<TapNic, NicError> {
        Queue::open(name, 1)?.remove(0).start(options)
    }

    /// The same over any non-blocking file that takes and gives a frame with its header in each call; `None`
    /// if `options` leave it no memory.
    pub fn over(file: OwnedFd, properties: Properties, options: &Options) -> Option<TapNic> {
        let pool = Pool::new(options.memory_bytes);
        let (front, rest) = (pool.take(FRONT_BYTES)?, pool.take(REST_BYTES)?);
        Some(TapNic { file: Rc::new(file), properties, pool, front, rest, counters: Counters::default() })
    }

    /// The file that can be read when a frame is there: for [`crate::port::Idle`].
    pub fn file(&self) -> Rc<OwnedFd> {
        self.file.clone()
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Reads a frame and its header into the slots; how many bytes both have.
    fn read(&mut self, header: &mut [u8; header::BYTES]) -> Option<usize> {
        self.counters.reads += 1;
        let (file, front, rest) = (&self.file, self.front.bytes(), self.rest.bytes());
        let outcome = retry_on_intr(|| {
            let mut pieces = [IoSliceMut::new(header), IoSliceMut::new(front), IoSliceMut::new(rest)];
            readv(file, &mut pieces)
        });
        match outcome {
            // A socket whose other end is closed, which is no TAP device.
            Ok(0) | Err(Errno::AGAIN) => self.counters.reads_empty += 1,
            Err(_) => self.counters.reads_failed += 1,
            Ok(bytes) => return Some(bytes),
        }
        None
    }

    /// Lends the `bytes` of a frame that lie in the slots, which are replaced; `None` if there is no memory.
    fn lend(&mut self, bytes: usize) -> Option<Chain<PoolBuffer>> {
        let front = bytes.min(FRONT_BYTES);
        let rest = match bytes - front {
            0 => None,
            rest if rest < COPY_BELOW => Some(self.pool.copy(&self.rest.bytes()[..rest])?),
            rest => Some(replace(&mut self.rest, self.pool.take(REST_BYTES)?).share(rest)),
        };
        let front = replace(&mut self.front, self.pool.take(FRONT_BYTES)?).share(front);
        Some([Some(front), rest].into_iter().flatten().map(Slice::new).collect())
    }

    /// Sends a header and a frame with one call.
    fn write(&mut self, frame: &Outgoing<PoolBuffer>) -> Result<(), Errno> {
        self.counters.writes += 1;
        let header = header::outgoing(frame.checksum, frame.segmentation, frame.head.len());
        let mut pieces = [IoSlice::new(&[]); PIECES];
        pieces[0] = IoSlice::new(&header);
        pieces[1] = IoSlice::new(&frame.head);
        let count = 2 + frame.payload.len();
        if count <= PIECES {
            pieces[2..count]
                .iter_mut()
                .zip(&frame.payload)
                .for_each(|(piece, slice)| *piece = IoSlice::new(slice));
            return retry_on_intr(|| writev(&self.file, &pieces[..count])).map(drop);
        }
        self.counters.sent_copied += 1;
        let copy = gather(&frame.payload);
        pieces[2] = IoSlice::new(&copy);
        retry_on_intr(|| writev(&self.file, &pieces[..3])).map(drop)
    }
}

impl Buffers for TapNic {
    type Buffer = PoolBuffer;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<PoolBuffer>> {
        self.pool.copy(bytes).map(Slice::new)
    }
}

impl Nic for TapNic {
    fn properties(&self) -> Properties {
        self.properties
    }

    fn receive(&mut self) -> Option<Received<PoolBuffer>> {
        let mut header = [0; header::BYTES];
        let bytes = self.read(&mut header)?;
        let Some(bytes @ 1..) = bytes.checked_sub(header::BYTES) else {
            self.counters.received_short += 1;
            return None;
        };
        let Some(frame) = self.lend(bytes) else {
            self.counters.received_lost += 1;
            return None;
        };
        self.counters.received_frames += 1;
        self.counters.received_bytes += bytes as u64;
        Some(Received { frame, checksum: header::checksum(&header), at_ns: now_ns() })
    }

    fn room(&mut self) -> usize {
        ROOM
    }

    fn transmit(&mut self, frame: &mut Outgoing<PoolBuffer>) -> Result<(), RingFull> {
        match self.write(frame) {
            Ok(()) => {
                self.counters.sent_frames += 1;
                self.counters.sent_bytes += frame.len() as u64;
            }
            Err(Errno::AGAIN | Errno::NOBUFS) => {
                self.counters.writes_full += 1;
                return Err(RingFull);
            }
            // Lost, as on a cable that nobody holds.
            Err(_) => self.counters.writes_refused += 1,
        }
        Ok(())
    }

    /// Every frame has left with its own system call.
    fn kick(&mut self) {}

    fn now_ns(&self, _: u64) -> u64 {
        now_ns()
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        self.counters.named().for_each(|(name, value)| count(name, value));
    }

    /// A sleep ends at once if a frame is there already: see [`crate::port::Idle`].
    fn arm(&mut self) -> bool {
        self.counters.arms += 1;
        true
    }

    fn disarm(&mut self) {}
}

#[cfg(test)]
mod tests;
