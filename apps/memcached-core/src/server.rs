//! memcached as one core sees it.
//!
//! All cores share the items, which are divided by the hashes of their keys into shards, each behind a lock
//! of its own: a command holds one lock, for as long as it takes to look a key up and to write the answer.
//! One core has one shard, and no hash to compute for it.

use crate::connection::Connection;
use crate::options::Options;
use crate::roll::Roll;
use crate::shard::{self, Shard};
use crate::stats::{Counts, Stats};
use crate::store::Room;
use crate::tend::{Tending, Unsettled};
use crate::watch::Watch;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{BuildHasher, Hasher};
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use lock_api::{Mutex, MutexGuard, RawMutex};
use nom_port::buffer::{Buffer, Sink};

/// What a client is told that is one too many.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// Shards for each core, so that two cores seldom want the same.
const SHARDS_PER_CORE: usize = 4;
/// A shard has room for at least so many of the largest items.
const LARGEST_ITEMS: usize = 4;

/// memcached as one core sees it; `R` is the kind of lock that the world has.
pub struct Server<B, R> {
    shared: Arc<Shared<B, R>>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) tending: Tending,
    pub(crate) unsettled: Unsettled<R>,
    /// The number of the client whose command is carried out; 0 for datagrams.
    pub(crate) client: u32,
}

/// What all cores share.
pub(crate) struct Shared<B, R> {
    pub options: Options,
    shards: Box<[Place<B, R>]>,
    chooser: SeedableRandomState,
    connections: AtomicU32,
    pub verbosity: AtomicU32,
    /// Bytes that items may cost, and how often that was set.
    pub limit: AtomicUsize,
    pub limits_set: AtomicU32,
    /// Bytes that the program may yet take, as it was last told; all ones if it was not.
    pub free: AtomicU64,
    pub ledger: Mutex<R, Ledger>,
    pub roll: Mutex<R, Roll>,
    pub watch: Watch<R>,
}

/// What the cores counted by themselves.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    cores: Vec<Arc<Counts>>,
    /// What of it was counted before `stats reset`.
    pub forgotten: Stats,
}

/// A shard that shares no cache line with another.
#[repr(align(64))]
struct Place<B, R>(Mutex<R, Shard<B>>);

impl<B: Buffer, R: RawMutex> Server<B, R> {
    /// A server without items, for as many cores as `-t` says. `unix` is the time in seconds since 1970;
    /// `seed` must be unknown to clients. Seeds of hashes stay in memory for ever.
    pub fn new(options: Options, unix: u64, seed: u64) -> Server<B, R> {
        Server::within(options, || true, unix, seed)
    }

    /// The same, where items go, the least recently used first, rather than that more memory is taken when
    /// there is no more `room`.
    pub fn within(options: Options, room: Room, unix: u64, seed: u64) -> Server<B, R> {
        let count = shards(&options);
        let (memory, item_max) = (options.memory / count, options.item_max);
        let shard = |number| Shard::new(number, (memory, room), item_max, unix, seed);
        let seeds = Box::leak(Box::new(SharedSeed::from_u64(!seed)));
        let shared = Shared {
            verbosity: AtomicU32::new(options.verbosity),
            limit: AtomicUsize::new(options.memory),
            limits_set: AtomicU32::new(0),
            free: AtomicU64::new(u64::MAX),
            options,
            shards: (0..count as u32).map(|number| Place(Mutex::new(shard(number)))).collect(),
            chooser: SeedableRandomState::with_seed(seed.rotate_left(16), seeds),
            connections: AtomicU32::new(0),
            ledger: Mutex::default(),
            roll: Mutex::default(),
            watch: Watch::default(),
        };
        Server::on(Arc::new(shared))
    }

    /// The same server as another core sees it.
    pub fn for_another_core(&self) -> Server<B, R> {
        Server::on(self.shared.clone())
    }

    fn on(shared: Arc<Shared<B, R>>) -> Server<B, R> {
        let counts = Arc::<Counts>::default();
        shared.ledger.lock().cores.push(counts.clone());
        Server { shared, counts, tending: Tending::default(), unsettled: Unsettled::default(), client: 0 }
    }

    /// Tells the time, in seconds since 1970.
    pub fn set_time(&mut self, unix: u64) {
        self.shards().for_each(|mut shard| shard.set_time(unix));
    }

    /// Tells how many bytes of memory the program may yet take: `stats` tells it on, as `nom_free_bytes`.
    pub fn set_free(&mut self, bytes: u64) {
        self.shared.free.store(bytes, Relaxed);
    }

    /// A client at `peer` wants to connect, and is told if it is one too many (`-c`). If not,
    /// [`disconnected`](Server::disconnected) follows.
    pub fn connected(&mut self, peer: SocketAddr, sink: &mut impl Sink<B>) -> Option<Connection<B>> {
        let (connections, most) = (&self.shared.connections, self.shared.options.connections);
        let one_more = |count| (count < most).then_some(count + 1);
        let admitted = connections.try_update(Relaxed, Relaxed, one_more).is_ok();
        if !admitted {
            self.refused();
            sink.copy(TOO_MANY);
            return None;
        }
        self.counts.total_connections.add(1);
        Some(Connection::of(self.shared.roll.lock().enter(peer)))
    }

    /// A client could not connect: there was no place for it.
    pub fn refused(&mut self) {
        self.counts.rejected_connections.add(1);
    }

    /// A connection ended.
    pub fn disconnected(&mut self, connection: &Connection<B>) {
        self.shared.connections.fetch_sub(1, Relaxed);
        self.shared.roll.lock().leave(connection.number());
        self.shared.watch.end(connection.number());
    }

    /// Bytes are sent to clients: what the stack was given.
    pub fn sent(&mut self, bytes: usize) {
        self.counts.bytes_written.add(bytes as u64);
    }

    /// Items held.
    pub fn items(&self) -> usize {
        self.shards().map(|shard| shard.store.len()).sum()
    }

    /// Bytes of memory that the items cost.
    pub fn memory_used(&self) -> usize {
        self.shards().map(|shard| shard.store.used()).sum()
    }

    /// What was counted on all cores.
    pub fn stats(&self) -> Stats {
        let mut stats = self.counted();
        stats.subtract(&self.shared().ledger.lock().forgotten);
        self.shards().for_each(|shard| stats.add(&shard.stats));
        stats
    }

    /// What the cores counted by themselves.
    pub(crate) fn counted(&self) -> Stats {
        let mut stats = Stats::default();
        self.shared.ledger.lock().cores.iter().for_each(|counts| counts.add_to(&mut stats));
        stats
    }

    pub(crate) fn shared(&self) -> &Shared<B, R> {
        &self.shared
    }

    pub(crate) fn connections(&self) -> u32 {
        self.shared.connections.load(Relaxed)
    }

    /// The shard of a key.
    #[inline]
    pub(crate) fn shard(&self, key: &[u8]) -> MutexGuard<'_, R, Shard<B>> {
        let shards = &self.shared.shards;
        let index = match shards.len() - 1 {
            0 => 0,
            mask => {
                let mut hasher = self.shared.chooser.build_hasher();
                hasher.write(key);
                hasher.finish() as usize & mask
            }
        };
        shards[index].0.lock()
    }

    /// The shard of that number.
    pub(crate) fn shard_at(&self, number: u32) -> MutexGuard<'_, R, Shard<B>> {
        self.shared.shards[number as usize].0.lock()
    }

    /// All shards, one after the other.
    pub(crate) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, R, Shard<B>>> {
        self.shared.shards.iter().map(|place| place.0.lock())
    }

    /// Whether `-I` allows an item.
    pub(crate) fn fits(&self, key: &[u8], flags: u32, len: usize) -> bool {
        shard::fits(self.shared.options.item_max, key, flags, len)
    }

    /// Makes all present items go after `delay`, an expiry time; at once if it is 0 or past.
    pub(crate) fn flush(&mut self, delay: i64) {
        self.counts.cmd_flush.add(1);
        self.shards().for_each(|mut shard| shard.flush(delay));
    }
}

/// How many shards there are: a power of two.
fn shards(options: &Options) -> usize {
    if options.threads <= 1 {
        return 1;
    }
    let wanted = (options.threads as usize).saturating_mul(SHARDS_PER_CORE).next_power_of_two();
    let possible = (options.memory / LARGEST_ITEMS / options.item_max.max(1)).max(1);
    wanted.min(1 << possible.ilog2())
}

impl<B, R> fmt::Debug for Server<B, R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Server({} shards)", self.shared.shards.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(line: &str) -> usize {
        shards(&Options::parse(line.split_whitespace()).expect("valid"))
    }

    #[test]
    fn every_shard_has_room_for_the_largest_items() {
        assert_eq!(count("-t 1"), 1);
        assert_eq!((count("-t 2"), count("-t 3"), count("-t 4")), (8, 16, 16));
        assert_eq!(count("-t 4 -m 8"), 2);
        assert_eq!(count("-t 4 -m 2"), 1);
        assert_eq!(count("-t 4 -m 4 -I 1k"), 16);
        assert_eq!(count("-t 4294967295 -m 1048576 -I 1k"), 1 << 28);
    }
}
