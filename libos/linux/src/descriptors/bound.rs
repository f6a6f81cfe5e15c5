//! Which sockets of TCP or UDP have which addresses (bind(2), SO_REUSEADDR in socket(7)).

use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use nom_fs::Errno;

/// An address that a socket wants or has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedAddress {
    /// The address.
    pub address: SocketAddr,
    /// Whether that of IPv6 which is everybody's means those of IPv4, too (`IPV6_V6ONLY`).
    pub families: AddressFamilies,
    /// Whether others may have it, too.
    pub sharing: SharedUse,
}

/// Of which families the addresses are that `::` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressFamilies {
    /// Of IPv6.
    Own,
    /// And of IPv4.
    Both,
}

/// That a socket has an address, as long as this lives.
#[derive(Debug)]
pub(crate) struct BoundAddress {
    wanted: WantedAddress,
    /// Whether it waits for connections there.
    pub is_listening: Cell<bool>,
}

/// What a socket says of others that want its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedUse {
    /// Nobody else may have it.
    Alone,
    /// Others that say the same, as long as none of them listens: `SO_REUSEADDR`.
    UnlessListening,
    /// Others that say the same: `SO_REUSEPORT`.
    Always,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct BoundAddresses(RefCell<Vec<Weak<BoundAddress>>>);

impl WantedAddress {
    /// Whether all that is sent to an address comes here.
    fn covers(&self, other: IpAddr) -> bool {
        let own = self.address.ip();
        let same_family = own.is_ipv4() == other.is_ipv4();
        own == other
            || own.is_unspecified()
                && (same_family || own.is_ipv6() && self.families == AddressFamilies::Both)
    }

    /// Whether both cannot be had by two who share nothing.
    fn overlaps(&self, other: &WantedAddress) -> bool {
        self.address.port() == other.address.port()
            && (self.covers(other.address.ip()) || other.covers(self.address.ip()))
    }
}

impl BoundAddresses {
    /// Gives a socket an address; a port among `ephemeral` if it names none.
    ///
    /// # Errors
    /// `EADDRINUSE`.
    pub fn bind(
        &self,
        wanted: WantedAddress,
        ephemeral: Range<u16>,
        is_taken: impl Fn(u16) -> bool,
    ) -> Result<Rc<BoundAddress>, Errno> {
        let mut all = self.0.borrow_mut();
        all.retain(|other| other.strong_count() > 0);
        let at = |port| WantedAddress { address: SocketAddr::new(wanted.address.ip(), port), ..wanted };
        let is_free = |port: u16, sharing: SharedUse| {
            let others = all.iter().filter_map(Weak::upgrade);
            others.into_iter().all(|other| !other.wanted.overlaps(&at(port)) || other.shares(sharing))
        };
        let port = match wanted.address.port() {
            0 => ephemeral.into_iter().find(|port| is_free(*port, SharedUse::Alone) && !is_taken(*port)),
            port => Some(port).filter(|port| is_free(*port, wanted.sharing)),
        };
        let wanted = at(port.ok_or(Errno::EADDRINUSE)?);
        let bound = Rc::new(BoundAddress { wanted, is_listening: Cell::new(false) });
        all.push(Rc::downgrade(&bound));
        Ok(bound)
    }

    /// Whether who has an address may wait for connections there, as far as others do that have one that
    /// overlaps.
    pub fn may_listen(&self, own: &BoundAddress) -> bool {
        let all = self.0.borrow();
        let others = all.iter().filter_map(Weak::upgrade).filter(|other| !core::ptr::eq(&**other, own));
        let hears = |other: &Rc<BoundAddress>| other.is_listening.get() && other.wanted.overlaps(&own.wanted);
        others.into_iter().filter(hears).all(|other| other.shares(own.wanted.sharing))
    }

    /// Whether some socket has a port, of whatever address.
    pub fn has_port(&self, port: u16) -> bool {
        let all = self.0.borrow();
        all.iter().filter_map(Weak::upgrade).any(|bound| bound.address().port() == port)
    }
}

impl BoundAddress {
    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.wanted.address
    }

    fn shares(&self, with: SharedUse) -> bool {
        match (self.wanted.sharing, with) {
            (SharedUse::Always, SharedUse::Always) => true,
            (SharedUse::UnlessListening, SharedUse::UnlessListening) => !self.is_listening.get(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPHEMERAL: Range<u16> = 1000..1003;

    fn wanted(text: &str, sharing: SharedUse) -> WantedAddress {
        let address = text.parse().expect("an address");
        WantedAddress { address, families: AddressFamilies::Both, sharing }
    }

    #[test]
    fn addresses_are_had_once_unless_both_say_otherwise() {
        let all = BoundAddresses::default();
        let bind = |address, sharing| all.bind(wanted(address, sharing), EPHEMERAL, |_| false);
        let first = bind("127.0.0.1:80", SharedUse::Alone).expect("free");
        assert_eq!(bind("127.0.0.1:80", SharedUse::UnlessListening).err(), Some(Errno::EADDRINUSE));
        assert_eq!(bind("0.0.0.0:80", SharedUse::Alone).err(), Some(Errno::EADDRINUSE));
        assert_eq!(bind("[::]:80", SharedUse::Alone).err(), Some(Errno::EADDRINUSE));
        let _other = bind("127.0.0.2:80", SharedUse::Alone).expect("another address");
        drop(first);
        let first = bind("127.0.0.1:80", SharedUse::UnlessListening).expect("free again");
        let _second = bind("127.0.0.1:80", SharedUse::UnlessListening).expect("shared");
        first.is_listening.set(true);
        assert_eq!(bind("127.0.0.1:80", SharedUse::UnlessListening).err(), Some(Errno::EADDRINUSE));
        let _third = bind("127.0.0.1:81", SharedUse::Always).expect("free");
        bind("127.0.0.1:81", SharedUse::Always).expect("shared");
        let [both, one] = ["0.0.0.0:82", "127.0.0.1:82"]
            .map(|address| bind(address, SharedUse::UnlessListening).expect("nobody listens yet"));
        assert!(all.may_listen(&both) && all.may_listen(&one));
        both.is_listening.set(true);
        assert!(all.may_listen(&both) && !all.may_listen(&one), "one of them does");
        let [both, one] =
            ["0.0.0.0:83", "127.0.0.1:83"].map(|address| bind(address, SharedUse::Always).expect("shared"));
        both.is_listening.set(true);
        assert!(all.may_listen(&one));
        let six = WantedAddress { families: AddressFamilies::Own, ..wanted("[::]:80", SharedUse::Alone) };
        all.bind(six, EPHEMERAL, |_| false).expect("of another family");
    }

    #[test]
    fn who_names_no_port_gets_a_free_one() {
        let all = BoundAddresses::default();
        let any = wanted("127.0.0.1:0", SharedUse::UnlessListening);
        let bind = || all.bind(any, EPHEMERAL, |port| port == 1001);
        let held = [bind().expect("one"), bind().expect("another")];
        assert_eq!(held.each_ref().map(|bound| bound.address().port()), [1000, 1002]);
        assert_eq!([1000, 1001, 1002].map(|port| all.has_port(port)), [true, false, true]);
        assert_eq!(bind().err(), Some(Errno::EADDRINUSE));
    }
}
