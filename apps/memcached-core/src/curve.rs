//! What the store would hit with any amount of memory: a miss-ratio curve by sampled reuse distances.
//!
//! SHARDS (Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015), in its variant of fixed
//! size with adjustment: keys whose hash is below a threshold are a sample of all, and the threshold falls
//! whenever they become too many. A look-up of a sampled key counts at its reuse distance, the bytes of all
//! keys used since it was used last: that many bytes would have held it. Sampled keys are remembered after
//! they were evicted, since that is where more memory would tell.
//!
//! Counts fade, so that the curve follows the load. A key that is found, though it was not in the sample, was
//! used before that began: it counts where the store ends now, which it needs at the most.

use alloc::vec::Vec;
use hashbrown::HashTable;

/// Keys in the sample of a server; its shards divide them.
pub(crate) const KEYS: usize = 1024;
/// Sampled keys of a shard, at least.
const KEYS_MIN: usize = 64;
/// What remains of a count after a second: half of it after ten.
const FADE: f64 = 0.933_032_991_536_807_4;
/// After so many seconds without a look at the clock nothing of what was counted is worth anything.
const FADED: u32 = 200;

/// Steps of the histogram: up to 64 KiB, and from there four for each doubling.
const STEPS: usize = 64;
const FIRST_SHIFT: u32 = 16;

/// The step in which so many bytes lie; none if they are beyond the last.
fn step(bytes: u64) -> Option<usize> {
    let shift = bytes.max(1).ilog2();
    let Some(octave) = shift.checked_sub(FIRST_SHIFT) else { return Some(0) };
    let quarter = bytes >> (shift - 2) & 3;
    let step = 1 + 4 * octave as usize + quarter as usize;
    (step < STEPS).then_some(step)
}

/// Where a step ends, in bytes.
fn end(step: usize) -> u64 {
    let Some(step) = step.checked_sub(1) else { return 1 << FIRST_SHIFT };
    (5 + step as u64 % 4) << (FIRST_SHIFT - 2 + step as u32 / 4)
}

/// What was counted, all of it fading.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Look-ups, by the bytes that would have held what they ask for.
    steps: [f64; STEPS],
    /// Look-ups for which no memory would do.
    never: f64,
    /// All look-ups, in sample or not, and the seconds in which they came.
    lookups: f64,
    seconds: f64,
    /// Look-ups of sampled keys.
    samples: f64,
    /// Of these, those that found something, and the bytes of that.
    hits: f64,
    value_bytes: f64,
}

impl Default for Tally {
    fn default() -> Tally {
        let steps = [0.0; STEPS];
        Tally { steps, never: 0.0, lookups: 0.0, seconds: 0.0, samples: 0.0, hits: 0.0, value_bytes: 0.0 }
    }
}

impl Tally {
    /// Adds what another shard counted in the same time.
    pub fn add(&mut self, other: &Tally) {
        self.steps.iter_mut().zip(&other.steps).for_each(|(sum, step)| *sum += step);
        self.never += other.never;
        self.lookups += other.lookups;
        self.seconds = self.seconds.max(other.seconds);
        self.samples += other.samples;
        self.hits += other.hits;
        self.value_bytes += other.value_bytes;
    }

    fn fade(&mut self, factor: f64) {
        self.steps.iter_mut().for_each(|step| *step *= factor);
        let Tally { steps: _, never, lookups, seconds, samples, hits, value_bytes } = self;
        for sum in [never, lookups, seconds, samples, hits, value_bytes] {
            *sum *= factor;
        }
    }

    /// Look-ups that it is made of.
    pub fn samples(&self) -> f64 {
        self.samples
    }

    /// Look-ups in a second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.lookups / self.seconds } else { 0.0 }
    }

    /// Bytes of a value that was found; a mean.
    pub fn hit_bytes(&self) -> f64 {
        if self.hits > 0.0 { self.value_bytes / self.hits } else { 0.0 }
    }

    /// The share of look-ups that find something, by bytes of memory, ascending.
    ///
    /// A key that is asked for very often weighs too much if it is in the sample, and is missing if it is
    /// not. Such keys are hit with little memory, so whatever is missing of all look-ups, or too much, counts
    /// there (section 3.2 of the paper).
    pub fn curve(&self) -> Vec<(u64, f64)> {
        let counted = self.steps.iter().sum::<f64>() + self.never;
        if self.lookups <= 0.0 || counted <= 0.0 {
            return Vec::new();
        }
        let (mut sum, mut highest) = (self.lookups - counted, 0.0_f64);
        let ratio = |(index, step): (usize, &f64)| {
            sum += step;
            highest = highest.max((sum / self.lookups).min(1.0));
            (end(index), highest)
        };
        self.steps.iter().enumerate().map(ratio).collect()
    }
}

/// A sampled key that was used.
#[derive(Clone, Copy, Debug)]
struct Use {
    hash: u64,
    /// Bytes that its item costs; 0 if this is not the last use of the key.
    cost: u64,
    /// Second at which it is gone; 0 for never.
    expires: u32,
}

/// Measures one shard.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Keys with smaller hashes are sampled.
    threshold: u64,
    keys_max: usize,
    /// Beyond so many bytes no distance is of interest.
    most_bytes: u64,
    /// How many shards there are: distances are all of theirs together.
    shards: f64,
    /// Uses in the order of time, and for each key its last.
    uses: Vec<Use>,
    last: HashTable<u32>,
    /// Sums of the costs of uses, as a binary indexed tree (Fenwick 1994), so that a distance is had in as
    /// many steps as the number of uses has bits.
    sums: Vec<u64>,
    total: u64,
    pub tally: Tally,
}

impl Sampler {
    /// For one of so many shards, which holds `len` items at present.
    pub fn new(shards: usize, len: usize, most_bytes: u64) -> Sampler {
        let keys_max = (KEYS / shards).max(KEYS_MIN);
        let capacity = 4 * keys_max;
        Sampler {
            // Half of the keys to begin with, so that the first do not go again at once.
            threshold: u64::MAX / (2 * len as u64 / keys_max as u64).max(1),
            keys_max,
            most_bytes,
            shards: shards as f64,
            uses: Vec::with_capacity(capacity),
            last: HashTable::with_capacity(keys_max + 1),
            sums: alloc::vec![0; capacity + 1],
            total: 0,
            tally: Tally::default(),
        }
    }

    /// Hashes below it are the sample's.
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// What one of the sample stands for.
    fn weight(&self) -> f64 {
        u64::MAX as f64 / self.threshold as f64
    }

    /// A sampled key was looked up: what was found, if anything, as the bytes of its value, what its item
    /// costs and the second at which it expires. The shard holds `used` bytes at present.
    pub fn looked_up(&mut self, hash: u64, found: Option<(usize, usize, u32)>, used: usize, now: u32) {
        let known = self.take(hash).filter(|(last, _)| last.expires == 0 || last.expires > now);
        let weight = self.weight();
        let distance = known.map(|(last, newer)| (newer + last.cost) as f64 * weight);
        let distance = distance.or_else(|| found.map(|_| used as f64));
        match distance.and_then(|bytes| step((bytes * self.shards) as u64)) {
            Some(step) => self.tally.steps[step] += weight,
            None => self.tally.never += weight,
        }
        self.tally.samples += 1.0;
        if let Some((bytes, _, _)) = found {
            self.tally.hits += 1.0;
            self.tally.value_bytes += bytes as f64;
        }
        let last = known.map(|(last, _)| (last.cost as usize, last.expires));
        if let Some((cost, expires)) = found.map(|(_, cost, expires)| (cost, expires)).or(last) {
            self.used(hash, cost, expires);
        }
    }

    /// A sampled key was stored, or changed, and is the one used last.
    pub fn used(&mut self, hash: u64, cost: usize, expires: u32) {
        self.take(hash);
        if self.uses.len() + 1 == self.sums.len() {
            self.close_ranks(|_| true);
        }
        self.push(Use { hash, cost: cost as u64, expires });
        while self.last.len() > self.keys_max {
            self.lower();
        }
    }

    /// A sampled key is gone, and no memory would have kept it.
    pub fn forget(&mut self, hash: u64) {
        self.take(hash);
    }

    /// All keys are gone.
    pub fn forget_all(&mut self) {
        self.close_ranks(|_| false);
    }

    /// Seconds have passed in which so many look-ups came; the shard holds `len` items.
    pub fn tick(&mut self, seconds: u32, lookups: u64, len: usize) {
        self.tally.lookups += lookups as f64;
        self.tally.seconds += f64::from(seconds);
        let factor = (0..seconds.min(FADED)).fold(1.0, |factor, _| factor * FADE);
        self.tally.fade(factor);
        self.age();
        // Keys have become fewer: with more of them in the sample it tells more. What was used between two
        // uses is known only of the old ones, so that all begin anew.
        let few = self.keys_max / 4;
        if self.threshold < u64::MAX && self.last.len() < few && (len as f64) < few as f64 * self.weight() {
            *self = Sampler {
                tally: core::mem::take(&mut self.tally),
                ..Sampler::new(self.shards as usize, len, self.most_bytes)
            };
        }
    }

    /// Leaves out those keys that even the largest store would have evicted.
    fn age(&mut self) {
        let most = (self.most_bytes as f64 / self.shards / self.weight()) as u64;
        let mut older = self.total;
        self.close_ranks(|it| {
            let is_near = older <= most;
            older -= it.cost;
            is_near
        });
    }

    /// Takes a key's last use out, with the bytes that were used since.
    fn take(&mut self, hash: u64) -> Option<(Use, u64)> {
        let entry = self.last.find_entry(hash, |&at| self.uses[at as usize].hash == hash).ok()?;
        let at = entry.remove().0 as usize;
        let last = self.uses[at];
        let newer = self.total - self.sum(at + 1);
        self.uses[at].cost = 0;
        self.total -= last.cost;
        self.change(at, last.cost.wrapping_neg());
        Some((last, newer))
    }

    /// Adds the use of a key that has none.
    fn push(&mut self, it: Use) {
        let at = self.uses.len();
        self.uses.push(it);
        self.total += it.cost;
        self.change(at, it.cost);
        let uses = &self.uses;
        self.last.insert_unique(it.hash, at as u32, |&at| uses[at as usize].hash);
    }

    /// Bytes of the first `count` uses.
    fn sum(&self, count: usize) -> u64 {
        let next = |&at: &usize| Some(at & (at - 1)).filter(|at| *at > 0);
        let places = core::iter::successors(Some(count).filter(|at| *at > 0), next);
        places.fold(0, |sum, at| sum.wrapping_add(self.sums[at]))
    }

    fn change(&mut self, index: usize, by: u64) {
        let mut at = index + 1;
        while let Some(sum) = self.sums.get_mut(at) {
            *sum = sum.wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }

    /// Leaves out what is not a key's last use, or not to `stay`; asked from the oldest to the newest.
    fn close_ranks(&mut self, mut stay: impl FnMut(&Use) -> bool) {
        let mut uses = core::mem::take(&mut self.uses);
        self.last.clear();
        self.sums.fill(0);
        self.total = 0;
        // In place: whatever stays comes no later than where it was.
        let mut kept = 0;
        for at in 0..uses.len() {
            if uses[at].cost > 0 && stay(&uses[at]) {
                uses[kept] = uses[at];
                kept += 1;
            }
        }
        uses.truncate(kept);
        for (at, it) in uses.iter().enumerate() {
            self.total += it.cost;
            self.change(at, it.cost);
            self.last.insert_unique(it.hash, at as u32, |&at| uses[at as usize].hash);
        }
        self.uses = uses;
    }

    /// Makes the sample smaller: by an eighth of all keys, and so by about as many of its own.
    #[cold]
    fn lower(&mut self) {
        self.threshold -= self.threshold / 8;
        let threshold = self.threshold;
        self.close_ranks(|it| it.hash < threshold);
    }
}

#[cfg(test)]
mod tests;
