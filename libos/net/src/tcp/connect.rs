//! A connection that we ask for (RFC 9293 sections 3.10.1 and 3.10.7.3).

use super::connection::{Closed, Connection, Context, Effects, Origin, Settings, State};
use super::segment::{Flags, Segment};
use crate::buffer::{Buffer, Chain};

impl<B: Buffer> Connection<B> {
    /// Asks a peer for a connection.
    pub fn ask(origin: Origin, settings: &Settings) -> Connection<B> {
        Connection::new(State::SynSent, origin, settings)
    }

    /// A segment while we wait for the answer to our SYN.
    pub(super) fn input_syn_sent(
        &mut self,
        context: &mut Context<'_>,
        segment: &Segment,
        payload: &mut Chain<B>,
        effects: &mut Effects<B>,
    ) {
        let flags = segment.flags;
        if flags.any(Flags::ACK) && (segment.ack != self.send.una + 1 || self.send.max != segment.ack) {
            context.counters.dropped_tcp_acknowledgement += 1;
            self.rare.make().refusal = segment.refusal();
            return;
        }
        match (flags.any(Flags::RST), flags.any(Flags::SYN), flags.any(Flags::ACK)) {
            (true, _, true) => self.end(Closed::Refused, effects),
            (false, true, true) => self.answered(context, segment, payload, effects),
            (false, true, false) => self.crossed(context, segment),
            _ => context.counters.dropped_tcp_flags += 1,
        }
    }

    fn answered(
        &mut self,
        context: &mut Context<'_>,
        segment: &Segment,
        payload: &mut Chain<B>,
        effects: &mut Effects<B>,
    ) {
        self.take_syn(segment, context.now);
        self.established(context, segment, effects);
        self.receive.is_acknowledgement_due = true;
        let after_syn =
            Segment { seq: segment.seq + 1, flags: segment.flags.without(Flags::SYN), ..*segment };
        if after_syn.len <= self.receive.edge.since(self.receive.next) {
            self.deliver(context, &after_syn, payload, effects);
        }
    }

    /// Both asked at once (section 3.5, figure 7): our SYN goes again, now with an acknowledgement.
    fn crossed(&mut self, context: &Context<'_>, segment: &Segment) {
        self.take_syn(segment, context.now);
        self.state = State::SynReceived;
        self.send.next = self.send.una;
    }
}
