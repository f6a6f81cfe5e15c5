//! Who is connected, for `stats conns`.

use alloc::collections::BTreeMap;
use core::net::{IpAddr, SocketAddr};

/// Clients by their numbers, which are given in the order in which they come.
#[derive(Debug, Default)]
pub(crate) struct Roll {
    last: u32,
    clients: BTreeMap<u32, (IpAddr, u16)>,
}

impl Roll {
    /// A client came; its number, never 0.
    pub fn enter(&mut self, peer: SocketAddr) -> u32 {
        let is_free = |number: &u32| *number > 0 && !self.clients.contains_key(number);
        let mut next = self.last.wrapping_add(1);
        while !is_free(&next) {
            next = next.wrapping_add(1);
        }
        self.last = next;
        self.clients.insert(next, (peer.ip(), peer.port()));
        next
    }

    /// A client went.
    pub fn leave(&mut self, number: u32) {
        self.clients.remove(&number);
    }

    /// The last `count` of those who are there, in the order in which they came.
    pub fn newest(&self, count: usize) -> impl Iterator<Item = (u32, SocketAddr)> {
        let older = self.clients.len().saturating_sub(count);
        self.clients.iter().skip(older).map(|(number, peer)| (*number, SocketAddr::from(*peer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_in_order_and_never_twice_at_a_time() {
        let peer = |port| SocketAddr::from(([10, 0, 0, 2], port));
        let mut roll = Roll { last: u32::MAX - 1, ..Roll::default() };
        assert_eq!([1, 2, 3].map(|port| roll.enter(peer(port))), [u32::MAX, 1, 2]);
        roll.last = 0;
        assert_eq!(roll.enter(peer(4)), 3, "1 and 2 are taken");
        roll.leave(1);
        assert_eq!(roll.newest(2).collect::<Vec<_>>(), [(3, peer(4)), (u32::MAX, peer(1))]);
    }
}
