//! `exp(time / decay)`, which a scheduler needs at each switch, for times that mostly lie close together.
//!
//! Threads run for microseconds, and averages decay within hundreds of milliseconds. So nearly every exponent
//! is next to one that was computed before, and four terms of the series say all that a double can hold of
//! the difference.

/// Exponents below are so small that the series is as good as the function: its first term left out is
/// 10^-13 of the sum.
const SMALL: f64 = 1.0 / 1024.0;
/// As much for the logarithm, whose series converges slower: the first term left out is 10^-9 of the sum,
/// a nanosecond in a second.
const SMALL_GROWTH: f64 = 1.0 / 64.0;

/// The function, and its value at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exponential {
    decay_ns: f64,
    inverse: f64,
    /// A time for which it was computed exactly, and the last time for which it was computed.
    known: (i64, f64),
    last: (i64, f64),
}

impl Exponential {
    /// Of an average that decays by 1/e within `decay_ns`, which is not 0.
    pub fn new(decay_ns: u64) -> Exponential {
        let decay_ns = decay_ns as f64;
        Exponential { decay_ns, inverse: 1.0 / decay_ns, known: (0, 1.0), last: (0, 1.0) }
    }

    /// `exp(time / decay)`.
    #[inline]
    pub fn at(&mut self, time_ns: i64) -> f64 {
        if time_ns != self.last.0 {
            self.last = (time_ns, self.compute(time_ns));
        }
        self.last.1
    }

    fn compute(&mut self, time_ns: i64) -> f64 {
        let (known_ns, value) = self.known;
        let exponent = time_ns.wrapping_sub(known_ns) as f64 * self.inverse;
        if (0.0..SMALL).contains(&exponent) {
            return value + value * series(exponent);
        }
        // Steps from step to step would add up their errors.
        let value = libm::exp(time_ns as f64 * self.inverse);
        self.known = (time_ns, value);
        value
    }

    /// By what share it grows within that time: `exp(time / decay) - 1`.
    pub fn growth(&self, time_ns: u64) -> f64 {
        let exponent = time_ns as f64 * self.inverse;
        if exponent < SMALL { series(exponent) } else { libm::expm1(exponent) }
    }

    /// The time within which it grows by that share, in nanoseconds; less than one too short.
    pub fn time_to_grow(&self, growth: f64) -> u64 {
        let decays = if growth < SMALL_GROWTH {
            let y = growth;
            y * (1.0 - y * (1.0 / 2.0 - y * (1.0 / 3.0 - y * (1.0 / 4.0 - y / 5.0))))
        } else {
            libm::log1p(growth)
        };
        (decays * self.decay_ns) as u64
    }
}

/// `exp(x) - 1` for a small `x`.
fn series(x: f64) -> f64 {
    x * (1.0 + x * (1.0 / 2.0 + x * (1.0 / 6.0 + x * (1.0 / 24.0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_function_wherever_it_is_asked() {
        let decay_ns = 200_000_000;
        let mut exponential = Exponential::new(decay_ns);
        let mut time_ns = -500_000_000_i64;
        for step in 0..20_000 {
            // Forward by up to 400 us, and now and then back.
            time_ns += step * 7919 % 420_000 - 20_000;
            let value = exponential.at(time_ns);
            let expected = (time_ns as f64 / decay_ns as f64).exp();
            assert!((value / expected - 1.0).abs() < 1e-12, "at {time_ns} ns: {value}, {expected}");
        }
    }

    #[test]
    fn growth_and_the_time_that_it_takes_are_inverse() {
        let exponential = Exponential::new(200_000_000);
        for time_ns in [0, 1, 7, 300, 10_000, 199_999, 200_001, 2_000_000, 3_100_000, 3_200_000, 900_000_000]
        {
            let growth = exponential.growth(time_ns);
            let expected = (time_ns as f64 / 2e8).exp_m1();
            assert!((growth - expected).abs() <= 1e-12 * expected, "{time_ns} ns: {growth}, {expected}");
            assert!(time_ns.abs_diff(exponential.time_to_grow(growth)) <= 1, "{time_ns} ns");
        }
    }
}
