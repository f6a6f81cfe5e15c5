//! What the payload and the FIN of a segment do (RFC 9293 section 3.10.7.4, seventh and eighth).

use super::connection::{Closed, Connection, Context, Effects, State};
use super::segment::{Flags, Segment};
use crate::buffer::{Buffer, Chain};

/// Large segments acknowledged at once after a loss or a duplicate, as many as Linux does.
pub(super) const QUICK: u8 = 16;
/// The smallest that every path takes (RFC 9293 section 3.7.1), without timestamps. Who sends less asks
/// questions, and is answered by more than an acknowledgement.
const LARGE: u32 = 524;

impl<B: Buffer> Connection<B> {
    /// Takes the payload of an accepted segment.
    pub fn deliver(
        &mut self,
        context: &mut Context<'_>,
        segment: &Segment,
        payload: &mut Chain<B>,
        effects: &mut Effects<B>,
    ) {
        if !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) {
            return;
        }
        if segment.len > 0 {
            self.tune_window(context, segment.options.timestamps);
            if segment.seq == self.receive.next {
                self.take_in_order(context, segment.len, payload, effects);
            } else {
                self.keep_early(context, segment, payload);
            }
        }
        self.take_fin(context, segment, effects);
    }

    /// The next bytes, and those behind them that came too early.
    pub fn take_in_order(
        &mut self,
        context: &mut Context<'_>,
        len: u32,
        payload: &mut Chain<B>,
        effects: &mut Effects<B>,
    ) {
        effects.data.extend(payload.drain(..));
        self.note_in_order(context, len);
        if !self.receive.reassembly.is_empty() {
            let before = self.receive.reassembly.pinned();
            while let Some(piece) = self.receive.reassembly.take(self.receive.next) {
                self.receive.next = self.receive.next + piece.len() as u32;
                effects.data.push(piece);
            }
            context.held.kept -= before - self.receive.reassembly.pinned();
            // RFC 5681 section 4.2: a hole that is filled is news for the peer.
            self.receive.is_acknowledgement_due = true;
        }
        if self.state == State::FinWait2 && self.is_orphan {
            self.rare.make().linger = Some(context.now + context.settings.linger);
        }
    }

    /// The next `len` bytes came.
    #[inline]
    pub(super) fn note_in_order(&mut self, context: &Context<'_>, len: u32) {
        self.receive.next = self.receive.next + len;
        // The device may have put several into one.
        self.receive.longest = self.receive.longest.max(len.min(self.receive.mss));
        self.delay_acknowledgement(context, len);
    }

    /// Every second full segment is acknowledged at once, all others after a while (RFC 9293 section
    /// 3.8.6.3). Full is what the peer's longest was: it counts without its options, and may send less than
    /// we take. For a while after a loss or a duplicate each large one is: the peer's window may be so small
    /// that no second comes.
    #[inline]
    fn delay_acknowledgement(&mut self, context: &Context<'_>, len: u32) {
        let is_quick = self.receive.quick > 0 && len >= LARGE;
        self.receive.quick -= u8::from(is_quick);
        if is_quick || self.receive.next.since(self.receive.acknowledged) >= 2 * self.receive.longest {
            self.receive.is_acknowledgement_due = true;
        } else {
            let due = context.now + context.settings.acknowledge_delay;
            self.deadlines.acknowledge.get_or_insert(due);
        }
    }

    /// Bytes that came too early are kept and reported at once (RFC 5681 section 4.2).
    fn keep_early(&mut self, context: &mut Context<'_>, segment: &Segment, payload: &mut Chain<B>) {
        let before = self.receive.reassembly.pinned();
        let mut at = segment.seq;
        self.receive.quick = QUICK;
        if self.receive.reassembly.has(segment.seq, segment.seq + segment.len) {
            self.note_twice(segment.seq, segment.seq + segment.len);
        }
        for piece in payload.drain(..) {
            let len = piece.len() as u32;
            let mine = self.receive.reassembly.pinned();
            let has_memory = context.held.has_room_for(context.settings, mine - before, mine, piece.pinned());
            if !has_memory || !self.receive.reassembly.insert(at, piece) {
                context.counters.dropped_tcp_reassembly += 1;
                break;
            }
            at = at + len;
        }
        context.held.kept += self.receive.reassembly.pinned() - before;
        self.refresh_window(context);
        self.receive.is_acknowledgement_due = true;
    }

    /// FIN counts once everything before it is there.
    fn take_fin(&mut self, context: &Context<'_>, segment: &Segment, effects: &mut Effects<B>) {
        let is_fin = segment.flags.any(Flags::FIN);
        let fin = if is_fin { Some(segment.end() - 1) } else { self.rare.fin };
        // Also if it came too early (RFC 5681 section 4.2).
        self.receive.is_acknowledgement_due |= is_fin;
        if fin != Some(self.receive.next) {
            if is_fin {
                self.rare.make().fin = fin;
            }
            return;
        }
        if let Some(rare) = self.rare.some() {
            (rare.fin, rare.linger) = (None, None);
        }
        self.receive.next = self.receive.next + 1;
        // The FIN may have come before what was missing.
        self.receive.is_acknowledgement_due = true;
        effects.finished = true;
        self.state = match self.state {
            State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            _ => State::TimeWait,
        };
        self.heard_at = context.now;
    }

    /// A state that is over for the application although segments may still come.
    pub fn settle(&mut self, effects: &mut Effects<B>) {
        if self.state == State::TimeWait && effects.closed.is_none() {
            effects.closed = Some(Closed::Finished);
        }
    }
}
