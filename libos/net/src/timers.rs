//! When each flow wants to be looked at again.
//!
//! A heap with one entry a flow at most. A deadline that moves into the future leaves the entry where it is:
//! when it comes up the flow is asked again. So a busy flow touches the heap once a timeout and not once a
//! packet.

use crate::table::{FlowId, LASTING, SPARSE};
use crate::time::Instant;
use alloc::vec::Vec;

const NOWHERE: u32 = u32::MAX;

/// Entries in heap order; the first is the earliest.
#[derive(Debug, Default)]
pub struct Timers {
    heap: Vec<(Instant, FlowId)>,
    /// Where in the heap the entry of each flow is, by [`FlowId::index`].
    places: Vec<u32>,
}

impl Timers {
    /// Looks at `flow` at `at` or before.
    #[inline]
    pub fn set(&mut self, flow: FlowId, at: Instant) {
        if self.places.len() <= flow.index() {
            self.places.resize(flow.index() + 1, NOWHERE);
        }
        let mut place = self.places[flow.index()] as usize;
        if place == NOWHERE as usize {
            place = self.heap.len();
            self.heap.push((at, flow));
        } else if self.heap[place].0 <= at {
            return;
        }
        self.heap[place] = (at, flow);
        self.rise(place);
    }

    /// Forgets `flow`.
    pub fn remove(&mut self, flow: FlowId) {
        let place = self.places.get(flow.index()).copied().filter(|&place| place != NOWHERE);
        if let Some(place) = place {
            self.take(place as usize);
        }
    }

    /// The time of the first entry.
    #[inline]
    pub fn first(&self) -> Option<Instant> {
        self.heap.first().map(|(at, _)| *at)
    }

    /// Takes the first entry if its time has come.
    pub fn take_due(&mut self, now: Instant) -> Option<FlowId> {
        let (at, flow) = *self.heap.first()?;
        (at <= now).then(|| {
            self.take(0);
            flow
        })
    }

    fn take(&mut self, place: usize) {
        let (_, flow) = self.heap.swap_remove(place);
        self.places[flow.index()] = NOWHERE;
        if place < self.heap.len() {
            let place = self.rise(place);
            self.sink(place);
        }
        if self.places.len() > LASTING {
            self.trim();
        }
    }

    /// Gives the memory of flows back that are no more.
    #[cold]
    fn trim(&mut self) {
        while self.places.pop_if(|place| *place == NOWHERE).is_some() {}
        if self.places.len() < self.places.capacity() / SPARSE {
            self.places.shrink_to(self.places.len() * 2);
        }
        if self.heap.len() < self.heap.capacity() / SPARSE {
            self.heap.shrink_to(self.heap.len() * 2);
        }
    }

    /// Moves the entry at `place` towards the front as far as it belongs; where it then is.
    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 && self.heap[place].0 < self.heap[(place - 1) / 2].0 {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        self.places[self.heap[place].1.index()] = place as u32;
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let smallest =
                children.into_iter().filter(|&child| child < self.heap.len()).min_by_key(|&c| self.heap[c].0);
            match smallest {
                Some(child) if self.heap[child].0 < self.heap[place].0 => self.swap(place, child),
                _ => break,
            }
            place = smallest.expect("the loop goes on only with a child");
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places[self.heap[a].1.index()] = a as u32;
        self.places[self.heap[b].1.index()] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{FourTuple, Table};
    use core::net::{Ipv4Addr, SocketAddr};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn flows(count: u16) -> Vec<FlowId> {
        let mut table = Table::new(usize::from(count), [3, 4]);
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
        let tuple = |port| FourTuple { local, remote: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) };
        (0..count).map(|port| table.insert(tuple(port), ()).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_map_from_flows_to_their_earliest_deadlines(
            steps in proptest::collection::vec((0usize..20, 0u64..100, 0u8..4), 0..200),
        ) {
            let flows = flows(20);
            let (mut timers, mut model) = (Timers::default(), BTreeMap::new());
            for (index, at, kind) in steps {
                let flow = flows[index];
                match kind {
                    0 => {
                        timers.remove(flow);
                        model.remove(&flow);
                    }
                    1 => while let Some(flow) = timers.take_due(Instant::from_micros(at)) {
                        prop_assert!(model.remove(&flow).unwrap() <= at);
                    },
                    _ => {
                        timers.set(flow, Instant::from_micros(at));
                        let earliest = model.entry(flow).or_insert(at);
                        *earliest = at.min(*earliest);
                    }
                }
                prop_assert_eq!(timers.first(), model.values().min().map(|&at| Instant::from_micros(at)));
            }
        }
    }
}
