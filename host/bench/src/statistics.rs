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

#[cfg(test)]
mod tests {
    use super::*;

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
