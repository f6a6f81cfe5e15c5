//! How much memory a server may take for its items, and what it would make of more or less.

use crate::curve::Tally;
use crate::server::Server;
use core::sync::atomic::Ordering::Relaxed;
use lock_api::RawMutex;
use nom_port::buffer::Buffer;
use nom_service::{Curve, Demand};

impl<B: Buffer, R: RawMutex> Server<B, R> {
    /// What it would make of more or less memory. The first time it only begins to measure.
    pub fn demand(&mut self) -> Option<Demand> {
        let (count, most) = (self.shards().count(), self.shared().options.memory);
        let mut tally = Tally::default();
        let mut is_measured = true;
        for mut shard in self.shards() {
            match shard.store.tally() {
                Some(measured) => tally.add(measured),
                None => {
                    shard.store.measure(count, most);
                    shard.store.begin_settling();
                    is_measured = false;
                }
            }
        }
        let curve = Curve::new(tally.curve()).ok().filter(|_| is_measured)?;
        Some(Demand {
            curve,
            samples: tally.samples(),
            lookups: tally.rate(),
            hit_bytes: tally.hit_bytes(),
            limit_bytes: self.limit() as u64,
            least_bytes: (count * self.shared().options.item_max) as u64,
            most_bytes: most as u64,
        })
    }

    /// Bytes that items may cost.
    pub fn limit(&self) -> usize {
        self.shared().limit.load(Relaxed)
    }

    /// Has items cost up to so many bytes from now on; nothing: as many as it was told at its start. Items
    /// that are too many go as every core [tends](Server::tend) them.
    pub fn set_limit(&mut self, bytes: Option<usize>) {
        let limit = bytes.unwrap_or(self.shared().options.memory);
        if self.shared().limit.swap(limit, Relaxed) == limit {
            return;
        }
        let count = self.shards().count();
        self.shards().for_each(|mut shard| {
            shard.store.set_limit(limit / count);
            shard.store.begin_settling();
        });
        self.shared().limits_set.fetch_add(1, Relaxed);
    }
}
