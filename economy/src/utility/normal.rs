//! The tail of the normal distribution.

use crate::units::Seconds;

/// N(L0, L, sigma): the probability that a normal variable of mean `mean` and deviation `jitter` exceeds
/// `objective` (nom, VEE'16, section 4). Without jitter every sample is the mean, so the result is 0 or 1.
#[must_use]
pub fn exceedance(objective: Seconds, mean: Seconds, jitter: Seconds) -> f64 {
    let slack = objective.get() - mean.get();
    if jitter == Seconds::ZERO {
        return if slack < 0.0 { 1.0 } else { 0.0 };
    }
    // The complementary error function keeps its precision where 1 - Phi would cancel to 0.
    0.5 * libm::erfc(slack / jitter.get() * core::f64::consts::FRAC_1_SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(objective: f64, mean: f64, jitter: f64) -> f64 {
        let seconds = |value| Seconds::new(value).expect("a time");
        exceedance(seconds(objective), seconds(mean), seconds(jitter))
    }

    #[test]
    fn known_values() {
        assert_eq!(tail(1.0, 1.0, 0.1), 0.5);
        assert!((tail(3.0, 1.0, 1.0) - 0.022_750_131_948_179_2).abs() < 1e-15);
        assert!((tail(1.0, 2.0, 1.0) - 0.841_344_746_068_542_9).abs() < 1e-15);
        let six_sigma = 9.865_876_450_376_946e-10;
        assert!((tail(7.0, 1.0, 1.0) / six_sigma - 1.0).abs() < 1e-9);
    }

    #[test]
    fn without_jitter_all_samples_are_alike() {
        assert_eq!(tail(1.0, 0.999, 0.0), 0.0);
        assert_eq!(tail(1.0, 1.0, 0.0), 0.0, "the objective itself does not exceed it");
        assert_eq!(tail(1.0, 1.001, 0.0), 1.0);
        assert_eq!(tail(1.0, 0.5, f64::MIN_POSITIVE), 0.0);
    }
}
