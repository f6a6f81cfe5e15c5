//! Whether a segment belongs here and now (RFC 9293 section 3.10.7.4, first to fifth; RFC 7323 section 5; RFC
//! 5961).

use super::connection::{Closed, Connection, Context, Effects, State};
use super::segment::{Flags, Segment};
use super::sequence::Seq;
use crate::buffer::{Buffer, Chain};
use crate::chain;
use core::time::Duration;

/// Timestamps older than this say nothing any more (RFC 7323 section 5.5).
const STAMP_LIFE: Duration = Duration::from_secs(24 * 24 * 3600);
/// The least time between challenges of one connection (RFC 5961 section 7).
const CHALLENGE_GAP: Duration = Duration::from_millis(100);

impl<B: Buffer> Connection<B> {
    /// Whether `segment` is to be taken. If so, it and its payload are cut to the window.
    pub fn accept(
        &mut self,
        context: &mut Context<'_>,
        segment: &mut Segment,
        payload: &mut Chain<B>,
        effects: &mut Effects<B>,
    ) -> bool {
        if !self.is_recent(context, segment) {
            context.counters.dropped_tcp_timestamp += 1;
            self.challenge(context);
            return false;
        }
        if self.is_crossed_answer(segment) {
            segment.seq = segment.seq + 1;
            segment.flags = segment.flags.without(Flags::SYN);
        }
        if self.is_window_shut_for(segment) {
            // RFC 9293 section 3.10.7.4: of a probe of a closed window the acknowledgement counts, and it is
            // answered. `trim` takes the rest.
            context.counters.dropped_tcp_window += 1;
            self.receive.is_acknowledgement_due = true;
        } else if !self.is_in_window(segment) {
            context.counters.dropped_tcp_window += 1;
            self.answer_stranger(context, segment);
            return false;
        }
        if segment.flags.any(Flags::RST) {
            self.take_reset(context, segment, effects);
            return false;
        }
        if segment.flags.any(Flags::SYN) {
            context.counters.dropped_tcp_syn += 1;
            self.challenge(context);
            return false;
        }
        if !segment.flags.any(Flags::ACK) {
            context.counters.dropped_tcp_flags += 1;
            return false;
        }
        self.remember_stamp(context, segment);
        self.trim(segment, payload);
        true
    }

    /// Protection against wrapped sequence numbers (RFC 7323 section 5.3, R1). Resets are exempt (section
    /// 5.2), and so is a peer that stops stamping: that breaks no rule that it can be held to.
    fn is_recent(&self, context: &Context<'_>, segment: &Segment) -> bool {
        let (Some(stamps), Some(theirs)) = (self.stamps, segment.options.timestamps) else { return true };
        let is_old = Seq(theirs.value).before(Seq(stamps.recent));
        !is_old || segment.flags.any(Flags::RST) || context.now - stamps.recent_at > STAMP_LIFE
    }

    /// The table of section 3.10.7.4, which also takes a segment that overlaps the window on both sides. The
    /// window is what we promised, not what we would promise now.
    fn is_in_window(&self, segment: &Segment) -> bool {
        let (next, edge) = (self.receive.next, self.receive.edge);
        match segment.sequence_len() {
            0 => segment.seq == next || next.at_most(segment.seq) && segment.seq.before(edge),
            _ if next == edge => false,
            _ => segment.seq.before(edge) && next.before(segment.end()),
        }
    }

    /// The peer's answer to a SYN of ours that crossed its own (RFC 9293 figure 7): its SYN we have already,
    /// what is new is that it has ours.
    fn is_crossed_answer(&self, segment: &Segment) -> bool {
        self.state == State::SynReceived
            && segment.flags.any(Flags::SYN)
            && segment.flags.any(Flags::ACK)
            && segment.seq + 1 == self.receive.next
            && segment.ack == self.send.una + 1
    }

    /// Whether a segment brings the next bytes while we take none.
    fn is_window_shut_for(&self, segment: &Segment) -> bool {
        let is_shut = self.receive.next == self.receive.edge;
        is_shut && segment.len > 0 && segment.seq == self.receive.next && !segment.flags.any(Flags::SYN)
    }

    /// Outside the window: acknowledge, so that the peer learns where we are; a SYN sent again wants ours
    /// again.
    fn answer_stranger(&mut self, context: &mut Context<'_>, segment: &Segment) {
        let is_syn = segment.flags.any(Flags::SYN);
        if segment.flags.any(Flags::RST) {
            return;
        }
        if self.state == State::SynReceived && is_syn && segment.seq + 1 == self.receive.next {
            self.send.next = self.send.una;
        } else if segment.len > 0 {
            self.note_twice(segment.seq, segment.end().min(self.receive.next));
            self.receive.is_acknowledgement_due = true;
        } else {
            self.challenge(context);
        }
    }

    /// Only a reset at exactly the next byte is believed (RFC 5961 section 3.2).
    fn take_reset(&mut self, context: &mut Context<'_>, segment: &Segment, effects: &mut Effects<B>) {
        if segment.seq == self.receive.next {
            self.end(Closed::Reset, effects);
        } else {
            context.counters.dropped_tcp_reset += 1;
            self.challenge(context);
        }
    }

    /// Sends an acknowledgement to a peer that may not be the peer, but not too many.
    pub fn challenge(&mut self, context: &mut Context<'_>) {
        if self.rare.no_challenge_before.is_some_and(|until| context.now < until) {
            context.counters.challenges_limited += 1;
            return;
        }
        self.rare.make().no_challenge_before = Some(context.now + CHALLENGE_GAP);
        self.receive.is_acknowledgement_due = true;
    }

    /// TS.Recent (RFC 7323 section 4.3).
    pub fn remember_stamp(&mut self, context: &Context<'_>, segment: &Segment) {
        if let (Some(stamps), Some(theirs)) = (&mut self.stamps, segment.options.timestamps)
            && segment.seq.at_most(self.receive.acknowledged)
        {
            stamps.recent = theirs.value;
            stamps.recent_at = context.now;
        }
    }

    /// Bytes came that were there already: the peer is told (RFC 2883), and learns that what it sent again
    /// was not lost.
    pub(super) fn note_twice(&mut self, from: Seq, to: Seq) {
        if from.before(to) {
            self.rare.make().twice = Some((from, to));
            self.receive.quick = super::deliver::QUICK;
        }
    }

    /// Cuts off what came before and what was not asked for.
    fn trim(&mut self, segment: &mut Segment, payload: &mut Chain<B>) {
        let before = self.receive.next.since(segment.seq).min(segment.len);
        if before > 0 {
            self.note_twice(segment.seq, segment.seq + before);
            chain::advance(payload, before as usize);
            segment.seq = segment.seq + before;
            segment.len -= before;
        }
        let room = self.receive.edge.since(segment.seq);
        if segment.len > room {
            chain::truncate(payload, room as usize);
            segment.len = room;
            segment.flags = segment.flags.without(Flags::FIN);
        }
    }
}
