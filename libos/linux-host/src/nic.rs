//! The network interface that a process has: a TAP device or an XDP socket, as its environment says.

use crate::interface::NAME_BYTES;
use crate::pool::PoolBuffer;
use crate::tap::{self, TapNic};
use crate::xdp::{self, XdpNic};
use nom_port::buffer::{Buffers, Slice};
use nom_port::nic::{Nic, Outgoing, Properties, Received, RingFull};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// How an interface is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of memory for buffers: those that are received into, those that the application keeps, and those
    /// that are sent.
    pub memory_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { memory_bytes: 1 << 30 }
    }
}

/// How a process uses an interface of Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As the other end of a TAP device.
    Tap,
    /// By an XDP socket.
    Xdp,
}

/// Why an interface cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicError {
    /// How it was to be used.
    pub way: Way,
    /// The interface.
    pub name: String,
    /// What was tried.
    pub step: &'static str,
    /// What Linux said.
    pub errno: Errno,
}

impl fmt::Display for NicError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.way {
            Way::Tap => "TAP device",
            Way::Xdp => "XDP on",
        };
        write!(out, "{way} `{}`: cannot {}: {}", self.name, self.step, self.errno)?;
        match (self.errno, self.way) {
            (Errno::PERM | Errno::ACCESS, Way::Tap) => write!(out, "; it takes root, or CAP_NET_ADMIN"),
            (Errno::PERM | Errno::ACCESS, Way::Xdp) => {
                write!(out, "; it takes root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF")
            }
            (Errno::NOENT | Errno::NODEV | Errno::NXIO, Way::Tap) => {
                write!(out, "; is Linux's module `tun` there?")
            }
            (Errno::NODEV, Way::Xdp) => write!(out, "; expected an interface of this network namespace"),
            (Errno::BUSY, _) => write!(out, "; another process has it"),
            (Errno::NAMETOOLONG, _) => write!(out, "; expected a name of 1 to {} bytes", NAME_BYTES - 1),
            (Errno::MSGSIZE, _) => write!(out, "; expected an MTU of at most {} bytes", xdp::MTU_MAX),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for NicError {}

/// A queue on its way to its core.
#[derive(Debug)]
pub enum Queue {
    /// Of a TAP device.
    Tap(tap::Queue),
    /// Of an interface that is used by XDP.
    Xdp(xdp::Queue),
}

impl Queue {
    /// Up to `queues` queues, but at least one, of a TAP device: see [`tap::Queue::open`].
    ///
    /// # Errors
    /// Its.
    pub fn of_tap(name: &str, queues: usize) -> Result<Vec<Queue>, NicError> {
        let opened = tap::Queue::open(name, queues)?;
        Ok(opened.into_iter().map(Queue::Tap).collect())
    }

    /// `queues` queues, but at least one, of an interface by XDP: see [`xdp::Queue::open`].
    ///
    /// # Errors
    /// Its.
    pub fn of_xdp(name: &str, queues: usize) -> Result<Vec<Queue>, NicError> {
        let opened = xdp::Queue::open(name, queues)?;
        Ok(opened.into_iter().map(Queue::Xdp).collect())
    }

    /// Makes it the running core's.
    ///
    /// # Errors
    /// If `options` leave it no memory, or the interface no such queue.
    pub fn start(self, options: &Options) -> Result<QueuePair, NicError> {
        match self {
            Queue::Tap(queue) => queue.start(options).map(Box::new).map(QueuePair::Tap),
            Queue::Xdp(queue) => queue.start(options).map(Box::new).map(QueuePair::Xdp),
        }
    }
}

/// One queue pair, as the stack of one core sees it.
#[derive(Debug)]
pub enum QueuePair {
    /// Of a TAP device.
    Tap(Box<TapNic>),
    /// Of an interface that is used by XDP.
    Xdp(Box<XdpNic>),
}

/// The same for whichever it is.
macro_rules! either {
    ($pair:expr, $nic:ident => $then:expr) => {
        match $pair {
            QueuePair::Tap($nic) => $then,
            QueuePair::Xdp($nic) => $then,
        }
    };
}

impl QueuePair {
    /// The file that can be read when a frame is there: for [`crate::port::Idle`].
    pub fn file(&self) -> Rc<OwnedFd> {
        either!(self, nic => nic.file())
    }
}

impl Buffers for QueuePair {
    type Buffer = PoolBuffer;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<PoolBuffer>> {
        either!(self, nic => nic.buffer(bytes))
    }
}

impl Nic for QueuePair {
    fn properties(&self) -> Properties {
        either!(self, nic => nic.properties())
    }

    fn receive(&mut self) -> Option<Received<PoolBuffer>> {
        either!(self, nic => nic.receive())
    }

    fn room(&mut self) -> usize {
        either!(self, nic => nic.room())
    }

    fn transmit(&mut self, frame: &mut Outgoing<PoolBuffer>) -> Result<(), RingFull> {
        either!(self, nic => nic.transmit(frame))
    }

    fn kick(&mut self) {
        either!(self, nic => nic.kick());
    }

    fn arm(&mut self) -> bool {
        either!(self, nic => nic.arm())
    }

    fn disarm(&mut self) {
        either!(self, nic => nic.disarm());
    }

    fn is_idle(&self) -> bool {
        either!(self, nic => nic.is_idle())
    }

    fn now_ns(&self, told_ns: u64) -> u64 {
        either!(self, nic => nic.now_ns(told_ns))
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        either!(self, nic => Nic::counters(&**nic, count));
    }
}
