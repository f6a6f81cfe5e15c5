//! What routers say about segments that we sent (RFC 1122 section 4.2.3.9, RFC 1191, RFC 8201, RFC 5927).

use super::connection::{Closed, Connection, Context, Effects, State};
use super::sequence::Seq;
use crate::buffer::Buffer;

impl<B: Buffer> Connection<B> {
    /// The segment at `seq` cannot reach the peer. Only an attempt to connect ends by that: later it may
    /// pass.
    pub fn unreachable(&mut self, seq: Seq, effects: &mut Effects<B>) {
        if self.state == State::SynSent && seq == self.send.una {
            self.end(Closed::Unreachable, effects);
        }
    }

    /// The segment at `seq` is too large; `mss` bytes of payload and options are not. What was sent since
    /// goes again in smaller segments.
    pub fn too_big(&mut self, context: &mut Context<'_>, seq: Seq, mss: u32) {
        // RFC 5927 section 4.1: a forger would have to know what is in flight.
        let is_in_flight = self.send.una.at_most(seq) && seq.before(self.send.max);
        if !self.is_synchronised() || !is_in_flight || mss >= self.send.mss {
            return;
        }
        context.counters.segments_shortened += 1;
        self.limit_mss(mss);
        self.timed = None;
        self.recovery.flight.lose_all(self.send.una, false);
        self.send.next = self.send.una;
    }
}
