//! The batching delay W: hold packets to handle them together, none of them longer than W.
//!
//! A batch counts; the packets themselves stay where they are, received ones in the stack's queue, those to
//! send in the device's ring. One batch serves each direction. The transmitting side flushes because of time
//! or of the ring; the receiving side also when the device has nothing more. With W = 0 nothing is held.

use crate::time::Instant;
use core::time::Duration;

/// The longest delay that may be set.
pub const DELAY_MAX: Duration = Duration::from_micros(10_000);

/// What becomes of packets that are there at the same time, if none is held: with W = 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unheld {
    /// Each is handled and sent by itself, as the paper has it.
    #[default]
    Alone,
    /// What is there anyway is handled together, up to a batch, and the device is told of a few at a time.
    Together,
}

/// Why a batch was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The delay is zero: nothing is held.
    Unheld,
    /// The first packet has waited W.
    Time,
    /// The batch threatens to overflow the ring.
    Ring,
    /// A packet of it may not be held for as long.
    Urgent,
    /// The device has nothing more to come.
    NothingMore,
}

/// Flushes and the packets that they carried, of one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Batches flushed.
    pub flushes: u64,
    /// Packets in them.
    pub packets: u64,
}

/// Flushes by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Of [`Reason::Unheld`].
    pub unheld: Tally,
    /// Of [`Reason::Time`].
    pub time: Tally,
    /// Of [`Reason::Ring`].
    pub ring: Tally,
    /// Of [`Reason::Urgent`].
    pub urgent: Tally,
    /// Of [`Reason::NothingMore`].
    pub nothing_more: Tally,
}

impl core::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.flushes += other.flushes;
        self.packets += other.packets;
    }
}

impl core::ops::AddAssign for Tallies {
    fn add_assign(&mut self, other: Tallies) {
        self.unheld += other.unheld;
        self.time += other.time;
        self.ring += other.ring;
        self.urgent += other.urgent;
        self.nothing_more += other.nothing_more;
    }
}

impl Tallies {
    /// Each tally with its reason's name.
    pub fn named(&self) -> [(&'static str, Tally); 5] {
        let Tallies { unheld, time, ring, urgent, nothing_more } = *self;
        [
            ("unheld", unheld),
            ("time", time),
            ("ring", ring),
            ("urgent", urgent),
            ("nothing_more", nothing_more),
        ]
    }

    #[inline]
    fn count(&mut self, reason: Reason, packets: usize) {
        let tally = match reason {
            Reason::Unheld => &mut self.unheld,
            Reason::Time => &mut self.time,
            Reason::Ring => &mut self.ring,
            Reason::Urgent => &mut self.urgent,
            Reason::NothingMore => &mut self.nothing_more,
        };
        tally.flushes += 1;
        tally.packets += packets as u64;
    }
}

/// A delay above [`DELAY_MAX`], which is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayTooLong(pub Duration);

impl core::fmt::Display for DelayTooLong {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            out,
            "a batching delay of {} us: at most {} are possible",
            self.0.as_micros(),
            DELAY_MAX.as_micros()
        )
    }
}

impl core::error::Error for DelayTooLong {}

/// Packets held since the last flush.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch {
    held: usize,
    /// When the first held packet came.
    first: Option<Instant>,
    /// When one of them must go that may not be held for W.
    urgent: Option<Instant>,
    delay: Duration,
    tallies: Tallies,
}

impl Batch {
    /// Sets W. Packets already held become due as if it had always been so.
    ///
    /// # Errors
    /// If `delay` is longer than [`DELAY_MAX`]; the old delay stays.
    pub fn set_delay(&mut self, delay: Duration) -> Result<(), DelayTooLong> {
        if delay > DELAY_MAX {
            return Err(DelayTooLong(delay));
        }
        self.delay = delay;
        Ok(())
    }

    /// W.
    #[inline]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Holds one more packet, which came at `at`.
    #[inline]
    pub fn push(&mut self, at: Instant) {
        self.first.get_or_insert(at);
        self.held += 1;
    }

    /// The packet that was held last must go at `due`, if not sooner: all others go with it.
    #[inline]
    pub fn hurry(&mut self, due: Instant) {
        self.urgent = Some(self.urgent.map_or(due, |before| before.min(due)));
    }

    /// Packets held.
    #[inline]
    pub fn len(&self) -> usize {
        self.held
    }

    /// Whether nothing is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// When the held packets must go at the latest.
    #[inline]
    pub fn due(&self) -> Option<Instant> {
        let due = self.first? + self.delay;
        Some(self.urgent.map_or(due, |urgent| urgent.min(due)))
    }

    /// Why the batch must be flushed now, if it must. `ring_threatened` says that the ring is close to
    /// overflowing.
    #[inline]
    pub fn reason(&self, now: Instant, ring_threatened: bool) -> Option<Reason> {
        let due = self.first? + self.delay;
        if self.delay.is_zero() {
            Some(Reason::Unheld)
        } else if now >= due {
            Some(Reason::Time)
        } else if self.urgent.is_some_and(|urgent| now >= urgent) {
            Some(Reason::Urgent)
        } else {
            ring_threatened.then_some(Reason::Ring)
        }
    }

    /// Counts a packet that was not held.
    #[inline]
    pub fn count_unheld(&mut self) {
        self.tallies.count(Reason::Unheld, 1);
    }

    /// Forgets the held packets, counted under `reason`, and says how many there were. An empty batch is not
    /// counted.
    #[inline]
    pub fn flush(&mut self, reason: Reason) -> usize {
        if self.held > 0 {
            self.tallies.count(reason, self.held);
        }
        (self.first, self.urgent) = (None, None);
        core::mem::take(&mut self.held)
    }

    /// Flushes by reason so far.
    pub fn tallies(&self) -> Tallies {
        self.tallies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_micros(micros)
    }

    fn batch(delay: u64) -> Batch {
        let mut batch = Batch::default();
        batch.set_delay(Duration::from_micros(delay)).unwrap();
        batch
    }

    #[test]
    fn no_delay_holds_nothing() {
        let mut batch = batch(0);
        assert_eq!(batch.reason(at(5), true), None);
        batch.push(at(5));
        assert_eq!(batch.reason(at(5), false), Some(Reason::Unheld));
        assert_eq!(batch.flush(Reason::Unheld), 1);
        assert_eq!(batch.tallies().unheld, Tally { flushes: 1, packets: 1 });
    }

    #[test]
    fn the_first_packet_decides_when_all_go() {
        let mut batch = batch(20);
        batch.push(at(100));
        batch.push(at(119));
        assert_eq!((batch.due(), batch.reason(at(119), false)), (Some(at(120)), None));
        assert_eq!(batch.reason(at(120), false), Some(Reason::Time));
        assert_eq!(batch.flush(Reason::Time), 2);
        assert_eq!((batch.due(), batch.len()), (None, 0));
        assert_eq!(batch.tallies().time, Tally { flushes: 1, packets: 2 });
    }

    #[test]
    fn a_packet_that_may_not_be_held_as_long_takes_all_with_it() {
        let mut batch = batch(1000);
        batch.push(at(0));
        assert_eq!((batch.due(), batch.reason(at(3), false)), (Some(at(1000)), None));
        batch.push(at(3));
        batch.hurry(at(9));
        batch.hurry(at(12));
        assert_eq!((batch.due(), batch.reason(at(8), false)), (Some(at(9)), None));
        assert_eq!(batch.reason(at(9), false), Some(Reason::Urgent));
        assert_eq!(batch.flush(Reason::Urgent), 2);
        assert_eq!(batch.tallies().urgent, Tally { flushes: 1, packets: 2 });
        batch.push(at(4));
        assert_eq!(batch.reason(at(4), false), None, "the next is held again");
    }

    #[test]
    fn a_ring_about_to_overflow_flushes_before_time() {
        let mut batch = batch(1000);
        assert_eq!(batch.reason(at(0), true), None, "nothing is held");
        batch.push(at(0));
        assert_eq!(batch.reason(at(1), false), None);
        assert_eq!(batch.reason(at(1), true), Some(Reason::Ring));
    }

    #[test]
    fn a_shorter_delay_applies_to_what_is_held() {
        let mut batch = batch(1000);
        batch.push(at(0));
        batch.set_delay(Duration::from_micros(10)).unwrap();
        assert_eq!(batch.reason(at(10), false), Some(Reason::Time));
    }

    #[test]
    fn a_delay_beyond_the_limit_is_refused_and_named() {
        let mut batch = batch(7);
        let error = batch.set_delay(Duration::from_micros(10_001)).unwrap_err();
        assert_eq!(error.to_string(), "a batching delay of 10001 us: at most 10000 are possible");
        assert_eq!(batch.delay(), Duration::from_micros(7));
    }

    #[test]
    fn an_empty_flush_is_not_counted() {
        let mut batch = batch(7);
        assert_eq!(batch.flush(Reason::NothingMore), 0);
        assert_eq!(batch.tallies(), Tallies::default());
    }
}
