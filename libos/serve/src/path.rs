//! What the path between a client and this machine adds to the latency that the client sees.
//!
//! A reply travels to the client, which sends its next request as soon as it has it, and that travels back:
//! the gap between a reply's departure and the next request's arrival is what the path added, unless
//! the client was thinking meanwhile.

/// A gap so many times as long as usual is not the path's: the client was thinking.
const THINKING: u64 = 8;
/// How many gaps make what is usual.
const MEMORY: u64 = 8;
/// No path is shorter: a core was taken away between telling the device and reading the clock.
const SHORTEST_NS: u64 = 10_000;

/// A mean that forgets; 0 is none yet.
#[inline]
pub(crate) fn smoothed(mean_ns: u64, next_ns: u64) -> u64 {
    if mean_ns == 0 { next_ns } else { mean_ns - mean_ns / MEMORY + next_ns / MEMORY }
}

/// The path of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// When the last reply departed, if nothing arrived since.
    departed_ns: Option<u64>,
    /// A gap as usual: the smoothed mean of those that were the path's, not the least, which may have been
    /// missed.
    usual_ns: Option<u64>,
    /// What the last gap tells.
    estimate_ns: u64,
}

impl Path {
    /// A reply departed; or what opens the connection, which the client answers at once.
    #[inline]
    pub fn depart(&mut self, now_ns: u64) {
        self.departed_ns = Some(now_ns);
    }

    /// The next request was seen; or what completes the handshake. It may have lain unseen in a busy machine
    /// for up to `unseen_ns`, which is no thinking.
    #[inline]
    pub fn arrive(&mut self, at_ns: u64, unseen_ns: u64) {
        // Who sends before he has the reply tells nothing about how long it took to reach him.
        let Some(departed_ns) = self.departed_ns.take() else { return };
        let gap_ns = at_ns.saturating_sub(departed_ns);
        let usual_ns = self.usual_ns.unwrap_or(gap_ns).max(SHORTEST_NS);
        let longest_ns = usual_ns.saturating_mul(THINKING);
        if gap_ns > longest_ns.saturating_add(unseen_ns) {
            self.estimate_ns = usual_ns;
            return;
        }
        self.usual_ns = Some(smoothed(usual_ns, gap_ns.min(longest_ns)));
        self.estimate_ns = gap_ns;
    }

    /// What the path adds, in nanoseconds; 0 as long as nothing is known.
    #[inline]
    #[must_use]
    pub fn estimate_ns(&self) -> u64 {
        self.estimate_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is estimated, in microseconds, after gaps of so many one after the other.
    fn after(gaps: &[u64]) -> u64 {
        let (mut path, mut now_ns) = (Path::default(), 1_000);
        for gap in gaps {
            path.depart(now_ns);
            path.arrive(now_ns + gap * 1_000, 0);
            now_ns += gap * 1_000 + 7;
        }
        path.estimate_ns() / 1_000
    }

    #[test]
    fn a_gap_is_the_path() {
        assert_eq!(after(&[]), 0);
        assert_eq!(after(&[100]), 100);
        assert_eq!(after(&[100, 300, 250]), 250);
        assert_eq!(after(&[100, 800]), 800, "8 times as long is still the path");
    }

    #[test]
    fn who_thinks_has_the_path_that_he_usually_has() {
        assert_eq!(after(&[100, 801]), 100);
        assert_eq!(after(&[104, 56, 1_000_000]), 98);
    }

    #[test]
    fn a_gap_that_was_missed_does_not_shorten_the_path() {
        assert_eq!(after(&[0, 80]), 80);
        let mut gaps = vec![80; 20];
        gaps.extend([0, 80, 80, 0, 80, 81, 90]);
        assert_eq!(after(&gaps), 90);
        gaps.push(1_000_000);
        assert!((60..90).contains(&after(&gaps)), "{}", after(&gaps));
    }

    #[test]
    fn a_busy_machine_does_not_take_its_own_delay_for_thinking() {
        for (unseen_ns, estimate_ns) in [(0, 100_000), (199_000, 100_000), (200_000, 1_000_000)] {
            let mut path = Path::default();
            path.depart(0);
            path.arrive(100_000, 0);
            path.depart(200_000);
            path.arrive(1_200_000, unseen_ns);
            assert_eq!(path.estimate_ns(), estimate_ns);
        }
    }

    #[test]
    fn a_request_before_the_reply_tells_nothing() {
        let mut path = Path::default();
        path.depart(1_000);
        path.arrive(1_100, 0);
        path.arrive(1_900, 0);
        assert_eq!(path.estimate_ns(), 100);
        path.depart(2_000);
        path.depart(2_500);
        path.arrive(2_600, 0);
        assert_eq!(path.estimate_ns(), 100, "from the last reply on");
    }

    #[test]
    fn a_clock_that_went_back_is_no_path() {
        let mut path = Path::default();
        path.depart(1_000);
        path.arrive(900, 0);
        assert_eq!(path.estimate_ns(), 0);
    }
}
