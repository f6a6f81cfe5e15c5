//! Items by key, within a bound of memory: when it is reached, the least recently used go.

use crate::classes::{self, Classes};
use crate::curve::{Sampler, Tally};
use crate::slab::{Exhausted, Index, Slab};
use crate::value::{self, COPY_MAX, Gather, Incoming, Part};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;
use nom_port::buffer::{Buffer, Sink, Slice};

/// Whether the program has memory left for more items. Asked seldom: whenever items have taken another
/// [`LIMIT_STEP`].
pub type Room = fn() -> bool;

/// By how much the memory that items may cost rises at a time.
const LIMIT_STEP: usize = 256 << 10;

/// Where the bytes of a value are.
#[derive(Debug, Default)]
enum Kept<B> {
    /// Behind the key, in the item's own memory.
    #[default]
    Inline,
    Shared(Slice<B>),
    /// In the buffer that it came in, until it settles: it is reckoned to have settled already.
    Unsettled(Slice<B>),
    Parts(Vec<Part<B>>),
}

/// What the store knows about a key.
#[derive(Debug)]
pub struct Item<B> {
    /// The key, and behind it the value if it was copied.
    head: Box<[u8]>,
    kept: Kept<B>,
    hash: u64,
    /// Changes with every change of the item; unique in the store.
    pub cas: u64,
    /// The client's, uninterpreted.
    pub flags: u32,
    /// Second at which it is gone; 0 for never.
    pub expires: u32,
    /// Second at which it was last used.
    pub used: u32,
    key_len: u8,
    pub marks: Marks,
    /// Whether it was used since it came to its place among the others.
    is_ahead: bool,
}

/// What the meta commands remember about an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// It was fetched since it was stored.
    pub fetched: bool,
    /// It is out of date and waits for a client to replace it.
    pub stale: bool,
    /// A client was told that it is the one to replace it.
    pub token_sent: bool,
    /// Its key came in base64, and goes so.
    pub key_binary: bool,
}

impl<B> Default for Item<B> {
    fn default() -> Item<B> {
        Item {
            head: Box::default(),
            kept: Kept::Inline,
            hash: 0,
            cas: 0,
            flags: 0,
            expires: 0,
            used: 0,
            key_len: 0,
            marks: Marks::default(),
            is_ahead: false,
        }
    }
}

impl<B: Buffer> Item<B> {
    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.head[..usize::from(self.key_len)]
    }

    /// The first bytes of the value: all if it was copied, else as many as the place takes.
    pub fn start<'a>(&'a self, place: &'a mut [u8; START_LEN]) -> &'a [u8] {
        match &self.kept {
            Kept::Inline => &self.head[usize::from(self.key_len)..],
            Kept::Shared(slice) | Kept::Unsettled(slice) => slice,
            Kept::Parts(parts) => {
                let bytes = parts.iter().flat_map(|part| part.bytes());
                let filled = place.iter_mut().zip(bytes).map(|(place, byte)| *place = *byte).count();
                &place[..filled]
            }
        }
    }

    /// The key, and the value behind it if it was copied, with how long the key is.
    #[inline]
    pub fn inline(&self) -> Option<(&[u8], usize)> {
        matches!(self.kept, Kept::Inline).then(|| (&*self.head, usize::from(self.key_len)))
    }

    /// The value if it was copied, to be changed without changing its length.
    pub fn inline_mut(&mut self) -> Option<&mut [u8]> {
        matches!(self.kept, Kept::Inline).then(|| &mut self.head[usize::from(self.key_len)..])
    }

    /// Bytes of the value.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.kept {
            Kept::Inline => self.head.len() - usize::from(self.key_len),
            Kept::Shared(slice) | Kept::Unsettled(slice) => slice.len(),
            Kept::Parts(parts) => parts.iter().map(Part::len).sum(),
        }
    }

    /// Bytes that it has as memcached counts them.
    pub fn nominal_len(&self) -> usize {
        classes::item_len(usize::from(self.key_len), self.len(), self.flags)
    }

    /// Sends the value.
    #[inline]
    pub fn send(&self, sink: &mut impl Sink<B>) {
        match &self.kept {
            Kept::Inline => sink.copy(&self.head[usize::from(self.key_len)..]),
            Kept::Shared(slice) | Kept::Unsettled(slice) => sink.share(slice.clone()),
            Kept::Parts(parts) => parts.iter().for_each(|part| part.send(sink)),
        }
    }

    /// Puts the value into another one.
    pub fn append_to(&self, gather: &mut Gather<B>) {
        match &self.kept {
            Kept::Inline => gather.copy(&self.head[usize::from(self.key_len)..]),
            Kept::Shared(slice) | Kept::Unsettled(slice) => gather.share(slice.clone()),
            Kept::Parts(parts) => parts.iter().for_each(|part| match part {
                Part::Copied(bytes) => gather.copy(bytes),
                Part::Shared(slice) => gather.share(slice.clone()),
            }),
        }
    }

    /// Has `copy` copy what lies where little else does, as far as there is memory. Returns the bytes copied.
    fn relocate(&mut self, copy: &mut impl FnMut(&[u8]) -> Option<Slice<B>>) -> usize {
        let mut relocate = |slice: &mut Slice<B>| {
            let Some(copied) = slice.is_sparse().then(|| copy(slice)).flatten() else { return 0 };
            *slice = copied;
            slice.len()
        };
        match &mut self.kept {
            Kept::Inline | Kept::Unsettled(_) => 0,
            Kept::Shared(slice) => relocate(slice),
            Kept::Parts(parts) => parts
                .iter_mut()
                .map(|part| match part {
                    Part::Copied(_) => 0,
                    Part::Shared(slice) => relocate(slice),
                })
                .sum(),
        }
    }

    /// Whether the value does not lie where it is to; with `all`, no part of it is to lie in the heap.
    fn is_unsettled(&self, all: bool) -> bool {
        let is_to_move = |len| if all { len > COPY_MAX } else { value::fills_a_slot(len) };
        match &self.kept {
            Kept::Inline => is_to_move(self.len()),
            Kept::Shared(_) => false,
            Kept::Unsettled(_) => true,
            Kept::Parts(parts) => {
                let (len, pinned) = (self.len(), parts.iter().map(Part::pinned).sum());
                let is_copied = parts.iter().any(|part| matches!(part, Part::Copied(_)));
                value::is_to_settle(len, pinned) || (is_copied && is_to_move(len))
            }
        }
    }

    /// Has `keep` copy the value to where it is to lie. Without memory for that, it stays where it is, or
    /// goes to the heap.
    fn settle(&mut self, keep: &mut impl FnMut(&[u8]) -> Option<Slice<B>>) {
        let (key, inline) = self.head.split_at(usize::from(self.key_len));
        let (head, kept) = match &self.kept {
            Kept::Inline => {
                let Ok(head) = head_of(key, &[]) else { return };
                let Some(slice) = keep(inline) else { return };
                (Some(head), Kept::Shared(slice))
            }
            Kept::Parts(parts) => {
                let Some(slice) = whole(parts).and_then(|whole| keep(&whole)) else { return };
                (None, Kept::Shared(slice))
            }
            Kept::Shared(_) => return,
            Kept::Unsettled(slice) => match keep(slice) {
                Some(settled) => (None, Kept::Shared(settled)),
                None if value::is_worth_keeping(slice.len(), slice) => (None, Kept::Shared(slice.clone())),
                None => match head_of(key, slice) {
                    Ok(head) => (Some(head), Kept::Inline),
                    Err(_) => (None, Kept::Shared(slice.clone())),
                },
            },
        };
        self.kept = kept;
        if let Some(head) = head {
            self.head = head;
        }
    }

    /// Bytes of memory that it costs.
    pub fn cost(&self) -> usize {
        let pinned = match &self.kept {
            Kept::Inline => 0,
            Kept::Shared(slice) => slice.pinned(),
            Kept::Unsettled(slice) => value::slot_bytes(slice.len()),
            Kept::Parts(parts) => parts.iter().map(Part::pinned).sum(),
        };
        size_of::<Item<B>>() + LINKS + self.head.len() + pinned
    }
}

/// Room for the start of a value: more than any number has digits.
pub const START_LEN: usize = 32;

/// Items that may be given their places before one goes.
const AHEAD_MAX: usize = 32;

/// Bytes an item costs in hash table and list.
const LINKS: usize = 16;

/// A key with its hash.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    hash: u64,
}

/// What is stored with a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    pub flags: u32,
    pub expires: u32,
    pub marks: Marks,
}

/// What happened to items without a command naming them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Found expired by a look-up.
    pub expired: u64,
    /// Found flushed by a look-up.
    pub flushed: u64,
    /// Removed, though alive, to make room.
    pub evictions: u64,
    /// Removed to make room, or stored over, when they had expired or been flushed.
    pub reclaimed: u64,
}

impl Losses {
    /// Adds those of another store.
    pub fn add(&mut self, other: &Losses) {
        self.expired += other.expired;
        self.flushed += other.flushed;
        self.evictions += other.evictions;
        self.reclaimed += other.reclaimed;
    }
}

/// The items.
#[derive(Debug)]
pub struct Store<B> {
    table: HashTable<Index>,
    slots: Slab<Item<B>>,
    hasher: SeedableRandomState,
    /// Bytes that items may cost together now.
    limit: usize,
    /// Bytes that they may ever cost.
    limit_max: usize,
    /// Whether there is memory for the limit to rise.
    room: Room,
    used: usize,
    cas: u64,
    /// Items with smaller ids have been flushed.
    flushed_below: u64,
    /// Second of the flush to come.
    flush_at: u32,
    now: u32,
    /// Whether items had to go in this second.
    is_full: bool,
    /// Items ever stored.
    pub stored: u64,
    pub losses: Losses,
    pub(crate) classes: Classes,
    /// Measures what more or less memory would do, if somebody wants to know.
    sampler: Option<Box<Sampler>>,
    /// Keys with smaller hashes are its sample: none without it.
    sampled_below: u64,
    /// The item last stored, if its value is yet to settle.
    unsettled: Option<Index>,
    /// Whether somebody wants memory back, so that as much as can be is to lie where it can be given back.
    settles_all: bool,
}

impl<B: Buffer> Store<B> {
    /// An empty store for `limit` bytes, as long as there is `room`. The seed must be unknown to clients, so
    /// that they cannot choose keys that collide; it is kept for ever, because hash state lives in static
    /// memory.
    pub fn new(limit: usize, room: Room, seed: u64) -> Store<B> {
        let shared = Box::leak(Box::new(SharedSeed::from_u64(seed)));
        Store {
            table: HashTable::new(),
            slots: Slab::new(),
            hasher: SeedableRandomState::with_seed(seed.rotate_left(32), shared),
            limit: limit.min(LIMIT_STEP),
            limit_max: limit,
            room,
            used: 0,
            cas: 0,
            flushed_below: 0,
            flush_at: u32::MAX,
            now: 0,
            is_full: false,
            stored: 0,
            losses: Losses::default(),
            classes: Classes::default(),
            sampler: None,
            sampled_below: 0,
            unsettled: None,
            settles_all: false,
        }
    }

    /// Tells the second. A clock that goes back is taken to stand still.
    pub fn set_now(&mut self, now: u32) {
        self.is_full &= now <= self.now;
        self.now = self.now.max(now);
        if self.flush_at <= self.now {
            self.flush();
        }
    }

    /// The second it is.
    pub fn now(&self) -> u32 {
        self.now
    }

    /// Items held, dead ones that nobody has come across included.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes that the items cost.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Hashes a key.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(bytes);
        Key { bytes, hash: hasher.finish() }
    }

    /// Measures from now on what it would hit with up to `most` bytes; it is one of so many shards.
    pub fn measure(&mut self, shards: usize, most: usize) {
        let sampler = Sampler::new(shards, self.len(), most as u64);
        self.sampled_below = sampler.threshold();
        self.sampler = Some(Box::new(sampler));
    }

    /// What was measured so far, if anything is.
    pub fn tally(&self) -> Option<&Tally> {
        self.sampler.as_ref().map(|sampler| &sampler.tally)
    }

    /// Says that a client has looked a key up, and what it found.
    #[inline]
    pub fn looked_up(&mut self, key: &Key<'_>, found: Option<Index>) {
        if key.hash >= self.sampled_below {
            return;
        }
        let fact = |item: &Item<B>| (item.len(), item.cost(), item.expires);
        let found = found.map(|index| fact(self.slots.get(index)));
        let (used, now) = (self.used, self.now);
        self.sample(|sampler| sampler.looked_up(key.hash, found, used, now));
    }

    /// Seconds have passed in which clients looked so many keys up.
    pub fn tick(&mut self, seconds: u32, lookups: u64) {
        let len = self.len();
        self.sample(|sampler| sampler.tick(seconds, lookups, len));
    }

    /// The threshold moves with the sample.
    #[cold]
    fn sample(&mut self, note: impl FnOnce(&mut Sampler)) {
        if let Some(sampler) = &mut self.sampler {
            note(sampler);
            self.sampled_below = sampler.threshold();
        }
    }

    /// From now on all values that are worth it are to lie where their memory can be given back, which that
    /// of the heap cannot, once they [settle](Store::settle).
    pub fn begin_settling(&mut self) {
        self.settles_all = true;
    }

    /// The item last stored, unless that was asked before, if its value is yet to [settle](Store::settle).
    pub fn take_unsettled(&mut self) -> Option<Index> {
        self.unsettled.take()
    }

    /// Has `keep` copy the value of the item in a slot to where it is to lie, if it does not. Returns the
    /// bytes that were to be copied. Another item may be there by now, or none: whatever is there is judged
    /// anew.
    pub fn settle(&mut self, index: Index, mut keep: impl FnMut(&[u8]) -> Option<Slice<B>>) -> usize {
        let item = self.slots.get_mut(index);
        if !item.is_unsettled(self.settles_all) {
            return 0;
        }
        let before = item.cost();
        item.settle(&mut keep);
        self.used = self.used + item.cost() - before;
        item.len()
    }

    /// Bytes that items may cost together.
    pub fn allowed(&self) -> usize {
        self.limit_max
    }

    /// Has items cost up to so many bytes together. Those that are too many go little by little:
    /// [`Store::shed`].
    pub fn set_limit(&mut self, limit: usize) {
        self.limit_max = limit;
    }

    /// Removes least recently used items while all cost more than they may: up to so many, or of about so
    /// many bytes. Returns how many went.
    pub fn shed(&mut self, items: usize, bytes: usize) -> usize {
        let enough = self.limit_max.max(self.used.saturating_sub(bytes));
        let shed = (0..items).take_while(|_| self.used > enough && self.evict(None)).count();
        // What is stored meanwhile is not to take the place of what went.
        self.limit = self.limit.min(self.used.max(self.limit_max));
        shed
    }

    /// Removes least recently used items of about so many bytes: up to so many items. What is stored next
    /// takes the place of others until there is [`Room`] again. Returns the bytes that went.
    pub fn shrink(&mut self, items: usize, bytes: usize) -> usize {
        let before = self.used;
        self.limit = self.limit.min(before.saturating_sub(bytes));
        let _ = (0..items).take_while(|_| self.used > self.limit && self.evict(None)).count();
        before - self.used
    }

    /// Has `copy` copy values that lie where little else does: of the items in up to `slots` slots from
    /// `from` on, and of no more than make up `bytes`. Returns where to go on, and the bytes copied.
    pub fn compact(
        &mut self,
        from: Index,
        slots: u32,
        bytes: usize,
        mut copy: impl FnMut(&[u8]) -> Option<Slice<B>>,
    ) -> (Option<Index>, usize) {
        let end = self.slots.count();
        let mut copied = 0;
        for index in from..end.min(from.saturating_add(slots)) {
            if copied >= bytes {
                return (Some(index), copied);
            }
            let item = self.slots.get_mut(index);
            let before = item.cost();
            copied += item.relocate(&mut copy);
            self.used = self.used + item.cost() - before;
        }
        (Some(from.saturating_add(slots)).filter(|next| *next < end), copied)
    }

    /// As [`Store::find`], for a key that is to be stored: a dead item that stands there gives its place.
    pub fn find_to_store(&mut self, key: &Key<'_>) -> Option<Index> {
        let index = self.lookup(key)?;
        if !self.is_dead(self.slots.get(index)) {
            return Some(index);
        }
        self.reclaim(index);
        None
    }

    fn reclaim(&mut self, index: Index) {
        self.losses.reclaimed += 1;
        let len = self.remove(index).nominal_len();
        self.classes.of(len).reclaimed += 1;
    }

    #[inline]
    fn lookup(&self, key: &Key<'_>) -> Option<Index> {
        let is_it = |&index: &Index| {
            let item = self.slots.get(index);
            item.hash == key.hash && item.key() == key.bytes
        };
        self.table.find(key.hash, is_it).copied()
    }

    /// The slot of a live item. A dead one that stands there is removed.
    #[inline]
    pub fn find(&mut self, key: &Key<'_>) -> Option<Index> {
        let index = self.lookup(key)?;
        if !self.is_dead(self.slots.get(index)) {
            return Some(index);
        }
        match self.slots.get(index).cas < self.flushed_below {
            true => self.losses.flushed += 1,
            false => self.losses.expired += 1,
        }
        self.remove(index);
        None
    }

    /// The item in a slot.
    #[inline]
    pub fn item(&self, index: Index) -> &Item<B> {
        self.slots.get(index)
    }

    /// The item in a slot. Whoever changes what a client can see gives it a [new id](Store::next_cas).
    #[inline]
    pub fn item_mut(&mut self, index: Index) -> &mut Item<B> {
        self.slots.get_mut(index)
    }

    /// Marks an item as used now. While nothing has to go, items that are used again in the same second keep
    /// their places until one of them is to go: to give each its place takes as long as to find it.
    /// (memcached itself tells minutes apart.)
    #[inline]
    pub fn touch(&mut self, index: Index) -> &mut Item<B> {
        let now = self.now;
        let item = self.slots.get_mut(index);
        if item.used == now && !self.is_full {
            item.is_ahead = true;
            return self.slots.get_mut(index);
        }
        self.slots.touch(index);
        let item = self.slots.get_mut(index);
        (item.used, item.is_ahead) = (now, false);
        item
    }

    /// A new id for an item that changes.
    pub fn next_cas(&mut self) -> u64 {
        self.cas += 1;
        self.cas
    }

    /// Stores a value at `key`, over the item in slot `found` if there is one, and returns its slot.
    pub fn put(
        &mut self,
        key: &Key<'_>,
        found: Option<Index>,
        facts: Facts,
        value: Incoming<'_, B>,
    ) -> Result<Index, Exhausted> {
        let copied = if let Incoming::Copy(bytes) = &value { bytes } else { &[][..] };
        let nominal_len = classes::item_len(key.bytes.len(), value.len(), facts.flags);
        let cost = size_of::<Item<B>>() + LINKS + key.bytes.len() + copied.len() + value.pinned();
        if cost > self.limit_max {
            return Err(Exhausted);
        }
        let place = match (&value, found) {
            (Incoming::Lost, _) => Err(Exhausted),
            (_, Some(index)) => self.overwrite(index, key, copied),
            (_, None) => self.insert(key, copied),
        };
        let index = place.inspect_err(|_| self.give_back(found))?;
        let cas = self.next_cas();
        let now = self.now;
        let item = self.slots.get_mut(index);
        item.kept = match value {
            Incoming::Copy(_) => Kept::Inline,
            Incoming::Share(slice) if value::is_to_settle(slice.len(), slice.pinned()) => {
                Kept::Unsettled(slice)
            }
            Incoming::Share(slice) => Kept::Shared(slice),
            Incoming::Parts(parts) => Kept::Parts(parts),
            Incoming::Lost => unreachable!("it has no place"),
        };
        (item.cas, item.used) = (cas, now);
        (item.flags, item.expires, item.marks) = (facts.flags, facts.expires, facts.marks);
        self.classes.enter(nominal_len);
        self.unsettled = item.is_unsettled(self.settles_all).then_some(index);
        self.used += cost;
        self.stored += 1;
        if key.hash < self.sampled_below {
            self.sample(|sampler| sampler.used(key.hash, cost, facts.expires));
        }
        self.make_room(index);
        Ok(index)
    }

    /// Removes an item for good: no memory would have kept it.
    pub fn delete(&mut self, index: Index) {
        let hash = self.remove(index).hash;
        if hash < self.sampled_below {
            self.sample(|sampler| sampler.forget(hash));
        }
    }

    /// Removes an item, live or dead.
    fn remove(&mut self, index: Index) -> Item<B> {
        let hash = self.slots.get(index).hash;
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == index) {
            entry.remove();
        }
        let item = self.slots.remove(index);
        self.used -= item.cost();
        self.classes.leave(item.nominal_len());
        item
    }

    /// Makes every item present go: now, or at the second `at`.
    pub fn flush_at(&mut self, at: u32) {
        self.flush_at = at;
        self.set_now(self.now);
    }

    /// All items, the least recently used first.
    pub fn items(&self) -> impl Iterator<Item = &Item<B>> {
        core::iter::successors(self.slots.oldest(), |&index| self.slots.newer(index))
            .map(|index| self.item(index))
    }

    fn flush(&mut self) {
        self.flush_at = u32::MAX;
        self.flushed_below = self.next_cas();
        self.sample(Sampler::forget_all);
    }

    #[inline]
    fn is_dead(&self, item: &Item<B>) -> bool {
        item.cas < self.flushed_below || (item.expires != 0 && item.expires <= self.now)
    }

    /// Readies a slot in use for another value; reuses its memory if it has the right size.
    fn overwrite(&mut self, index: Index, key: &Key<'_>, copied: &[u8]) -> Result<Index, Exhausted> {
        let item = self.slots.get_mut(index);
        let len = key.bytes.len() + copied.len();
        let head = if item.head.len() == len { None } else { Some(head_of(key.bytes, copied)?) };
        self.used -= item.cost();
        self.classes.leave(item.nominal_len());
        match head {
            Some(head) => item.head = head,
            None => item.head[key.bytes.len()..].copy_from_slice(copied),
        }
        self.slots.touch(index);
        Ok(index)
    }

    fn insert(&mut self, key: &Key<'_>, copied: &[u8]) -> Result<Index, Exhausted> {
        let head = head_of(key.bytes, copied)?;
        let hash_of = |&index: &Index| self.slots.get(index).hash;
        self.table.try_reserve(1, hash_of).map_err(|_| Exhausted)?;
        let key_len = key.bytes.len() as u8;
        let index = self.slots.insert(Item { head, key_len, hash: key.hash, ..Item::default() })?;
        self.table.insert_unique(key.hash, index, |&index| self.slots.get(index).hash);
        Ok(index)
    }

    /// Memory is used up: sees to it that the next value, and all else that needs memory, finds some.
    #[cold]
    fn give_back(&mut self, keep: Option<Index>) {
        self.limit = self.used.saturating_sub(LIMIT_STEP);
        while self.used > self.limit && self.evict(keep) {}
    }

    /// Raises the limit as far as it may be, and then removes the least recently used items, `keep` excepted,
    /// until the rest fits.
    fn make_room(&mut self, keep: Index) {
        while self.used > self.limit {
            if self.limit < self.limit_max && (self.room)() {
                self.limit = (self.limit + LIMIT_STEP).min(self.limit_max);
                continue;
            }
            if !self.evict(Some(keep)) {
                return;
            }
        }
    }

    /// Gives those their places who would be the next to go and were used since they came there: a few, so
    /// that it never takes long.
    fn put_ahead(&mut self) {
        for _ in 0..AHEAD_MAX {
            let Some(oldest) = self.slots.oldest() else { return };
            if !core::mem::take(&mut self.slots.get_mut(oldest).is_ahead) {
                return;
            }
            self.slots.touch(oldest);
        }
    }

    /// Removes the least recently used item, unless that is the one to `keep`; whether there was one.
    fn evict(&mut self, keep: Option<Index>) -> bool {
        self.is_full = true;
        self.put_ahead();
        let Some(oldest) = self.slots.oldest().filter(|&oldest| Some(oldest) != keep) else { return false };
        if self.is_dead(self.slots.get(oldest)) {
            self.reclaim(oldest);
        } else {
            self.losses.evictions += 1;
            let len = self.remove(oldest).nominal_len();
            self.classes.of(len).evicted += 1;
        }
        true
    }
}

/// A value in one piece, if there is memory for it.
fn whole<B: Buffer>(parts: &[Part<B>]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    whole.try_reserve_exact(parts.iter().map(Part::len).sum()).ok()?;
    parts.iter().for_each(|part| whole.extend_from_slice(part.bytes()));
    Some(whole)
}

fn head_of(key: &[u8], copied: &[u8]) -> Result<Box<[u8]>, Exhausted> {
    let mut head = Vec::new();
    head.try_reserve_exact(key.len() + copied.len()).map_err(|_| Exhausted)?;
    head.extend_from_slice(key);
    head.extend_from_slice(copied);
    Ok(head.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// A store that was given 4 MiB in 100-byte values, and how many those are.
    fn filled(limit: usize, room: Room) -> (Store<Rc<[u8]>>, usize) {
        let mut store = Store::new(limit, room, 7);
        let count = (4 << 20) / 100;
        for number in 0..count {
            let name = number.to_string();
            let key = store.key(name.as_bytes());
            let found = store.find(&key);
            let facts = Facts { flags: 0, expires: 0, marks: Marks::default() };
            store.put(&key, found, facts, Incoming::Copy(&[7; 100])).expect("there is room for one");
        }
        (store, count)
    }

    #[test]
    fn the_limit_rises_while_there_is_room() {
        let (store, count) = filled(32 << 20, || true);
        assert_eq!((store.len(), store.losses.evictions), (count, 0));
        let (store, _) = filled(1 << 20, || true);
        assert!((900 << 10..=1 << 20).contains(&store.used()) && store.losses.evictions > 0);
    }

    #[test]
    fn items_go_when_memory_does() {
        let (store, count) = filled(32 << 20, || false);
        assert!((LIMIT_STEP / 2..=LIMIT_STEP).contains(&store.used()), "{}", store.used());
        assert_eq!(store.losses.evictions as usize, count - store.len());
    }

    /// A buffer of 2 KiB to receive into, of which there may be too few, or one to keep.
    #[derive(Clone)]
    struct Lent {
        bytes: Rc<[u8]>,
        pinned: usize,
        is_scarce: bool,
    }

    impl AsRef<[u8]> for Lent {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    impl Buffer for Lent {
        fn pinned(&self) -> usize {
            self.pinned
        }

        fn is_scarce(&self) -> bool {
            self.is_scarce
        }
    }

    fn received(len: usize, is_scarce: bool) -> Slice<Lent> {
        Slice::new(Lent { bytes: vec![len as u8; len].into(), pinned: 2048, is_scarce })
    }

    fn keep(bytes: &[u8]) -> Option<Slice<Lent>> {
        let pinned = bytes.len().next_power_of_two();
        Some(Slice::new(Lent { bytes: bytes.into(), pinned, is_scarce: false }))
    }

    /// A store of values of those lengths as they are received, with where they lie, and which are to settle.
    fn stored(is_scarce: bool, lens: &[usize]) -> (Store<Lent>, Vec<Index>, Vec<Index>) {
        let mut store = Store::new(1 << 20, || true, 7);
        let (mut all, mut unsettled) = (Vec::new(), Vec::new());
        for len in lens {
            let name = len.to_string();
            let key = store.key(name.as_bytes());
            let input = received(*len, is_scarce);
            let value = Incoming::of(&input, 0..*len);
            all.push(store.put(&key, None, Facts::default(), value).expect("there is room"));
            unsettled.extend(store.take_unsettled());
        }
        (store, all, unsettled)
    }

    /// Bytes that each value pins outside the heap, once all is well.
    fn pinned(store: &Store<Lent>, all: &[Index]) -> Vec<Option<usize>> {
        assert_eq!(store.used(), store.items().map(Item::cost).sum());
        let pinned = |index: &Index| {
            let item = store.item(*index);
            let mut sent = Vec::new();
            item.send(&mut sent);
            assert_eq!(sent, vec![item.len() as u8; item.len()]);
            assert_eq!(item.key(), item.len().to_string().as_bytes());
            match &item.kept {
                Kept::Inline => None,
                Kept::Shared(slice) => Some(slice.pinned()),
                Kept::Unsettled(_) | Kept::Parts(_) => panic!("{} bytes have not settled", item.len()),
            }
        };
        all.iter().map(pinned).collect()
    }

    #[test]
    fn values_settle_in_buffers_of_their_size() {
        let lens = [100, 300, 500, 600, 800, 1024, 1025, 1400];
        let (mut store, all, unsettled) = stored(false, &lens);
        let before = store.used();
        let copied: usize = unsettled.iter().map(|index| store.settle(*index, keep)).sum();
        assert_eq!((copied, store.used()), (500 + 800 + 1024, before), "and it was reckoned so all the time");
        let expected = [None, None, Some(512), None, Some(1024), Some(1024), Some(2048), Some(2048)];
        assert_eq!(pinned(&store, &all), expected);
        for index in all {
            assert_eq!(store.settle(index, |_| unreachable!("all have settled")), 0);
        }
    }

    #[test]
    fn without_memory_to_settle_in_values_stay_or_go_to_the_heap() {
        let lens = [500, 1024, 1400];
        for (is_scarce, expected) in [(false, [None, Some(2048), Some(2048)]), (true, [None; 3])] {
            let (mut store, all, unsettled) = stored(is_scarce, &lens);
            assert_eq!(unsettled.len(), 2);
            for index in unsettled {
                store.settle(index, |_| None);
            }
            assert_eq!(pinned(&store, &all), expected);
        }
    }

    #[test]
    fn all_values_settle_once_somebody_wants_memory_back() {
        let mut store = Store::<Lent>::new(1 << 20, || true, 7);
        let put = |store: &mut Store<_>, name: &str, value| {
            let key = store.key(name.as_bytes());
            let index = store.put(&key, None, Facts::default(), value).expect("there is room");
            (index, store.take_unsettled())
        };
        let (before, none) = put(&mut store, "before", Incoming::Copy(&[1; 300]));
        assert_eq!(none, None);
        store.begin_settling();
        let (small, none) = put(&mut store, "small", Incoming::Copy(&[2; 100]));
        assert_eq!(none, None);
        let (whole, unsettled) = put(&mut store, "whole", Incoming::Copy(&[3; 300]));
        assert_eq!(unsettled, Some(whole));
        let parts = [[4; 200], [5; 200]].map(|bytes| Part::Copied(bytes.to_vec()));
        let (parts, _) = put(&mut store, "parts", Incoming::Parts(parts.into()));
        let (gone, _) = put(&mut store, "gone", Incoming::Copy(&[6; 300]));
        store.delete(gone);
        assert_eq!(store.settle(gone, |_| unreachable!("what is gone need not settle")), 0);
        for index in [small, whole, parts] {
            store.settle(index, keep);
        }
        let settled = |index| match &store.item(index).kept {
            Kept::Shared(slice) => Some(slice.to_vec()),
            _ => None,
        };
        assert_eq!([before, small].map(settled), [None, None]);
        assert_eq!(settled(whole), Some(vec![3; 300]));
        assert_eq!(settled(parts), Some([[4; 200], [5; 200]].concat()));
        assert_eq!(store.item(whole).key(), b"whole");
        assert_eq!(store.used(), store.items().map(Item::cost).sum());
    }
}
