//! The pages that are there, and what was asked of them last: calls of a program touch the same places, its
//! stack, a heap, and a buffer for each of its clients, over and over.

use super::{PAGE, RangeMap, Run, Touch};
use core::array;
use core::cell::Cell;
use core::ops::{Deref, DerefMut, Range};
use nom_sys::Protection;

/// How many places are remembered: two for all pages whose numbers come to the same of so many sets.
const SETS: usize = 32;

/// Pages from one address to another that are there.
#[derive(Clone, Copy)]
struct Place {
    start: u64,
    end: u64,
    /// It holds as long as the map is of this age.
    age: u64,
    protection: Protection,
}

const NOWHERE: Place = Place { start: 0, end: 0, age: 0, protection: Protection::None };

/// The pages that are there. Whoever may change them makes the map older than what is remembered.
pub(super) struct Runs {
    map: RangeMap<Run>,
    age: u64,
    /// Of each set the last that was looked up, and the one before.
    recent: [[Cell<Place>; 2]; SETS],
}

impl Default for Runs {
    fn default() -> Self {
        Runs {
            map: RangeMap::default(),
            age: 1,
            recent: array::from_fn(|_| [const { Cell::new(NOWHERE) }; 2]),
        }
    }
}

impl Runs {
    /// The end of those around an address, and what may be done with them.
    #[inline]
    pub fn around(&self, address: u64) -> Option<(u64, Protection)> {
        match self.remembered(address) {
            Some(place) => Some((place.end, place.protection)),
            None => self.look_up(address),
        }
    }

    /// Whether all of these addresses are in a place that was asked of lately, and can be touched so.
    #[inline]
    pub fn holds_lately(&self, addresses: Range<u64>, touch: Touch) -> bool {
        let place = self.remembered(addresses.start);
        place.is_some_and(|place| addresses.end <= place.end && touch.is_allowed_by(place.protection))
    }

    #[inline]
    fn remembered(&self, address: u64) -> Option<Place> {
        let holds = |place: &Place| place.age == self.age && (place.start..place.end).contains(&address);
        self.set(address).iter().map(Cell::get).find(holds)
    }

    #[inline]
    fn set(&self, address: u64) -> &[Cell<Place>; 2] {
        let page = (address / PAGE) as usize;
        // A stack and a heap lie at the same distance from rounder addresses.
        &self.recent[(page ^ page >> SETS.ilog2()) % SETS]
    }

    #[cold]
    fn look_up(&self, address: u64) -> Option<(u64, Protection)> {
        let (range, run) = self.map.find(address)?;
        let (age, protection) = (self.age, run.protection);
        let [last, before] = self.set(address);
        before.set(last.replace(Place { start: range.start, end: range.end, age, protection }));
        Some((range.end, run.protection))
    }
}

impl Deref for Runs {
    type Target = RangeMap<Run>;

    fn deref(&self) -> &RangeMap<Run> {
        &self.map
    }
}

impl DerefMut for Runs {
    fn deref_mut(&mut self) -> &mut RangeMap<Run> {
        self.age += 1;
        &mut self.map
    }
}
