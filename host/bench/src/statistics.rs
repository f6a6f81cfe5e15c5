//! The few statistics that a record needs.

/// What repeated runs say together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many runs.
    pub count: u32,
    /// Smallest value.
    pub min: f64,
    /// Middle value, or the mean of the two in the middle.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation (over n - 1); absent for a single run.
    pub deviation: Option<f64>,
}

impl Summary {
    /// Sums up `samples`; none if there are none.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, n) = (sorted.first()?, sorted.len());
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
        Some(Summary {
            count: n as u32,
            min,
            median: (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
            mean,
            deviation: (n > 1).then(|| (squares / (n - 1) as f64).sqrt()),
        })
    }
}

/// A quotient of two means, of runs that were repeated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quotient {
    /// The one mean over the other.
    pub value: f64,
    /// How many repetitions have both.
    pub pairs: u32,
    /// Standard deviation that one repetition alone would have; absent for a single pair.
    pub deviation: Option<f64>,
}

impl Quotient {
    /// The mean of `own` over that of `other`, each value with the number of its repetition; negative where
    /// the one is a loss, and none unless the other is a gain. What happened to both in one repetition
    /// cancels out (the ratio estimate of paired samples: Cochran, "Sampling Techniques", 1977, section 6.3).
    pub fn of_means(own: &[(u32, f64)], other: &[(u32, f64)]) -> Option<Quotient> {
        let mean =
            |all: &[(u32, f64)]| Some(Summary::of(&all.iter().map(|one| one.1).collect::<Vec<_>>())?.mean);
        let (over, under) = (mean(own)?, mean(other)?);
        if under <= 0.0 {
            return None;
        }
        let value = over / under;
        let residual = |(repetition, one): &(u32, f64)| {
            let (_, other) = other.iter().find(|(of, _)| of == repetition)?;
            Some((one - value * other) / under)
        };
        let residuals: Vec<f64> = own.iter().filter_map(residual).collect();
        let deviation = Summary::of(&residuals).and_then(|summary| summary.deviation);
        Some(Quotient { value, pairs: residuals.len() as u32, deviation })
    }

    /// Standard error of the value.
    pub fn error(&self) -> Option<f64> {
        self.deviation.map(|deviation| deviation / f64::from(self.pairs).sqrt())
    }
}

/// The value at `x` of the straight line through `points` by least squares; of their mean if all are at one
/// place, and not a number if there are none.
pub fn fitted(points: &[(f64, f64)], x: f64) -> f64 {
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let joint: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    if spread == 0.0 { mean_y } else { mean_y + joint / spread * (x - mean_x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotient_of_pairs_forgets_what_both_share() {
        let own = [(0, 90.0), (1, 45.0), (2, 72.0)];
        let other = [(0, 100.0), (1, 50.0), (2, 80.0)];
        let paired = Quotient::of_means(&own, &other).unwrap();
        assert!((paired.value - 0.9).abs() < 1e-12 && paired.pairs == 3);
        assert!(paired.error().unwrap() < 1e-12, "each repetition says 0.9");
        let apart = other.map(|(repetition, value)| (2 - repetition, value));
        assert!(Quotient::of_means(&own, &apart).unwrap().error().unwrap() > 0.1);
    }

    #[test]
    fn a_quotient_of_one_pair_says_less_and_over_a_loss_nothing() {
        let one = Quotient::of_means(&[(0, 3.0)], &[(0, 4.0), (1, 2.0)]).unwrap();
        assert_eq!((one.value, one.pairs, one.error()), (1.0, 1, None));
        for (own, other) in [(1.0, 0.0), (1.0, -1.0), (-1.0, -1.0)] {
            assert_eq!(Quotient::of_means(&[(0, own)], &[(0, other)]), None);
        }
        assert_eq!(Quotient::of_means(&[(0, -1.0)], &[(0, 2.0)]).unwrap().value, -0.5);
        assert_eq!(Quotient::of_means(&[], &[(0, 1.0)]), None);
    }

    #[test]
    fn a_textbook_quotient_has_its_standard_error() {
        // Residuals over the mean 2: (1 - 2) / 2, (3 - 2) / 2; deviation 1 / sqrt(2), over sqrt(2).
        let quotient = Quotient::of_means(&[(0, 1.0), (1, 3.0)], &[(0, 2.0), (1, 2.0)]).unwrap();
        assert!((quotient.error().unwrap() - 0.5).abs() < 1e-12, "{quotient:?}");
    }

    #[test]
    fn a_line_is_fitted_by_least_squares() {
        assert!((fitted(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)], 10.0) - 21.0).abs() < 1e-12);
        assert!((fitted(&[(0.0, 0.0), (1.0, 3.0), (2.0, 0.0)], 1.0) - 1.0).abs() < 1e-12);
        assert_eq!(fitted(&[(2.0, 5.0), (2.0, 7.0)], 9.0), 6.0);
    }

    #[test]
    fn textbook_samples() {
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((summary.count, summary.min, summary.median, summary.mean), (8, 2.0, 4.5, 5.0));
        assert!((summary.deviation.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn odd_and_single_and_none() {
        assert_eq!(Summary::of(&[9.0, 1.0, 5.0]).unwrap().median, 5.0);
        assert_eq!(Summary::of(&[3.0]).unwrap().deviation, None);
        assert_eq!(Summary::of(&[]), None);
    }
}
