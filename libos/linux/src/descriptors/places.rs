//! Where sockets of the family find each other.

use super::bound::BoundAddresses;
use super::datagrams::End;
use super::local::Waiting;
use super::ready::Waiters;
use super::udp::UdpEnds;
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use nom_fs::{Errno, NodeId};
use nom_socket::{Family, ListenAddress, PortSharing};

/// Where a socket is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// By the node that its path leads to.
    Node(NodeId),
    /// By its abstract name: each kind has its own.
    Name(LocalKind, Vec<u8>),
    /// By its port of TCP, of an address, or of all of a family.
    Port(ListenAddress, u16),
}

/// What kind of local socket it is: those of one kind speak to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LocalKind {
    /// `SOCK_STREAM`.
    Stream,
    /// `SOCK_SEQPACKET`.
    Packets,
    /// `SOCK_DGRAM`.
    Datagrams,
}

/// That a local socket has a place, as long as this lives.
pub(crate) type Taken = Rc<LocalKind>;

/// Sockets by where they are found.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Who listens where: few do.
    listeners: RefCell<Vec<(Place, Weak<Waiting>)>>,
    /// Who waits until somebody who listens has room for one more.
    pub room: Rc<Waiters>,
    /// Connections to places that several share so far: they take turns.
    turns: Cell<usize>,
    /// Local sockets of datagrams.
    pub(super) datagrams: RefCell<BTreeMap<Place, Weak<End>>>,
    /// Places that local sockets have.
    taken: RefCell<BTreeMap<Place, Weak<LocalKind>>>,
    /// Ports that were given out to who connects within the machine.
    ports: Cell<u16>,
    /// Names that were given out to who wanted any.
    names: Cell<u32>,
    /// Addresses of the network that sockets of TCP have.
    pub bound: BoundAddresses,
    /// Those of UDP.
    pub udp: UdpEnds,
}

impl Places {
    /// A port of these for who connects to a listener and has none: another one each time, until all were.
    pub fn take_port(&self, among: core::ops::Range<u16>) -> u16 {
        let count = self.ports.get();
        self.ports.set((count + 1) % (among.end - among.start));
        among.start + count
    }

    /// An abstract name that nobody has: a zero and five digits, as Linux gives them out (unix(7), "Autobind
    /// feature").
    ///
    /// # Errors
    /// `ENOSPC` if there is none.
    pub fn free_name(&self) -> Result<Vec<u8>, Errno> {
        const NAMES: u32 = 1 << 20;
        for _ in 0..NAMES {
            let next = self.names.get();
            self.names.set((next + 1) % NAMES);
            let name = alloc::format!("\0{next:05x}").into_bytes();
            let is_free = |kind| self.kind_at(&Place::Name(kind, name.clone())).is_none();
            if [LocalKind::Stream, LocalKind::Packets, LocalKind::Datagrams].into_iter().all(is_free) {
                return Ok(name);
            }
        }
        Err(Errno::ENOSPC)
    }

    fn kind_at(&self, place: &Place) -> Option<LocalKind> {
        self.taken.borrow().get(place).and_then(Weak::upgrade).map(|kind| *kind)
    }

    /// Gives a local socket a place.
    ///
    /// # Errors
    /// `EADDRINUSE`.
    pub fn take(&self, place: &Place, kind: LocalKind) -> Result<Taken, Errno> {
        let mut taken = self.taken.borrow_mut();
        taken.retain(|_, kind| kind.strong_count() > 0);
        if taken.contains_key(place) {
            return Err(Errno::EADDRINUSE);
        }
        let own = Rc::new(kind);
        taken.insert(place.clone(), Rc::downgrade(&own));
        Ok(own)
    }

    /// Whether a local socket of a kind has a place.
    ///
    /// # Errors
    /// `ECONNREFUSED` if none has it; `EPROTOTYPE` if one of another kind has.
    pub fn check(&self, place: &Place, kind: LocalKind) -> Result<(), Errno> {
        match self.kind_at(place) {
            None => Err(Errno::ECONNREFUSED),
            Some(other) if other != kind => Err(Errno::EPROTOTYPE),
            Some(_) => Ok(()),
        }
    }

    /// Whether somebody listens at a place.
    pub fn has_listener(&self, place: &Place) -> bool {
        self.is_heard(|other| other == place)
    }

    /// Whether somebody listens at a port of TCP, of whatever address.
    pub fn has_listener_of(&self, port: u16) -> bool {
        self.is_heard(|place| matches!(place, Place::Port(_, other) if *other == port))
    }

    fn is_heard(&self, is_meant: impl Fn(&Place) -> bool) -> bool {
        let listeners = self.listeners.borrow();
        listeners.iter().any(|(place, waiting)| waiting.strong_count() > 0 && is_meant(place))
    }

    /// Where who listens at an address is found: at that one, or else at all of its family.
    pub fn port_place(&self, address: SocketAddr) -> Place {
        let ip = address.ip().to_canonical();
        let family = if ip.is_ipv4() { Family::V4 } else { Family::V6 };
        let one = Place::Port(ListenAddress::One(ip), address.port());
        let any = Place::Port(ListenAddress::Any(family), address.port());
        if self.has_listener(&one) { one } else { any }
    }

    /// Who listens at a place: of several, another one each time.
    ///
    /// # Errors
    /// `ECONNREFUSED`.
    pub fn listener(&self, place: &Place) -> Result<Rc<Waiting>, Errno> {
        let listeners = self.listeners.borrow();
        let group = || {
            let there = listeners.iter().filter(|(other, _)| other == place);
            there.filter_map(|(_, waiting)| waiting.upgrade())
        };
        let turn = self.turns.get();
        self.turns.set(turn.wrapping_add(1));
        group().nth(turn % group().count().max(1)).ok_or(Errno::ECONNREFUSED)
    }

    /// Has somebody listen at all of these places, unless somebody does at one of them and not both share
    /// it.
    ///
    /// # Errors
    /// `EADDRINUSE`.
    pub fn listen(&self, at: Vec<Place>, waiting: Waiting) -> Result<Rc<Waiting>, Errno> {
        let mut listeners = self.listeners.borrow_mut();
        listeners.retain(|(_, waiting)| waiting.strong_count() > 0);
        let shares = |other: Rc<Waiting>| [waiting.sharing, other.sharing] == [PortSharing::Shared; 2];
        let mut others = listeners.iter().filter(|(place, _)| at.contains(place));
        if !others.all(|(_, other)| other.upgrade().is_none_or(shares)) {
            return Err(Errno::EADDRINUSE);
        }
        let waiting = Rc::new(waiting);
        waiting.tells(&self.room);
        listeners.extend(at.into_iter().map(|place| (place, Rc::downgrade(&waiting))));
        Ok(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_had_once_and_reached_by_its_kind_alone() {
        let places = Places::default();
        let place = Place::Name(LocalKind::Stream, b"\0here".to_vec());
        assert_eq!(places.check(&place, LocalKind::Stream), Err(Errno::ECONNREFUSED));
        let taken = places.take(&place, LocalKind::Stream).expect("free");
        assert_eq!(places.take(&place, LocalKind::Stream).err(), Some(Errno::EADDRINUSE));
        assert_eq!(places.check(&place, LocalKind::Packets), Err(Errno::EPROTOTYPE));
        assert_eq!(places.check(&place, LocalKind::Stream), Ok(()));
        drop(taken);
        assert_eq!(places.check(&place, LocalKind::Stream), Err(Errno::ECONNREFUSED));
        let [first, second] = [(); 2].map(|()| places.free_name().expect("one"));
        assert!(first != second && first.len() == 6 && first[0] == 0, "{first:?} {second:?}");
    }
}
