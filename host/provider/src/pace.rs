//! How fast prices may move: however far a source jumps, a price moves at most by one factor at a time and by
//! another within a minute, so that who holds resources has time to give them back.

use std::collections::VecDeque;

/// The length of time that the second factor is for.
const MINUTE_NS: u64 = 60_000_000_000;
/// Prices of the last minute that are remembered of each resource: more than any source is asked for.
const REMEMBERED: usize = 4096;

/// Most that a price may move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// At once, as a factor of at least 1; infinity is any.
    pub step: f64,
    /// Within a minute.
    pub minute: f64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { step: f64::INFINITY, minute: f64::INFINITY }
    }
}

impl Pace {
    /// From what people say; nothing said is no limit.
    ///
    /// # Errors
    /// If a factor is not above 1.
    pub fn new(step: Option<f64>, minute: Option<f64>) -> Result<Pace, String> {
        let factor = |name: &str, given: Option<f64>| match given {
            Some(factor) if factor > 1.0 => Ok(factor),
            Some(factor) => Err(format!("{name}: {factor}, expected a factor above 1, such as 2")),
            None => Ok(f64::INFINITY),
        };
        Ok(Pace { step: factor("price_step", step)?, minute: factor("price_minute", minute)? })
    }

    /// Whether there is any limit.
    pub fn is_limited(&self) -> bool {
        self.step.is_finite() || self.minute.is_finite()
    }
}

/// The last minute of a price.
#[derive(Clone, Debug, Default)]
pub struct Course(VecDeque<(u64, f64)>);

impl Course {
    /// How near to `wanted` a price may come now. The first price may be any.
    pub fn limit(&self, pace: Pace, wanted: f64, now_ns: u64) -> f64 {
        let Some(&(_, last)) = self.0.back() else { return wanted };
        let present = self.0.iter().rev().scan(false, |is_over, &(since_ns, price)| {
            // The one that was in force when the minute began counts, too, and none before it.
            let counts = !*is_over;
            *is_over = now_ns.saturating_sub(since_ns) >= MINUTE_NS;
            counts.then_some(price)
        });
        let (mut low, mut high) = (last, last);
        for price in present {
            (low, high) = (low.min(price), high.max(price));
        }
        let most = (last * pace.step).min(low * pace.minute).max(last);
        let least = (last / pace.step).max(high / pace.minute).min(last);
        wanted.clamp(least, most)
    }

    /// Remembers a price that holds from now on.
    pub fn note(&mut self, price: f64, now_ns: u64) {
        let is_old = |entry: Option<&(u64, f64)>| {
            entry.is_some_and(|(since_ns, _)| now_ns.saturating_sub(*since_ns) >= MINUTE_NS)
        };
        while is_old(self.0.get(1)) || self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((now_ns, price));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_jump_becomes_steps_and_the_steps_of_a_minute_have_a_limit() {
        let pace = Pace::new(Some(2.0), Some(5.0)).expect("factors");
        let mut course = Course::default();
        let mut seen = Vec::new();
        for second in [0, 1, 2, 3, 30, 60, 61, 62, 63, 130] {
            let wanted = if second == 0 { 1.0 } else { 100.0 };
            let price = course.limit(pace, wanted, second * SECOND);
            course.note(price, second * SECOND);
            seen.push(price);
        }
        assert_eq!(seen, [1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 10.0, 20.0, 25.0, 50.0]);
        assert_eq!(course.limit(pace, 1e-9, 131 * SECOND), 25.0, "it falls no faster");
    }

    #[test]
    fn factors_are_above_one() {
        for (step, minute) in [(Some(1.0), None), (None, Some(-2.0)), (Some(f64::NAN), None)] {
            assert!(Pace::new(step, minute).expect_err("refused").contains("above 1"));
        }
        assert!(!Pace::new(None, None).expect("no limit").is_limited());
    }

    proptest! {
        #[test]
        fn whatever_is_wanted_no_minute_moves_a_price_too_far(
            wants in prop::collection::vec((1e-6f64..1e6, 1u64..20), 1..80),
        ) {
            let pace = Pace { step: 3.0, minute: 7.0 };
            let mut course = Course::default();
            let mut all: Vec<(u64, f64)> = Vec::new();
            let mut now_ns = 0;
            for (wanted, seconds) in wants {
                now_ns += seconds * SECOND;
                let price = course.limit(pace, wanted, now_ns);
                course.note(price, now_ns);
                if let Some(&(_, last)) = all.last() {
                    prop_assert!((1.0 / 3.001..3.001).contains(&(price / last)));
                }
                let recent = all.iter().filter(|(since_ns, _)| now_ns - since_ns < MINUTE_NS);
                for (_, other) in recent {
                    prop_assert!((1.0 / 7.001..7.001).contains(&(price / other)), "{other} to {price}");
                }
                all.push((now_ns, price));
            }
        }
    }
}
