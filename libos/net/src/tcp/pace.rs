//! Pacing: a window that takes a while to arrive is sent over its round trip rather than in bursts, which
//! overflow the queue in front of a narrow line long before the path is full (Aggarwal, Savage and Anderson
//! 2000; the rates are those of Linux's `tcp_update_pacing_rate`).
//!
//! It costs a timer, and small batches, so it is done only where it brings something: over round trips that
//! are long beside a burst, and for who has more in flight than anybody may send at once.

use super::connection::Connection;
use crate::buffer::Buffer;
use crate::time::Instant;

/// What goes in one burst, as time at the rate: Linux's, too.
const BURST_NS: u64 = 1_000_000;
/// In a shorter round trip there are too few bursts to tell them from the window.
const ROUND_TRIP_MIN_NS: u64 = 4 * BURST_NS;
/// Longer than any timeout, and so than any round trip; that of 2^36 ns can be counted with.
const ROUND_TRIP_MAX_NS: u64 = 60_000_000_000;
/// In flight, in segments, what may go at once, as at the beginning of a connection (RFC 6928).
const UNPACED: u32 = 10;
/// A burst has room for two segments, as a peer acknowledges every second (RFC 5681 section 4.2).
const LEAST: u32 = 2;
/// The rate in tenths of a window in a round trip: twice where the window doubles, and a little more than it
/// elsewhere, so that pacing does not keep it from being used.
const GAIN_OF_SLOW_START: u64 = 20;
const GAIN: u64 = 12;

/// When the next burst may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// When all that was sent is gone at the rate.
    gone: Instant,
    /// Nothing new before this.
    pub until: Option<Instant>,
}

impl Pace {
    /// Before anything is sent.
    pub const IDLE: Pace = Pace { gone: Instant::from_nanos(0), until: None };

    /// Whether it says nothing any more.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none() && self.gone <= now
    }

    /// Bytes that may go now, at so much a byte: a burst has room for at least `least`.
    fn room(&mut self, now: Instant, price: u64, least: u32) -> u32 {
        if self.until.is_some_and(|until| now < until) {
            return 0;
        }
        self.until = None;
        let burst_ns = BURST_NS.max(takes_ns(least, price));
        let room = (burst_ns.saturating_sub(self.gone.nanos_since(now)) << SHIFT) / price;
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// So many bytes go.
    fn sent(&mut self, now: Instant, price: u64, len: u32) {
        self.gone = self.gone.max(now).plus_nanos(takes_ns(len, price));
    }
}

/// How long so many bytes take.
fn takes_ns(len: u32, price: u64) -> u64 {
    // Rounded up, so that what takes no time at all is not sent without end.
    (u64::from(len) * price).div_ceil(1 << SHIFT)
}

/// Binary digits behind the point of what a byte takes, in nanoseconds.
const SHIFT: u32 = 16;

impl<B: Buffer> Connection<B> {
    /// What a byte takes at the rate, if what is sent now is paced: nanoseconds, shifted by [`SHIFT`].
    fn price(&self) -> Option<u64> {
        let (little, window) = (UNPACED * self.send.mss, self.cubic.window());
        // While a loss is mended, what arrives says when the next goes.
        if self.send.max.since(self.send.una) < little || window < little || self.rare.point.is_some() {
            return None;
        }
        // Not the smoothed one: that follows too late, and paces by what the handshake took.
        let rtt_ns = 1000 * u64::from(self.recovery.rack.rtt_us());
        if rtt_ns < ROUND_TRIP_MIN_NS {
            return None;
        }
        let gain = if self.cubic.in_slow_start() { GAIN_OF_SLOW_START } else { GAIN };
        Some(((rtt_ns.min(ROUND_TRIP_MAX_NS) << SHIFT) * 10 / (u64::from(window) * gain)).max(1))
    }

    /// Of `len` bytes that could go now, how many do, in segments of `mss`: the others follow later.
    pub(super) fn paced(&mut self, now: Instant, len: u32, mss: u32) -> u32 {
        let Some(price) = self.price() else { return len };
        let pace = &mut self.rare.make().pace;
        let room = pace.room(now, price, LEAST * mss);
        let len = if len <= room { len } else { room / mss * mss };
        match len {
            0 => _ = pace.until.get_or_insert(pace.gone),
            _ => pace.sent(now, price, len),
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;
    /// A megabyte a second: a burst is a kilobyte, and so two segments.
    const PRICE: u64 = 1000 << SHIFT;

    fn at(micros: u64) -> Instant {
        Instant::from_micros(micros)
    }

    #[test]
    fn bursts_go_at_the_rate() {
        let mut pace = Pace::IDLE;
        let mut sent = 0;
        for micros in (10_000..20_000).step_by(100) {
            while pace.room(at(micros), PRICE, 2 * MSS) >= MSS {
                pace.sent(at(micros), PRICE, MSS);
                sent += MSS;
            }
            pace.until.get_or_insert(pace.gone);
        }
        assert_eq!(sent, 10_000, "as much as 10 ms take");
        assert_eq!(pace.until, Some(at(20_000)));
    }

    #[test]
    fn who_was_silent_has_a_burst_and_no_more() {
        let mut pace = Pace::IDLE;
        pace.sent(at(10_000), PRICE, 2 * MSS);
        assert_eq!(
            pace.room(at(900_000), PRICE / 10, 2 * MSS),
            10 * MSS,
            "a millisecond of ten times the rate"
        );
        assert!(pace.is_over(at(900_000)) && !pace.is_over(at(11_000)));
    }
}
