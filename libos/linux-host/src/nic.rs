//! The network interface that a process has: a TAP device or an XDP socket, as its environment says.

use crate::pool::PoolBuffer;
use crate::tap::{self, Options, TapError, TapNic};
use crate::xdp::{self, XdpError, XdpNic};
use nom_port::buffer::{Buffers, Slice};
use nom_port::nic::{Nic, Outgoing, Properties, Received, RingFull};
use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Why there is no interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NicError {
    /// The TAP device cannot be used.
    Tap(TapError),
    /// The interface cannot be used by XDP.
    Xdp(XdpError),
}

impl fmt::Display for NicError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NicError::Tap(error) => error.fmt(out),
            NicError::Xdp(error) => error.fmt(out),
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
        let opened = tap::Queue::open(name, queues).map_err(NicError::Tap)?;
        Ok(opened.into_iter().map(Queue::Tap).collect())
    }

    /// `queues` queues, but at least one, of an interface by XDP: see [`xdp::Queue::open`].
    ///
    /// # Errors
    /// Its.
    pub fn of_xdp(name: &str, queues: usize) -> Result<Vec<Queue>, NicError> {
        let opened = xdp::Queue::open(name, queues).map_err(NicError::Xdp)?;
        Ok(opened.into_iter().map(Queue::Xdp).collect())
    }

    /// Makes it the running core's.
    ///
    /// # Errors
    /// If `options` leave it no memory, or the interface no such queue.
    pub fn start(self, options: &Options) -> Result<QueuePair, NicError> {
        match self {
            Queue::Tap(queue) => {
                queue.start(options).map(Box::new).map(QueuePair::Tap).map_err(NicError::Tap)
            }
            Queue::Xdp(queue) => {
                queue.start(options).map(Box::new).map(QueuePair::Xdp).map_err(NicError::Xdp)
            }
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
