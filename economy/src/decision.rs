//! One decision over all knobs: whose turn it is to move.
//!
//! Knobs turn at paces of their own, from milliseconds to seconds, and a grid of all their settings together
//! would explode. So each proposes its next move, in the same currency ([`Proposal`]). What is scarce is the
//! attention to one response: while a move settles, what is measured is that knob's, and no other may move or
//! learn. Of jobs for one server, that order earns most which takes first the one with the most value for the
//! time it takes (Smith, "Various optimizers for single-stage production", Naval Research Logistics 3, 1956).

use crate::units::{Dollars, DollarsPerSecond, Seconds};

/// What is turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// Batching delay and notice: the working point.
    Point,
    /// How many cores serve.
    Staff,
    /// How much memory is kept.
    Store,
    /// How many clients are admitted.
    Admission,
}

/// The move that a knob would make next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// What it is expected to bring.
    pub gain: DollarsPerSecond,
    /// What it costs once: windows that earn less, clients that move, what is destroyed.
    pub cost: Dollars,
    /// For how long the gain is of use.
    pub horizon: Seconds,
    /// How long it takes until it is known what the move does.
    pub settling: Seconds,
}

impl Proposal {
    /// What it is worth, for each second that nobody else moves.
    #[must_use]
    pub fn urgency(&self) -> f64 {
        let value = (self.gain * self.horizon).get() - self.cost.get();
        value / self.settling.get().max(f64::MIN_POSITIVE)
    }
}

/// What it is worth to go to a point, with intervals as the unit of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// Expected gain, in dollars a second.
    pub(crate) gain: f64,
    /// What it costs once, in dollars a second for an interval.
    pub(crate) cost: f64,
    /// Intervals for which what is gained is of use, and that pass until it is known.
    pub(crate) horizon: f64,
    pub(crate) settling: f64,
}

impl Worth {
    /// The same where an interval takes so long.
    #[must_use]
    pub fn proposal(&self, interval: Seconds) -> Proposal {
        let seconds = |intervals: f64| Seconds::new(intervals * interval.get()).unwrap_or_default();
        let rate = |dollars: f64| DollarsPerSecond::new(dollars).unwrap_or_default();
        Proposal {
            gain: rate(self.gain),
            cost: rate(self.cost) * interval,
            horizon: seconds(self.horizon),
            settling: seconds(self.settling),
        }
    }
}

/// Who has moved, and until when that settles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decision {
    last: Option<(Knob, u64, u64)>,
}

impl Decision {
    /// Whose move settles.
    #[must_use]
    pub fn holder(&self, now_ns: u64) -> Option<Knob> {
        // A clock that went back must not hold up anybody.
        self.last.filter(|(_, from_ns, to_ns)| (*from_ns..*to_ns).contains(&now_ns)).map(|(knob, ..)| knob)
    }

    /// Whose turn it is of those who propose; nobody's, as long as somebody's move settles. It then counts as
    /// made.
    pub fn choose(&mut self, now_ns: u64, proposals: &[(Knob, Proposal)]) -> Option<Knob> {
        if self.holder(now_ns).is_some() {
            return None;
        }
        let most = |one: &&(Knob, Proposal), other: &&(Knob, Proposal)| {
            one.1.urgency().total_cmp(&other.1.urgency())
        };
        let (knob, proposal) = proposals.iter().max_by(most)?;
        let length_ns = (proposal.settling.get() * 1e9) as u64;
        self.last = Some((*knob, now_ns, now_ns.saturating_add(length_ns)));
        Some(*knob)
    }

    /// The move has settled sooner: whoever made it knows.
    pub fn release(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLISECOND: u64 = 1_000_000;

    fn proposal(gain: f64, cost: f64, horizon: f64, settling: f64) -> Proposal {
        let seconds = |value| Seconds::new(value).expect("a time");
        Proposal {
            gain: DollarsPerSecond::new(gain).expect("finite"),
            cost: Dollars::new(cost).expect("finite"),
            horizon: seconds(horizon),
            settling: seconds(settling),
        }
    }

    #[test]
    fn the_page_s_example() {
        // docs/controller.md, "Several resources": cores first, then memory, then the delay.
        let point = proposal(0.02, 0.04, 10.0, 0.06);
        let staff = proposal(1.0, 0.9, 10.0, 0.6);
        let store = proposal(0.1, 0.0, 10.0, 0.2);
        let all = [(Knob::Store, store), (Knob::Staff, staff), (Knob::Point, point)];
        let mut decision = Decision::default();
        assert_eq!(decision.choose(0, &all), Some(Knob::Staff));
        assert_eq!(decision.holder(599 * MILLISECOND), Some(Knob::Staff));
        assert_eq!(decision.choose(599 * MILLISECOND, &all), None, "one at a time");
        assert_eq!(decision.choose(600 * MILLISECOND, &all[..1]), Some(Knob::Store));
        decision.release();
        assert_eq!(decision.choose(601 * MILLISECOND, &[]), None);
    }

    #[test]
    fn a_clock_that_went_back_holds_up_nobody() {
        let mut decision = Decision::default();
        let all = [(Knob::Admission, proposal(1.0, 0.0, 1.0, 1.0))];
        assert_eq!(decision.choose(u64::MAX, &all), Some(Knob::Admission));
        assert_eq!(decision.choose(5, &all), Some(Knob::Admission));
    }

    proptest! {
        /// Smith's rule: jobs in the order of value for time bring most, if what each brings it brings from
        /// its end on. (The value here is a rate; an exchange of two neighbours never pays.)
        #[test]
        fn no_other_order_of_two_earns_more(
            gains in prop::array::uniform2(0.01..10.0_f64),
            times in prop::array::uniform2(0.01..10.0_f64),
        ) {
            // Far off, the horizon is the same for both, and the value is the gain.
            let all = [0, 1].map(|at| proposal(gains[at], 0.0, 1.0, times[at]));
            let mut decision = Decision::default();
            let first = decision.choose(0, &[(Knob::Point, all[0]), (Knob::Staff, all[1])]);
            let lost = |one: usize, other: usize| {
                gains[one] * times[one] + gains[other] * (times[one] + times[other])
            };
            let chosen = if first == Some(Knob::Point) { lost(0, 1) } else { lost(1, 0) };
            prop_assert!(chosen <= lost(0, 1).min(lost(1, 0)) * (1.0 + 1e-9));
        }
    }
}
