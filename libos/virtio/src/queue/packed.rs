//! The packed virtqueue (section 2.8): one ring of descriptors, in which the driver writes what it lends and
//! the device, at the same places, what it has used. Two flags in each say whose turn it is.

use super::chains::Chains;
use super::{Areas, Descriptor, Errors, Layout, NEXT, TABLE_ENTRY, passes};
use crate::memory::Carver;
use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

/// Flags of a descriptor: made available, and used, in a round whose counter is odd.
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// What an event suppression structure asks for, in its upper half (section 2.8.10): notify always, never, or
/// at the place in its lower half.
const ENABLE: u32 = 0;
const DISABLE: u32 = 1 << 16;
const AT_PLACE: u32 = 2 << 16;
const ALIGN: usize = 16;
/// Used chains behind the first that are looked for at once.
const TOGETHER_MAX: u16 = 15;

/// Bytes of the ring and of both event suppression structures.
pub(super) fn bytes(size: u16) -> usize {
    ALIGN + 16 * usize::from(size) + 8
}

/// A place in the ring, and in which round: the wrap counter of section 2.8.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    place: u16,
    wrap: bool,
}

impl Position {
    const START: Position = Position { place: 0, wrap: true };

    /// `count` places on, at most a round.
    #[inline]
    fn after(self, count: u16, size: u16) -> Position {
        let place = self.place + count;
        if place >= size {
            Position { place: place - size, wrap: !self.wrap }
        } else {
            Position { place, ..self }
        }
    }

    /// As an event suppression structure has it.
    #[inline]
    fn event(self) -> u32 {
        u32::from(self.place) | u32::from(self.wrap) << 15
    }
}

/// A packed virtqueue, driver's side.
#[derive(Debug)]
pub struct Packed<T> {
    /// Two words a descriptor: its address; then length, identifier and flags.
    ring: &'static [AtomicU64],
    /// When we want to hear from the device.
    driver: &'static AtomicU32,
    /// When it wants to hear from us.
    device: &'static AtomicU32,
    chains: Chains<T>,
    /// The free identifier behind each free identifier.
    next: Box<[u16]>,
    first_free: u16,
    free: u16,
    size: u16,
    event_index: bool,
    /// Where the next chain goes.
    push: Position,
    /// Where the next used chain will stand.
    pop: Position,
    /// Descriptors pushed since the last `publish`.
    unpublished: u16,
    /// Used chains from here on that were found together with an earlier one.
    together: u16,
    broken: bool,
}

impl<T> Packed<T> {
    pub(super) fn new(layout: Layout, carver: &mut Carver) -> Option<(Packed<T>, Areas)> {
        carver.align(ALIGN, 0)?;
        let (ring, descriptors) = carver.words(2 * usize::from(layout.size))?;
        let (driver, driver_bus) = carver.words(1)?;
        let (device, device_bus) = carver.words(1)?;
        let queue = Packed {
            ring,
            driver: driver.first()?,
            device: device.first()?,
            chains: Chains::new(layout.size),
            next: (1..=layout.size).collect(),
            first_free: 0,
            free: layout.size,
            size: layout.size,
            event_index: layout.event_index,
            push: Position::START,
            pop: Position::START,
            unpublished: 0,
            together: 0,
            broken: false,
        };
        Some((queue, Areas { descriptors, driver: driver_bus, device: device_bus }))
    }

    #[inline]
    pub(super) fn free(&self) -> usize {
        usize::from(self.free)
    }

    pub(super) fn lent(&self) -> usize {
        self.chains.count()
    }

    #[inline]
    pub(super) fn next_id(&self) -> Option<u16> {
        (self.free > 0).then_some(self.first_free)
    }

    #[inline]
    pub(super) fn push(&mut self, chain: &[Descriptor], token: T) -> Result<(), T> {
        if chain.is_empty() || chain.len() > self.free() {
            return Err(token);
        }
        let (count, id, head) = (chain.len() as u16, self.first_free, self.push);
        // The first descriptor gives the whole chain to the device, so it is written last (section 2.8.21.1).
        for (descriptor, offset) in chain.iter().zip(0..count).rev() {
            let at = head.after(offset, self.size);
            let word = second_word(*descriptor, offset + 1 < count, id, at.wrap);
            self.ring[2 * usize::from(at.place)].store(descriptor.bus, Relaxed);
            self.ring[2 * usize::from(at.place) + 1].store(word, Release);
        }
        self.push = head.after(count, self.size);
        self.first_free = self.next[usize::from(id)];
        self.free -= count;
        self.unpublished += count;
        self.chains.lend(id, token, count);
        Ok(())
    }

    /// Flags and identifiers in a table mean nothing but who writes (section 2.8.7).
    pub(super) fn table_entry(&self, descriptor: Descriptor, _: usize, _: bool) -> [u8; TABLE_ENTRY] {
        let second = u64::from(descriptor.bytes) | u64::from(descriptor.flags) << 48;
        (u128::from(second) << 64 | u128::from(descriptor.bus)).to_le_bytes()
    }

    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let count = core::mem::take(&mut self.unpublished);
        if count == 0 {
            return false;
        }
        // The device looks at the ring after it asked for a notification, and we the other way round.
        fence(SeqCst);
        let wanted = self.device.load(Relaxed);
        match wanted & !0xffff {
            AT_PLACE if self.event_index => self.steps_over(wanted as u16, count),
            DISABLE => false,
            _ => true,
        }
    }

    /// Whether the last `count` descriptors took the place that the device waits for, in its round.
    fn steps_over(&self, wanted: u16, count: u16) -> bool {
        let (place, wrap) = (wanted & 0x7fff, wanted & 0x8000 != 0);
        let event = if wrap == self.push.wrap { place } else { place.wrapping_sub(self.size) };
        passes(event, self.push.place, self.push.place.wrapping_sub(count))
    }

    #[inline]
    pub(super) fn has_seen(&self) -> bool {
        self.together > 0
    }

    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        !self.broken && self.used(self.pop).is_some()
    }

    /// The second word at a place, if the device has used the chain there.
    #[inline]
    fn used(&self, at: Position) -> Option<u64> {
        // What stands beside the flags, and the memory behind it, is read after them.
        let word = self.ring[2 * usize::from(at.place) + 1].load(Acquire);
        let flags = (word >> 48) as u16;
        let expected = if at.wrap { AVAILABLE | USED } else { 0 };
        (flags & (AVAILABLE | USED) == expected).then_some(word)
    }

    /// Used chains from the next place on, if each is of one descriptor: the ring has no index that says how
    /// many are found together. A chain of more ends the count early.
    fn count_together(&self) -> u16 {
        let most = TOGETHER_MAX.min(self.size - self.free);
        let is_last = |count: &u16| self.used(self.pop.after(*count, self.size)).is_none();
        (0..most).find(is_last).unwrap_or(most)
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<(T, u32)> {
        if self.broken {
            return None;
        }
        let word = self.used(self.pop)?;
        if self.free == self.size {
            self.chains.errors.overrun += 1;
            return self.give_up();
        }
        let id = (word >> 32) as u16;
        let Some((token, count)) = self.chains.take_back(id.into()) else {
            // How many places to go on is known by the chain alone, so there is no going on.
            return self.give_up();
        };
        self.pop = self.pop.after(count, self.size);
        self.next[usize::from(id)] = self.first_free;
        self.first_free = id;
        self.free += count;
        self.together = self.together.checked_sub(1).unwrap_or_else(|| self.count_together());
        Some((token, word as u32))
    }

    #[cold]
    fn give_up(&mut self) -> Option<(T, u32)> {
        self.broken = true;
        self.together = 0;
        None
    }

    pub(super) fn arm(&mut self) -> bool {
        let wanted = if self.event_index { AT_PLACE | self.pop.event() } else { ENABLE };
        self.driver.store(wanted, Relaxed);
        // The device looks whether we want to hear after it wrote to the ring, and we the other way round.
        fence(SeqCst);
        !self.is_ready()
    }

    pub(super) fn disarm(&mut self) {
        self.driver.store(DISABLE, Relaxed);
    }

    pub(super) fn errors(&self) -> Errors {
        self.chains.errors
    }
}

/// Length, identifier and flags of a descriptor that is lent in a round.
#[inline]
fn second_word(descriptor: Descriptor, more: bool, id: u16, wrap: bool) -> u64 {
    let turn = if wrap { AVAILABLE } else { USED };
    let next = if more { NEXT } else { 0 };
    u64::from(descriptor.bytes) | u64::from(id) << 32 | u64::from(descriptor.flags | next | turn) << 48
}
