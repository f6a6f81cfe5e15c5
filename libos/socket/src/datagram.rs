//! Sockets of datagrams: UDP ports.

use crate::error::Error;
use crate::sockets::{Kind, SocketId, Sockets};
use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr};
use nom_net::Answer;
use nom_net::frame::Marks;
use nom_net::{Chain, DatagramError, Observed};
use nom_port::buffer::{Buffer, Slice, chain_len};

/// Ports that are given out to those who name none (RFC 6335 section 6).
const EPHEMERAL: core::ops::Range<u16> = 49_152..65_535;

/// Most addresses that nobody is at of which a port remembers it.
const REFUSED_MAX: usize = 16;

/// Bytes that are counted for each datagram that waits, beside the memory in which it came: who sends
/// datagrams without bytes fills that, too. Its entry takes half of it, in a queue that doubles as it grows.
const OVERHEAD: usize = 256;

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// Bytes that it has, whether there was room for them or not.
    pub len: usize,
    /// Whence it came.
    pub from: SocketAddr,
    /// How it came.
    pub arrived: ArrivedDatagram,
}

/// What is known of a datagram beside its bytes and its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivedDatagram {
    /// Which address it was sent to.
    pub to: IpAddr,
    /// What its header said of how it is to be treated.
    pub marks: Marks,
    /// When it was seen, in nanoseconds of the world's clock.
    pub at_ns: u64,
}

#[derive(Debug)]
struct Queued<B> {
    from: SocketAddr,
    bytes: Chain<B>,
    arrived: ArrivedDatagram,
}

impl<B: Buffer> Queued<B> {
    /// Bytes of memory that it holds.
    fn held(&self) -> usize {
        OVERHEAD + self.bytes.iter().map(Slice::pinned).sum::<usize>()
    }
}

/// A UDP port.
#[derive(Debug)]
pub(crate) struct Datagrams<B> {
    pub port: u16,
    queue: VecDeque<Queued<B>>,
    /// Whose was read last, as long as it is not answered, and when it was seen.
    asked: Option<(SocketAddr, u64)>,
    /// Bytes of memory that the queue holds.
    held: usize,
    held_max: usize,
    pub dropped: u64,
    /// Where nobody took what was sent there, the first first.
    refused: VecDeque<SocketAddr>,
    /// Whether the last one found the ring full.
    pub is_blocked: bool,
}

impl<B: Buffer> Datagrams<B> {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes what came, or drops and counts it if nobody has read enough of what came before.
    pub fn push(&mut self, from: SocketAddr, bytes: Chain<B>, arrived: ArrivedDatagram) {
        let queued = Queued { from, bytes, arrived };
        let held = self.held + queued.held();
        if held > self.held_max && !self.queue.is_empty() {
            self.dropped += 1;
            return;
        }
        self.held = held;
        self.queue.push_back(queued);
    }

    /// Nobody takes what was sent to an address. Of many of which nobody wants to hear the first are
    /// remembered.
    pub fn refuse(&mut self, remote: SocketAddr) {
        if self.refused.len() < REFUSED_MAX && !self.refused.contains(&remote) {
            self.refused.push_back(remote);
        }
    }
}

impl<N: Observed> Sockets<N> {
    /// Takes datagrams to a UDP port; 0 takes one that is free.
    ///
    /// # Errors
    /// [`Error::InUse`], or [`Error::Full`] if none is free.
    pub fn bind(&mut self, port: u16) -> Result<SocketId, Error> {
        let port = if port == 0 { self.free_port().ok_or(Error::Full)? } else { port };
        if self.table.datagrams.contains_key(&port) {
            return Err(Error::InUse);
        }
        let datagrams = Datagrams {
            port,
            queue: VecDeque::new(),
            asked: None,
            held: 0,
            held_max: self.table.receive_max,
            dropped: 0,
            refused: VecDeque::new(),
            is_blocked: false,
        };
        let id = self.table.insert(Kind::Datagrams(datagrams));
        self.table.datagrams.insert(port, id);
        self.stack.bind(port);
        Ok(id)
    }

    /// The first free port after the last that was given out, from a place that nobody can foretell.
    fn free_port(&mut self) -> Option<u16> {
        let count = EPHEMERAL.len() as u16;
        let start = self.stack.config().secret[3] as u16;
        (0..count).find_map(|_| {
            self.next_port = self.next_port.wrapping_add(1);
            let port = EPHEMERAL.start + start.wrapping_add(self.next_port) % count;
            (!self.table.datagrams.contains_key(&port)).then_some(port)
        })
    }

    fn datagrams(&mut self, id: SocketId) -> Result<&mut Datagrams<N::Buffer>, Error> {
        match &mut self.table.socket(id)?.kind {
            Kind::Datagrams(datagrams) => Ok(datagrams),
            _ => Err(Error::NotSupported),
        }
    }

    /// The port of a socket of datagrams.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn port(&mut self, id: SocketId) -> Result<u16, Error> {
        Ok(self.datagrams(id)?.port)
    }

    /// Datagrams that were dropped because nobody read those before.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn dropped(&mut self, id: SocketId) -> Result<u64, Error> {
        Ok(self.datagrams(id)?.dropped)
    }

    /// An address to which a datagram was sent, and where nobody took it (RFC 1122 section 4.1.3.3); the next
    /// call says the next.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn take_refusal(&mut self, id: SocketId) -> Result<Option<SocketAddr>, Error> {
        Ok(self.datagrams(id)?.refused.pop_front())
    }

    /// Copies a datagram and sends it.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if the ring is full; [`Error::TooLong`], [`Error::Unreachable`],
    /// [`Error::NoMemory`]. Nothing was sent.
    pub fn send_to(&mut self, id: SocketId, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        self.send_marked(id, bytes, to, Marks::USUAL)
    }

    /// The same with these `marks`.
    ///
    /// # Errors
    /// As [`Sockets::send_to`].
    pub fn send_marked(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        to: SocketAddr,
        marks: Marks,
    ) -> Result<(), Error> {
        let port = self.datagrams(id)?.port;
        let from = self.stack.config().source_for(to.ip()).ok_or(Error::Unreachable)?;
        let slice = self.stack.buffer(bytes).ok_or(Error::NoMemory)?;
        let payload = Chain::from_iter([slice]);
        let asked = self.datagrams(id)?.asked.filter(|(whose, _)| *whose == to);
        let answers = asked.map(|(_, at_ns)| Answer::to_datagram(at_ns));
        let sent = self.stack.send_in_answer(SocketAddr::new(from, port), to, payload, answers, marks);
        let datagrams = self.datagrams(id)?;
        datagrams.is_blocked = sent == Err(DatagramError::Full);
        if datagrams.is_blocked {
            // Once: who tries again and again makes no list longer.
            if !self.table.blocked.contains(&id) {
                self.table.blocked.push(id);
            }
        } else if asked.is_some() {
            datagrams.asked = None;
            if sent.is_ok() {
                self.stack.nic().answered(bytes.len());
            }
        }
        sent?;
        self.stack.let_go();
        Ok(())
    }

    /// Moves the oldest datagram into `target`, cut to its length; says how much was moved, and whence it
    /// came.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is none.
    pub fn receive_from(&mut self, id: SocketId, target: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        self.receive_datagram(id, target).map(|received| (received.len.min(target.len()), received.from))
    }

    /// The same, with all that is known of it.
    ///
    /// # Errors
    /// As [`Sockets::receive_from`].
    pub fn receive_datagram(&mut self, id: SocketId, target: &mut [u8]) -> Result<ReceivedDatagram, Error> {
        let datagrams = self.datagrams(id)?;
        let queued = datagrams.queue.pop_front().ok_or(Error::WouldBlock)?;
        datagrams.held -= queued.held();
        let Queued { from, bytes, arrived } = queued;
        datagrams.asked = Some((from, arrived.at_ns));
        let mut filled = 0;
        for slice in &bytes {
            let count = slice.len().min(target.len() - filled);
            target[filled..filled + count].copy_from_slice(&slice[..count]);
            filled += count;
        }
        Ok(ReceivedDatagram { len: chain_len(&bytes), from, arrived })
    }
}
