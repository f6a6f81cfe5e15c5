//! The order in which a segment is looked at (RFC 9293 section 3.10.7.4), and the short way for most of them.

use super::connection::{Connection, Context, Effects, State};
use super::segment::{Flags, Segment};
use super::sequence::Seq;
use crate::buffer::{Buffer, Chain};

impl<B: Buffer> Connection<B> {
    /// Takes a segment with its payload. What the application is to know is added to `effects`; what is to be
    /// sent is for [`Connection::emit`] to find.
    pub fn input(
        &mut self,
        context: &mut Context<'_>,
        mut segment: Segment,
        payload: &mut Chain<B>,
        effects: &mut Effects<B>,
    ) {
        self.heard(context);
        if self.is_predicted(&segment) {
            return self.input_predicted(context, &segment, payload, effects);
        }
        if self.state == State::SynSent {
            return self.input_syn_sent(context, &segment, payload, effects);
        }
        if !self.accept(context, &mut segment, payload, effects) {
            return;
        }
        if self.state == State::SynReceived && !self.open(context, &segment, effects) {
            return;
        }
        if self.acknowledge(context, &segment, effects) && self.state != State::Closed {
            self.deliver(context, &segment, payload, effects);
            self.settle(effects);
        }
    }

    /// The peer is there.
    fn heard(&mut self, context: &Context<'_>) {
        self.heard_at = context.now;
        if let Some(keep_alive) = context.settings.keep_alive {
            self.deadlines.keep_alive.get_or_insert(context.now + keep_alive.idle);
        }
    }

    /// Whether a segment is the one expected of a connection in which nothing is amiss (Jacobson's header
    /// prediction): then none of the rare cases has to be looked for.
    fn is_predicted(&self, segment: &Segment) -> bool {
        let (send, receive) = (&self.send, &self.receive);
        self.state == State::Established
            && segment.flags.is_plain_ack()
            && segment.seq == receive.next
            && segment.len <= receive.edge.since(receive.next)
            && send.una.at_most(segment.ack)
            && segment.ack.at_most(send.max)
            && send.next == send.max
            && u32::from(segment.window) << send.scale == send.window
            && segment.options.sack[0].is_none()
            && self.recovery.duplicates == 0
            && self.recovery.point.is_none()
            && self.recovery.flight.is_plain()
            && receive.reassembly.is_empty()
            && receive.fin.is_none()
            && self.is_stamp_expected(segment)
            && (segment.len > 0 || segment.ack != send.una)
    }

    fn is_stamp_expected(&self, segment: &Segment) -> bool {
        match (self.stamps, segment.options.timestamps) {
            (Some(stamps), Some(theirs)) => Seq(stamps.recent).at_most(Seq(theirs.value)),
            _ => true,
        }
    }

    fn input_predicted(
        &mut self,
        context: &mut Context<'_>,
        segment: &Segment,
        payload: &mut Chain<B>,
        effects: &mut Effects<B>,
    ) {
        self.remember_stamp(context, segment);
        self.note_life(segment);
        if segment.ack != self.send.una {
            self.advance(context, segment, effects);
        }
        self.send.window_by = (segment.seq, segment.ack);
        if segment.len > 0 {
            self.tune_window(context, segment);
            self.take_in_order(context, segment.len, payload, effects);
        }
    }
}

impl Flags {
    /// ACK, perhaps with PSH.
    fn is_plain_ack(self) -> bool {
        self.any(Flags::ACK) && !self.any(Flags::SYN | Flags::FIN | Flags::RST)
    }
}
