//! The batching delay W: hold packets to handle them together, none of them longer than W.
//!
//! One batch serves each direction. The transmitting side flushes because of time or of the ring; the receiving
//! side also when the device has nothing more. With W = 0 nothing is held: every packet is its own batch.

use crate::time::Instant;
use alloc::collections::VecDeque;
use core::time::Duration;

/// The longest delay that may be set.
pub const DELAY_MAX: Duration = Duration::from_micros(10_000);

/// Why a batch was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The delay is zero: nothing is held.
    Unheld,
    /// The first packet has waited W.
    Time,
    /// The batch threatens to overflow the ring.
    Ring,
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
    /// Of [`Reason::NothingMore`].
    pub nothing_more: Tally,
}

impl Tallies {
    fn count(&mut self, reason: Reason, packets: usize) {
        let tally = match reason {
            Reason::Unheld => &mut self.unheld,
            Reason::Time => &mut self.time,
            Reason::Ring => &mut self.ring,
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

/// Packets held in order until they are flushed together.
#[derive(Debug)]
pub struct Batch<P> {
    held: VecDeque<P>,
    /// When the first held packet came.
    first: Option<Instant>,
    delay: Duration,
    ring_room: usize,
    tallies: Tallies,
}

impl<P> Batch<P> {
    /// An empty batch that holds nothing, before a ring with room for `ring_room` packets.
    pub fn new(ring_room: usize) -> Batch<P> {
        Batch {
            held: VecDeque::new(),
            first: None,
            delay: Duration::ZERO,
            ring_room,
            tallies: Tallies::default(),
        }
    }

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
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Says how many packets the ring can take now.
    pub fn set_ring_room(&mut self, ring_room: usize) {
        self.ring_room = ring_room;
    }

    /// Holds one more packet.
    pub fn push(&mut self, now: Instant, packet: P) {
        self.first.get_or_insert(now);
        self.held.push_back(packet);
    }

    /// Packets held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// When the held packets must go at the latest.
    pub fn due(&self) -> Option<Instant> {
        self.first.map(|first| first + self.delay)
    }

    /// Why the batch must be flushed now, if it must.
    pub fn reason(&self, now: Instant) -> Option<Reason> {
        let due = self.due()?;
        if self.delay.is_zero() {
            Some(Reason::Unheld)
        } else if now >= due {
            Some(Reason::Time)
        } else if self.held.len() >= self.ring_room {
            Some(Reason::Ring)
        } else {
            None
        }
    }

    /// Takes every held packet, counted under `reason`. Of an empty batch nothing is taken nor counted.
    pub fn flush(&mut self, reason: Reason) -> VecDeque<P> {
        if !self.held.is_empty() {
            self.tallies.count(reason, self.held.len());
        }
        self.first = None;
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

    fn batch(delay: u64, room: usize) -> Batch<u32> {
        let mut batch = Batch::new(room);
        batch.set_delay(Duration::from_micros(delay)).unwrap();
        batch
    }

    #[test]
    fn no_delay_holds_nothing() {
        let mut batch = batch(0, 8);
        assert_eq!(batch.reason(at(5)), None);
        batch.push(at(5), 1);
        assert_eq!(batch.reason(at(5)), Some(Reason::Unheld));
        assert_eq!(batch.flush(Reason::Unheld), [1]);
        assert_eq!(batch.tallies().unheld, Tally { flushes: 1, packets: 1 });
    }

    #[test]
    fn the_first_packet_decides_when_all_go() {
        let mut batch = batch(20, 8);
        batch.push(at(100), 1);
        batch.push(at(119), 2);
        assert_eq!((batch.due(), batch.reason(at(119))), (Some(at(120)), None));
        assert_eq!(batch.reason(at(120)), Some(Reason::Time));
        assert_eq!(batch.flush(Reason::Time), [1, 2]);
        assert_eq!((batch.due(), batch.len()), (None, 0));
        assert_eq!(batch.tallies().time, Tally { flushes: 1, packets: 2 });
    }

    #[test]
    fn a_ring_about_to_overflow_flushes_before_time() {
        let mut batch = batch(1000, 2);
        batch.push(at(0), 1);
        assert_eq!(batch.reason(at(1)), None);
        batch.push(at(1), 2);
        assert_eq!(batch.reason(at(1)), Some(Reason::Ring));
    }

    #[test]
    fn a_shorter_delay_applies_to_what_is_held() {
        let mut batch = batch(1000, 8);
        batch.push(at(0), 1);
        batch.set_delay(Duration::from_micros(10)).unwrap();
        assert_eq!(batch.reason(at(10)), Some(Reason::Time));
    }

    #[test]
    fn a_delay_beyond_the_limit_is_refused_and_named() {
        let mut batch = batch(7, 8);
        let error = batch.set_delay(Duration::from_micros(10_001)).unwrap_err();
        assert_eq!(error.to_string(), "a batching delay of 10001 us: at most 10000 are possible");
        assert_eq!(batch.delay(), Duration::from_micros(7));
    }

    #[test]
    fn an_empty_flush_is_not_counted() {
        let mut batch = batch(7, 8);
        assert!(batch.flush(Reason::NothingMore).is_empty());
        assert_eq!(batch.tallies(), Tallies::default());
    }
}
