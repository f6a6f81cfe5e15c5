//! Against stores of every size, and an exact LRU.

use super::*;
use crate::store::{Facts, Store};
use crate::value::Incoming;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

type Kept = Store<Rc<[u8]>>;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Which of so many keys is asked for: by Zipf's law with this exponent, 0 for all alike.
struct Popularity(Vec<f64>);

impl Popularity {
    fn new(keys: usize, exponent: f64) -> Popularity {
        let mut sum = 0.0;
        let mut add = |rank: usize| {
            sum += (rank as f64).powf(-exponent);
            sum
        };
        Popularity((1..=keys).map(&mut add).collect())
    }

    fn pick(&self, random: &mut Random) -> usize {
        let at = random.unit() * self.0[self.0.len() - 1];
        self.0.partition_point(|sum| *sum < at)
    }
}

/// Bytes of a key's value: 20 to 3000, by the key.
fn length(key: usize) -> usize {
    20 + key.wrapping_mul(2_654_435_761) % 2980
}

/// Asks for a key, and stores it if it is not there. Returns whether it was.
fn ask(store: &mut Kept, number: usize) -> bool {
    let name = number.to_string();
    let key = store.key(name.as_bytes());
    let found = store.find(&key);
    store.looked_up(&key, found);
    match found {
        Some(index) => _ = store.touch(index),
        None => {
            let value = vec![0; length(number)];
            store.put(&key, None, Facts::default(), Incoming::Copy(&value)).expect("it fits");
        }
    }
    found.is_some()
}

/// An LRU of a number of bytes, by the book.
struct Exact {
    limit: usize,
    used: usize,
    clock: u64,
    keys: HashMap<usize, u64>,
    order: BTreeMap<u64, usize>,
}

impl Exact {
    fn new(limit: usize) -> Exact {
        Exact { limit, used: 0, clock: 0, keys: HashMap::new(), order: BTreeMap::new() }
    }

    fn ask(&mut self, key: usize, cost: impl Fn(usize) -> usize) -> bool {
        self.clock += 1;
        let before = self.keys.insert(key, self.clock);
        match before {
            Some(at) => drop(self.order.remove(&at)),
            None => self.used += cost(key),
        }
        self.order.insert(self.clock, key);
        while self.used > self.limit {
            let (_, oldest) = self.order.pop_first().expect("it is not empty");
            self.keys.remove(&oldest);
            self.used -= cost(oldest);
        }
        before.is_some()
    }
}

const MIB: usize = 1 << 20;
/// Look-ups in a second of the store.
const RATE: u64 = 5000;

fn lookup(curve: &[(u64, f64)], bytes: usize) -> f64 {
    let after = curve.partition_point(|point| point.0 <= bytes as u64);
    let (x0, y0) = after.checked_sub(1).map_or((0, 0.0), |before| curve[before]);
    let (x1, y1) = curve[after];
    y0 + (y1 - y0) * (bytes as f64 - x0 as f64) / (x1 - x0) as f64
}

/// Runs `seconds` of a load on a store of `limit` bytes that measures, and on stores and an exact LRU of each
/// of `sizes`; returns what was measured, and for each size the prediction, the store and the LRU.
fn compare(trace: &[usize], limit: usize, sizes: &[usize]) -> (Tally, Vec<[f64; 3]>) {
    let mut measured = Kept::new(limit, || true, 11);
    measured.measure(1, 64 * MIB);
    let mut stores: Vec<_> = sizes.iter().map(|size| Kept::new(*size, || true, 7)).collect();
    let mut exact: Vec<_> = sizes.iter().map(|size| Exact::new(*size)).collect();
    let overhead = {
        ask(&mut stores[0], 0);
        stores[0].used() - length(0) - 1
    };
    let cost = |key: usize| overhead + key.to_string().len() + length(key);
    let mut hits = vec![[0_u32; 2]; sizes.len()];
    let half = trace.len() / 2;
    for (at, &key) in trace.iter().enumerate() {
        if at as u64 % RATE == RATE - 1 {
            measured.set_now((at as u64 / RATE) as u32 + 1);
            measured.tick(1, RATE);
        }
        ask(&mut measured, key);
        for (size, hits) in hits.iter_mut().enumerate() {
            let found = [ask(&mut stores[size], key), exact[size].ask(key, cost)];
            hits.iter_mut().zip(found).for_each(|(sum, found)| *sum += u32::from(found && at >= half));
        }
    }
    let tally = measured.tally().expect("it measures").clone();
    let curve = tally.curve();
    let ratio = |hits: u32| f64::from(hits) / (trace.len() - half) as f64;
    let rows = sizes.iter().zip(hits);
    (tally, rows.map(|(size, [store, exact])| [lookup(&curve, *size), ratio(store), ratio(exact)]).collect())
}

fn trace(keys: usize, exponent: f64, count: usize, seed: u64) -> Vec<usize> {
    let (popularity, mut random) = (Popularity::new(keys, exponent), Random(seed));
    (0..count).map(|_| popularity.pick(&mut random)).collect()
}

#[test]
fn it_predicts_what_stores_of_other_sizes_hit() {
    let sizes = [MIB, 2 * MIB, 8 * MIB, 24 * MIB];
    for (exponent, limit) in [(0.0, 8 * MIB), (0.9, 4 * MIB), (1.1, 16 * MIB)] {
        let (tally, rows) = compare(&trace(12_000, exponent, 160_000, 3), limit, &sizes);
        for (size, [predicted, store, exact]) in sizes.iter().zip(rows) {
            let told = format!("{exponent} {}: {predicted:.3} {store:.3} {exact:.3}", size / MIB);
            // A thousand keys stand for all, give or take a thirtieth.
            assert!((predicted - exact).abs() < 0.05 && (predicted - store).abs() < 0.05, "{told}");
        }
        assert!(tally.samples() > 200.0 && (tally.rate() / RATE as f64 - 1.0).abs() < 1e-6);
        assert!((1000.0..2000.0).contains(&tally.hit_bytes()), "{}", tally.hit_bytes());
    }
}

#[test]
fn what_is_found_again_only_with_all_of_it_is_a_step() {
    // 4,000 keys round and round: with a byte less than they need nothing is ever found.
    let round: Vec<usize> = (0..80_000).map(|at| at % 4000).collect();
    let (_, rows) = compare(&round, 4 * MIB, &[2 * MIB, 4 * MIB, 10 * MIB]);
    assert!(rows[0][0] < 0.08 && rows[1][0] < 0.08 && rows[2][0] > 0.92, "{rows:?}");
}

#[test]
fn the_curve_follows_the_load() {
    let [wide, narrow] = [trace(12_000, 0.0, 100_000, 1), trace(1000, 0.0, 300_000, 2)];
    let (_, before) = compare(&wide, 4 * MIB, &[2 * MIB]);
    let (_, after) = compare(&[wide, narrow].concat(), 4 * MIB, &[2 * MIB]);
    assert!(before[0][0] < 0.2 && after[0][0] > 0.9, "{before:?} {after:?}");
}

#[test]
fn what_was_deleted_or_has_expired_no_memory_would_have_held() {
    let mut store = Kept::new(8 * MIB, || true, 7);
    store.measure(1, 64 * MIB);
    let put = |store: &mut Kept, name: &str, expires: u32| {
        let key = store.key(name.as_bytes());
        let facts = Facts { expires, ..Facts::default() };
        store.put(&key, None, facts, Incoming::Copy(b"x")).expect("it fits");
    };
    let ask = |store: &mut Kept, name: &str| {
        let key = store.key(name.as_bytes());
        let found = store.find(&key);
        store.looked_up(&key, found);
        found
    };
    for (name, expires) in [("expired", 5), ("deleted", 0), ("flushed", 0)] {
        put(&mut store, name, expires);
    }
    let index = ask(&mut store, "deleted").expect("it is there");
    store.delete(index);
    store.set_now(6);
    assert!(ask(&mut store, "deleted").is_none() && ask(&mut store, "expired").is_none());
    store.flush_at(0);
    assert!(ask(&mut store, "flushed").is_none());
    let tally = store.tally().expect("it measures");
    assert_eq!((tally.never, tally.samples(), tally.hits), (3.0, 4.0, 1.0));
}

#[test]
fn steps_follow_one_another() {
    assert_eq!((step(0), step(65535), step(65536), step(u64::MAX)), (Some(0), Some(0), Some(1), None));
    for number in 0..STEPS {
        assert_eq!(step(end(number) - 1), Some(number));
        assert_eq!(step(end(number)), Some(number + 1).filter(|next| *next < STEPS));
    }
    assert!((FADE.powi(10) - 0.5).abs() < 1e-12);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Distances are those of a list, whatever happens in whatever order, as long as all keys are sampled.
    #[test]
    fn distances_are_those_of_a_list(
        steps in prop::collection::vec((0_u64..40, 1_usize..5000, 0..4), 1..800),
    ) {
        let mut sampler = Sampler::new(1, 0, u64::MAX);
        // The newest last.
        let mut list: Vec<(u64, u64)> = Vec::new();
        for (key, cost, what) in steps {
            let hash = key << 50;
            let at = list.iter().position(|(known, _)| *known == hash);
            let known = at.map(|at| (list[at].1, list[at + 1..].iter().map(|it| it.1).sum::<u64>()));
            match what {
                0 => {
                    let taken = sampler.take(hash).map(|(last, newer)| (last.cost, newer));
                    prop_assert_eq!(taken, known);
                    at.map(|at| list.remove(at));
                }
                _ => {
                    sampler.used(hash, cost, 0);
                    at.map(|at| list.remove(at));
                    list.push((hash, cost as u64));
                }
            }
            prop_assert_eq!(sampler.total, list.iter().map(|it| it.1).sum::<u64>());
        }
    }

    /// However many keys there are, the sample stays small, and is what its threshold says.
    #[test]
    fn the_sample_stays_small(seed in 1_u64.., keys in 1_usize..20_000) {
        let (mut sampler, mut random) = (Sampler::new(4, 0, u64::MAX), Random(seed));
        for _ in 0..keys {
            let hash = random.next();
            if hash < sampler.threshold() {
                sampler.used(hash, 100, 0);
            }
            let (keys, uses) = (sampler.last.len(), sampler.uses.len());
            prop_assert!(keys <= sampler.keys_max && uses <= 4 * sampler.keys_max);
        }
        let expected = (keys as f64 / sampler.weight()).max(1.0);
        let share = sampler.last.len() as f64 / expected;
        prop_assert!((0.5..2.0).contains(&share), "{share} of {expected} keys expected of {keys}");
    }
}
