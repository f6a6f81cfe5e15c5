//! From an IP packet to the connection that its segment is for.

use super::flows::{Flow, TimeWait};
use super::{Application, Stack};
use crate::chain;
use crate::checksum;
use crate::frame::{Drop, Packet, protocol};
use crate::table::{FlowId, FourTuple};
use crate::tcp::connection::{Connection, Context, Due, State};
use crate::tcp::segment::{Flags, Segment, Timestamps};
use crate::tcp::sequence::Seq;
use core::net::SocketAddr;
use nom_port::buffer::Chain;
use nom_port::nic::{Checksum, Nic, Received};

impl<N: Nic> Stack<N> {
    /// Takes the segment in a packet for us.
    pub(super) fn segment(
        &mut self,
        application: &mut impl Application<N>,
        packet: &Packet,
        received: Received<N::Buffer>,
    ) -> Result<(), Drop> {
        const MALFORMED: Drop = |counters| &mut counters.dropped_malformed;
        let header = received.frame.first().and_then(|first| first.get(packet.start..));
        let (ports, _) = header.and_then(Segment::glance).ok_or(MALFORMED)?;
        let tuple = FourTuple {
            local: SocketAddr::new(packet.to, ports.to),
            remote: SocketAddr::new(packet.from, ports.from),
        };
        let (found, probes) = self.flows.find_counted(&tuple);
        self.probes += u64::from(probes);
        // Nearly always no handshake is under way.
        let is_of_another =
            self.half_open > 0 && found.is_some_and(|id| self.is_of_another(id, &received, packet.start));
        let kept = match found {
            // A SYN, too: one that comes again must not begin a second flow.
            None if self.flows.may_be_elsewhere(&tuple) => application.stranger(self, received),
            None if !self.is_admitting => application.newcomer(self, received),
            Some(_) if is_of_another => application.stranger(self, received),
            _ => Some(received),
        };
        let Some(received) = kept else { return Ok(()) };
        let mut payload = transport(packet, received, protocol::TCP)?;
        let parsed = payload.first().and_then(|first| Segment::parse(first, packet.len));
        let (_, segment, header_len) = parsed.ok_or(MALFORMED)?;
        chain::advance(&mut payload, header_len);
        match found {
            Some(id) if is_of_another && self.may_follow_a_cookie(&segment) => {
                self.instead(application, id, tuple, segment, payload)
            }
            Some(id) => self.known(application, id, tuple, segment, payload),
            None => self.unknown(application, tuple, segment, payload),
        }
    }

    /// Whether a segment acknowledges another SYN than ours: the peer's SYN may have come twice, and began a
    /// flow on two cores, of which the peer has chosen one.
    fn is_of_another(&self, id: FlowId, received: &Received<N::Buffer>, start: usize) -> bool {
        let Some((_, Flow::Open(open))) = self.flows.get(id) else { return false };
        if open.connection.state != State::SynReceived {
            return false;
        }
        let header = received.frame.first().and_then(|first| first.get(start..));
        let parsed = header.and_then(|header| Segment::parse(header, header.len()));
        parsed.is_some_and(|(_, segment, _)| {
            segment.flags.any(Flags::ACK) && segment.ack != open.connection.send.una + 1
        })
    }

    /// A segment acknowledges another SYN than that of the handshake `id`: the peer has asked twice, and one
    /// answer was a cookie. The handshake makes room for the flow that it has chosen.
    fn instead(
        &mut self,
        application: &mut impl Application<N>,
        id: FlowId,
        tuple: FourTuple,
        segment: Segment,
        payload: Chain<N::Buffer>,
    ) -> Result<(), Drop> {
        if self.cookie_of(&tuple, &segment).is_none() {
            return Err(|counters| &mut counters.dropped_tcp_port);
        }
        self.remove(id);
        self.unknown(application, tuple, segment, payload)
    }

    fn known(
        &mut self,
        application: &mut impl Application<N>,
        id: FlowId,
        tuple: FourTuple,
        segment: Segment,
        mut payload: Chain<N::Buffer>,
    ) -> Result<(), Drop> {
        if let Some((_, Flow::Open(open))) = self.flows.get(id)
            && !may_open(application, &open.connection, &tuple, &segment)
        {
            return Err(|counters| &mut counters.dropped_tcp_queue_full);
        }
        let mut effects = core::mem::take(&mut self.effects);
        let kept = self.held.kept;
        match self.flows.get_mut(id) {
            Some((_, Flow::Open(open))) => {
                self.link.nic.attribute(open.label);
                let counters = &mut self.link.counters;
                let held = &mut self.held;
                let mut context = Context { now: self.now, settings: &self.config.tcp, counters, held };
                open.connection.input(&mut context, segment, &mut payload, &mut effects);
                open.mark(id, &mut self.dirty);
                let is_kept = self.held.kept != kept;
                self.apply(application, id, effects);
                if is_kept {
                    application.kept(self, id);
                }
                Ok(())
            }
            Some((_, Flow::Waiting(waiting))) => {
                let waiting = **waiting;
                self.stray(application, id, waiting, tuple, segment, payload)
            }
            None => unreachable!("the table names only flows that it has"),
        }
    }

    /// A segment for a connection in TIME-WAIT (RFC 9293 section 3.10.7.4; RFC 1337: a reset does not end
    /// it; RFC 6191: a SYN that is surely new does). A FIN begins the wait anew, since its sender has not
    /// heard our acknowledgement: that which came before, and one behind it, which is acknowledged no
    /// further, for there is nothing behind a FIN.
    fn stray(
        &mut self,
        application: &mut impl Application<N>,
        id: FlowId,
        waiting: TimeWait,
        tuple: FourTuple,
        segment: Segment,
        payload: Chain<N::Buffer>,
    ) -> Result<(), Drop> {
        if segment.flags.any(Flags::RST) {
            return Err(|counters| &mut counters.dropped_tcp_stray_reset);
        }
        if segment.flags.any(Flags::SYN) && !segment.flags.any(Flags::ACK) && is_new(&waiting, &segment) {
            self.remove(id);
            return self.unknown(application, tuple, segment, payload);
        }
        if is_fin_again(&waiting, &segment)
            && let Some((_, Flow::Waiting(waiting))) = self.flows.get_mut(id)
        {
            waiting.until = self.now + self.config.time_wait;
        }
        if segment.sequence_len() > 0 {
            let value = self.now.millis_wrapping().wrapping_add(waiting.stamp_offset);
            let mut answer =
                Segment { seq: waiting.send_next, ack: waiting.receive_next, ..Segment::default() };
            answer.flags = Flags::ACK;
            answer.window = waiting.window;
            answer.options.timestamps = waiting.recent.map(|echo| Timestamps { value, echo });
            self.reply(&tuple, &answer);
        }
        Err(|counters| &mut counters.dropped_tcp_window)
    }

    /// A segment for no connection: a beginning, or a mistake.
    fn unknown(
        &mut self,
        application: &mut impl Application<N>,
        tuple: FourTuple,
        segment: Segment,
        payload: Chain<N::Buffer>,
    ) -> Result<(), Drop> {
        let is_syn =
            segment.flags.any(Flags::SYN) && !segment.flags.any(Flags::ACK | Flags::RST | Flags::FIN);
        if self.listeners.contains(tuple.local.port()) {
            if is_syn {
                return self.begin(application, tuple, &segment);
            }
            if self.cookie_of(&tuple, &segment).is_some() && !application.has_room(&tuple) {
                return Err(|counters| &mut counters.dropped_tcp_queue_full);
            }
            if let Some(id) = self.redeem(&tuple, &segment) {
                self.set_label(id, application.classify(&tuple));
                return self.known(application, id, tuple, segment, payload);
            }
            if self.may_follow_a_cookie(&segment) {
                return Err(|counters| &mut counters.dropped_tcp_port);
            }
        }
        match segment.refusal() {
            Some(refusal) => self.reply(&tuple, &refusal),
            None => return Err(|counters| &mut counters.dropped_tcp_stray_reset),
        }
        Err(|counters| &mut counters.dropped_tcp_port)
    }

    /// A connection is asked for.
    fn begin(
        &mut self,
        application: &mut impl Application<N>,
        tuple: FourTuple,
        segment: &Segment,
    ) -> Result<(), Drop> {
        if !self.has_place_for(tuple.remote.ip()) {
            // At once, so that nobody waits for what will not come.
            segment.refusal().iter().for_each(|refusal| self.reply(&tuple, refusal));
            application.refused(self, tuple.local.port());
            return Err(|counters| &mut counters.dropped_tcp_table_full);
        }
        if !application.has_room(&tuple) {
            return Err(|counters| &mut counters.dropped_tcp_queue_full);
        }
        if self.half_open >= self.config.half_open_max {
            self.bake(&tuple, segment);
            return Ok(());
        }
        let mut connection = Connection::answer(segment, self.origin(&tuple), &self.config.tcp);
        connection.is_half_open = true;
        let end = connection.send.una + 1;
        connection.answers.push(Due { end, arrived_ns: self.arrived_ns, requests: 0 });
        match self.add(tuple, connection, false) {
            Some(id) => {
                self.set_label(id, application.classify(&tuple));
                self.half_open += 1;
                Ok(())
            }
            None => Err(|counters| &mut counters.dropped_tcp_table_full),
        }
    }
}

/// Whether a segment may go to its connection: what would end a handshake that the peer began waits for the
/// application's room. The peer believes that the connection is open, our SYN-ACK is sent again, and so is
/// whatever it sends.
fn may_open<N: Nic>(
    application: &mut impl Application<N>,
    connection: &Connection<N::Buffer>,
    tuple: &FourTuple,
    segment: &Segment,
) -> bool {
    let opens = connection.is_half_open && segment.flags.any(Flags::ACK) && !segment.flags.any(Flags::RST);
    !opens || application.has_room(tuple)
}

/// Whether the peer of a connection in TIME-WAIT says once more that it has ended, and is no stranger who
/// guesses.
fn is_fin_again(waiting: &TimeWait, segment: &Segment) -> bool {
    let is_at_end = segment.end() == waiting.receive_next || segment.end() == waiting.receive_next + 1;
    segment.flags.any(Flags::FIN)
        && segment.flags.any(Flags::ACK)
        && segment.ack == waiting.send_next
        && is_at_end
}

fn is_new(waiting: &TimeWait, segment: &Segment) -> bool {
    let is_later = waiting.receive_next.before(segment.seq);
    match (waiting.recent, segment.options.timestamps) {
        (Some(recent), Some(theirs)) => Seq(recent).before(Seq(theirs.value)) || is_later,
        _ => is_later,
    }
}

/// The transport header and payload of a packet, its checksum good. A GRO packet's sum, too, is checked only
/// if nobody has.
pub(super) fn transport<B: nom_port::buffer::Buffer>(
    packet: &Packet,
    received: Received<B>,
    protocol: u8,
) -> Result<Chain<B>, Drop> {
    let mut chain = received.frame;
    if !chain::keep(&mut chain, packet.start, packet.len) {
        return Err(|counters| &mut counters.dropped_malformed);
    }
    let is_sum_good = received.checksum == Checksum::Good || {
        let pseudo = checksum::pseudo_header(packet.from, packet.to, protocol, packet.len);
        checksum::add(pseudo, checksum::sum_chain(&[], &chain)) == 0xffff
    };
    if is_sum_good { Ok(chain) } else { Err(|counters| &mut counters.dropped_checksum) }
}
