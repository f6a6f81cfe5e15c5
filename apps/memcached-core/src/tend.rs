//! What is done about memory, a little after each event, so that no request waits long.
//!
//! Values that were stored settle where [they are to lie](crate::value), each by the core that stored it, in
//! its buffers. As soon as somebody wants memory back, all values of the heap do, of which nothing can be
//! given back, while of buffers all can. After the limit has changed, items that are too many go, the memory
//! of their values goes back to the world, and values that lie where little else does are moved, so that more
//! of it can.

use crate::server::Server;
use crate::shard::{Outcome, Shard, Update};
use crate::slab::Index;
use crate::value::{Incoming, is_to_settle};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use lock_api::{Mutex, RawMutex};
use nom_port::buffer::Buffer;
use nom_port::buffer::Buffers;

/// What is done at a time takes as long as some tens of requests: so many items go, or of so many bytes.
const SHED_ITEMS: usize = 64;
const SHED_BYTES: usize = 256 << 10;
/// Where memory is short nobody can wait for it: the same, at once.
const SHRUNK_ITEMS: usize = 512;
const SHRUNK_BYTES: usize = 1 << 20;
/// So many slots are looked at for values to move, or as many as have so many bytes to copy.
const LOOKED_AT: u32 = 256;
const MOVED_BYTES: usize = 32 << 10;
/// So many bytes of values settle at a time, or one value.
const SETTLED_BYTES: usize = 64 << 10;
/// So many values of a core may wait to settle, about as many as buffers wait for frames: further ones are
/// copied into the heap as they come.
const UNSETTLED_MAX: usize = 256;
/// Time for requests before it goes on.
const PAUSE_NS: u64 = 500_000;

/// Memory for buffers that stays though nobody uses it: twice what waits to be received into.
const KEPT_BYTES: usize = 1 << 20;
/// Buffers that wait for frames lie anywhere, and move only as frames come. So what could not be given back
/// is tried again after a while, so many times.
const ROUNDS: u32 = 10;
const ROUND_NS: u64 = 1_000_000_000;

/// What is to be done next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Nothing,
    /// Items are too many in this shard, and maybe in those after it.
    Shed(usize),
    /// Memory is free.
    Trim,
    /// Values are to be moved from this shard and slot on.
    Compact(usize, Index),
}

/// How far a core has come.
#[derive(Debug, Default)]
pub(crate) struct Tending {
    /// How often the limit had been set when it began.
    limits_set: u32,
    stage: Stage,
    /// When it goes on.
    next_ns: u64,
    rounds: u32,
    /// Somebody waits for memory: no time is left for requests, who wait for it, too.
    is_urgent: bool,
}

/// Values that a core stored and that are yet to settle: their shards, and where they are there. Behind a
/// lock that nobody else wants, since it is written while a shard is borrowed.
pub(crate) type Unsettled<R> = Mutex<R, Vec<(u32, Index)>>;

impl<B: Buffer, R: RawMutex> Server<B, R> {
    /// Stores a value in the shard of its key, and remembers it if it is yet to settle.
    pub(crate) fn update(
        &self,
        shard: &mut Shard<B>,
        update: &Update<'_>,
        value: Incoming<'_, B>,
    ) -> Outcome {
        self.tell_sought(shard, update.key);
        let len = value.len();
        let mut unsettled = self.unsettled.lock();
        let has_room = unsettled.len() < UNSETTLED_MAX && unsettled.try_reserve(1).is_ok();
        let outcome = match &value {
            Incoming::Share(slice) if !has_room && is_to_settle(slice.len(), slice.pinned()) => {
                shard.update(update, Incoming::Copy(slice))
            }
            _ => shard.update(update, value),
        };
        if let Some(index) = shard.store.take_unsettled().filter(|_| has_room) {
            unsettled.push((shard.number, index));
        }
        self.tell_stored(shard, update, len, outcome);
        outcome
    }

    /// Has values settle that this core stored.
    fn settle<M: Buffers<Buffer = B>>(&mut self, memory: &mut M) {
        let mut copied = 0;
        while copied < SETTLED_BYTES
            && let Some((shard, index)) = self.unsettled.get_mut().pop()
        {
            copied += self.shard_at(shard).store.settle(index, |bytes| memory.keep(bytes));
        }
    }

    /// Lets go of items of about so many bytes that were used least of late, of a few at a time, and has what
    /// they leave go back to the world as every core [tends](Server::tend) it. Returns the bytes that went.
    pub fn shrink(&mut self, bytes: u64) -> u64 {
        let bytes = usize::try_from(bytes).map_or(SHRUNK_BYTES, |bytes| bytes.min(SHRUNK_BYTES));
        let count = self.shards().count();
        let mut gone = 0;
        for mut shard in self.shards() {
            shard.store.begin_settling();
            gone += shard.store.shrink(SHRUNK_ITEMS, bytes.div_ceil(count));
        }
        if gone > 0 {
            let tending = &mut self.tending;
            (tending.rounds, tending.next_ns, tending.is_urgent) = (0, 0, true);
            if tending.stage == Stage::Nothing {
                tending.stage = Stage::Trim;
            }
        }
        gone as u64
    }

    /// Does a little of what is to be done about memory, if anything is. `memory` is the running core's.
    /// Returns when to call again.
    #[inline]
    pub fn tend<M: Buffers<Buffer = B>>(&mut self, now_ns: u64, memory: &mut M) -> Option<u64> {
        if !self.unsettled.get_mut().is_empty() {
            self.settle(memory);
        }
        let settles_ns = if self.unsettled.get_mut().is_empty() { None } else { Some(now_ns) };
        let limits_set = self.shared().limits_set.load(Relaxed);
        if self.tending.limits_set != limits_set {
            let stage = Stage::Shed(0);
            self.tending = Tending { limits_set, stage, next_ns: now_ns, ..Tending::default() };
        }
        if self.tending.stage == Stage::Nothing {
            return settles_ns;
        }
        if now_ns >= self.tending.next_ns {
            self.tending.next_ns = if self.tending.is_urgent { now_ns } else { now_ns + PAUSE_NS };
            self.go_on(now_ns, memory);
        }
        settles_ns.or((self.tending.stage != Stage::Nothing).then_some(self.tending.next_ns))
    }

    #[cold]
    fn go_on<M: Buffers<Buffer = B>>(&mut self, now_ns: u64, memory: &mut M) {
        self.tending.stage = match self.tending.stage {
            Stage::Nothing => Stage::Nothing,
            Stage::Shed(first) => self.shed(first),
            Stage::Trim => self.trim(now_ns, memory),
            Stage::Compact(shard, slot) => self.compact(shard, slot, memory),
        };
    }

    fn shed(&self, first: usize) -> Stage {
        let mut left = SHED_ITEMS;
        for (index, mut shard) in self.shards().enumerate().skip(first) {
            left -= shard.store.shed(left, SHED_BYTES);
            if shard.store.used() > shard.store.allowed() {
                return Stage::Shed(index);
            }
        }
        Stage::Trim
    }

    fn trim<M: Buffers<Buffer = B>>(&mut self, now_ns: u64, memory: &mut M) -> Stage {
        let trimmed = memory.trim(KEPT_BYTES);
        if trimmed.left_bytes > 0 {
            return Stage::Trim;
        }
        let tending = &mut self.tending;
        if trimmed.sparse_bytes == 0 || tending.rounds == ROUNDS {
            tending.is_urgent = false;
            return Stage::Nothing;
        }
        // At once after the limit was set, and then round by round.
        tending.rounds += 1;
        if tending.rounds > 1 {
            tending.is_urgent = false;
            tending.next_ns = now_ns + ROUND_NS;
        }
        Stage::Compact(0, 0)
    }

    fn compact<M: Buffers<Buffer = B>>(&self, first: usize, from: Index, memory: &mut M) -> Stage {
        let Some(mut shard) = self.shards().nth(first) else { return Stage::Trim };
        let (next, _) = shard.store.compact(from, LOOKED_AT, MOVED_BYTES, |bytes| memory.buffer(bytes));
        match next {
            Some(slot) => Stage::Compact(first, slot),
            None => Stage::Compact(first + 1, 0),
        }
    }
}
