//! A part of the items, and what the commands of all protocols do with them.

use crate::classes;
use crate::detail::{Details, Event};
use crate::slab::Index;
use crate::stats::Stats;
use crate::store::{Facts, Item, Key, Marks, Room, START_LEN, Store};
use crate::value::{Gather, Incoming};
use crate::{KEY_MAX, number};
use nom_port::buffer::Buffer;

/// Longest time in seconds that is relative to now: 30 days. Longer ones are seconds since 1970.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

/// Seconds that the server's clock shows when it starts, so that 0 and 1 are in the past; as in memcached,
/// where `mg` with the flag `t` shows it.
const START: u64 = 62;

/// The items whose keys fall to it, and what was counted about them. Whoever uses it has it alone.
#[derive(Debug)]
pub(crate) struct Shard<B> {
    /// Which of the server's it is.
    pub number: u32,
    pub store: Store<B>,
    item_max: usize,
    /// Second of 1970's clock at which this server's shows 0.
    epoch: u64,
    pub stats: Stats,
    pub details: Details,
    /// Look-ups that the store's measurement knows of.
    lookups: u64,
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    /// As `Set`, if the id is that of the item; with `stale_wins`, an older id stores a stale value.
    Cas {
        stale_wins: bool,
    },
}

/// What to store, but for the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update<'a> {
    pub key: &'a [u8],
    pub mode: Mode,
    pub facts: Facts,
    /// Id that the item must have; 0 for any.
    pub cas: u64,
}

/// What became of an update or a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done; a value is stored under this id.
    Done(u64),
    /// Its condition does not hold.
    Refused,
    Exists,
    NotFound,
    OutOfMemory,
}

/// What became of a sum.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sum {
    Done { value: u64, index: Index },
    NotFound,
    NonNumeric,
    CasMismatch,
    OutOfMemory,
}

/// Whether an item may be as large as `-I` says; counts as memcached does.
pub(crate) fn fits(item_max: usize, key: &[u8], flags: u32, len: usize) -> bool {
    classes::item_len(key.len(), len, flags) <= item_max
}

impl<B: Buffer> Shard<B> {
    /// Shard `number` without items, which may take `memory` bytes as long as there is `room`. `unix` is the
    /// time in seconds since 1970; `seed` must be unknown to clients.
    pub(crate) fn new(
        number: u32,
        (memory, room): (usize, Room),
        item_max: usize,
        unix: u64,
        seed: u64,
    ) -> Shard<B> {
        let mut store = Store::new(memory, room, seed.wrapping_add(number.into()));
        store.set_now(START as u32);
        let epoch = unix.saturating_sub(START);
        Shard {
            number,
            store,
            item_max,
            epoch,
            stats: Stats::default(),
            details: Details::default(),
            lookups: 0,
        }
    }

    /// Tells the time, in seconds since 1970.
    pub(crate) fn set_time(&mut self, unix: u64) {
        let before = self.store.now();
        self.store.set_now(unix.saturating_sub(self.epoch) as u32);
        let seconds = self.store.now() - before;
        if seconds > 0 {
            let lookups = self.stats.cmd_get + self.stats.cmd_touch;
            // Counters that were reset begin at 0.
            let known = core::mem::replace(&mut self.lookups, lookups);
            self.store.tick(seconds, lookups.checked_sub(known).unwrap_or(lookups));
        }
    }

    /// The time, in seconds since 1970.
    pub(crate) fn unix(&self) -> u64 {
        self.epoch + u64::from(self.store.now())
    }

    /// Seconds since the start.
    pub(crate) fn uptime(&self) -> u64 {
        u64::from(self.store.now()) - START
    }

    /// The second, by the server's clock, of an expiry time as clients give it.
    pub(crate) fn second(&self, exptime: i64) -> u32 {
        let second = match exptime {
            0 => return 0,
            relative @ 1..=RELATIVE_MAX => i64::from(self.store.now()) + relative,
            absolute => absolute.saturating_sub(self.epoch as i64),
        };
        second.clamp(1, i64::from(u32::MAX)) as u32
    }

    /// Whether `-I` allows an item.
    pub(crate) fn fits(&self, key: &[u8], flags: u32, len: usize) -> bool {
        fits(self.item_max, key, flags, len)
    }

    /// Fetches an item as `get` does.
    #[inline]
    pub(crate) fn fetch(&mut self, key: &[u8]) -> Option<Index> {
        self.stats.cmd_get += 1;
        let found = self.look_up(key);
        match found {
            Some(index) => self.bump(index),
            None => self.stats.get_misses += 1,
        }
        self.stats.get_hits += u64::from(found.is_some());
        found
    }

    /// Fetches an item and sets when it expires, as clients say it.
    pub(crate) fn fetch_and_touch(&mut self, key: &[u8], exptime: i64) -> Option<Index> {
        self.stats.cmd_touch += 1;
        let expires = self.second(exptime);
        let found = self.look_up(key);
        match found {
            Some(index) => {
                self.store.item_mut(index).expires = expires;
                self.bump(index);
                self.stats.touch_hits += 1;
            }
            None => self.stats.touch_misses += 1,
        }
        found
    }

    /// Looks for an item that a client asks for, which it may then be [said](Shard::bump) to have used.
    #[inline]
    pub(crate) fn look_up(&mut self, key: &[u8]) -> Option<Index> {
        if key.len() > KEY_MAX {
            return None;
        }
        let key = self.store.key(key);
        let found = self.store.find(&key);
        self.store.looked_up(&key, found);
        self.details.note(key.bytes, Event::Get);
        if found.is_some() {
            self.details.note(key.bytes, Event::Hit);
        }
        found
    }

    /// Looks for an item and leaves no trace.
    pub(crate) fn peek(&mut self, key: &[u8]) -> Option<Index> {
        if key.len() > KEY_MAX {
            return None;
        }
        let key = self.store.key(key);
        self.store.find(&key)
    }

    /// Remembers that an item was used.
    #[inline]
    pub(crate) fn bump(&mut self, index: Index) {
        self.store.touch(index).marks.fetched = true;
    }

    /// Stores a value.
    pub(crate) fn update(&mut self, update: &Update<'_>, value: Incoming<'_, B>) -> Outcome {
        self.stats.cmd_set += 1;
        self.details.note(update.key, Event::Set);
        let key = self.store.key(update.key);
        let found = self.store.find_to_store(&key);
        match update.mode {
            Mode::Set => self.put(&key, found, update.facts, value),
            Mode::Add if found.is_none() => self.put(&key, found, update.facts, value),
            Mode::Replace if found.is_some() => self.put(&key, found, update.facts, value),
            Mode::Add => {
                found.into_iter().for_each(|index| _ = self.store.touch(index));
                Outcome::Refused
            }
            Mode::Replace => Outcome::Refused,
            Mode::Append | Mode::Prepend => match found {
                Some(index) => self.extend(&key, index, update, value),
                None => Outcome::Refused,
            },
            Mode::Cas { stale_wins } => match found {
                Some(index) => self.compare_and_swap(&key, index, update, stale_wins, value),
                None => {
                    self.stats.cas_misses += 1;
                    Outcome::NotFound
                }
            },
        }
    }

    /// An update of `key` was too large; if it was to replace whatever is there, that goes.
    pub(crate) fn refuse(&mut self, key: &[u8], replaces: bool) {
        self.stats.store_too_large += 1;
        if replaces {
            self.forget(key);
        }
    }

    /// Removes what is at `key` after its update was refused, lest a client reads what it believes replaced.
    pub(crate) fn forget(&mut self, key: &[u8]) {
        if let Some(index) = self.peek(key) {
            self.store.delete(index);
        }
    }

    /// Adds to, or subtracts from, a number; sums wrap at 2^64, differences end at 0.
    pub(crate) fn sum(&mut self, key: &[u8], increment: bool, delta: u64, cas: u64) -> Sum {
        let Some(index) = self.peek(key) else {
            let misses = if increment { &mut self.stats.incr_misses } else { &mut self.stats.decr_misses };
            *misses += 1;
            return Sum::NotFound;
        };
        let item = self.store.item(index);
        if item.len() == 0 {
            return Sum::NonNumeric;
        }
        if cas != 0 && item.cas != cas {
            return Sum::CasMismatch;
        }
        let Some(before) = number::unsigned(item.start(&mut [0; START_LEN])) else { return Sum::NonNumeric };
        let hits = if increment { &mut self.stats.incr_hits } else { &mut self.stats.decr_hits };
        *hits += 1;
        let value = if increment { before.wrapping_add(delta) } else { before.saturating_sub(delta) };
        self.write_number(key, index, value)
    }

    /// Stores a number where there is none.
    pub(crate) fn put_number(&mut self, key: &[u8], expires: u32, value: u64) -> Sum {
        let key = self.store.key(key);
        let facts = Facts { expires, ..Facts::default() };
        let mut digits = itoa::Buffer::new();
        match self.store.put(&key, None, facts, Incoming::Copy(digits.format(value).as_bytes())) {
            Ok(index) => Sum::Done { value, index },
            Err(_) => Sum::OutOfMemory,
        }
    }

    /// Removes an item if it is there and has the id `cas` (0: any).
    pub(crate) fn delete(&mut self, key: &[u8], cas: u64) -> Outcome {
        self.details.note(key, Event::Delete);
        let Some(index) = self.peek(key) else {
            self.stats.delete_misses += 1;
            return Outcome::NotFound;
        };
        if cas != 0 && self.store.item(index).cas != cas {
            return Outcome::Exists;
        }
        self.stats.delete_hits += 1;
        self.store.delete(index);
        Outcome::Done(0)
    }

    /// Makes all present items go after `delay`, an expiry time; at once if it is 0 or past.
    pub(crate) fn flush(&mut self, delay: i64) {
        let at = if delay > 0 { self.second(delay) } else { 0 };
        self.store.flush_at(at);
    }

    /// The item in a slot.
    pub(crate) fn item(&self, index: Index) -> &Item<B> {
        self.store.item(index)
    }

    fn put(&mut self, key: &Key<'_>, found: Option<Index>, facts: Facts, value: Incoming<'_, B>) -> Outcome {
        let len = classes::item_len(key.bytes.len(), value.len(), facts.flags);
        match self.store.put(key, found, facts, value) {
            Ok(index) => Outcome::Done(self.store.item(index).cas),
            Err(_) => {
                self.stats.store_no_memory += 1;
                self.store.classes.of(len).outofmemory += 1;
                Outcome::OutOfMemory
            }
        }
    }

    fn extend(
        &mut self,
        key: &Key<'_>,
        index: Index,
        update: &Update<'_>,
        value: Incoming<'_, B>,
    ) -> Outcome {
        let item = self.store.item(index);
        let facts = Facts { flags: item.flags, expires: item.expires, marks: Marks::default() };
        if update.cas != 0 && update.cas != item.cas {
            return Outcome::Exists;
        }
        if !self.fits(key.bytes, facts.flags, item.len() + value.len()) {
            return Outcome::Refused;
        }
        let mut gather = Gather::new();
        if update.mode == Mode::Append {
            item.append_to(&mut gather);
            gather.append(value);
        } else {
            gather.append(value);
            item.append_to(&mut gather);
        }
        self.put(key, Some(index), facts, gather.finish())
    }

    fn compare_and_swap(
        &mut self,
        key: &Key<'_>,
        index: Index,
        update: &Update<'_>,
        stale_wins: bool,
        value: Incoming<'_, B>,
    ) -> Outcome {
        let item = self.store.item(index);
        let mut facts = update.facts;
        if update.cas != item.cas {
            if !stale_wins || update.cas == 0 || update.cas > item.cas {
                self.stats.cas_badval += 1;
                return Outcome::Exists;
            }
            facts.expires = item.expires;
            facts.marks.stale = true;
            facts.marks.token_sent = item.marks.token_sent;
        }
        self.stats.cas_hits += 1;
        self.put(key, Some(index), facts, value)
    }

    /// Overwrites a number; one that became shorter is filled up with blanks, as memcached does.
    fn write_number(&mut self, key: &[u8], index: Index, value: u64) -> Sum {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(value).as_bytes();
        let item = self.store.item_mut(index);
        if let Some(place) = item.inline_mut().filter(|place| place.len() >= digits.len()) {
            let (start, rest) = place.split_at_mut(digits.len());
            start.copy_from_slice(digits);
            rest.fill(b' ');
            let cas = self.store.next_cas();
            self.store.item_mut(index).cas = cas;
            self.store.touch(index);
            return Sum::Done { value, index };
        }
        let facts = Facts { flags: item.flags, expires: item.expires, marks: Marks::default() };
        let mut text = digits.to_vec();
        text.resize(item.len().max(text.len()), b' ');
        let key = self.store.key(key);
        match self.store.put(&key, Some(index), facts, Incoming::Copy(&text)) {
            Ok(index) => Sum::Done { value, index },
            Err(_) => Sum::OutOfMemory,
        }
    }
}
