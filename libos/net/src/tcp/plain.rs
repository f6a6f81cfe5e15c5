//! The short way of a segment that nothing is unusual about, in either direction: Jacobson's header
//! prediction. What it does is what `input` and `emit` would do, rare cases left out that were looked for
//! once; whatever is not plain goes the long way.

use super::connection::{Connection, Context, Effects, State};
use super::segment::{Flags, Options, STAMPS, Segment, Timestamps};
use super::sequence::Seq;
use crate::buffer::Buffer;

/// A segment with ACK set and neither SYN, FIN, RST nor options but timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Sequence number of the first byte.
    pub seq: Seq,
    /// The next byte expected.
    pub ack: Seq,
    /// Window, not yet scaled.
    pub window: u16,
    /// Bytes of payload.
    pub len: u32,
    /// Timestamps.
    pub stamps: Option<Timestamps>,
}

impl Plain {
    /// Bytes of its TCP options.
    #[inline]
    pub fn options_len(&self) -> usize {
        if self.stamps.is_some() { STAMPS } else { 0 }
    }

    /// The same as any segment is told.
    pub fn whole(&self) -> Segment {
        let Plain { seq, ack, window, len, stamps } = *self;
        let options = Options { timestamps: stamps, ..Options::default() };
        Segment { seq, ack, flags: Flags::ACK, window, options, len }
    }
}

impl<B: Buffer> Connection<B> {
    /// Takes a segment, but for its payload, if it is the one expected of a connection in which nothing is
    /// amiss; whether it was taken. A segment that was has its payload next in order.
    #[inline]
    pub fn input_plain(
        &mut self,
        context: &mut Context<'_>,
        segment: &Plain,
        effects: &mut Effects<B>,
    ) -> bool {
        if !self.is_expected(segment) {
            return false;
        }
        self.heard(context);
        if let (Some(stamps), Some(theirs)) = (&mut self.stamps, segment.stamps)
            && segment.seq.at_most(self.receive.acknowledged)
        {
            (stamps.recent, stamps.recent_at) = (theirs.value, context.now);
        }
        self.note_life(segment.ack, segment.window);
        if segment.ack != self.send.una {
            self.advance(context, segment.ack, segment.stamps, effects);
        }
        // A segment that is next in order is younger than whichever set the window last.
        self.send.window = u32::from(segment.window) << self.send.scale;
        self.send.window_max = self.send.window_max.max(self.send.window);
        self.send.window_by = (segment.seq, segment.ack);
        self.stop_probing();
        if segment.len > 0 {
            if context.now >= self.receive.tuning.until {
                self.tune_window(context, segment.stamps);
            }
            self.note_in_order(context, segment.len);
        }
        true
    }

    /// Whether none of the rare cases has to be looked for.
    #[inline]
    fn is_expected(&self, segment: &Plain) -> bool {
        let (send, receive) = (&self.send, &self.receive);
        self.state == State::Established
            && segment.seq == receive.next
            && segment.len <= receive.edge.since(receive.next)
            && send.una.at_most(segment.ack)
            && segment.ack.at_most(send.max)
            && send.next == send.max
            && segment.window > 0
            && self.rare.is_plain()
            && self.recovery.flight.is_plain()
            && receive.reassembly.is_empty()
            && (segment.len > 0 || segment.ack != send.una)
            && match (self.stamps, segment.stamps) {
                (Some(stamps), Some(theirs)) => Seq(stamps.recent).at_most(Seq(theirs.value)),
                _ => true,
            }
    }

    /// The next segment to send now, if nothing is amiss and all that is queued and was not sent fits into
    /// it; PSH is to be set. `None` says only that [`Connection::emit`] has to be asked.
    #[inline]
    pub fn emit_plain(&mut self, context: &mut Context<'_>) -> Option<Plain> {
        let now = context.now;
        let (send, recovery) = (&self.send, &self.recovery);
        let len = send.end().since(send.next);
        let options = if self.stamps.is_some() { STAMPS as u32 } else { 0 };
        let flying = send.max.since(send.una);
        let is_plain = self.state == State::Established
            && len > 0
            && len + options <= send.mss
            && send.next == send.max
            && len <= (send.una + send.window).since(send.next)
            && flying + len <= self.cubic.window()
            && !send.is_closing
            && self.rare.is_plain()
            && self.rare.is_quiet()
            && recovery.flight.is_plain()
            && !recovery.rack.is_tail_due()
            && self.receive.reassembly.is_empty()
            && self.lets_small_go();
        if !is_plain {
            return None;
        }
        let silence_ns = now.nanos_since(self.sent_at);
        if flying == 0 && self.rtt.may_be_over(silence_ns) && silence_ns > self.rtt.timeout_ns() {
            return None;
        }
        let stamps =
            self.stamps.map(|stamps| Timestamps { value: self.stamp_clock(now), echo: stamps.recent });
        let (seq, window) = (self.send.next, self.promise());
        let end = seq + len;
        self.is_small_allowed = false;
        self.timed.get_or_insert((end, now));
        self.recovery.flight.sent(self.send.una, seq, end, now);
        self.note_sent(now, end);
        Some(Plain { seq, ack: self.receive.next, window, len, stamps })
    }
}
