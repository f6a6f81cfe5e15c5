//! The split virtqueue (section 2.7): a table of descriptors, a ring of chains that the driver makes
//! available, and a ring of chains that the device has used.

use super::chains::Chains;
use super::{Areas, Descriptor, Errors, Layout, NEXT, TABLE_ENTRY, passes};
use crate::memory::Carver;
use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU16, AtomicU64, fence};

/// The driver wants no interrupts; only looked at without event indices.
const NO_INTERRUPT: u16 = 1;
/// The device wants no notifications; only looked at without event indices.
const NO_NOTIFY: u16 = 1;
/// Places of the words in front of either ring.
const FLAGS: usize = 0;
const INDEX: usize = 1;
const RING: usize = 2;
/// Table and available ring are aligned to more than they need, so that words and entries are.
const ALIGN: usize = 16;

/// Bytes of the three parts and of the space between them.
pub(super) fn bytes(size: u16) -> usize {
    let size = usize::from(size);
    let (table, available, used) = (16 * size, 6 + 2 * size, 6 + 8 * size);
    (ALIGN + table) + available + (8 + used) + 8
}

/// A split virtqueue, driver's side.
#[derive(Debug)]
pub struct Split<T> {
    /// Two words a descriptor: its address; then length, flags and next.
    table: &'static [[AtomicU64; 2]],
    /// Flags, index, ring, and which used chain the driver wants to hear of.
    available: &'static [AtomicU16],
    /// Flags and index of the used ring.
    used: &'static [AtomicU16],
    /// Its entries: identifier and length.
    used_ring: &'static [AtomicU64],
    /// Which available chain the device wants to hear of.
    wanted: &'static AtomicU16,
    chains: Chains<T>,
    /// The free descriptor behind each free descriptor.
    next: Box<[u16]>,
    first_free: u16,
    free: u16,
    size: u16,
    event_index: bool,
    /// Chains pushed, published and popped so far, modulo 65536.
    pushed: u16,
    published: u16,
    popped: u16,
    /// The device's index as it was last read.
    seen: u16,
    broken: bool,
}

impl<T> Split<T> {
    pub(super) fn new(layout: Layout, carver: &mut Carver) -> Option<(Split<T>, Areas)> {
        let size = usize::from(layout.size);
        carver.align(ALIGN, 0)?;
        let (table, descriptors) = carver.words(2 * size)?;
        let (available, driver) = carver.words(size + 3)?;
        // The used ring's entries, 8 bytes each, begin 4 bytes behind its start: it is put where they are
        // aligned.
        carver.align(8, 4)?;
        let (used, device) = carver.words(2)?;
        let (used_ring, _) = carver.words(size)?;
        let (wanted, _) = carver.words::<AtomicU16>(1)?;
        let queue = Split {
            table: table.as_chunks().0,
            available,
            used,
            used_ring,
            wanted: wanted.first()?,
            chains: Chains::new(layout.size),
            next: (1..=layout.size).collect(),
            first_free: 0,
            free: layout.size,
            size: layout.size,
            event_index: layout.event_index,
            pushed: 0,
            published: 0,
            popped: 0,
            seen: 0,
            broken: false,
        };
        Some((queue, Areas { descriptors, driver, device }))
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

    /// Place of entry `index` of either ring.
    #[inline]
    fn slot(&self, index: u16) -> usize {
        usize::from(index & (self.size - 1))
    }

    #[inline]
    pub(super) fn push(&mut self, chain: &[Descriptor], token: T) -> Result<(), T> {
        if chain.is_empty() || chain.len() > self.free() {
            return Err(token);
        }
        let (count, head) = (chain.len() as u16, self.first_free);
        let mut at = head;
        for (index, descriptor) in chain.iter().enumerate() {
            let next = self.next[usize::from(at)];
            let more = index + 1 < chain.len();
            let [first, second] = &self.table[usize::from(at)];
            first.store(descriptor.bus, Relaxed);
            second.store(second_word(*descriptor, more, next), Relaxed);
            at = next;
        }
        self.lend(head, at, token, count);
        Ok(())
    }

    /// Shows the device the chain that begins at `head`, behind whose `count` descriptors `next` is free.
    #[inline]
    fn lend(&mut self, head: u16, next: u16, token: T, count: u16) {
        self.first_free = next;
        self.free -= count;
        self.available[RING + self.slot(self.pushed)].store(head, Relaxed);
        self.pushed = self.pushed.wrapping_add(1);
        self.chains.lend(head, token, count);
    }

    /// The same with a chain of one descriptor.
    #[inline]
    pub(super) fn push_one(&mut self, descriptor: Descriptor, token: T) -> Result<(), T> {
        if self.free == 0 {
            return Err(token);
        }
        let head = self.first_free;
        let [first, second] = &self.table[usize::from(head)];
        let next = self.next[usize::from(head)];
        first.store(descriptor.bus, Relaxed);
        second.store(second_word(descriptor, false, next), Relaxed);
        self.lend(head, next, token, 1);
        Ok(())
    }

    pub(super) fn table_entry(
        &self,
        descriptor: Descriptor,
        index: usize,
        is_last: bool,
    ) -> [u8; TABLE_ENTRY] {
        let second = second_word(descriptor, !is_last, index as u16 + 1);
        (u128::from(second) << 64 | u128::from(descriptor.bus)).to_le_bytes()
    }

    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.pushed);
        if old == new {
            return false;
        }
        // The device reads descriptors and ring after the index (section 2.7.13.3).
        self.available[INDEX].store(new, Release);
        self.published = new;
        // It looks at the index after it asked for a notification, and we the other way round: one of the
        // two sees the other (section 2.7.13.4.1).
        fence(SeqCst);
        if self.event_index {
            passes(self.wanted.load(Relaxed), new, old)
        } else {
            self.used[FLAGS].load(Relaxed) & NO_NOTIFY == 0
        }
    }

    #[inline]
    pub(super) fn has_seen(&self) -> bool {
        self.seen != self.popped
    }

    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        !self.broken && (self.has_seen() || self.used[INDEX].load(Relaxed) != self.popped)
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<(T, u32)> {
        while self.popped != self.seen || self.look() {
            let entry = self.used_ring[self.slot(self.popped)].load(Relaxed);
            self.popped = self.popped.wrapping_add(1);
            if let Some((token, count)) = self.chains.take_back(entry as u32) {
                self.release(entry as u16, count);
                return Some((token, (entry >> 32) as u32));
            }
        }
        None
    }

    /// Looks whether the device has used more.
    #[inline]
    fn look(&mut self) -> bool {
        // Entries and the memory behind them are read after the index.
        let seen = self.used[INDEX].load(Acquire);
        if seen == self.popped || self.broken {
            return false;
        }
        let (answers, questions) = (seen.wrapping_sub(self.popped), self.published.wrapping_sub(self.popped));
        if answers > questions {
            self.chains.errors.overrun += 1;
            self.broken = true;
            return false;
        }
        self.seen = seen;
        true
    }

    /// Puts the `count` descriptors of chain `head` in front of the free ones. Their order is still that in
    /// which they were free.
    #[inline]
    fn release(&mut self, head: u16, count: u16) {
        let mut last = head;
        for _ in 1..count {
            last = self.next[usize::from(last)];
        }
        self.next[usize::from(last)] = self.first_free;
        self.first_free = head;
        self.free += count;
    }

    pub(super) fn arm(&mut self) -> bool {
        if self.event_index {
            self.available[RING + usize::from(self.size)].store(self.popped, Relaxed);
        } else {
            self.available[FLAGS].store(0, Relaxed);
        }
        // The device looks whether we want to hear after it moved its index, and we the other way round.
        fence(SeqCst);
        !self.is_ready()
    }

    pub(super) fn disarm(&mut self) {
        if self.event_index {
            // As far away as can be: the chain that is just past is 65535 away.
            let past = self.popped.wrapping_sub(1);
            self.available[RING + usize::from(self.size)].store(past, Relaxed);
        } else {
            self.available[FLAGS].store(NO_INTERRUPT, Relaxed);
        }
    }

    pub(super) fn errors(&self) -> Errors {
        self.chains.errors
    }
}

/// Length, flags and next of a descriptor.
#[inline]
fn second_word(descriptor: Descriptor, more: bool, next: u16) -> u64 {
    let flags = if more { descriptor.flags | NEXT } else { descriptor.flags };
    u64::from(descriptor.bytes) | u64::from(flags) << 32 | u64::from(next) << 48
}
