//! `exp(time / decay)`, which a scheduler needs at each switch, for times that mostly lie close together.
//!
//! Threads run for microseconds, and averages decay within hundreds of milliseconds. So the function is as
//! good as a straight line from each time for which it was computed to the next, a small part of the decay
//! later: what a line leaves out is in the next time's value.

/// How far a line goes, in decays: by then it is 1/2 * 2^-24 too low, of the function's value.
const LINE: f64 = 1.0 / 4096.0;
/// Growth below is so small that five terms of the logarithm's series are as good as the function: the first
/// one left out is 10^-9 of the sum, a nanosecond in a second.
const SMALL_GROWTH: f64 = 1.0 / 64.0;

/// The function, and its value at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exponential {
    decay_ns: f64,
    /// How long lines are.
    line_ns: u64,
    /// Where the present line begins, and its value there and growth in a nanosecond.
    from_ns: u64,
    value: f64,
    slope: f64,
    /// How far the present line goes: nowhere, if there is none.
    reach_ns: u64,
}

impl Exponential {
    /// Of an average that decays by 1/e within `decay_ns`, which is not 0.
    pub fn new(decay_ns: u64) -> Exponential {
        let decay_ns = decay_ns as f64;
        let line_ns = (decay_ns * LINE) as u64;
        Exponential { decay_ns, line_ns, from_ns: 0, value: 1.0, slope: 0.0, reach_ns: 0 }
    }

    /// Its value at a time that is near one for which it was computed.
    #[inline]
    pub fn near(&self, time_ns: u64) -> Option<f64> {
        let ns = time_ns.wrapping_sub(self.from_ns);
        (ns < self.reach_ns).then_some(self.value + self.slope * ns as i64 as f64)
    }

    /// Its value at `time_ns`, if it is 1 at `origin_ns`.
    pub fn compute(&mut self, time_ns: u64, origin_ns: u64) -> f64 {
        let value = libm::exp(time_ns.wrapping_sub(origin_ns) as i64 as f64 / self.decay_ns);
        (self.from_ns, self.value, self.slope) = (time_ns, value, value / self.decay_ns);
        self.reach_ns = self.line_ns;
        value
    }

    /// By what share it grows within that time: `exp(time / decay) - 1`.
    pub fn growth(&self, time_ns: u64) -> f64 {
        libm::expm1(time_ns as f64 / self.decay_ns)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_function_wherever_it_is_asked() {
        let decay_ns = 200_000_000;
        let mut exponential = Exponential::new(decay_ns);
        let (origin_ns, mut time_ns, mut lines) = (700_000_000, 200_000_000_u64, 0);
        for step in 0..20_000 {
            // Forward by up to 40 us, and now and then back.
            time_ns = time_ns + step * 7919 % 42_000 - 2_000;
            let value = exponential.near(time_ns).unwrap_or_else(|| {
                lines += 1;
                exponential.compute(time_ns, origin_ns)
            });
            let expected = ((time_ns as f64 - origin_ns as f64) / decay_ns as f64).exp();
            assert!((value / expected - 1.0).abs() < 3e-8, "at {time_ns} ns: {value}, {expected}");
        }
        assert!((5_000..15_000).contains(&lines), "{lines}");
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
