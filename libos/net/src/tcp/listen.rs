//! A connection that a peer asks for (RFC 9293 sections 3.10.7.2 and 3.10.7.4, fifth, SYN-RECEIVED).

use super::connection::{Connection, Context, Effects, Origin, Settings, State};
use super::segment::{Flags, Segment};
use crate::buffer::Buffer;

impl<B: Buffer> Connection<B> {
    /// Answers SYN.
    pub fn answer(segment: &Segment, origin: Origin, settings: &Settings) -> Connection<B> {
        let mut connection = Connection::new(State::SynReceived, origin, settings);
        connection.take_syn(segment, origin.now);
        connection
    }

    /// The acknowledgement of our SYN opens the connection; `false` if it acknowledges something else, which
    /// is refused by the caller.
    pub(super) fn open(
        &mut self,
        context: &mut Context<'_>,
        segment: &Segment,
        effects: &mut Effects<B>,
    ) -> bool {
        if segment.ack != self.send.una + 1 || self.send.max != segment.ack {
            context.counters.dropped_tcp_acknowledgement += 1;
            self.rare.make().refusal = segment.refusal();
            return false;
        }
        self.established(context, segment, effects);
        true
    }

    /// Our SYN is acknowledged.
    pub(super) fn established(
        &mut self,
        context: &mut Context<'_>,
        segment: &Segment,
        effects: &mut Effects<B>,
    ) {
        self.state = State::Established;
        if let Some((_, at)) = self.timed.take() {
            self.rtt.sample_ns(context.now.nanos_since(at));
        }
        self.retries = 0;
        self.deadlines.retransmit = None;
        if let Some(rare) = self.rare.some() {
            // That SYN went again makes no duplicates of what follows it.
            rare.not_before = None;
        }
        self.send.una = segment.ack;
        self.send.next = segment.ack;
        let scale = if segment.flags.any(Flags::SYN) { 0 } else { self.send.scale };
        self.send.window = u32::from(segment.window) << scale;
        self.send.window_max = self.send.window_max.max(self.send.window);
        self.send.window_by = (segment.seq, segment.ack);
        context.counters.connections_opened += 1;
        effects.connected = true;
        if self.send.is_closing {
            self.state = State::FinWait1;
        }
    }
}
