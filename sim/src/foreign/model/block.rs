//! One connection of the model: the transmission control block of RFC 9293 section 3.3.1, and what is done
//! with it when a segment arrives (section 3.10.7), when the user calls, and when time has passed.

use super::wire::{ACK, FIN, PSH, RST, SYN, Segment};
use crate::random::Random;
use std::collections::{BTreeMap, VecDeque};

/// Two of these pass in TIME-WAIT. Two minutes in the RFC, which no scenario waits for.
const MSL_NS: u64 = 15_000_000_000;
/// The timeout of retransmissions at the start, and at most.
const RTO_NS: u64 = 1_000_000_000;
const RTO_MAX_NS: u64 = 20_000_000_000;
/// Retransmissions of the same bytes before it gives up.
const RETRIES: u32 = 25;
/// A peer that says nothing for so long is asked whether it is there (section 3.8.4), so often.
const KEEP_NS: u64 = 20_000_000_000;
const KEEP_PROBES: u32 = 10;
/// Bytes that wait to be sent, at most.
const QUEUE: usize = 60_000;
/// What a peer takes that does not say how much (section 3.7.1).
const MSS_DEFAULT: u16 = 536;

/// Section 3.3.2; CLOSED is a block that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// What the RFC leaves to whoever implements it.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Most bytes of text that it sends in a segment, and that it says it takes.
    pub segment_max: u16,
    /// Whether segments differ in length.
    pub is_uneven: bool,
    /// Bytes in flight, at most.
    pub flight: usize,
    /// How long an acknowledgement may wait (section 3.8.6.3), in nanoseconds.
    pub ack_delay_ns: u64,
    /// Bytes that it can take.
    pub window: u16,
    /// Whether it keeps what comes out of order.
    pub keeps: bool,
    /// How often, in a million segments, it stops reading for a while.
    pub pauses: u64,
}

/// A connection.
pub struct Block {
    pub state: State,
    pub local: u16,
    pub remote: u16,
    manner: Manner,
    random: Random,
    iss: u32,
    snd_una: u32,
    /// What is sent next: after a timeout, again what was sent.
    snd_nxt: u32,
    /// The first that was never sent: SND.NXT as the RFC checks acknowledgements by.
    snd_max: u32,
    snd_wnd: u32,
    snd_wl1: u32,
    snd_wl2: u32,
    mss: u16,
    rcv_nxt: u32,
    /// The window's right edge as it was told, which never goes back (section 3.8.6).
    rcv_edge: u32,
    /// Text from SND.UNA on.
    queue: VecDeque<u8>,
    is_closing: bool,
    /// Text that nobody has taken.
    pub received: Vec<u8>,
    /// What came out of order, by sequence number.
    aside: BTreeMap<u32, Vec<u8>>,
    /// Where the peer's text ends, if that is known.
    fin: Option<u32>,
    rto_ns: u64,
    timer_ns: Option<u64>,
    /// Nothing is in flight: the timer is for the peer's silence.
    is_keeping: bool,
    retries: u32,
    /// Segments that came since something new was acknowledged.
    heard: u32,
    ack_ns: Option<u64>,
    /// It reads nothing until then.
    pub paused_ns: u64,
    out: Vec<Segment>,
}

/// Whether `a` comes before `b`, modulo 2^32 (section 3.4).
fn before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

impl Block {
    /// A connection whose SYN is yet to be sent, or, for the peer's `syn`, its answer.
    pub fn new(ports: (u16, u16), manner: Manner, mut random: Random, syn: Option<&Segment>) -> Block {
        let iss = random.word() as u32;
        let irs = syn.map_or(0, |syn| syn.seq);
        Block {
            state: if syn.is_some() { State::SynReceived } else { State::SynSent },
            local: ports.0,
            remote: ports.1,
            manner,
            random,
            iss,
            snd_una: iss,
            snd_nxt: iss,
            snd_max: iss,
            snd_wnd: syn.map_or(0, |syn| syn.window.into()),
            snd_wl1: irs,
            snd_wl2: iss,
            mss: syn.map_or(0, |syn| syn.mss),
            rcv_nxt: irs.wrapping_add(1),
            rcv_edge: irs.wrapping_add(1),
            queue: VecDeque::new(),
            is_closing: false,
            received: Vec::new(),
            aside: BTreeMap::new(),
            fin: None,
            rto_ns: RTO_NS,
            timer_ns: Some(0),
            is_keeping: false,
            retries: 0,
            heard: 0,
            ack_ns: None,
            paused_ns: 0,
            out: Vec::new(),
        }
    }

    /// Takes text to send; how much.
    pub fn send(&mut self, text: &[u8]) -> usize {
        let room = if self.is_closing { 0 } else { QUEUE.saturating_sub(self.queue.len()) };
        let len = room.min(text.len());
        self.queue.extend(&text[..len]);
        len
    }

    /// There is no more text to send.
    pub fn close(&mut self) {
        self.is_closing = true;
    }

    /// What was received; nothing while it pauses.
    pub fn take(&mut self, now_ns: u64) -> Vec<u8> {
        if now_ns < self.paused_ns || self.received.is_empty() {
            return Vec::new();
        }
        let text = std::mem::take(&mut self.received);
        // A window that opens is told at once: it may have been shut.
        self.ack_ns = Some(now_ns);
        text
    }

    fn window(&mut self) -> u16 {
        let room = usize::from(self.manner.window).saturating_sub(self.received.len()) as u32;
        let edge = self.rcv_nxt.wrapping_add(room);
        if before(self.rcv_edge, edge) {
            self.rcv_edge = edge;
        }
        self.rcv_edge.wrapping_sub(self.rcv_nxt) as u16
    }

    fn segment(&mut self, seq: u32, flags: u8, text: Vec<u8>) {
        let ack = if flags & ACK == 0 { 0 } else { self.rcv_nxt };
        let mss = if flags & SYN == 0 { 0 } else { self.manner.segment_max };
        let (from, to, window) = (self.local, self.remote, self.window());
        self.out.push(Segment { from, to, seq, ack, flags, window, mss, text });
        if flags & ACK != 0 {
            self.ack_ns = None;
        }
    }

    fn acknowledge(&mut self) {
        self.segment(self.snd_max, ACK, Vec::new());
    }

    /// When it wants to be looked at.
    pub fn due_ns(&self) -> Option<u64> {
        let pause = (!self.received.is_empty()).then_some(self.paused_ns);
        [self.timer_ns, self.ack_ns, pause].into_iter().flatten().min()
    }

    /// Where our text ends, behind which the FIN stands.
    fn text_end(&self) -> u32 {
        self.snd_una.wrapping_add(self.queue.len() as u32)
    }

    fn has_sent_fin(&self) -> bool {
        use State::{Closing, FinWait1, FinWait2, LastAck, TimeWait};
        matches!(self.state, FinWait1 | FinWait2 | Closing | LastAck | TimeWait)
    }

    /// Does what is due, and hands over what is to be sent.
    pub fn poll(&mut self, now_ns: u64, out: &mut Vec<Segment>) {
        if self.timer_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.timeout(now_ns);
        }
        if matches!(self.state, State::Established | State::CloseWait) || self.has_sent_fin() {
            self.transmit(now_ns);
        }
        if self.ack_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.acknowledge();
        }
        out.append(&mut self.out);
    }

    fn timeout(&mut self, now_ns: u64) {
        self.timer_ns = None;
        self.retries += 1;
        let most = if self.is_keeping { KEEP_PROBES } else { RETRIES };
        if self.state == State::TimeWait || self.retries > most {
            // Who answers and never acknowledges the end counts other sequence numbers than the standard.
            let is_misread = self.has_sent_fin() && self.queue.is_empty() && !self.is_keeping;
            let is_over = self.state == State::TimeWait || self.heard < 5;
            assert!(is_over || !is_misread, "a peer answers a FIN, and does not acknowledge it");
            self.state = State::Closed;
            return;
        }
        if self.is_keeping {
            return self.segment(self.snd_max.wrapping_sub(1), ACK, Vec::new());
        }
        self.rto_ns = if self.retries > 1 { (self.rto_ns * 2).min(RTO_MAX_NS) } else { self.rto_ns };
        self.timer_ns = Some(now_ns + self.rto_ns);
        match self.state {
            State::SynSent => self.syn(SYN),
            State::SynReceived => self.syn(SYN | ACK),
            // All again, from the first that is missing on; a byte, if there is no window for more.
            _ => {
                self.snd_nxt = self.snd_una;
                if self.snd_wnd == 0 && !self.queue.is_empty() {
                    self.text(1);
                }
            }
        }
    }

    fn syn(&mut self, flags: u8) {
        self.segment(self.iss, flags, Vec::new());
        self.snd_nxt = self.iss.wrapping_add(1);
        self.snd_max = self.snd_nxt;
    }

    /// Sends so many bytes from SND.NXT on.
    fn text(&mut self, len: usize) {
        let from = self.snd_nxt.wrapping_sub(self.snd_una) as usize;
        let text: Vec<u8> = self.queue.iter().skip(from).take(len).copied().collect();
        let next = self.snd_nxt.wrapping_add(text.len() as u32);
        self.segment(self.snd_nxt, ACK | PSH, text);
        self.advance(next);
    }

    fn advance(&mut self, next: u32) {
        self.snd_nxt = next;
        if before(self.snd_max, next) {
            self.snd_max = next;
        }
    }

    fn transmit(&mut self, now_ns: u64) {
        let most = self.manner.segment_max.min(if self.mss == 0 { MSS_DEFAULT } else { self.mss });
        loop {
            let sent = self.snd_nxt.wrapping_sub(self.snd_una) as usize;
            let room = (self.snd_wnd as usize).min(self.manner.flight).saturating_sub(sent);
            let left = self.queue.len().saturating_sub(sent).min(room).min(most.into());
            if left == 0 {
                break;
            }
            let some = 1 + self.random.within(0..left as u64) as usize;
            self.text(if self.manner.is_uneven { some } else { left });
        }
        let is_acked = matches!(self.state, State::FinWait2 | State::TimeWait);
        if self.is_closing && self.snd_nxt == self.text_end() && !is_acked {
            self.segment(self.snd_nxt, FIN | ACK, Vec::new());
            self.advance(self.snd_nxt.wrapping_add(1));
            self.state = match self.state {
                State::Established => State::FinWait1,
                State::CloseWait => State::LastAck,
                other => other,
            };
        }
        let is_waiting = self.snd_max != self.snd_una || !self.queue.is_empty();
        if is_waiting && (self.timer_ns.is_none() || self.is_keeping) {
            (self.timer_ns, self.is_keeping) = (Some(now_ns + self.rto_ns), false);
            self.retries = 0;
        } else if self.timer_ns.is_none() {
            (self.timer_ns, self.is_keeping) = (Some(now_ns + KEEP_NS), true);
        }
    }

    /// Section 3.10.7.3 and 3.10.7.4. The answer to what the connection has nothing to do with is returned.
    pub fn arrives(&mut self, now_ns: u64, segment: &Segment) -> Option<Segment> {
        if self.state == State::SynSent {
            return self.arrives_in_syn_sent(now_ns, segment);
        }
        self.heard += 1;
        if std::mem::take(&mut self.is_keeping) {
            (self.timer_ns, self.retries) = (None, 0);
        }
        if !self.is_acceptable(segment) {
            // While the window is shut, an acknowledgement is taken from what is not (section 3.10.7.4).
            let is_next = segment.seq == self.rcv_nxt && segment.flags & (ACK | RST | SYN) == ACK;
            if is_next && self.state != State::SynReceived {
                self.takes_ack(now_ns, segment);
            }
            if self.state == State::TimeWait && segment.has(FIN) {
                self.wait(now_ns);
            }
            if !segment.has(RST) {
                self.acknowledge();
            }
            return None;
        }
        if segment.has(RST) {
            if segment.seq == self.rcv_nxt {
                self.state = State::Closed;
            } else {
                self.acknowledge();
            }
            return None;
        }
        if segment.has(SYN) {
            // The challenge of RFC 5961, or the SYN once more, whose answer was lost.
            self.acknowledge();
            return None;
        }
        if !segment.has(ACK) {
            return None;
        }
        if self.state == State::SynReceived {
            if !before(self.snd_una, segment.ack) || before(self.snd_max, segment.ack) {
                return Some(reset(segment));
            }
            self.established(segment);
        }
        if self.takes_ack(now_ns, segment) {
            self.takes_text(now_ns, segment);
        }
        None
    }

    fn established(&mut self, segment: &Segment) {
        self.state = State::Established;
        self.snd_una = self.iss.wrapping_add(1);
        self.snd_nxt = self.snd_una;
        (self.snd_wnd, self.snd_wl1, self.snd_wl2) = (segment.window.into(), segment.seq, segment.ack);
        (self.timer_ns, self.retries, self.rto_ns) = (None, 0, RTO_NS);
    }

    fn arrives_in_syn_sent(&mut self, now_ns: u64, segment: &Segment) -> Option<Segment> {
        if segment.has(ACK) && segment.ack != self.snd_max {
            return (!segment.has(RST)).then(|| reset(segment));
        }
        if segment.has(RST) {
            if segment.has(ACK) {
                self.state = State::Closed;
            }
            return None;
        }
        if segment.has(SYN) {
            self.rcv_nxt = segment.seq.wrapping_add(1);
            self.rcv_edge = self.rcv_nxt;
            self.mss = segment.mss;
            if segment.has(ACK) {
                self.established(segment);
                self.acknowledge();
            } else {
                self.state = State::SynReceived;
                self.timer_ns = Some(now_ns);
            }
        }
        None
    }

    /// The four cases of section 3.4.
    fn is_acceptable(&self, segment: &Segment) -> bool {
        let window = self.rcv_edge.wrapping_sub(self.rcv_nxt);
        let is_inside = |seq: u32| seq.wrapping_sub(self.rcv_nxt) < window;
        match (segment.len(), window) {
            (0, 0) => segment.seq == self.rcv_nxt,
            (0, _) => is_inside(segment.seq),
            (_, 0) => false,
            (len, _) => is_inside(segment.seq) || is_inside(segment.seq.wrapping_add(len - 1)),
        }
    }

    /// Whether the segment is to be read on.
    fn takes_ack(&mut self, now_ns: u64, segment: &Segment) -> bool {
        if before(self.snd_max, segment.ack) {
            self.acknowledge();
            return false;
        }
        if before(self.snd_una, segment.ack) {
            let is_fin_acked = self.has_sent_fin() && segment.ack == self.text_end().wrapping_add(1);
            let gone = segment.ack.wrapping_sub(self.snd_una) as usize;
            self.queue.drain(..gone.min(self.queue.len()));
            self.snd_una = segment.ack;
            if before(self.snd_nxt, self.snd_una) {
                self.snd_nxt = self.snd_una;
            }
            (self.retries, self.rto_ns, self.heard) = (0, RTO_NS, 0);
            self.timer_ns = (self.snd_una != self.snd_max).then_some(now_ns + self.rto_ns);
            if is_fin_acked {
                self.fin_is_acked(now_ns);
            }
        }
        let is_newer = before(self.snd_wl1, segment.seq)
            || (self.snd_wl1 == segment.seq && !before(segment.ack, self.snd_wl2));
        if !before(segment.ack, self.snd_una) && is_newer {
            (self.snd_wnd, self.snd_wl1, self.snd_wl2) = (segment.window.into(), segment.seq, segment.ack);
        }
        self.state != State::Closed
    }

    fn fin_is_acked(&mut self, now_ns: u64) {
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.wait(now_ns),
            State::LastAck => self.state = State::Closed,
            _ => {}
        }
    }

    fn wait(&mut self, now_ns: u64) {
        self.state = State::TimeWait;
        (self.timer_ns, self.is_keeping) = (Some(now_ns + 2 * MSL_NS), false);
    }

    fn takes_text(&mut self, now_ns: u64, segment: &Segment) {
        if segment.len() == 0 {
            return;
        }
        if self.state == State::TimeWait {
            self.wait(now_ns);
            return self.acknowledge();
        }
        if segment.has(FIN) {
            self.fin = Some(segment.seq.wrapping_add(segment.text.len() as u32));
        }
        let expected = self.rcv_nxt;
        if !before(expected, segment.seq) {
            self.append(segment.seq, &segment.text);
            while let Some(seq) = self.aside.keys().copied().find(|seq| !before(self.rcv_nxt, *seq)) {
                let text = self.aside.remove(&seq).expect("it is there");
                self.append(seq, &text);
            }
        } else if self.manner.keeps && self.aside.len() < 32 {
            self.aside.insert(segment.seq, segment.text.clone());
        }
        if self.fin == Some(self.rcv_nxt) {
            self.fin_arrives(now_ns);
        }
        // Out of order, or the end, is acknowledged at once; so is the second of two.
        let is_plain = self.rcv_nxt != expected && self.fin.is_none() && self.ack_ns.is_none();
        self.ack_ns = Some(if is_plain { now_ns + self.manner.ack_delay_ns } else { now_ns });
        if self.random.happens(self.manner.pauses) {
            self.paused_ns = now_ns + self.random.within(0..3_000_000_000);
        }
    }

    /// Takes the part of a text that is new and lies in the window.
    fn append(&mut self, seq: u32, text: &[u8]) {
        let known = self.rcv_nxt.wrapping_sub(seq) as usize;
        let room = self.rcv_edge.wrapping_sub(self.rcv_nxt) as usize;
        let new = text.get(known..).unwrap_or_default();
        let new = &new[..new.len().min(room)];
        self.received.extend(new);
        self.rcv_nxt = self.rcv_nxt.wrapping_add(new.len() as u32);
    }

    fn fin_arrives(&mut self, now_ns: u64) {
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.wait(now_ns),
            _ => return,
        }
        self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        if before(self.rcv_edge, self.rcv_nxt) {
            self.rcv_edge = self.rcv_nxt;
        }
    }
}

/// The reset of a segment that belongs to no connection (section 3.10.7.1).
pub fn reset(segment: &Segment) -> Segment {
    let (from, to) = (segment.to, segment.from);
    if segment.has(ACK) {
        return Segment { from, to, seq: segment.ack, flags: RST, ..Segment::default() };
    }
    let ack = segment.seq.wrapping_add(segment.len());
    Segment { from, to, ack, flags: RST | ACK, ..Segment::default() }
}
