//! How much memory pays, for a service that keeps things so as to be asked for them.
//!
//! More memory shows what it is good for only once it has filled, and less destroys what is kept: to try, as
//! [`crate::controller`] does with other knobs, is slow and dear. So the service measures its miss-ratio
//! curve, from which profit follows for every amount of memory ([`Demand`]), and a [`MemoryPolicy`] takes the
//! amount with the most.
//!
//! **What a miss is worth.** A miss sends no value: with more memory, look-ups that missed would have sent
//! [`Demand::hit_bytes`] each. And a miss is no useful operation: a contract that pays for operations is
//! reckoned with those that are no look-up and with the hits. Latency is taken to stay as it is, and so is
//! the number of look-ups.

use crate::decision::Proposal;
use crate::prices::{Prices, Usage};
use crate::response::Response;
use crate::units::{Dollars, DollarsPerSecond, GbitPerSecond, Gib, OperationsPerSecond, Seconds};
use crate::utility::Contract;
use nom_service::Demand;

/// What else profit depends on, at present.
#[derive(Clone, Copy, Debug)]
pub struct Present<'a> {
    /// What the server does.
    pub response: &'a Response,
    /// What it holds.
    pub held: &'a Usage,
    /// What that costs.
    pub prices: &'a Prices,
    /// What it is paid.
    pub utility: &'a dyn Contract,
}

/// A curve of fewer look-ups says nothing.
const SAMPLES_MIN: f64 = 200.0;
/// Errors of measurement of so many standard deviations are reckoned with, against every move.
const CAUTION: f64 = 3.0;
/// What a move gains must be more than this share of what the memory moved costs.
const RELUCTANCE: f64 = 0.1;
/// What is given back at a time, as a share of what is held: it destroys what nobody can bring back.
const SHRINK_SHARE: u64 = 4;
/// How often it is at most.
const SHRINK_NS: u64 = 1_000_000_000;
/// How many sizes are looked at for each doubling.
const SIZES_AN_OCTAVE: u32 = 4;
/// For how long an amount is of use, in seconds: loads and prices are taken to last so long.
const HORIZON: f64 = 10.0;
/// After so long what was destroyed shows, in seconds; what grows fills later, which trials that are paired
/// see as drift.
const SETTLING: f64 = 0.2;
/// The unit of the sizes that are chosen.
const MIB: u64 = 1 << 20;

/// Chooses how much memory a service takes.
///
/// It grows at once, and shrinks by at most a quarter a second; over a valley, where half-way would bring
/// less than either end, it shrinks at once.
#[derive(Clone, Debug)]
pub struct MemoryPolicy {
    floor_mib: u64,
    demand: Demand,
    shrunk_ns: Option<u64>,
}

impl MemoryPolicy {
    /// Never chooses less than so many MiB, or than the service needs, if it may have as many.
    #[must_use]
    pub fn new(floor_mib: u32) -> Self {
        Self { floor_mib: u64::from(floor_mib).max(1), demand: Demand::default(), shrunk_ns: None }
    }

    /// Takes note of what the service says.
    pub fn hear(&mut self, demand: &Demand) {
        self.demand.clone_from(demand);
    }

    /// The amount, in MiB, if it should be another one than at present. It then counts as set.
    pub fn choose(&mut self, now_ns: u64, present: &Present<'_>) -> Option<u32> {
        let (mib, _) = self.propose(now_ns, present)?;
        self.accept(now_ns, mib);
        Some(mib)
    }

    /// The amount, if it should be another one, and what that is worth.
    pub fn propose(&self, now_ns: u64, present: &Present<'_>) -> Option<(u32, Proposal)> {
        if self.demand.samples < SAMPLES_MIN {
            return None;
        }
        let limit = self.demand.limit_bytes;
        let target = self.target(present);
        let size = if target < limit { self.shrunk(now_ns, target, present)? } else { target };
        let mib = u32::try_from(size / MIB).ok().filter(|_| size != limit)?;
        let seconds = |value: f64| Seconds::new(value).unwrap_or_default();
        let proposal = Proposal {
            gain: DollarsPerSecond::new(self.gain(size, present)).unwrap_or_default(),
            // What is destroyed is in the curve: those are its misses.
            cost: Dollars::ZERO,
            horizon: seconds(HORIZON),
            settling: seconds(SETTLING),
        };
        Some((mib, proposal))
    }

    /// So many MiB are set.
    pub fn accept(&mut self, now_ns: u64, mib: u32) {
        let size = u64::from(mib) * MIB;
        if size < self.demand.limit_bytes {
            self.shrunk_ns = Some(now_ns);
        }
        self.demand.limit_bytes = size;
    }

    /// The most profitable size, in bytes; the present one, unless another is better by enough.
    fn target(&self, present: &Present<'_>) -> u64 {
        let limit = self.demand.limit_bytes;
        let better = |best: (u64, f64), size: u64| {
            let gain = self.gain(size, present);
            if gain > best.1 { (size, gain) } else { best }
        };
        let floor_mib = self.floor_mib.max(self.demand.least_bytes.div_ceil(MIB));
        sizes(floor_mib, self.demand.most_bytes / MIB).fold((limit, 0.0), better).0
    }

    /// The next size on the way down; nothing, if it has shrunk just now.
    fn shrunk(&self, now_ns: u64, target: u64, present: &Present<'_>) -> Option<u64> {
        // A clock that went back must not stop it.
        if self.shrunk_ns.is_some_and(|last| (last..last.saturating_add(SHRINK_NS)).contains(&now_ns)) {
            return None;
        }
        let limit_mib = self.demand.limit_bytes.div_ceil(MIB);
        let step = (limit_mib - (limit_mib / SHRINK_SHARE).max(1)) * MIB;
        Some(if target >= step || self.gain(step, present) <= 0.0 { target } else { step })
    }

    /// By how many dollars a second a size is better than the present one, less what makes it doubtful.
    fn gain(&self, size: u64, present: &Present<'_>) -> f64 {
        let Demand { curve, samples, limit_bytes, .. } = &self.demand;
        let (before, after) = (curve.at(*limit_bytes), curve.at(size));
        // Of the look-ups sampled, those that lie between the two sizes are counted: a binomial share.
        let between = (after - before).abs();
        let doubt = CAUTION * libm::sqrt((between + 1.0 / samples) / samples);
        let after = if size == *limit_bytes { after } else { after - doubt };
        let moved = gib(size.abs_diff(*limit_bytes));
        let reluctance = RELUCTANCE * present.prices.cost(&Usage { memory: moved, ..Usage::default() }).get();
        self.profit(size, after, present) - self.profit(*limit_bytes, before, present) - reluctance
    }

    /// Dollars a second with so many bytes, if that share of the look-ups finds something.
    fn profit(&self, size: u64, hit_ratio: f64, present: &Present<'_>) -> f64 {
        let Demand { curve, lookups, hit_bytes, limit_bytes, .. } = &self.demand;
        let Present { response, held, prices, utility } = present;
        // Of several look-ups that came as one request, one counts.
        let counted = lookups.min(response.throughput.get());
        let hits_more = lookups * (hit_ratio - curve.at(*limit_bytes));
        // Headers are few beside values: what is answered more is sent more.
        let more = |data: GbitPerSecond| {
            GbitPerSecond::new((data.get() + hits_more * hit_bytes * 8e-9).max(0.0)).unwrap_or_default()
        };
        let useful = response.throughput.get() - counted * (1.0 - hit_ratio);
        let memory = held.memory.get() + gib(size).get() - gib(*limit_bytes).get();
        let response = Response {
            throughput: OperationsPerSecond::new(useful.max(0.0)).unwrap_or_default(),
            answered: more(response.answered),
            sent: more(response.sent),
            ..**response
        };
        let held = Usage { memory: Gib::new(memory.max(0.0)).unwrap_or_default(), ..**held };
        utility.profit(&response, &held, prices).get()
    }
}

/// Sizes to choose from, in bytes, ascending: so many MiB, and from there in steps of a quarter octave.
fn sizes(floor_mib: u64, most_mib: u64) -> impl Iterator<Item = u64> {
    let floor = floor_mib.min(most_mib);
    let step = libm::exp2(1.0 / f64::from(SIZES_AN_OCTAVE));
    let next = move |size: &u64| {
        let next = (libm::round(*size as f64 * step) as u64).max(size + 1).min(most_mib);
        (next > *size).then_some(next)
    };
    core::iter::successors((floor > 0).then_some(floor), next).map(|mib| mib * MIB)
}

fn gib(bytes: u64) -> Gib {
    Gib::new(bytes as f64 / (1_u64 << 30) as f64).expect("an integer is finite and not negative")
}

#[cfg(test)]
mod tests;
