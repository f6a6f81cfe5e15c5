//! The pages that are there, and what was asked of them last: calls of a program touch the same few places,
//! its stack and a heap, over and over.

use super::{RangeMap, Run, Touch};
use core::cell::Cell;
use core::ops::{Deref, DerefMut, Range};
use nom_sys::Protection;

/// How many places are remembered.
const REMEMBERED: usize = 8;

/// Pages from one address to another that are there.
#[derive(Clone, Copy)]
struct Place {
    start: u64,
    end: u64,
    protection: Protection,
}

const NOWHERE: Place = Place { start: 0, end: 0, protection: Protection::None };

/// The pages that are there. Whoever may change them has nothing remembered.
pub(super) struct Runs {
    map: RangeMap<Run>,
    recent: [Cell<Place>; REMEMBERED],
    next: Cell<usize>,
    /// Whether any is remembered: `fork` changes many that nobody asks of in between.
    remembers: Cell<bool>,
}

impl Default for Runs {
    fn default() -> Self {
        let recent = [const { Cell::new(NOWHERE) }; REMEMBERED];
        Runs { map: RangeMap::default(), recent, next: Cell::new(0), remembers: Cell::new(false) }
    }
}

impl Runs {
    /// The end of those around an address, and what may be done with them.
    #[inline]
    pub fn around(&self, address: u64) -> Option<(u64, Protection)> {
        let holds = |place: &Place| (place.start..place.end).contains(&address);
        if let Some(place) = self.recent.iter().map(Cell::get).find(holds) {
            return Some((place.end, place.protection));
        }
        self.look_up(address)
    }

    /// Whether all of these addresses are in one of the places that were asked of last, and can be touched
    /// so.
    #[inline]
    pub fn holds_lately(&self, addresses: Range<u64>, touch: Touch) -> bool {
        let is_around = |place: &Place| place.start <= addresses.start && addresses.end <= place.end;
        let place = self.recent.iter().map(Cell::get).find(is_around);
        place.is_some_and(|place| touch.is_allowed_by(place.protection))
    }

    fn look_up(&self, address: u64) -> Option<(u64, Protection)> {
        let (range, run) = self.map.find(address)?;
        let index = self.next.get();
        self.next.set((index + 1) % REMEMBERED);
        self.remembers.set(true);
        self.recent[index].set(Place { start: range.start, end: range.end, protection: run.protection });
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
        if self.remembers.replace(false) {
            self.recent.iter().for_each(|place| place.set(NOWHERE));
        }
        &mut self.map
    }
}
