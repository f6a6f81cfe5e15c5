//! Histograms of durations with a bounded relative error, in the way of HdrHistogram.
//!
//! Buckets are linear within each power of two: 32 of them, so a bucket is at most 1/32 as wide as the
//! values in it are large, and its middle at most 1/64 away from any of them. Values below 64 are exact. Mean
//! and standard deviation do not come from the buckets: they are exact.

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;

/// Buckets in each power of two.
const STEPS: usize = 1 << STEP_BITS;
const STEP_BITS: u32 = 5;

/// Values have at most so many bits: 36 are 68 seconds in nanoseconds.
const VALUE_BITS: u32 = 36;

/// The largest value that is told apart; larger ones count as this.
pub const VALUE_MAX: u64 = (1 << VALUE_BITS) - 1;

/// A power of two, so that an index is masked where it would have to be checked.
const BUCKETS: usize = 1024;
const _: () = assert!(bucket_of(VALUE_MAX) == BUCKETS - 1);

/// How often each duration occurred. Units are the caller's; [`VALUE_MAX`] is meant for nanoseconds.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u128,
    sum_of_squares: u128,
    min: u64,
    max: u64,
    clamped: u64,
}

impl Histogram {
    /// A histogram of nothing. All the memory that it will ever need is allocated here: 8 KiB.
    #[must_use]
    pub fn new() -> Self {
        let buckets = vec![0; BUCKETS].into_boxed_slice().try_into().expect("it is as long as that");
        Self { buckets, count: 0, sum: 0, sum_of_squares: 0, min: u64::MAX, max: 0, clamped: 0 }
    }

    /// Counts one `value`.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    /// Counts `value` as if it had been recorded `count` times.
    #[inline]
    pub fn record_many(&mut self, value: u64, count: u64) {
        let clamped = value.min(VALUE_MAX);
        self.buckets[bucket_of(clamped) & (BUCKETS - 1)] += count;
        self.count += count;
        let weighted = u128::from(clamped) * u128::from(count);
        self.sum += weighted;
        self.sum_of_squares += weighted * u128::from(clamped);
        if count > 0 {
            self.min = self.min.min(clamped);
            self.max = self.max.max(clamped);
        }
        self.clamped += if value > VALUE_MAX { count } else { 0 };
    }

    /// Forgets all values, but not the memory.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        (self.count, self.sum, self.sum_of_squares) = (0, 0, 0);
        (self.min, self.max, self.clamped) = (u64::MAX, 0, 0);
    }

    /// Adds all that `other` counted: the same as if everything had been recorded here.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *bucket += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.clamped += other.clamped;
    }

    /// How many values were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many of them were above [`VALUE_MAX`].
    #[must_use]
    pub fn clamped(&self) -> u64 {
        self.clamped
    }

    /// The exact sum of all values.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The smallest value; nothing if there is none.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest value; nothing if there is none.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The exact mean; nothing if there is no value.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The exact standard deviation of the values recorded (not of a population that they were drawn from);
    /// nothing if there is no value.
    #[must_use]
    pub fn standard_deviation(&self) -> Option<f64> {
        let mean = self.sum.checked_div(u128::from(self.count))?;
        // Around the mean's integer part the sum of squares stays an integer, and what floating point
        // then subtracts is below one: nothing cancels.
        let around_mean = self.sum_of_squares + mean * mean * u128::from(self.count) - 2 * mean * self.sum;
        let fraction = (self.sum % u128::from(self.count)) as f64 / self.count as f64;
        let variance = around_mean as f64 / self.count as f64 - fraction * fraction;
        Some(libm::sqrt(variance.max(0.0)))
    }

    /// The value that a share of `q` of all values is at most (the nearest rank; 0 for the smallest, 1 for
    /// the largest), within 1/64 of itself; nothing if there is no value.
    ///
    /// # Panics
    /// If `q` is not between 0 and 1.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        assert!((0.0..=1.0).contains(&q), "quantile {q}: expected 0 to 1");
        let rank = (libm::ceil(q * self.count as f64) as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(middle_of(bucket).clamp(self.min, self.max))
    }

    /// Every bucket with something in it, ascending: the largest value that it may hold, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let used = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(bucket, &count)| (lowest_of(bucket + 1) - 1, count))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = out.debug_struct("Histogram");
        line.field("count", &self.count).field("mean", &self.mean());
        line.field("deviation", &self.standard_deviation());
        line.field("p50", &self.quantile(0.5)).field("p99", &self.quantile(0.99));
        line.field("max", &self.max()).finish()
    }
}

/// Below `2 * STEPS` a value is its own bucket. Above, `shift` bits are cut off so that `STEP_BITS + 1`
/// remain, and each cut is `STEPS` buckets further on. No branch: the `|` makes small values a cut of 0.
#[inline]
const fn bucket_of(value: u64) -> usize {
    let shift = (value | STEPS as u64).ilog2() - STEP_BITS;
    (shift as usize) * STEPS + (value >> shift) as usize
}

/// The smallest value of a bucket.
const fn lowest_of(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    ((bucket - shift * STEPS) as u64) << shift
}

fn middle_of(bucket: usize) -> u64 {
    let (lowest, next) = (lowest_of(bucket), lowest_of(bucket + 1));
    lowest + (next - 1 - lowest) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    fn exact_quantile(values: &[u64], q: f64) -> u64 {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let rank = ((q * values.len() as f64).ceil() as usize).max(1);
        sorted[rank - 1]
    }

    /// Values of every order of magnitude.
    fn value() -> impl Strategy<Value = u64> {
        (0..=VALUE_BITS, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
    }

    fn values() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec(value(), 1..200)
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(lowest_of(bucket)), bucket);
            assert_eq!(bucket_of(lowest_of(bucket + 1) - 1), bucket);
        }
        assert_eq!(lowest_of(BUCKETS), VALUE_MAX + 1);
    }

    #[test]
    fn nothing_has_no_statistics() {
        let nothing = Histogram::new();
        let numbers = (nothing.min(), nothing.max(), nothing.quantile(0.5));
        assert_eq!(numbers, (None, None, None));
        assert_eq!((nothing.mean(), nothing.standard_deviation()), (None, None));
        assert_eq!(of(&[]), nothing);
    }

    #[test]
    fn a_cleared_histogram_is_as_new() {
        let mut histogram = of(&[1, 70, u64::MAX]);
        histogram.clear();
        assert_eq!(histogram, Histogram::new());
        histogram.record(5);
        assert_eq!(histogram, of(&[5]));
    }

    #[test]
    fn what_is_too_large_counts_as_the_largest() {
        let histogram = of(&[u64::MAX, VALUE_MAX + 1, VALUE_MAX, 1]);
        assert_eq!((histogram.count(), histogram.clamped()), (4, 2));
        assert_eq!(histogram.max(), Some(VALUE_MAX));
    }

    #[test]
    fn deviation_survives_a_mean_that_dwarfs_it() {
        let histogram = of(&[60_000_000_000, 60_000_000_002]);
        assert_eq!(histogram.standard_deviation(), Some(1.0));
        assert_eq!(of(&[7; 100]).standard_deviation(), Some(0.0));
    }

    #[test]
    fn used_buckets_are_listed_with_their_upper_bounds() {
        assert_eq!(of(&[3, 3, 64, 65]).buckets().collect::<Vec<_>>(), [(3, 2), (65, 2)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]

        #[test]
        fn quantiles_are_within_one_in_64(values in values(), q in 0.0..=1.0) {
            let (exact, estimate) = (exact_quantile(&values, q), of(&values).quantile(q).unwrap());
            prop_assert!(exact.abs_diff(estimate) * 64 <= exact, "{estimate} for {exact}");
        }

        #[test]
        fn mean_and_deviation_are_exact(values in values()) {
            let n = values.len() as f64;
            let mean = values.iter().map(|&v| v as f64).sum::<f64>() / n;
            let variance = values.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n;
            let histogram = of(&values);
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
            prop_assert!(close(histogram.mean().unwrap(), mean));
            prop_assert!(close(histogram.standard_deviation().unwrap(), variance.sqrt()));
        }

        #[test]
        fn merging_is_recording_all_in_one(left in values(), right in values()) {
            let mut merged = of(&left);
            merged.merge(&of(&right));
            prop_assert_eq!(merged, of(&[left, right].concat()));
        }

        #[test]
        fn many_at_once_are_many_one_by_one(value in value(), count in 0u64..50) {
            let mut at_once = Histogram::new();
            at_once.record_many(value, count);
            prop_assert_eq!(at_once, of(&vec![value; count as usize]));
        }
    }
}
