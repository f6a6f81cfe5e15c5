//! Sockets of datagrams between processes of the family: unix(7), `SOCK_DGRAM`.

use super::message::{Inbox, Message, Note, Outgoing, Received, Sender};
use super::open::{Description, Stream};
use super::places::{LocalKind, Places, Taken};
use super::ready::Events;
use super::socket::{Address, Options, Peeking, Side, Socket, events};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::task::Waker;
use linux_raw_sys::net as abi;
use nom_fs::{Errno, NodeType};

/// What one may hold that nobody has received, and the most of one message with its head, as on Linux
/// (`net.core.wmem_default`).
const HELD_MAX: usize = 212_992;
const HEAD: usize = 32;
/// Messages that wait at one that is not connected to who sends (`net.unix.max_dgram_qlen`), less one.
const WAITING_MAX: usize = 10;

/// What others reach of a socket.
#[derive(Debug, Default)]
pub(crate) struct End {
    inbox: Inbox,
    name: RefCell<Vec<u8>>,
    peer: RefCell<Option<Weak<End>>>,
    is_receive_shut: Cell<bool>,
}

impl End {
    fn is_peer(&self, other: &Rc<End>) -> bool {
        self.peer.borrow().as_ref().is_some_and(|peer| peer.as_ptr() == Rc::as_ptr(other))
    }

    /// Whether one more of `sender` finds room.
    fn has_room(&self, sender: &Rc<End>) -> bool {
        self.inbox.held() < HELD_MAX && (self.is_peer(sender) || self.inbox.len() <= WAITING_MAX)
    }
}

/// A local socket of datagrams.
pub(crate) struct Datagrams {
    places: Rc<Places>,
    end: Rc<End>,
    peer_name: RefCell<Vec<u8>>,
    taken: RefCell<Option<Taken>>,
    is_send_shut: Cell<bool>,
    /// Whom there was no room at.
    full: RefCell<Weak<End>>,
    /// Who made it: so sends who does not say.
    maker: Sender,
    /// Whether it was made with its peer, so that who that is is known.
    is_of_pair: Cell<bool>,
    options: Options,
}

impl Datagrams {
    /// One without a name.
    pub fn new(places: &Rc<Places>, maker: Sender) -> Datagrams {
        let (end, peer_name, taken, is_send_shut, full, options) = Default::default();
        let is_of_pair = Cell::new(false);
        Datagrams {
            places: places.clone(),
            end,
            peer_name,
            taken,
            is_send_shut,
            full,
            maker,
            is_of_pair,
            options,
        }
    }

    /// Two that are connected to each other.
    pub fn pair(places: &Rc<Places>, maker: Sender) -> (Datagrams, Datagrams) {
        let (one, other) = (Datagrams::new(places, maker), Datagrams::new(places, maker));
        [&one, &other].iter().for_each(|end| end.is_of_pair.set(true));
        *one.end.peer.borrow_mut() = Some(Rc::downgrade(&other.end));
        *other.end.peer.borrow_mut() = Some(Rc::downgrade(&one.end));
        (one, other)
    }

    /// Who has an address.
    fn at(&self, address: &Address) -> Result<Rc<End>, Errno> {
        let (place, _) = address.place(LocalKind::Datagrams)?;
        self.places.check(&place, LocalKind::Datagrams)?;
        self.places.datagrams.borrow().get(&place).and_then(Weak::upgrade).ok_or(Errno::ECONNREFUSED)
    }

    /// Who is sent to that nobody names.
    fn peer(&self) -> Result<Rc<End>, Errno> {
        let mut peer = self.end.peer.borrow_mut();
        let found = peer.as_ref().ok_or(Errno::ENOTCONN)?.upgrade();
        if found.is_none() {
            *peer = None;
        }
        found.ok_or(Errno::ECONNREFUSED)
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.end.inbox.clear();
        self.places.datagrams.borrow_mut().retain(|_, end| end.as_ptr() != Rc::as_ptr(&self.end));
        // Whoever waits for room here learns that there is nobody any more.
        if let Some(peer) = self.end.peer.borrow().as_ref().and_then(Weak::upgrade) {
            peer.inbox.tell();
        }
    }
}

impl Socket for Datagrams {
    fn names(&self) -> (u32, u32, u32) {
        (abi::AF_UNIX, abi::SOCK_DGRAM, 0)
    }

    fn bind(&self, address: &Address) -> Result<(), Errno> {
        if self.taken.borrow().is_some() {
            return Err(Errno::EINVAL);
        }
        let (place, name) = address.place(LocalKind::Datagrams)?;
        *self.taken.borrow_mut() = Some(self.places.take(&place, LocalKind::Datagrams)?);
        self.places.datagrams.borrow_mut().insert(place, Rc::downgrade(&self.end));
        *self.end.name.borrow_mut() = name;
        Ok(())
    }

    fn connect(&self, address: &Address, _: Sender) -> Result<(), Errno> {
        if *address == Address::Unspecified {
            self.end.peer.take();
            self.peer_name.take();
            return Ok(());
        }
        let peer = self.at(address)?;
        if peer.peer.borrow().is_some() && !peer.is_peer(&self.end) {
            return Err(Errno::EPERM);
        }
        *self.peer_name.borrow_mut() = peer.name.borrow().clone();
        *self.end.peer.borrow_mut() = Some(Rc::downgrade(&peer));
        Ok(())
    }

    fn send(&self, what: &Outgoing<'_>) -> Result<usize, Errno> {
        if what.is_urgent {
            return Err(Errno::EOPNOTSUPP);
        }
        let to = match what.to {
            Some(to) => self.at(to)?,
            None => self.peer()?,
        };
        if what.bytes.len() > HELD_MAX - HEAD {
            return Err(Errno::EMSGSIZE);
        }
        if to.peer.borrow().is_some() && !to.is_peer(&self.end) {
            return Err(Errno::EPERM);
        }
        if self.is_send_shut.get() || to.is_receive_shut.get() {
            return Err(Errno::EPIPE);
        }
        if !to.has_room(&self.end) {
            *self.full.borrow_mut() = Rc::downgrade(&to);
            return Err(Errno::EAGAIN);
        }
        let name = self.end.name.borrow();
        to.inbox.put(Message {
            bytes: what.bytes.to_vec(),
            from: Some(Address::Local(name.clone())).filter(|_| !name.is_empty()),
            arrived: None,
            attached: what.attached.cloned(),
            by: Some(what.by),
            note: Note::default(),
        });
        Ok(what.bytes.len())
    }

    fn receive(&self, target: &mut [u8], peeking: Peeking) -> Result<Received, Errno> {
        match self.end.inbox.take(target, peeking) {
            Err(Errno::EAGAIN) if self.end.is_receive_shut.get() => Ok(Received::default()),
            taken => taken,
        }
    }

    fn shut(&self, side: Side) -> Result<(), Errno> {
        self.is_send_shut.set(self.is_send_shut.get() || side != Side::Receive);
        self.end.is_receive_shut.set(self.end.is_receive_shut.get() || side != Side::Send);
        self.end.inbox.tell();
        Ok(())
    }

    fn own_address(&self) -> Address {
        Address::Local(self.end.name.borrow().clone())
    }

    fn peer_address(&self) -> Result<Address, Errno> {
        match &*self.end.peer.borrow() {
            Some(_) => Ok(Address::Local(self.peer_name.borrow().clone())),
            None => Err(Errno::ENOTCONN),
        }
    }

    fn peer_credentials(&self) -> Option<Sender> {
        self.is_of_pair.get().then_some(self.maker)
    }

    fn options(&self) -> &Options {
        &self.options
    }
}

impl Stream for Datagrams {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        self.receive(target, Peeking::Take).map(|received| received.count)
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.send(&Outgoing { by: self.maker, ..Outgoing::plain(bytes) })
    }

    fn ready(&self) -> Events {
        let is_shut = self.end.is_receive_shut.get();
        let peer = self.end.peer.borrow().as_ref().and_then(Weak::upgrade);
        let has_room = peer.is_none_or(|peer| peer.has_room(&self.end));
        let has_message = self.end.inbox.len() > 0 || is_shut;
        events(has_message, has_room, is_shut, false)
            .with(Events::HANG_UP.when(is_shut && self.is_send_shut.get()))
    }

    fn wake(&self, waker: &Waker) {
        self.end.inbox.wake(waker);
        // Who receives there makes room.
        let peer = self.end.peer.borrow().as_ref().and_then(Weak::upgrade);
        for other in peer.into_iter().chain(self.full.borrow().upgrade()) {
            other.inbox.wake(waker);
        }
    }

    fn kind(&self) -> NodeType {
        NodeType::Socket
    }

    fn each_attached(&self, see: &mut dyn FnMut(&Description)) {
        self.end.inbox.each_attached(see);
    }

    fn unread(&self) -> Option<usize> {
        Some(self.end.inbox.first_len().unwrap_or(0))
    }

    fn socket(&self) -> Option<&dyn Socket> {
        Some(self)
    }
}
