//! Which segment a connection sends next, if any (RFC 9293 section 3.8, RFC 5681, RFC 8985).

use super::connection::{Connection, Context, SmallSegments, State};
use super::forward::Forward;
use super::segment::{Flags, Options, Segment, Timestamps};
use super::sequence::Seq;
use crate::buffer::{Buffer, Chain, chain_len};
use crate::time::Instant;

/// Slices in one packet: more do not fit into the descriptors that drivers set aside for it.
pub const SLICES_MAX: usize = 64;

/// A segment with its payload.
pub type Emission<B> = (Segment, Chain<B>);

impl<B: Buffer> Connection<B> {
    /// The next segment to send now; call again until there is none. One segment carries up to `large_max`
    /// bytes where the device cuts it, or as many as the peer takes if that is more.
    pub fn emit(&mut self, context: &mut Context<'_>, large_max: u32) -> Option<Emission<B>> {
        if let Some(refusal) = self.rare.some().and_then(|rare| rare.refusal.take()) {
            return Some((refusal, Chain::new()));
        }
        match self.state {
            State::Closed => return None,
            State::SynSent | State::SynReceived if self.send.next == self.send.una => {
                return Some(self.emit_syn(context));
            }
            State::SynSent | State::SynReceived => return self.emit_acknowledgement(context),
            _ => {}
        }
        // One after the other rather than chained: a segment is large, and a chain would move it.
        if self.recovery.flight.lost() > 0 {
            let lost = self.emit_lost(context);
            if lost.is_some() {
                return lost;
            }
        }
        if self.recovery.rack.take_tail() {
            let tail = self.emit_tail(context);
            if tail.is_some() {
                return tail;
            }
        }
        let new = self.emit_new(context, large_max);
        if new.is_some() {
            return new;
        }
        if self.is_probe_due {
            return Some(self.emit_probe(context));
        }
        self.emit_acknowledgement(context)
    }

    /// Whether [`Connection::emit`] would surely find nothing: cheaper than to ask it.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.send.next == self.send.end()
            && !self.receive.is_acknowledgement_due
            && !self.is_probe_due
            && self.rare.refusal.is_none()
            && self.rare.point.is_none()
            && self.recovery.flight.lost() == 0
            && !self.recovery.rack.is_tail_due()
            && !self.send.is_closing
            && !matches!(self.state, State::SynSent | State::SynReceived)
    }

    fn emit_syn(&mut self, context: &mut Context<'_>) -> Emission<B> {
        let is_answer = self.state == State::SynReceived;
        let flags = if is_answer { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let options = self.options(context.now);
        let mut segment = self.header(options, self.send.una, flags);
        segment.window = self.receive.window.min(0xffff) as u16;
        if !is_answer {
            segment.ack = Seq(0);
        }
        segment.options.mss = Some(self.receive.mss as u16);
        segment.options.scale = self.is_scaled.then_some(self.receive.scale);
        segment.options.sack_permitted = self.is_sack;
        self.sent(context, &segment);
        (segment, Chain::new())
    }

    /// What was lost, and has not been sent again.
    fn emit_lost(&mut self, context: &mut Context<'_>) -> Option<Emission<B>> {
        let mss = self.send.mss - self.options(context.now).len() as u32;
        let (from, to) = self.lost_hole(mss)?;
        self.rare.make().is_first_due = false;
        let again = self.emit_again(context, from, to);
        if let Some((segment, _)) = &again {
            self.note_again(context.now, segment.sequence_len());
        }
        again
    }

    /// The last segment, so that the peer says what it has (RFC 8985 section 7.3).
    fn emit_tail(&mut self, context: &mut Context<'_>) -> Option<Emission<B>> {
        let mss = self.send.mss - self.options(context.now).len() as u32;
        let from = self.send.una.max(self.send.max - mss);
        if !from.before(self.send.max) || self.send.next != self.send.max {
            return None;
        }
        context.counters.tail_probes += 1;
        self.rare.make().probed = Some(self.send.max);
        self.emit_again(context, from, self.send.max)
    }

    /// Sends what stands between `from` and `to` again, as far as it fits into a segment.
    fn emit_again(&mut self, context: &mut Context<'_>, from: Seq, to: Seq) -> Option<Emission<B>> {
        let options = self.options(context.now);
        let mss = self.send.mss - options.len() as u32;
        let len = to.min(self.send.end()).since(from).min(mss);
        let payload = self.cut(from, len);
        let len = chain_len(&payload) as u32;
        let is_fin = self.send.is_closing && from + len == self.send.end() && self.send.end().before(to);
        let mut segment =
            self.header(options, from, if is_fin { Flags::ACK | Flags::FIN } else { Flags::ACK });
        segment.len = len;
        self.recovery.flight.sent(self.send.una, from, segment.end(), context.now);
        self.note_sent_of_room(segment.sequence_len());
        self.timed = None;
        context.counters.retransmissions += 1;
        self.deadlines.retransmit = Some(context.now + self.rtt.timeout());
        Some((segment, payload))
    }

    /// The next hole that counts as lost, if the congestion window has room for it; the first goes in any
    /// case. What a timeout sends again anyway, from `next` on, is not looked at.
    fn lost_hole(&self, mss: u32) -> Option<(Seq, Seq)> {
        let has_room = mss <= self.congestion_room();
        if !has_room && !self.rare.is_first_due || self.rare.forward == Forward::New {
            return None;
        }
        let (from, to) = self.recovery.flight.first_lost(self.send.una)?;
        from.before(self.send.next).then(|| (from, to.min(self.send.next)))
    }

    /// Bytes in flight: sent, and neither arrived nor lost (`SetPipe` of RFC 6675 section 4; without
    /// selective acknowledgements each duplicate stands for a segment that has arrived, RFC 5681 section
    /// 3.2).
    pub(super) fn pipe(&self) -> u32 {
        let flying = self.recovery.flight.flying(self.send.una);
        if self.is_sack || self.rare.duplicates == 0 {
            return flying;
        }
        flying.saturating_sub(self.rare.duplicates.saturating_mul(self.send.mss))
    }

    /// What was never sent, or has to be sent again after a timeout.
    fn emit_new(&mut self, context: &mut Context<'_>, large_max: u32) -> Option<Emission<B>> {
        let hole = self.skip_arrived();
        let remaining = self.send.end().since(self.send.next);
        let is_fin_left = self.send.is_closing && self.send.next.at_most(self.send.end());
        if remaining == 0 && !is_fin_left {
            return None;
        }
        if self.send.una == self.send.max && context.now - self.sent_at > self.rtt.timeout() {
            self.cubic.restart_after_idle();
        }
        let options = self.options(context.now);
        let mss = self.send.mss - options.len() as u32;
        let len = self.new_len(remaining.min(hole), mss, large_max);
        if len == 0 && remaining > 0 {
            self.watch_window(context);
            return None;
        }
        let len = if len > 0 && context.settings.paces { self.paced(context.now, len, mss) } else { len };
        if len == 0 && remaining > 0 {
            return None;
        }
        let payload = self.cut(self.send.next, len);
        let len = chain_len(&payload) as u32;
        let mut flags = Flags::ACK;
        if len == remaining {
            flags = if self.send.is_closing { flags | Flags::PSH | Flags::FIN } else { flags | Flags::PSH };
        }
        let mut segment = self.header(options, self.send.next, flags);
        segment.len = len;
        self.is_small_allowed = false;
        self.sent(context, &segment);
        Some((segment, payload))
    }

    /// After a timeout, goes past what has arrived selectively; how many bytes there are up to the next that
    /// has.
    fn skip_arrived(&mut self) -> u32 {
        if self.recovery.flight.arrived() == 0 || !self.send.next.before(self.send.max) {
            return u32::MAX;
        }
        let (from, to) = self
            .recovery
            .flight
            .hole(self.send.una, self.send.next)
            .unwrap_or((self.send.max, self.send.max));
        self.send.next = from;
        if to == self.send.max { u32::MAX } else { to.since(from) }
    }

    /// How many of `remaining` bytes may go in one segment: congestion (RFC 5681), the peer's window, the
    /// avoidance of silly windows (RFC 9293 section 3.8.6.2.1), and when small segments go.
    fn new_len(&self, remaining: u32, mss: u32, large_max: u32) -> u32 {
        let window = (self.send.una + self.send.window).since(self.send.next);
        let allowed = window.min(self.congestion_room());
        let len = remaining.min(allowed).min(mss.max(large_max / mss * mss));
        // What is sent again after a timeout waits for no acknowledgement: none will come.
        let is_again = self.send.next.before(self.send.max);
        let may_be_small = is_again || self.send.is_closing || self.lets_small_go();
        if len == remaining && may_be_small {
            len
        } else if len >= mss {
            len / mss * mss
        } else if self.is_small_allowed || len > 0 && len >= self.send.window_max / 2 {
            len
        } else {
            0
        }
    }

    /// When segments go that are not full, from now on.
    pub fn set_small_segments(&mut self, when: SmallSegments) {
        self.small_segments = when;
        // It is set again if one is held.
        if self.send.window > 0
            && let Some(rare) = self.rare.some()
        {
            rare.persist = None;
        }
    }

    /// Whether a new segment may go that is not full.
    #[inline]
    pub(super) fn lets_small_go(&self) -> bool {
        match self.small_segments {
            SmallSegments::AtOnce => true,
            SmallSegments::Acknowledged => self.send.una == self.send.max,
            SmallSegments::Held => false,
        }
    }

    /// Nothing is in flight that would make the peer say how its window is: ask after a while. If nobody here
    /// waits for it, our patience ends: else whoever never reads would keep us for ever.
    fn watch_window(&mut self, context: &Context<'_>) {
        if self.is_orphan {
            self.rare.make().linger.get_or_insert(context.now + context.settings.linger);
        }
        if self.deadlines.retransmit.is_none() && !self.is_probe_due {
            let due = context.now + self.rtt.timeout();
            self.rare.make().persist.get_or_insert(due);
        }
    }

    /// A byte that was acknowledged long ago, without the byte: the peer must answer (RFC 9293 section
    /// 3.8.4).
    fn emit_probe(&mut self, context: &mut Context<'_>) -> Emission<B> {
        self.is_probe_due = false;
        let segment = self.header(self.options(context.now), self.send.una - 1, Flags::ACK);
        self.watch_closed_window(context);
        (segment, Chain::new())
    }

    fn watch_closed_window(&mut self, context: &Context<'_>) {
        if self.send.window == 0 && !self.send.queue.is_empty() {
            self.rare.make().persist = Some(context.now + self.rtt.timeout());
        }
    }

    fn emit_acknowledgement(&mut self, context: &mut Context<'_>) -> Option<Emission<B>> {
        if !self.receive.is_acknowledgement_due {
            return None;
        }
        // Not `next`, which goes back at a timeout: what stands before the peer's window it would not look
        // at, and if both sides had gone back, neither would ever hear what the other has.
        Some((self.header(self.options(context.now), self.send.max, Flags::ACK), Chain::new()))
    }

    /// Bytes of the queue from sequence number `from` on, in as many slices as a packet takes.
    #[inline]
    pub fn cut(&self, from: Seq, len: u32) -> Chain<B> {
        let mut chain = self.send.queue.cut(from.since(self.send.una) as usize, len as usize);
        chain.truncate(SLICES_MAX);
        chain
    }

    /// The same bytes as they lie, if nothing is queued in front of them and they are in one piece.
    #[inline]
    pub fn peek(&self, from: Seq, len: u32) -> Option<&[u8]> {
        if from == self.send.una { self.send.queue.peek(len as usize) } else { None }
    }

    /// Options of any segment but SYN.
    fn options(&self, now: Instant) -> Options {
        let timestamps =
            self.stamps.map(|stamps| Timestamps { value: self.stamp_clock(now), echo: stamps.recent });
        let mut sack = [None; 3];
        if self.is_sack && (!self.receive.reassembly.is_empty() || self.rare.twice.is_some()) {
            let ranges = self.rare.twice.into_iter().chain(self.receive.reassembly.ranges(3));
            for (slot, range) in sack.iter_mut().zip(ranges) {
                *slot = Some(range);
            }
        }
        Options { timestamps, sack, ..Options::default() }
    }

    /// A header that acknowledges everything received.
    fn header(&mut self, options: Options, seq: Seq, flags: Flags) -> Segment {
        let window = self.promise();
        Segment { seq, ack: self.receive.next, flags, window, options, len: 0 }
    }

    /// Acknowledges everything received with what is about to be sent, and says how the window's field is.
    #[inline]
    pub(super) fn promise(&mut self) -> u16 {
        let receive = &mut self.receive;
        // What the field cannot say (RFC 7323 section 2.2) was not promised.
        let wanted = receive.next + receive.window.min(0xffff << receive.scale);
        // RFC 9293 section 3.8.6.2.2: a nearly closed window opens by whole segments or not at all.
        let gain = wanted.since(receive.edge);
        if receive.edge.since(receive.next) >= receive.mss || gain >= receive.mss.min(receive.window / 2) {
            receive.edge = receive.edge.max(wanted);
        }
        let window = (receive.edge.since(receive.next) >> receive.scale).min(0xffff) as u16;
        receive.acknowledged = receive.next;
        receive.is_acknowledgement_due = false;
        self.deadlines.acknowledge = None;
        if let Some(rare) = self.rare.some() {
            rare.twice = None;
        }
        window
    }

    /// Notes that `segment`, which takes sequence numbers from `send.next` on, was sent.
    fn sent(&mut self, context: &mut Context<'_>, segment: &Segment) {
        let end = segment.end();
        self.note_sent_of_room(segment.sequence_len());
        if segment.seq.before(self.send.max) {
            context.counters.retransmissions += 1;
            self.note_again(context.now, segment.sequence_len());
        } else if self.timed.is_none() {
            self.timed = Some((end, context.now));
        }
        if self.is_synchronised() {
            self.recovery.flight.sent(self.send.una, segment.seq, end, context.now);
        }
        self.note_sent(context.now, end);
    }

    /// Something was sent that ends at `end`: timers run.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant, end: Seq) {
        self.send.next = end;
        self.send.max = self.send.max.max(end);
        let rtt = &self.rtt;
        self.deadlines.retransmit.get_or_insert_with(|| now.plus_nanos(rtt.timeout_ns()));
        self.schedule_tail(now);
        self.sent_at = now;
    }
}
