//! Messages between sockets: what is sent and received, and those that wait to be received.

use super::buffer::passed;
use super::errors::ErrorReport;
use super::flight::Flight;
use super::open::Description;
use super::ready::Waiters;
use super::socket::{Address, Peeking};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::task::Waker;
use nom_fs::Errno;
use nom_socket::ArrivedDatagram;

/// What an inbox counts for each message beside its bytes, as Linux counts what it keeps of one.
const OVERHEAD: usize = 768;

/// Who sends: `struct ucred`, as `SCM_CREDENTIALS` and `SO_PEERCRED` tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sender {
    /// The process.
    pub process: u32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

/// What is sent by one call.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Where to, if that is said.
    pub to: Option<&'a Address>,
    /// Descriptors that go along.
    pub attached: Option<&'a Rc<Flight>>,
    /// Who says that it sends.
    pub by: Sender,
    /// Whether it says so itself (`SCM_CREDENTIALS`), so that these bytes come with that.
    pub is_signed: bool,
    /// Whether the last byte is urgent (`MSG_OOB`).
    pub is_urgent: bool,
    /// Whether more comes soon that may go with it (`MSG_MORE`).
    pub is_begun: bool,
    /// How it is to be treated on its way, if that differs from what the socket is told (`IP_TTL`, `IP_TOS`
    /// and those of IPv6).
    pub marks: OwnMarks,
    /// How long the datagrams are that it goes in, if that differs from what the socket is told
    /// (`UDP_SEGMENT`).
    pub segment: Option<u16>,
}

/// What a program says of one datagram's header, so far as it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnMarks {
    /// How many routers it may pass.
    pub hops: Option<u8>,
    /// DSCP and ECN.
    pub class: Option<u8>,
}

impl<'a> Outgoing<'a> {
    /// Bytes, and nothing beside.
    pub fn plain(bytes: &'a [u8]) -> Outgoing<'a> {
        let by = Sender::default();
        let marks = OwnMarks::default();
        let (is_signed, is_urgent, is_begun) = (false, false, false);
        Outgoing { bytes, to: None, attached: None, by, is_signed, is_urgent, is_begun, marks, segment: None }
    }
}

/// What was received.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Bytes that were put where they belong.
    pub count: usize,
    /// Bytes that the message had, if it was longer.
    pub whole: usize,
    /// Whence they came, if that is not the peer.
    pub from: Option<Address>,
    /// Descriptors that came along.
    pub attached: Vec<Rc<Description>>,
    /// Who sent it, if that is known.
    pub by: Option<Sender>,
    /// How it came, of datagrams of the network.
    pub arrived: Option<ArrivedDatagram>,
    /// What else is told of it.
    pub note: Note,
    /// What is told instead, if it comes of the queue of errors.
    pub report: Option<ErrorReport>,
}

/// What is told of a datagram beside what is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// How long the datagrams were of which it is several, of which the last may be shorter; 0 if it is one
    /// (`UDP_GRO`).
    pub segment: u16,
    /// How many were lost before it since too many waited (`SO_RXQ_OVFL`).
    pub lost: u32,
}

impl Received {
    /// Bytes of a stream.
    pub fn bytes(count: usize) -> Received {
        Received { count, whole: count, ..Received::default() }
    }
}

/// A message on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whence it comes, if that has a name.
    pub from: Option<Address>,
    /// How it came, of datagrams of the network.
    pub arrived: Option<ArrivedDatagram>,
    /// Descriptors that go along.
    pub attached: Option<Rc<Flight>>,
    /// Who sent it.
    pub by: Option<Sender>,
    /// What else is told of it.
    pub note: Note,
}

impl Message {
    fn cost(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }
}

/// Messages that wait to be received, in order.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    messages: RefCell<VecDeque<Message>>,
    held: Cell<usize>,
    waiters: Waiters,
}

impl Inbox {
    /// One more, behind all others.
    pub fn put(&self, message: Message) {
        self.held.update(|held| held + message.cost());
        self.messages.borrow_mut().push_back(message);
        self.waiters.wake();
    }

    /// One that is received before all others.
    pub fn put_first(&self, message: Message) {
        self.held.update(|held| held + message.cost());
        self.messages.borrow_mut().push_front(message);
    }

    /// Takes the first, or looks at it; what does not fit is lost.
    ///
    /// # Errors
    /// `EAGAIN` if there is none.
    pub fn take(&self, target: &mut [u8], peeking: Peeking) -> Result<Received, Errno> {
        let message = match peeking {
            Peeking::Stay => self.messages.borrow().front().cloned(),
            Peeking::Take => self.messages.borrow_mut().pop_front(),
        };
        let Message { bytes, from, arrived, attached, by, note } = message.ok_or(Errno::EAGAIN)?;
        let attached = passed(attached.as_ref());
        let (count, whole) = (bytes.len().min(target.len()), bytes.len());
        target[..count].copy_from_slice(&bytes[..count]);
        if peeking == Peeking::Take {
            self.held.update(|held| held - whole - OVERHEAD);
            self.waiters.wake();
        }
        Ok(Received { count, whole, from, attached, by, arrived, note, report: None })
    }

    /// Shows descriptors that go along with messages.
    pub fn each_attached(&self, see: &mut dyn FnMut(&Description)) {
        let messages = self.messages.borrow();
        let flights = messages.iter().filter_map(|message| message.attached.as_ref());
        flights.flat_map(|flight| flight.descriptors()).for_each(|description| see(description));
    }

    /// Forgets all.
    pub fn clear(&self) {
        let forgotten = self.messages.take();
        self.held.set(0);
        drop(forgotten);
        self.waiters.wake();
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.messages.borrow().len()
    }

    /// What is held for them: their bytes, and something for each.
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// Bytes of the first.
    pub fn first_len(&self) -> Option<usize> {
        self.messages.borrow().front().map(|message| message.bytes.len())
    }

    /// Wakes when one comes or goes.
    pub fn wake(&self, waker: &Waker) {
        self.waiters.add(waker);
    }

    /// Something else changed that those who wait here want to know.
    pub fn tell(&self) {
        self.waiters.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_in_order_and_what_does_not_fit_is_lost() {
        let inbox = Inbox::default();
        for bytes in [&b"first"[..], b"", b"third"] {
            inbox.put(Message { bytes: bytes.to_vec(), ..Message::default() });
        }
        let mut target = [0; 3];
        let mut take = |peeking| inbox.take(&mut target, peeking).map(|found| (found.count, found.whole));
        assert_eq!(take(Peeking::Stay).ok(), Some((3, 5)));
        assert_eq!(take(Peeking::Take).ok(), Some((3, 5)));
        assert_eq!(take(Peeking::Take).ok(), Some((0, 0)));
        assert_eq!((inbox.len(), inbox.held()), (1, 5 + OVERHEAD));
        assert_eq!(take(Peeking::Take).ok(), Some((3, 5)));
        assert_eq!((take(Peeking::Take).err(), inbox.held()), (Some(Errno::EAGAIN), 0));
    }
}
