//! The clients of a scheduler by their numbers, and which of them are ready.

use super::{CLIENTS_MAX, ClientIndex, ClientStatistics};
use alloc::vec::Vec;
use core::cmp::Ordering;

/// What a scheduler knows of its clients, each with a state of the scheduler's own. There are some dozens of
/// them, of which some are ready: these are looked at one after the other.
#[derive(Debug)]
pub struct Seats<S> {
    seats: Vec<Option<Seat<S>>>,
    /// A bit for each that is ready.
    ready: u64,
    /// Counts how often somebody became ready.
    turn: u64,
}

#[derive(Debug)]
struct Seat<S> {
    state: S,
    /// Since which turn it is ready.
    turn: u64,
    decisions: u64,
}

impl<S> Default for Seats<S> {
    fn default() -> Self {
        Seats { seats: Vec::new(), ready: 0, turn: 0 }
    }
}

fn bit(client: ClientIndex) -> u64 {
    1u64.checked_shl(client as u32).unwrap_or(0)
}

impl<S> Seats<S> {
    /// Adds a client, of a number below [`CLIENTS_MAX`].
    pub fn put(&mut self, client: ClientIndex, state: S) {
        debug_assert!(client < CLIENTS_MAX, "the queues have no such client");
        if self.seats.len() <= client {
            self.seats.resize_with(client + 1, || None);
        }
        self.seats[client] = Some(Seat { state, turn: 0, decisions: 0 });
    }

    pub fn remove(&mut self, client: ClientIndex) {
        self.set_unready(client);
        if let Some(seat) = self.seats.get_mut(client) {
            *seat = None;
        }
    }

    #[inline]
    pub fn get_mut(&mut self, client: ClientIndex) -> Option<&mut S> {
        Some(&mut self.seats.get_mut(client)?.as_mut()?.state)
    }

    /// A client becomes ready, if it was not; `change` is made before, in any case.
    #[inline]
    pub fn set_ready(&mut self, client: ClientIndex, change: impl FnOnce(&mut S)) {
        let Some(Some(seat)) = self.seats.get_mut(client) else { return };
        change(&mut seat.state);
        if self.ready & bit(client) == 0 {
            self.ready |= bit(client);
            self.turn += 1;
            seat.turn = self.turn;
        }
    }

    #[inline]
    pub fn set_unready(&mut self, client: ClientIndex) {
        self.ready &= !bit(client);
    }

    /// Whether anybody is ready.
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.ready != 0
    }

    /// The ready client that is the least by `key`, of equal ones the one that has been ready longest; its
    /// state.
    #[inline]
    pub fn least<K: Ord>(&mut self, mut key: impl FnMut(&mut S) -> K) -> Option<(ClientIndex, &mut S)> {
        let mut client = self.ready.trailing_zeros() as usize;
        let seat = self.seats.get_mut(client)?.as_mut()?;
        let (mut least, mut turn) = (key(&mut seat.state), seat.turn);
        let mut left = self.ready & self.ready.wrapping_sub(1);
        while left != 0 {
            let other = left.trailing_zeros() as usize;
            left &= left - 1;
            let Some(Some(seat)) = self.seats.get_mut(other) else { continue };
            let own = key(&mut seat.state);
            let is_less = match own.cmp(&least) {
                Ordering::Less => true,
                Ordering::Equal => seat.turn < turn,
                Ordering::Greater => false,
            };
            if is_less {
                (least, turn, client) = (own, seat.turn, other);
            }
        }
        Some((client, self.get_mut(client)?))
    }

    /// The decision was for this client: it is not ready until it is again.
    #[inline]
    pub fn choose(&mut self, client: ClientIndex) -> ClientIndex {
        self.set_unready(client);
        if let Some(Some(seat)) = self.seats.get_mut(client) {
            seat.decisions += 1;
        }
        client
    }

    /// The decision for it is undone.
    pub fn undo(&mut self, client: ClientIndex) {
        if let Some(Some(seat)) = self.seats.get_mut(client) {
            seat.decisions = seat.decisions.saturating_sub(1);
        }
    }

    pub fn statistics(&self, client: ClientIndex) -> ClientStatistics {
        let seat = self.seats.get(client).and_then(Option::as_ref);
        ClientStatistics { decisions: seat.map_or(0, |seat| seat.decisions) }
    }
}
