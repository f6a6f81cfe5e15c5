//! From the addresses of a segment to its flow, at a cost that does not grow with the number of flows.

use crate::presence::{Presence, Transit};
use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, SocketAddr, SocketAddrV4};
use hashbrown::HashTable;
use siphasher::sip::SipHasher24;

/// What makes a flow one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FourTuple {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

/// A flow's name. A name is never used for a second flow: once the flow is gone, it finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    index: u32,
    generation: u32,
}

impl FlowId {
    /// A small number, different from that of every other flow that lives now: to index what an application
    /// keeps about its flows.
    #[inline]
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// The name as a number, by whose lower half [`FlowId::index`] is known.
    #[inline]
    pub fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }
}

/// Places of tables that are not given back.
pub(crate) const LASTING: usize = 1024;
/// Memory of tables that crowds have left is given back when no more than one part in so many is in use.
pub(crate) const SPARSE: usize = 4;

/// Places that are remembered of flows that were found.
const HINTS: usize = 256;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    flow: Option<(FourTuple, T)>,
}

/// Flows by name and by addresses.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    /// Places that are free, the lowest first: whoever comes after a crowd is not to hold its memory.
    free: BinaryHeap<Reverse<u32>>,
    by_tuple: HashTable<u32>,
    /// Where the flows of the last segments are, by some bits of their peers' addresses: looked at before
    /// anything is hashed, and compared before it is believed.
    hints: Box<[u32; HINTS]>,
    /// Keys of the hash: without them, peers could choose ports that all collide.
    secret: [u64; 2],
    capacity: usize,
    /// What slots that are not there yet, or any more, begin with: no name that one of them gave comes again.
    generation: u32,
    /// The tables of this host's other stacks, if there are any.
    presence: Option<Arc<Presence>>,
}

/// Where a flow is remembered that was found. Whoever has his flows collide there has them hashed.
#[inline]
fn hint_place(tuple: &FourTuple) -> usize {
    let bits = match tuple.remote {
        SocketAddr::V4(remote) => return hint_place_v4(remote),
        SocketAddr::V6(remote) => remote.ip().to_bits() as u32 ^ u32::from(remote.port()),
    };
    bits as usize % HINTS
}

/// The same of a flow over IPv4.
#[inline]
fn hint_place_v4(remote: SocketAddrV4) -> usize {
    (remote.ip().to_bits() ^ u32::from(remote.port())) as usize % HINTS
}

impl<T> Table<T> {
    /// An empty table for at most `capacity` flows, whose hash nobody without `secret` can foretell.
    pub fn new(capacity: usize, secret: [u64; 2]) -> Table<T> {
        let capacity = capacity.min(u32::MAX as usize);
        let (slots, free, by_tuple) = (Vec::new(), BinaryHeap::new(), HashTable::new());
        let hints = Box::new([0; HINTS]);
        Table { slots, free, by_tuple, hints, secret, capacity, generation: 0, presence: None }
    }

    /// Counts its flows among those of other tables from now on.
    pub fn share(&mut self, presence: Arc<Presence>) {
        let flows = self.slots.iter().filter_map(|slot| slot.flow.as_ref());
        flows.for_each(|(tuple, _)| presence.add(self.hash(tuple)));
        self.presence = Some(presence);
    }

    /// What it shares with other tables.
    pub fn presence(&self) -> Option<&Arc<Presence>> {
        self.presence.as_ref()
    }

    /// Whether another table may have a flow of these addresses, or one is on its way.
    pub fn may_be_elsewhere(&self, tuple: &FourTuple) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.may_have(self.hash(tuple)))
    }

    /// Counts a flow that is about to leave until it is somewhere else.
    pub(crate) fn see_off(&self, tuple: &FourTuple) -> Option<Transit> {
        Some(Transit::new(self.presence.clone()?, self.hash(tuple)))
    }

    /// Flows in the table.
    #[inline]
    pub fn len(&self) -> usize {
        self.by_tuple.len()
    }

    /// Whether there is no flow.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_tuple.is_empty()
    }

    #[inline]
    fn hash(&self, tuple: &FourTuple) -> u64 {
        digest(self.secret, tuple)
    }

    /// The flow of these addresses.
    pub fn find(&self, tuple: &FourTuple) -> Option<FlowId> {
        self.find_counted(tuple).0
    }

    /// The flow of these addresses, and how many entries were compared to find it.
    pub fn find_counted(&self, tuple: &FourTuple) -> (Option<FlowId>, u32) {
        let mut probes = 0;
        let found = self.by_tuple.find(self.hash(tuple), |&index| {
            probes += 1;
            self.slots[index as usize].flow.as_ref().is_some_and(|(other, _)| other == tuple)
        });
        let name = |&index: &u32| FlowId { index, generation: self.slots[index as usize].generation };
        (found.map(name), probes)
    }

    /// The flow of these addresses, to change it.
    #[inline]
    pub fn find_mut(&mut self, tuple: &FourTuple) -> Option<(FlowId, &mut T)> {
        let slots = &self.slots;
        let is_it = |index: u32| {
            let flow = slots.get(index as usize).and_then(|slot| slot.flow.as_ref());
            flow.is_some_and(|(other, _)| other == tuple)
        };
        let place = hint_place(tuple);
        let mut index = self.hints[place];
        if !is_it(index) {
            index = *self.by_tuple.find(self.hash(tuple), |&index| is_it(index))?;
            self.hints[place] = index;
        }
        let slot = self.slots.get_mut(index as usize)?;
        let id = FlowId { index, generation: slot.generation };
        slot.flow.as_mut().map(|(_, flow)| (id, flow))
    }

    /// The name of the flow over IPv4 of these addresses, ours first.
    #[inline]
    pub fn find_v4(&mut self, local: SocketAddrV4, remote: SocketAddrV4) -> Option<FlowId> {
        let index = self.hints[hint_place_v4(remote)];
        if let Some(Slot { generation, flow: Some((FourTuple { local: to, remote: from }, _)) }) =
            self.slots.get(index as usize)
            && let (SocketAddr::V4(to), SocketAddr::V4(from)) = (to, from)
            && (*to, *from) == (local, remote)
        {
            return Some(FlowId { index, generation: *generation });
        }
        self.find_v4_hashed(local, remote)
    }

    #[inline(never)]
    fn find_v4_hashed(&mut self, local: SocketAddrV4, remote: SocketAddrV4) -> Option<FlowId> {
        let tuple = FourTuple { local: local.into(), remote: remote.into() };
        self.find_mut(&tuple).map(|(id, _)| id)
    }

    /// Adds a flow; `None` if the table is full or has these addresses already.
    pub fn insert(&mut self, tuple: FourTuple, flow: T) -> Option<FlowId> {
        if self.len() >= self.capacity || self.find(&tuple).is_some() {
            return None;
        }
        let index = self.free_slot();
        let slot = &mut self.slots[index as usize];
        slot.flow = Some((tuple, flow));
        let id = FlowId { index, generation: slot.generation };
        let (slots, secret) = (&self.slots, self.secret);
        let rehash = |&index: &u32| slots[index as usize].flow.as_ref().map_or(0, |(t, _)| digest(secret, t));
        let hash = digest(secret, &tuple);
        self.by_tuple.insert_unique(hash, index, rehash);
        self.presence.iter().for_each(|presence| presence.add(hash));
        Some(id)
    }

    fn free_slot(&mut self) -> u32 {
        while let Some(Reverse(index)) = self.free.pop() {
            // It may be gone, or have come back and been taken: see `trim`.
            if self.slots.get(index as usize).is_some_and(|slot| slot.flow.is_none()) {
                return index;
            }
        }
        self.slots.push(Slot { generation: self.generation, flow: None });
        (self.slots.len() - 1) as u32
    }

    /// Gives the memory of slots behind the last flow back. What is free there stays in the list of free
    /// slots, as looking for it would take as long as there are many.
    #[cold]
    fn trim(&mut self) {
        while let Some(slot) = self.slots.pop_if(|slot| slot.flow.is_none()) {
            self.generation = self.generation.max(slot.generation);
        }
        let len = self.slots.len();
        if len >= self.slots.capacity() / SPARSE {
            return;
        }
        self.slots.shrink_to(len * 2);
        self.free.retain(|Reverse(index)| (*index as usize) < len);
        self.free.shrink_to(len * 2);
        let (slots, secret) = (&self.slots, self.secret);
        let rehash = |&index: &u32| slots[index as usize].flow.as_ref().map_or(0, |(t, _)| digest(secret, t));
        self.by_tuple.shrink_to(len * 2, rehash);
    }

    /// Removes a flow and gives it back.
    pub fn remove(&mut self, id: FlowId) -> Option<T> {
        let slot = self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        let (tuple, flow) = slot.flow.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        let hash = self.hash(&tuple);
        if let Ok(entry) = self.by_tuple.find_entry(hash, |&index| index == id.index) {
            entry.remove();
            self.presence.iter().for_each(|presence| presence.remove(hash));
        }
        self.free.push(Reverse(id.index));
        if self.slots.len() > LASTING {
            self.trim();
        }
        Some(flow)
    }

    /// The flow of this name with its addresses.
    #[inline]
    pub fn get(&self, id: FlowId) -> Option<(&FourTuple, &T)> {
        let slot = self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        slot.flow.as_ref().map(|(tuple, flow)| (tuple, flow))
    }

    /// The flow with the lowest index from `index` on.
    pub fn first_from(&self, index: usize) -> Option<FlowId> {
        let mut slots = self.slots.iter().enumerate().skip(index);
        let (index, slot) = slots.find(|(_, slot)| slot.flow.is_some())?;
        Some(FlowId { index: index as u32, generation: slot.generation })
    }

    /// All flows.
    pub fn iter(&self) -> impl Iterator<Item = (FlowId, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| {
            let (_, flow) = slot.flow.as_ref()?;
            Some((FlowId { index: index as u32, generation: slot.generation }, flow))
        })
    }

    /// The flow of this name with its addresses, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: FlowId) -> Option<(&FourTuple, &mut T)> {
        let slot = self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        slot.flow.as_mut().map(|(tuple, flow)| (&*tuple, flow))
    }
}

/// A keyed hash of anything, as strong as RFC 6528 asks of initial sequence numbers and cookies need.
pub(crate) fn keyed(secret: [u64; 2], value: &impl Hash) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(secret[0], secret[1]);
    value.hash(&mut hasher);
    hasher.finish()
}

/// The table's hash: two rounds of a keyed folded multiplication. It is computed for every packet, and what
/// it guards is only the length of a chain of probes; [`keyed`] would cost more than the rest of the look-up.
#[inline]
fn digest(secret: [u64; 2], tuple: &FourTuple) -> u64 {
    let ports = u64::from(tuple.local.port()) << 16 | u64::from(tuple.remote.port());
    let (a, b) = match (tuple.local.ip(), tuple.remote.ip()) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            (u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()), 0)
        }
        (local, remote) => (fold_address(secret, local), fold_address(secret, remote)),
    };
    fold(fold(a ^ secret[0], ports ^ secret[1]) ^ secret[0], b ^ secret[1].rotate_left(32))
}

/// A hash of an address, which nobody without `secret` can foretell.
pub(crate) fn address_hash(secret: [u64; 2], address: IpAddr) -> u64 {
    fold(fold_address(secret, address) ^ secret[1], secret[0])
}

fn fold_address(secret: [u64; 2], address: IpAddr) -> u64 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    fold(bits as u64 ^ secret[1], (bits >> 64) as u64 ^ secret[0])
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, SocketAddrV4};

    fn tuple(number: u32) -> FourTuple {
        let remote =
            SocketAddrV4::new(Ipv4Addr::from(0x0a00_0000 + number / 1000), (1 + number % 1000) as u16);
        FourTuple { local: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80).into(), remote: remote.into() }
    }

    /// Mean number of entries compared, over every flow of a table of `count`.
    fn probes(count: u32) -> f64 {
        let mut table = Table::new(count as usize, [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03]);
        for number in 0..count {
            table.insert(tuple(number), number).unwrap();
        }
        let total: u32 = (0..count).map(|number| table.find_counted(&tuple(number)).1).sum();
        f64::from(total) / f64::from(count)
    }

    #[test]
    fn a_hundred_thousand_flows_cost_no_more_probes_than_ten() {
        assert!(probes(10) >= 1.0);
        assert!(probes(100_000) < 1.1, "{} probes", probes(100_000));
    }

    #[test]
    fn a_name_is_never_used_again() {
        let mut table = Table::new(1, [1, 2]);
        let first = table.insert(tuple(1), 'a').unwrap();
        assert_eq!(table.insert(tuple(2), 'b'), None, "full");
        assert_eq!(table.remove(first), Some('a'));
        assert_eq!(table.remove(first), None);
        let second = table.insert(tuple(2), 'b').unwrap();
        assert!(table.get(first).is_none() && table.get_mut(first).is_none());
        assert_eq!(table.find(&tuple(2)), Some(second));
        assert_eq!(table.find(&tuple(1)), None);
    }

    #[test]
    fn a_crowd_that_has_gone_leaves_no_memory_taken_and_no_name_for_another() {
        let mut table = Table::new(100_000, [1, 2]);
        let stays = table.insert(tuple(0), 0).unwrap();
        let mut names = std::collections::BTreeSet::new();
        for round in 0..3 {
            let crowd: Vec<FlowId> = (1..50_000).map(|n| table.insert(tuple(n), n).unwrap()).collect();
            for (number, flow) in (1..).zip(&crowd) {
                assert!(names.insert(*flow), "{flow:?} comes again in round {round}");
                assert_eq!(table.find(&tuple(number)), Some(*flow));
            }
            // In another order than they came.
            for odd in [1, 0] {
                for (at, flow) in crowd.iter().enumerate().filter(|(at, _)| at % 2 == odd) {
                    assert_eq!(table.remove(*flow), Some(at as u32 + 1));
                }
            }
            assert!(crowd.iter().all(|flow| table.get(*flow).is_none()));
            let places = [table.slots.capacity(), table.free.capacity(), table.by_tuple.capacity()];
            assert!(places.iter().all(|places| *places <= 4 * LASTING), "{places:?}");
        }
        assert_eq!((table.len(), table.find(&tuple(0))), (1, Some(stays)));
    }

    #[test]
    fn who_comes_while_a_crowd_goes_does_not_hold_its_memory() {
        let mut table = Table::new(100_000, [1, 2]);
        let crowd: Vec<FlowId> = (0..50_000).map(|n| table.insert(tuple(n), n).unwrap()).collect();
        let (first, last) = crowd.split_at(25_000);
        for flow in first.iter().chain(&last[1..]) {
            assert!(table.remove(*flow).is_some());
        }
        let late = table.insert(tuple(50_000), 50_000).unwrap();
        table.remove(last[0]);
        assert_eq!((table.get(late).map(|(_, n)| *n), table.slots.len()), (Some(50_000), 1));
        assert!(table.slots.capacity() <= 4 * LASTING, "{} places", table.slots.capacity());
    }

    #[test]
    fn who_stays_from_a_crowd_is_found_and_has_its_place_alone() {
        let mut table = Table::new(100_000, [1, 2]);
        let crowd: Vec<FlowId> = (0..20_000).map(|n| table.insert(tuple(n), n).unwrap()).collect();
        for (number, flow) in crowd.iter().enumerate().filter(|(number, _)| number % 7000 != 1) {
            assert_eq!(table.remove(*flow), Some(number as u32));
        }
        let later: Vec<FlowId> = (20_000..60_000).map(|n| table.insert(tuple(n), n).unwrap()).collect();
        for (number, flow) in (20_000..).zip(later) {
            assert_eq!(table.get(flow), Some((&tuple(number), &number)));
        }
        for number in [1, 7001, 14_001] {
            assert_eq!(table.get(crowd[number as usize]), Some((&tuple(number), &number)));
        }
    }

    #[test]
    fn two_flows_cannot_have_the_same_addresses() {
        let mut table = Table::new(2, [1, 2]);
        table.insert(tuple(1), 'a').unwrap();
        assert_eq!(table.insert(tuple(1), 'b'), None);
        assert_eq!(table.len(), 1);
    }
}
