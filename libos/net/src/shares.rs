//! How many open flows each peer's address has, so that none takes the whole table.
//!
//! Addresses are counted at places that a keyed hash chooses: no list of them can be filled, and who shares a
//! place with a flood by chance is one address in a thousand. IPv6 hosts have a network of 64 bits each and
//! count as one address.

use crate::table::address_hash;
use alloc::boxed::Box;
use core::net::{IpAddr, Ipv6Addr};

/// Places.
const PLACES: usize = 1024;
/// So many flows an address may have whatever the size of the table.
const LEAST: usize = 4;

/// Open flows by address.
#[derive(Debug)]
pub(crate) struct Shares {
    counts: Box<[u32]>,
    open: usize,
    secret: [u64; 2],
}

impl Shares {
    pub fn new(secret: [u64; 2]) -> Shares {
        Shares { counts: [0; PLACES].into(), open: 0, secret }
    }

    fn place(&self, address: IpAddr) -> usize {
        let address = match address {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64).into(),
            address => address,
        };
        address_hash(self.secret, address) as usize % PLACES
    }

    /// A flow is open.
    pub fn add(&mut self, address: IpAddr) {
        self.counts[self.place(address)] += 1;
        self.open += 1;
    }

    /// It is not any more.
    pub fn remove(&mut self, address: IpAddr) {
        self.counts[self.place(address)] -= 1;
        self.open -= 1;
    }

    /// Whether an address may have another flow in a table of `places`: one alone may take half of them, and
    /// when half are taken each may have a quarter.
    pub fn allow(&self, address: IpAddr, places: usize) -> bool {
        let own = self.counts[self.place(address)] as usize;
        self.open < places / 2 || self.open < places && own < (places / 4).max(LEAST)
    }
}
