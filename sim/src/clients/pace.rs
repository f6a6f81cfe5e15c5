//! When a client acts that does so again and again, at chance intervals, until a time.

use crate::random::Random;

/// Such a client's clock.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two acts, on average.
    mean_ns: u64,
    next_ns: u64,
    until_ns: u64,
}

impl Pace {
    /// From `start_ns` on for `span_ns`.
    pub fn new(start_ns: u64, span_ns: u64, mean_ns: u64) -> Pace {
        Pace { mean_ns, next_ns: start_ns, until_ns: start_ns + span_ns }
    }

    /// Whether it is too late for any act. From then on none is left, also of those that were due while
    /// nobody looked: a clock may pass over the last of them and the end at once.
    pub fn has_ended(&mut self, now_ns: u64) -> bool {
        let has_ended = now_ns >= self.until_ns;
        if has_ended {
            self.next_ns = self.next_ns.max(self.until_ns);
        }
        has_ended
    }

    /// Whether no act is left.
    pub fn is_over(&self) -> bool {
        self.next_ns >= self.until_ns
    }

    /// Whether it is time for an act; [`Pace::rest`] follows each.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.next_ns <= now_ns
    }

    /// Chooses the time of the next act.
    pub fn rest(&mut self, random: &mut Random) {
        self.next_ns += 1 + random.within(0..2 * self.mean_ns);
    }

    /// When there is something to do.
    pub fn due_ns(&self) -> u64 {
        self.next_ns.min(self.until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_that_was_due_before_the_end_and_seen_behind_it_is_left_out() {
        let mut pace = Pace::new(0, 1_000, 100);
        assert!(pace.is_due(1_001), "the first is due from the start on");
        assert!(!pace.has_ended(999) && !pace.is_over());
        assert!(pace.has_ended(1_001));
        assert!(pace.is_over(), "nobody waits for it any more");
    }
}
