//! The order in which a segment is looked at (RFC 9293 section 3.10.7.4), and the short way for most of them.

use super::connection::{Connection, Context, Effects, State};
use super::plain::Plain;
use super::segment::{Flags, Segment};
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
        if segment.flags.is_plain_ack() && segment.options.sack[0].is_none() {
            let Segment { seq, ack, window, len, options, .. } = segment;
            let plain = Plain { seq, ack, window, len, stamps: options.timestamps };
            if self.input_plain(context, &plain, effects) {
                effects.data.extend(payload.drain(..));
                return;
            }
        }
        self.heard(context);
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
    #[inline]
    pub(super) fn heard(&mut self, context: &Context<'_>) {
        self.heard_at = context.now;
        if let Some(keep_alive) = context.settings.keep_alive {
            self.deadlines.keep_alive.get_or_insert(context.now + keep_alive.idle);
        }
    }
}

impl Flags {
    /// ACK, perhaps with PSH.
    pub(crate) fn is_plain_ack(self) -> bool {
        self.any(Flags::ACK) && !self.any(Flags::SYN | Flags::FIN | Flags::RST)
    }
}
