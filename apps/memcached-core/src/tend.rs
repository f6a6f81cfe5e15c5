//! What is done about memory, a little after each event, so that no request waits long.
//!
//! As soon as somebody wants memory back, values that were copied into the heap, of which nothing can be
//! given back, settle in buffers, of which all can. After the limit has changed, items that are too many go,
//! the memory of their values goes back to the world, and values that lie where little else does are moved,
//! so that more of it can.

use crate::server::Server;
use crate::slab::Index;
use core::sync::atomic::Ordering::Relaxed;
use lock_api::RawMutex;
use nom_port::buffer::Buffer;
use nom_port::nic::Nic;

/// What is done at a time takes as long as some tens of requests: so many items go, or of so many bytes.
const SHED_ITEMS: usize = 64;
const SHED_BYTES: usize = 256 << 10;
/// So many slots are looked at for values to move, or as many as have so many bytes to copy.
const LOOKED_AT: u32 = 256;
const MOVED_BYTES: usize = 32 << 10;
/// Of each shard so many values settle at a time: as many as come with some frames.
const SETTLED_ITEMS: usize = 32;
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
}

impl<B: Buffer, R: RawMutex> Server<B, R> {
    /// Does a little of what is to be done about memory, if anything is. `nic` is the running core's. Returns
    /// when to call again.
    #[inline]
    pub fn tend<N: Nic<Buffer = B>>(&mut self, now_ns: u64, nic: &mut N) -> Option<u64> {
        if self.shared().settles.load(Relaxed) {
            self.shards().for_each(|mut shard| shard.store.settle(SETTLED_ITEMS, |bytes| nic.keep(bytes)));
        }
        let limits_set = self.shared().limits_set.load(Relaxed);
        if self.tending.limits_set != limits_set {
            self.tending = Tending { limits_set, stage: Stage::Shed(0), next_ns: now_ns, rounds: 0 };
        }
        if self.tending.stage == Stage::Nothing {
            return None;
        }
        if now_ns >= self.tending.next_ns {
            self.tending.next_ns = now_ns + PAUSE_NS;
            self.go_on(now_ns, nic);
        }
        (self.tending.stage != Stage::Nothing).then_some(self.tending.next_ns)
    }

    #[cold]
    fn go_on<N: Nic<Buffer = B>>(&mut self, now_ns: u64, nic: &mut N) {
        self.tending.stage = match self.tending.stage {
            Stage::Nothing => Stage::Nothing,
            Stage::Shed(first) => self.shed(first),
            Stage::Trim => self.trim(now_ns, nic),
            Stage::Compact(shard, slot) => self.compact(shard, slot, nic),
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

    fn trim<N: Nic<Buffer = B>>(&mut self, now_ns: u64, nic: &mut N) -> Stage {
        let trimmed = nic.trim(KEPT_BYTES);
        if trimmed.left_bytes > 0 {
            return Stage::Trim;
        }
        let tending = &mut self.tending;
        if trimmed.sparse_bytes == 0 || tending.rounds == ROUNDS {
            return Stage::Nothing;
        }
        // At once after the limit was set, and then round by round.
        tending.rounds += 1;
        if tending.rounds > 1 {
            tending.next_ns = now_ns + ROUND_NS;
        }
        Stage::Compact(0, 0)
    }

    fn compact<N: Nic<Buffer = B>>(&self, first: usize, from: Index, nic: &mut N) -> Stage {
        let Some(mut shard) = self.shards().nth(first) else { return Stage::Trim };
        let (next, _) = shard.store.compact(from, LOOKED_AT, MOVED_BYTES, |bytes| nic.buffer(bytes));
        match next {
            Some(slot) => Stage::Compact(first, slot),
            None => Stage::Compact(first + 1, 0),
        }
    }
}
