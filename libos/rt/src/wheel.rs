//! A hierarchical timer wheel (Varghese and Lauck, SOSP 1987, scheme 7): insertion and cancellation in O(1),
//! each timer moved at most once a level.
//!
//! A tick is a microsecond. A timer stands in the level of the highest digit (base 64) in which its tick
//! differs from the wheel's present tick, and in the slot of that digit. Ten levels hold every tick that
//! fits 64 bits of nanoseconds, so there is no overflow list; and as digits above the level are equal, a
//! slot is always ahead of the present: nothing wraps around.

use alloc::vec::Vec;
use core::array;
use slotmap::SlotMap;

const NANOSECONDS_PER_TICK: u64 = 1_000;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 10;
const _: () = assert!((u64::MAX / NANOSECONDS_PER_TICK).ilog2() < LEVELS as u32 * SLOT_BITS);

/// How far [`Wheel::next_deadline_ns`] looks into one slot.
const LOOK_MAX: usize = 16;

slotmap::new_key_type! {
    /// Names a timer. A timer that has fired or was cancelled leaves its name behind for ever.
    pub struct TimerId;
}

/// First and last timer of a slot.
type Ends = Option<(TimerId, TimerId)>;

#[derive(Debug)]
struct Timer<T> {
    value: T,
    tick: u64,
    previous: Option<TimerId>,
    next: Option<TimerId>,
}

/// One digit of the tick.
#[derive(Debug)]
struct Level {
    /// Bit `n` is set if slot `n` is not empty.
    occupied: u64,
    slots: [Ends; SLOTS],
}

impl Default for Level {
    fn default() -> Self {
        Self { occupied: 0, slots: [None; SLOTS] }
    }
}

/// Timers, each with a value that comes back when it is due.
#[derive(Debug)]
pub struct Wheel<T> {
    timers: SlotMap<TimerId, Timer<T>>,
    levels: [Level; LEVELS],
    /// All timers of earlier ticks are gone.
    now: u64,
    /// No timer is due before this tick.
    quiet_until: u64,
}

impl<T> Wheel<T> {
    /// A wheel without timers, on a clock that reads `now_ns`.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        let levels = array::from_fn(|_| Level::default());
        let now = now_ns / NANOSECONDS_PER_TICK;
        Self { timers: SlotMap::with_key(), levels, now, quiet_until: u64::MAX }
    }

    /// Timers that are waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Whether no timer is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    /// Starts a timer that is due at the first tick that does not begin before `deadline_ns`: never early,
    /// and at most a tick late. A deadline that has passed is due at once.
    pub fn insert(&mut self, deadline_ns: u64, value: T) -> TimerId {
        let tick = deadline_ns.div_ceil(NANOSECONDS_PER_TICK).max(self.now);
        let id = self.timers.insert(Timer { value, tick, previous: None, next: None });
        self.link(id, tick);
        self.quiet_until = self.quiet_until.min(tick);
        id
    }

    /// Stops a timer and returns its value; nothing if it has fired or was cancelled.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let timer = self.timers.remove(id)?;
        self.unlink(&timer);
        Some(timer.value)
    }

    /// The value of a timer that is waiting.
    pub fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        self.timers.get_mut(id).map(|timer| &mut timer.value)
    }

    /// Stops all timers and returns their values, in no order.
    pub fn take_all(&mut self) -> Vec<T> {
        self.levels.iter_mut().for_each(|level| *level = Level::default());
        self.quiet_until = u64::MAX;
        self.timers.drain().map(|(_, timer)| timer.value).collect()
    }

    /// Whether [`Wheel::expire`] could find anything; one comparison.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns / NANOSECONDS_PER_TICK >= self.quiet_until
    }

    /// No timer is due before that time, in nanoseconds.
    #[must_use]
    pub fn quiet_until_ns(&self) -> u64 {
        self.quiet_until.saturating_mul(NANOSECONDS_PER_TICK)
    }

    /// Appends the values of all timers that are due to `due`: by deadline, and those of one tick in the
    /// order in which they were started. A clock that went back is as if it stood still.
    pub fn expire(&mut self, now_ns: u64, due: &mut Vec<T>) {
        let target = now_ns / NANOSECONDS_PER_TICK;
        let next = loop {
            let Some((level, slot)) = self.first_slot() else { break u64::MAX };
            let start = self.start_of(level, slot);
            if start > target {
                break start;
            }
            self.now = self.now.max(start);
            self.empty(level, slot, due);
        };
        self.now = self.now.max(target);
        self.quiet_until = next;
    }

    /// When to come back: not after the next timer is due; nothing if none is waiting. It is exactly then
    /// unless the next timer is far away together with many others; looking through all of them would cost
    /// more than waking up once a level too many, to move them nearer.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let (level, slot) = self.first_slot()?;
        let mut ticks = self.timers_of(level, slot).map(|timer| timer.tick);
        let earliest = ticks.by_ref().take(LOOK_MAX).min()?;
        let is_exact = level == 0 || ticks.next().is_none();
        let tick = if is_exact { earliest } else { self.start_of(level, slot) };
        Some(tick.saturating_mul(NANOSECONDS_PER_TICK))
    }

    /// The slot of the earliest timers: digits above a level are those of the present, so a lower level is
    /// always earlier than a higher one.
    fn first_slot(&self) -> Option<(usize, usize)> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        Some((level, self.levels[level].occupied.trailing_zeros() as usize))
    }

    /// The first tick of a slot.
    fn start_of(&self, level: usize, slot: usize) -> u64 {
        let shift = level as u32 * SLOT_BITS;
        let above = self.now >> shift >> SLOT_BITS << SLOT_BITS;
        (above | slot as u64) << shift
    }

    fn place_of(&self, tick: u64) -> (usize, usize) {
        let highest = ((tick ^ self.now) | 1).ilog2();
        let level = highest / SLOT_BITS;
        (level as usize, (tick >> (level * SLOT_BITS)) as usize % SLOTS)
    }

    fn timers_of(&self, level: usize, slot: usize) -> impl Iterator<Item = &Timer<T>> {
        let mut next = self.levels[level].slots[slot].map(|(first, _)| first);
        core::iter::from_fn(move || {
            let timer = &self.timers[next?];
            next = timer.next;
            Some(timer)
        })
    }

    /// Takes all timers out of a slot: those of the lowest level are due, others move nearer.
    fn empty(&mut self, level: usize, slot: usize, due: &mut Vec<T>) {
        let mut next = self.levels[level].slots[slot].take().map(|(first, _)| first);
        self.levels[level].occupied &= !(1 << slot);
        while let Some(id) = next {
            let timer = &self.timers[id];
            next = timer.next;
            if level == 0 {
                due.extend(self.timers.remove(id).map(|timer| timer.value));
            } else {
                self.link(id, timer.tick);
            }
        }
    }

    fn link(&mut self, id: TimerId, tick: u64) {
        let (level, slot) = self.place_of(tick);
        let level = &mut self.levels[level];
        level.occupied |= 1 << slot;
        let last = level.slots[slot].map(|(_, last)| last);
        level.slots[slot] = Some((level.slots[slot].map_or(id, |(first, _)| first), id));
        let timer = &mut self.timers[id];
        (timer.previous, timer.next) = (last, None);
        if let Some(last) = last {
            self.timers[last].next = Some(id);
        }
    }

    fn unlink(&mut self, timer: &Timer<T>) {
        if let Some(previous) = timer.previous {
            self.timers[previous].next = timer.next;
        }
        if let Some(next) = timer.next {
            self.timers[next].previous = timer.previous;
        }
        let (level, slot) = self.place_of(timer.tick);
        let level = &mut self.levels[level];
        let (first, last) = level.slots[slot].expect("a waiting timer stands in its slot");
        level.slots[slot] = match (timer.previous, timer.next) {
            (None, None) => None,
            (None, Some(next)) => Some((next, last)),
            (Some(previous), None) => Some((first, previous)),
            (Some(_), Some(_)) => Some((first, last)),
        };
        if level.slots[slot].is_none() {
            level.occupied &= !(1 << slot);
        }
    }
}

#[cfg(test)]
mod tests;
