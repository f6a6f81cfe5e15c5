//! Places for connections: so many, of which no client's address takes those that others need.

use super::rates::network_of;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections at a time: with the ledger's and other files, fewer than a process may usually open (1,024).
pub const CONNECTIONS_MAX: usize = 960;

/// All places.
///
/// An address gets one more as long as it has fewer than are free. Alone it gets half of all, so that a
/// hundred machines may stand behind one, at four connections each (prices, reports, records, what the meter
/// asks); the second one gets half of the rest. That is how switches share out their memory (Choudhury and
/// Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998): with a limit that is
/// the same however many there are, two addresses could have everything, or one could not have what nobody
/// wants.
#[derive(Debug)]
pub struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

/// A place that is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    network: IpAddr,
}

impl Places {
    /// So many.
    pub fn new(most: usize) -> Arc<Places> {
        Arc::new(Places { most, taken: Mutex::default() })
    }

    /// A place for a client at `address`, unless it has its share.
    pub fn take(self: &Arc<Places>, address: IpAddr) -> Option<Place> {
        let network = network_of(address);
        let mut taken = self.lock();
        let own = taken.of.get(&network).copied().unwrap_or(0);
        if own >= self.most.saturating_sub(taken.all) {
            return None;
        }
        taken.of.insert(network, own + 1);
        taken.all += 1;
        Some(Place { places: self.clone(), network })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all -= 1;
        if let Some(own) = taken.of.get_mut(&self.network) {
            *own -= 1;
            if *own == 0 {
                taken.of.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leaves_as_many_places_as_it_takes() {
        let places = Places::new(100);
        let take = |address: &str| {
            let address = address.parse().expect("an address");
            std::iter::from_fn(|| places.take(address)).collect::<Vec<Place>>()
        };
        let first = take("192.0.2.1");
        let second = take("2001:db8::1");
        assert_eq!((first.len(), second.len()), (50, 25));
        assert!(take("2001:db8::2").is_empty(), "of the same network");
        assert_eq!(take("198.51.100.7").len(), 13);
        drop(first);
        assert_eq!(take("::ffff:192.0.2.1").len(), 38);
        drop(second);
        assert_eq!(take("192.0.2.1").len(), 50, "all are free again");
    }
}
