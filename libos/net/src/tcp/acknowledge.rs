//! What the acknowledgement in a segment says (RFC 9293 section 3.10.7.4, fifth; RFC 5681; RFC 8985; RFC
//! 6582).

use super::congestion::Heard;
use super::connection::{Connection, Context, Effects, SmallSegments, State};
use super::flight::News;
use super::segment::{Flags, Segment, Timestamps};
use super::sequence::Seq;
use super::undo::Reduction;
use crate::buffer::Buffer;
use alloc::boxed::Box;

/// Duplicate acknowledgements that make a loss likely (RFC 5681 section 3.2).
pub(super) const DUPLICATES: u32 = 3;

impl<B: Buffer> Connection<B> {
    /// Takes the acknowledgement and the window of a segment; `false` if the segment is to be dropped.
    pub fn acknowledge(
        &mut self,
        context: &mut Context<'_>,
        segment: &Segment,
        effects: &mut Effects<B>,
    ) -> bool {
        // RFC 5961 section 5.2: neither from the future nor from a past that no peer remembers.
        let oldest = self.send.una - self.send.window_max;
        if self.send.max.before(segment.ack) || segment.ack.before(oldest) {
            context.counters.dropped_tcp_acknowledgement += 1;
            self.challenge(context);
            return false;
        }
        self.note_life(segment.ack, segment.window);
        let is_advance = self.send.una.before(segment.ack);
        let (una, flight) = (self.send.una, &self.recovery.flight);
        let (arrived, lost) = (flight.arrived(), flight.lost());
        let mut news = News::default();
        if is_advance {
            news = self.advance(context, segment.ack, segment.options.timestamps, effects);
        }
        if self.is_sack && segment.options.sack[0].is_some() {
            self.take_sack(context, segment, &mut news);
        }
        let is_duplicate = !is_advance && (news.is_any || self.is_duplicate(segment));
        if is_duplicate {
            self.rare.make().duplicates += 1;
        }
        self.take_window(segment, is_advance);
        self.look_forward(context, &news, is_advance, is_duplicate);
        self.consider_undo(context, segment, is_advance);
        self.consider_loss(context);
        let (acked, flight) = (self.send.una.since(una), &self.recovery.flight);
        let delivered = (acked + flight.arrived()).saturating_sub(arrived);
        self.note_delivered(delivered, is_advance && flight.lost() <= lost);
        true
    }

    /// Begins to count unanswered attempts anew. Whoever acknowledges nothing of what goes again and again is
    /// gone, whatever else he sends (R2, RFC 9293 section 3.8.3); but a peer that keeps its window shut, or
    /// speaks while nothing waits to be acknowledged, is there (sections 3.8.4 and 3.8.6.1). That it is there
    /// is not enough where nobody here waits for it to take the rest.
    #[inline]
    pub(super) fn note_life(&mut self, ack: Seq, window: u16) {
        let is_there = || self.deadlines.retransmit.is_none() || window == 0;
        let is_last = || self.is_orphan && self.send.is_closing;
        if self.send.una.before(ack) || is_there() && !is_last() {
            self.retries = 0;
        }
    }

    /// The definition of RFC 5681 section 2. With selective acknowledgements, only news counts (RFC 6675
    /// section 2).
    fn is_duplicate(&self, segment: &Segment) -> bool {
        !self.is_sack
            && segment.ack == self.send.una
            && self.send.una != self.send.max
            && segment.len == 0
            && !segment.flags.any(Flags::FIN)
            && u32::from(segment.window) << self.send.scale == self.send.window
    }

    /// Something new is acknowledged: what arrived by that.
    pub fn advance(
        &mut self,
        context: &mut Context<'_>,
        ack: Seq,
        stamps: Option<Timestamps>,
        effects: &mut Effects<B>,
    ) -> News {
        let una = self.send.una;
        let acked = ack.since(una);
        self.measure(context, ack, stamps);
        let was_limited = self.send.max.since(una) + self.send.mss >= self.cubic.window() / 2;
        let is_fin_acked = self.send.is_closing && self.send.end().before(ack);
        let queued = self.send.queue.len();
        self.send.queue.advance(acked as usize);
        context.held.queued -= queued - self.send.queue.len();
        self.send.una = ack;
        self.send.next = self.send.next.max(ack);
        let news = self.recovery.flight.acknowledged(una, ack);
        self.recovery.rack.take(context.now, &news);
        self.progress(ack, acked);
        if was_limited && self.rare.point.is_none() {
            let (rtt, max) = (self.recovery.rack.rtt(), self.send.max);
            let smoothed = self.rtt.smoothed().unwrap_or_default();
            self.cubic.acknowledged(context.now, &Heard { count: acked, ack, max, smoothed, rtt });
        }
        self.restart_timer(context);
        self.tell_room(context, effects);
        if is_fin_acked {
            self.fin_acknowledged(context, effects);
        }
        news
    }

    /// Takes a round-trip sample if there is one (RFC 6298 section 3; Karn: never of what was sent twice,
    /// unless the peer's echo says which of the two it was). The echo counts after a timeout, too: it is the
    /// only news of a path that became slower than the timeout, where everything is sent twice.
    #[inline]
    fn measure(&mut self, context: &Context<'_>, ack: Seq, stamps: Option<Timestamps>) {
        if let Some((end, at)) = self.timed {
            if end.at_most(ack) {
                self.timed = None;
                self.rtt.sample_ns(context.now.nanos_since(at));
            }
        } else if let (Some(_), Some(stamps)) = (self.stamps, stamps) {
            let millis = self.stamp_clock(context.now).wrapping_sub(stamps.echo);
            if stamps.echo != 0 && millis < 60_000 {
                self.rtt.sample_ns(u64::from(millis) * 1_000_000);
            }
        }
    }

    /// Recovery ends, or goes on with the next hole (RFC 6582 section 3.2 step 3, RFC 6675 section 5).
    #[inline]
    fn progress(&mut self, ack: Seq, acked: u32) {
        let Some(rare) = self.rare.some() else { return };
        rare.linger = None;
        if rare.not_before.is_some_and(|end| end.before(ack)) {
            rare.not_before = None;
        }
        match rare.point {
            Some(point) if ack.before(point) => {
                rare.duplicates = rare.duplicates.saturating_sub(acked / self.send.mss);
                // Without selective acknowledgements a partial one says that the next segment is lost, too.
                if !self.is_sack {
                    rare.is_first_due = true;
                    self.recovery.flight.lose_first(ack, self.send.mss);
                }
            }
            point => {
                (rare.point, rare.duplicates, rare.is_first_due) = (None, 0, false);
                if point.is_some() {
                    self.recovered();
                }
            }
        }
        self.probe_answered(ack);
    }

    /// RFC 6298 rules 5.2 and 5.3.
    #[inline]
    fn restart_timer(&mut self, context: &Context<'_>) {
        let is_quiet = self.send.una == self.send.max;
        self.deadlines.retransmit = (!is_quiet).then(|| context.now.plus_nanos(self.rtt.timeout_ns()));
        self.schedule_tail(context.now);
    }

    /// Says once that there is room, when half of the queue is free.
    #[inline]
    fn tell_room(&mut self, context: &Context<'_>, effects: &mut Effects<B>) {
        if self.send.is_awaited
            && self.send.queue.len() <= self.send_limit(context.settings, context.held) / 2
        {
            self.send.is_awaited = false;
            effects.sendable = true;
        }
    }

    /// The peer has all we had to say.
    fn fin_acknowledged(&mut self, context: &Context<'_>, effects: &mut Effects<B>) {
        self.send.is_closing = false;
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.is_orphan {
                    self.rare.make().linger = Some(context.now + context.settings.linger);
                }
            }
            State::Closing => self.state = State::TimeWait,
            State::LastAck => self.end(super::connection::Closed::Finished, effects),
            _ => {}
        }
    }

    /// SND.WND, unless the segment is older than the one that last set it: one that acknowledges something
    /// new is not, though it may fill a hole before that one, and the window begins where it acknowledges.
    fn take_window(&mut self, segment: &Segment, is_advance: bool) {
        let (seq, ack) = self.send.window_by;
        let is_later = seq.before(segment.seq) || seq == segment.seq && ack.at_most(segment.ack);
        if is_later || is_advance {
            self.send.window = u32::from(segment.window) << self.send.scale;
            self.send.window_max = self.send.window_max.max(self.send.window);
            self.send.window_by = (if is_later { segment.seq } else { seq }, segment.ack);
            if self.send.window > 0 {
                self.stop_probing();
            }
        }
    }

    /// The peer's window is open: nothing need be asked about it. A small segment that is held goes by the
    /// same clock, which no peer may stop: one that asks whether we are there would hold it for ever.
    #[inline]
    pub(super) fn stop_probing(&mut self) {
        if let Some(rare) = self.rare.some()
            && self.small_segments != SmallSegments::Held
        {
            rare.persist = None;
        }
    }

    /// Enters recovery if a segment is likely lost.
    fn consider_loss(&mut self, context: &mut Context<'_>) {
        let is_lost =
            if self.is_sack { self.detect_loss(context) > 0 } else { self.rare.duplicates >= DUPLICATES };
        if !is_lost
            || self.rare.point.is_some()
            || self.rare.not_before.is_some()
            || self.send.una == self.send.max
        {
            return;
        }
        self.begin_recovery(context);
    }

    /// A loss was found.
    pub(super) fn begin_recovery(&mut self, context: &mut Context<'_>) {
        context.counters.fast_retransmits += 1;
        if !self.is_sack {
            self.recovery.flight.lose_first(self.send.una, self.send.mss);
        }
        let flight = (self.send.una, self.send.max);
        let rare = self.rare.make();
        (rare.point, rare.is_first_due) = (Some(self.send.max), true);
        rare.reduction = Some(Box::new(Reduction::new(self.cubic, flight, false)));
        self.cubic.lost();
        self.note_delivered(0, false);
        self.timed = None;
    }
}
