//! A network interface of Linux's without Linux's network: an XDP socket (AF_XDP), whose frames lie in memory
//! that the kernel shares.
//!
//! A frame that is received costs no system call while its core polls, and all that are sent until a kick go
//! with one. The interface does nothing by itself: checksums and segments are the stack's. Each frame is
//! copied once, since what is kept of it (a value of memcached's, say) must not hold a chunk of the ring's
//! memory.

mod program;
mod ring;
mod socket;

use crate::interface;
use crate::nic::{NicError, Options, Way};
use crate::pool::{Pool, PoolBuffer};
use crate::time::now_ns;
use nom_port::buffer::{Buffers, Chain, Slice};
use nom_port::nic::{Checksum, Nic, Offloads, Outgoing, Properties, Received, RingFull};
use program::Program;
use rustix::io::Errno;
use socket::{FRAME_MAX, XdpSocket};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;

/// The largest MTU of an interface whose frames fit.
pub(crate) const MTU_MAX: usize = FRAME_MAX - ETHERNET_BYTES;

nom_port::counters! {
    /// Frames received.
    received_frames,
    /// Bytes of them.
    received_bytes,
    /// Frames received for which no memory was left.
    received_lost,
    /// Frames sent.
    sent_frames,
    /// Bytes of them.
    sent_bytes,
    /// System calls that told the kernel of frames to send.
    kicks,
    /// Those of them that failed: the interface is down, or gone.
    kicks_failed,
    /// Times that the core was about to sleep until a frame comes.
    arms,
}

/// A queue of an interface on its way to its core.
#[derive(Debug)]
pub struct Queue {
    name: Arc<str>,
    interface: u32,
    number: u32,
    properties: Properties,
    program: Arc<Program>,
}

impl Queue {
    /// The first `queues` queues, but at least one, of the interface `name` of the process's network
    /// namespace, which must have as many. From now on Linux sees nothing of what they receive.
    ///
    /// Where the other end of a virtual Ethernet pair is in the same namespace, Linux is asked to finish the
    /// checksums of what it sends there, as nobody else will.
    ///
    /// # Errors
    /// If the process may not do that, or the interface is not to be had.
    pub fn open(name: &str, queues: usize) -> Result<Vec<Queue>, NicError> {
        let failed = |step| move |errno| NicError { way: Way::Xdp, name: name.to_owned(), step, errno };
        if !interface::is_name(name) {
            return Err(failed("name it")(Errno::NAMETOOLONG));
        }
        let interface = interface::number(name).map_err(failed("find it"))?;
        let mtu = interface::mtu(name).map_err(failed("ask for its MTU"))?;
        if usize::from(mtu) > MTU_MAX {
            return Err(failed("have frames of its size")(Errno::MSGSIZE));
        }
        if let Some(peer) = interface::peer(name) {
            interface::finish_checksums(&peer).map_err(failed("have checksums of its other end finished"))?;
        }
        let mac = interface::address(name).map_err(failed("ask for its address"))?;
        let properties = Properties { mac, mtu, offloads: Offloads::default() };
        let count = u32::try_from(queues.max(1)).map_err(|_| failed("count its queues")(Errno::RANGE))?;
        let program = Program::attach(interface, count).map_err(|(step, errno)| failed(step)(errno))?;
        let (name, program) = (Arc::from(name), Arc::new(program));
        let queue = |number| Queue {
            name: Arc::clone(&name),
            interface,
            number,
            properties,
            program: Arc::clone(&program),
        };
        Ok((0..count).map(queue).collect())
    }

    /// Makes it the running core's.
    ///
    /// # Errors
    /// If the interface has no such queue, or no memory for frames is to be had.
    pub fn start(self, options: &Options) -> Result<XdpNic, NicError> {
        let failed = |step| {
            let name = self.name.to_string();
            move |errno| NicError { way: Way::Xdp, name, step, errno }
        };
        let socket =
            XdpSocket::open(self.interface, self.number).map_err(failed("have a socket of its queue"))?;
        self.program.redirect(self.number, socket.file()).map_err(failed("receive at the socket"))?;
        let (pool, counters) = (Pool::new(options.memory_bytes), Counters::default());
        Ok(XdpNic { socket, properties: self.properties, pool, counters, _program: self.program })
    }
}

/// A queue of an interface, as the stack of one core sees it.
#[derive(Debug)]
pub struct XdpNic {
    socket: XdpSocket,
    properties: Properties,
    pool: Pool,
    counters: Counters,
    /// Attached as long as one of its queues is used.
    _program: Arc<Program>,
}

impl XdpNic {
    /// The file that can be read when a frame is there: for [`crate::port::Idle`].
    pub fn file(&self) -> Rc<OwnedFd> {
        self.socket.file().clone()
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

impl Buffers for XdpNic {
    type Buffer = PoolBuffer;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<PoolBuffer>> {
        self.pool.copy(bytes).map(Slice::new)
    }
}

impl Nic for XdpNic {
    fn properties(&self) -> Properties {
        self.properties
    }

    fn receive(&mut self) -> Option<Received<PoolBuffer>> {
        let pool = &self.pool;
        let copied = self.socket.receive(|bytes, copy| {
            let mut slot = pool.take(bytes)?;
            copy(&mut slot.bytes()[..bytes]);
            Some(slot.share(bytes))
        })?;
        let Some(frame) = copied else {
            self.counters.received_lost += 1;
            return None;
        };
        self.counters.received_frames += 1;
        self.counters.received_bytes += frame.as_ref().len() as u64;
        let frame = Chain::from_iter([Slice::new(frame)]);
        Some(Received { frame, checksum: Checksum::Unknown, at_ns: now_ns() })
    }

    fn room(&mut self) -> usize {
        self.socket.room()
    }

    fn transmit(&mut self, frame: &mut Outgoing<PoolBuffer>) -> Result<(), RingFull> {
        let payload = frame.payload.iter().map(|slice| &**slice);
        if !self.socket.put(std::iter::once(&*frame.head).chain(payload)) {
            return Err(RingFull);
        }
        self.counters.sent_frames += 1;
        self.counters.sent_bytes += frame.len() as u64;
        Ok(())
    }

    fn kick(&mut self) {
        let (calls, outcome) = self.socket.tell();
        self.counters.kicks += u64::from(calls);
        self.counters.kicks_failed += u64::from(outcome.is_err());
    }

    fn now_ns(&self, _: u64) -> u64 {
        now_ns()
    }

    fn is_idle(&self) -> bool {
        self.socket.is_idle()
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        self.counters.named().for_each(|(name, value)| count(name, value));
    }

    /// Says `false`, too, as long as the kernel has not taken all that is to be sent, or has no room for what
    /// it is to receive into: nobody but this core moves either.
    fn arm(&mut self) -> bool {
        self.counters.arms += 1;
        if self.socket.has_unsent() {
            self.kick();
        }
        self.socket.give_back() && self.socket.is_idle() && !self.socket.has_unsent()
    }

    fn disarm(&mut self) {}
}

#[cfg(test)]
mod tests;
