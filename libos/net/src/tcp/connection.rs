//! The state of one connection; the files beside this one each do one thing with it.
//!
//! ```text
//!  segment -> accept -> acknowledge -> deliver -> close      what arrives     (RFC 9293 section 3.10.7)
//!  emit: lost, new, probe, acknowledgement                   what is to go    (section 3.8)
//!  expire                                                    what time does   (RFC 6298)
//!  listen, cookie, connect                                   how it begins
//! ```
//! None of them knows of addresses, devices or other connections.

use super::congestion::Cubic;
use super::flight::Flight;
use super::memory::{Held, Tuning};
use super::rack::Rack;
use super::rare::RareBox;
use super::reassemble::Reassembly;
use super::rtt::Rtt;
use super::segment::{Options, Segment};
use super::sequence::Seq;
use crate::buffer::{Buffer, Queue, Slice};
use crate::counters::Counters;
use crate::time::{Instant, sooner};
use alloc::vec::Vec;
use core::time::Duration;
use smallvec::SmallVec;

/// States of RFC 9293 section 3.3.2 that need all of this. LISTEN and TIME-WAIT are elsewhere, and small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// We sent SYN.
    SynSent,
    /// We answered SYN by SYN-ACK.
    SynReceived,
    /// Both sides may send.
    Established,
    /// We sent FIN, which is not yet acknowledged.
    FinWait1,
    /// Our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer sent FIN; we may still send.
    CloseWait,
    /// Both sent FIN at once; ours is not yet acknowledged.
    Closing,
    /// We sent FIN after the peer did; it is not yet acknowledged.
    LastAck,
    /// Over, but for stray segments.
    TimeWait,
    /// Over.
    Closed,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Both sides said all they had to say.
    Finished,
    /// The peer reset it.
    Reset,
    /// The peer refused it.
    Refused,
    /// The peer fell silent.
    TimedOut,
    /// The network says that the peer cannot be reached.
    Unreachable,
}

/// When to ask a silent peer whether it is still there (RFC 9293 section 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first question.
    pub idle: Duration,
    /// Time between questions.
    pub interval: Duration,
    /// Questions before giving up.
    pub probes: u32,
}

/// When a segment goes that is not full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SmallSegments {
    /// At once.
    #[default]
    AtOnce,
    /// Once nothing is in flight (RFC 896: Nagle).
    Acknowledged,
    /// When more has filled it, or after the time of a retransmission, at least 0.2 s (tcp(7): `TCP_CORK`).
    Held,
}

/// How long one connection waits for a peer that says nothing, where that is not as for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTimeouts {
    /// When to ask it whether it is still there.
    pub keep_alive: Option<KeepAlive>,
    /// How long what was sent may go without an acknowledgement, instead of so many retransmissions (RFC 9293
    /// section 3.9.1: user timeout). One that is over before the first of those is looked at then.
    pub user_timeout: Option<Duration>,
}

impl PeerTimeouts {
    /// As for all.
    pub const USUAL: PeerTimeouts = PeerTimeouts { keep_alive: None, user_timeout: None };
}

/// What all connections have in common.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes that a peer may send ahead at first.
    pub receive_window: u32,
    /// The same for a peer whose bytes are taken as fast as they come: what a window may grow to.
    pub receive_window_max: u32,
    /// Bytes that an application may have queued before it is told to wait, at first.
    pub send_max: usize,
    /// The same where more than that is in flight.
    pub send_queue_max: usize,
    /// Bytes that the send queues of all connections may hold together.
    pub queued_max: usize,
    /// Bytes of memory that what is received, and was not yet taken, may hold for all connections together.
    pub kept_max: usize,
    /// The shortest retransmission timeout. RFC 6298 says 1 s; everybody takes less.
    pub timeout_min: Duration,
    /// The longest that an acknowledgement waits for company (RFC 9293 section 3.8.6.3: below 0.5 s).
    pub acknowledge_delay: Duration,
    /// When segments go that are not full. A server that answers in one piece gains nothing by waiting.
    pub small_segments: SmallSegments,
    /// Whether a large window is sent over its round trip ([pacing](super::pace)) rather than at once.
    pub paces: bool,
    /// Whether and when to ask silent peers; off by default, as the RFC wants it.
    pub keep_alive: Option<KeepAlive>,
    /// Retransmissions in a row before giving up.
    pub retries_max: u32,
    /// The same while the connection is being made.
    pub handshake_retries_max: u32,
    /// How long a peer may take to close after we have (FIN-WAIT-2), from its last data on, where nobody here
    /// wants that data; and how long it may have no room for what we sent before.
    pub linger: Duration,
}

/// The largest window: 16 MiB, as far as it can be said in units of 256 bytes.
pub const WINDOW_MAX: u32 = 0xffff << 8;

impl Settings {
    /// Windows and queues that stay as they are at first.
    pub fn fix_windows(&mut self, receive: u32, send: usize) {
        (self.receive_window, self.receive_window_max) = (receive, receive);
        (self.send_max, self.send_queue_max) = (send, send);
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            receive_window: 256 << 10,
            receive_window_max: WINDOW_MAX,
            send_max: 256 << 10,
            send_queue_max: 16 << 20,
            queued_max: 64 << 20,
            kept_max: 64 << 20,
            timeout_min: Duration::from_millis(200),
            acknowledge_delay: Duration::from_millis(40),
            small_segments: SmallSegments::AtOnce,
            paces: true,
            keep_alive: None,
            retries_max: 12,
            handshake_retries_max: 5,
            linger: Duration::from_secs(60),
        }
    }
}

/// The world in which a state function runs.
pub struct Context<'a> {
    /// Now.
    pub now: Instant,
    /// What all connections have in common.
    pub settings: &'a Settings,
    /// Where drops and the like are counted.
    pub counters: &'a mut Counters,
    /// What all connections hold.
    pub held: &'a mut Held,
}

/// What a segment or the time did that the application is to know.
#[derive(Debug)]
pub struct Effects<B> {
    /// The connection is open.
    pub connected: bool,
    /// Bytes that came, in order.
    pub data: Vec<Slice<B>>,
    /// There is room again in the send queue, for an application that found it full.
    pub sendable: bool,
    /// The peer will send no more.
    pub finished: bool,
    /// The connection is over.
    pub closed: Option<Closed>,
}

impl<B> Default for Effects<B> {
    fn default() -> Effects<B> {
        Effects { connected: false, data: Vec::new(), sendable: false, finished: false, closed: None }
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Sender<B> {
    /// The oldest sequence number not acknowledged.
    pub una: Seq,
    /// The next to send; behind `max` while things are sent again after a timeout.
    pub next: Seq,
    /// The end of what was ever sent.
    pub max: Seq,
    /// What the peer lets us send beyond `una`.
    pub window: u32,
    /// The largest it ever was.
    pub window_max: u32,
    /// Sequence and acknowledgement number of the segment that set it (RFC 9293 SND.WL1 and SND.WL2).
    pub window_by: (Seq, Seq),
    /// Shift of the peer's window field.
    pub scale: u8,
    /// Most bytes of payload and options in a segment.
    pub mss: u32,
    /// Bytes from `una` on, once the handshake is over.
    pub queue: Queue<B>,
    /// Whether FIN follows the queue and is not yet acknowledged.
    pub is_closing: bool,
    /// Whether the application found the queue full and waits.
    pub is_awaited: bool,
}

impl<B: Buffer> Sender<B> {
    /// The sequence number after all queued bytes: that of FIN.
    pub fn end(&self) -> Seq {
        self.una + self.queue.len() as u32
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver<B> {
    /// The next sequence number expected.
    pub next: Seq,
    /// The end of what the peer may send: promised, so it never goes back.
    pub edge: Seq,
    /// How far beyond `next` we want `edge` to be: [`Connection::refresh_window`].
    pub window: u32,
    /// How large it grew by what the application takes, how much it may be in the application's opinion, and
    /// what the application has and has not yet read.
    pub tuning: Tuning,
    /// Shift of our window field.
    pub scale: u8,
    /// Most bytes of payload and options that a peer puts into one segment, as we told it.
    pub mss: u32,
    /// The longest payload of one segment that came: what the peer takes for a full one, options and path
    /// considered.
    pub longest: u32,
    /// The acknowledgement number sent last.
    pub acknowledged: Seq,
    /// Large segments that are to be acknowledged at once, after a loss or a duplicate.
    pub quick: u8,
    /// Whether an acknowledgement must go now.
    pub is_acknowledgement_due: bool,
    /// Segments that came too early.
    pub reassembly: Reassembly<B>,
}

/// RFC 7323 timestamps of a connection that uses them.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    /// TS.Recent.
    pub recent: u32,
    /// When it was set.
    pub recent_at: Instant,
}

/// What loss recovery (RFC 8985 with selective acknowledgements, RFC 6582 without) knows while nothing is
/// lost.
#[derive(Debug, Default)]
pub struct Recovery {
    /// What is in flight, and what is known of it.
    pub flight: Flight,
    /// What its times tell.
    pub rack: Rack,
}

/// When time will do something; what it rarely does is in the [box](super::rare::Rare).
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadlines {
    /// Retransmission (RFC 6298).
    pub retransmit: Option<Instant>,
    /// What was overtaken counts as lost, or, if nothing was, the last segment goes again (RFC 8985).
    pub loss: Option<Instant>,
    /// The delayed acknowledgement.
    pub acknowledge: Option<Instant>,
    /// The question whether a silent peer is still there.
    pub keep_alive: Option<Instant>,
}

impl Deadlines {
    /// The first of them.
    #[inline]
    pub fn first(&self) -> Option<Instant> {
        sooner(sooner(self.retransmit, self.loss), sooner(self.acknowledge, self.keep_alive))
    }
}

/// Answers of a connection that are told apart before they are sent.
const ANSWERS_MAX: usize = 8;

/// An answer that no segment has carried to its end.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The sequence number behind its last byte.
    pub end: Seq,
    /// When the oldest of the requests that it answers arrived, in nanoseconds of the world's clock.
    pub arrived_ns: u64,
    /// How many they are.
    pub requests: u32,
}

/// One connection.
#[derive(Debug)]
pub struct Connection<B> {
    /// Its state.
    pub state: State,
    /// The sending half.
    pub send: Sender<B>,
    /// The receiving half.
    pub receive: Receiver<B>,
    /// Timestamps, if both sides use them; while SYN is on its way, if we offer them.
    pub stamps: Option<Stamps>,
    /// What our timestamps are ahead of the clock: it differs from connection to connection, so that none
    /// tells how long the machine has been up, nor that two are of one machine (RFC 7323 section 7.1).
    pub stamp_offset: u32,
    /// Whether both sides use selective acknowledgements; while SYN is on its way, whether we offer them.
    pub is_sack: bool,
    /// Whether both sides scale windows; while SYN is on its way, whether we offer it.
    pub is_scaled: bool,
    /// Loss recovery.
    pub recovery: Recovery,
    /// Congestion window.
    pub cubic: Cubic,
    /// Round-trip time.
    pub rtt: Rtt,
    /// The end of a segment that is being timed, and when it was sent.
    pub timed: Option<(Seq, Instant)>,
    /// Timers.
    pub deadlines: Deadlines,
    /// Retransmissions or probes in a row that nothing answered.
    pub retries: u32,
    /// What it has when something is amiss.
    pub rare: RareBox,
    /// Whether a probe is to go.
    pub is_probe_due: bool,
    /// Whether a small segment may go although a larger one is possible.
    pub is_small_allowed: bool,
    /// When segments go that are not full.
    pub small_segments: SmallSegments,
    /// When the peer was last heard of.
    pub heard_at: Instant,
    /// When data was last sent.
    pub sent_at: Instant,
    /// Whether it counts among the half open ones.
    pub is_half_open: bool,
    /// Whether the application wants nothing more of it, so that our patience with the peer ends.
    pub is_orphan: bool,
    /// What the application answers and no segment has yet carried to its end, in order.
    pub answers: SmallVec<[Due; 1]>,
}

/// How the two ends of a connection begin.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Our initial sequence number.
    pub iss: Seq,
    /// What timestamps are ahead of the clock.
    pub stamp_offset: u32,
    /// Most bytes of payload that our link takes.
    pub mss: u16,
    /// When.
    pub now: Instant,
}

impl<B: Buffer> Connection<B> {
    /// A connection in `state` before anything is known of the peer.
    pub fn new(state: State, origin: Origin, settings: &Settings) -> Connection<B> {
        let Origin { iss, stamp_offset, mss, now } = origin;
        let mss = u32::from(mss);
        Connection {
            state,
            send: Sender {
                una: iss,
                next: iss,
                max: iss,
                window: 0,
                window_max: 0,
                window_by: (Seq(0), Seq(0)),
                scale: 0,
                mss,
                queue: Queue::new(),
                is_closing: false,
                is_awaited: false,
            },
            receive: Receiver {
                next: Seq(0),
                edge: Seq(0),
                window: settings.receive_window,
                tuning: Tuning::new(settings.receive_window, now),
                scale: scale_for(settings.receive_window.max(settings.receive_window_max)),
                mss,
                longest: 0,
                acknowledged: Seq(0),
                quick: 0,
                is_acknowledgement_due: false,
                reassembly: Reassembly::new(),
            },
            stamps: Some(Stamps { recent: 0, recent_at: now }),
            stamp_offset,
            is_sack: true,
            is_scaled: true,
            recovery: Recovery::default(),
            cubic: Cubic::new(mss),
            rtt: Rtt::new(settings.timeout_min),
            timed: None,
            deadlines: Deadlines::default(),
            retries: 0,
            rare: RareBox::default(),
            is_probe_due: false,
            is_small_allowed: false,
            small_segments: settings.small_segments,
            heard_at: now,
            sent_at: now,
            is_half_open: false,
            is_orphan: false,
            answers: SmallVec::new(),
        }
    }

    /// Takes the peer's SYN: its sequence number, its options, its unscaled window.
    pub fn take_syn(&mut self, segment: &Segment, now: Instant) {
        self.receive.next = segment.seq + 1;
        self.receive.acknowledged = self.receive.next;
        self.receive.edge = self.receive.next + self.receive.window.min(0xffff);
        self.send.window_by = (segment.seq, segment.ack);
        self.negotiate(&segment.options, now);
        self.send.window = u32::from(segment.window);
        self.send.window_max = self.send.window;
    }

    /// Keeps what both sides can (RFC 7323 sections 1.3 and 3.2, RFC 2018 section 2, RFC 9293 section 3.7.1).
    pub fn negotiate(&mut self, options: &Options, now: Instant) {
        self.is_scaled = options.scale.is_some();
        match options.scale {
            Some(scale) => self.send.scale = scale.min(14),
            None => self.receive.scale = 0,
        }
        self.stamps = options.timestamps.map(|stamps| Stamps { recent: stamps.value, recent_at: now });
        self.is_sack = options.sack_permitted;
        self.limit_mss(u32::from(options.mss.unwrap_or(536)).max(MSS_MIN));
    }

    /// Sends no larger segments than `mss`, options included.
    pub fn limit_mss(&mut self, mss: u32) {
        self.send.mss = self.send.mss.min(mss);
        self.cubic.set_mss(self.send.mss);
    }

    /// Has no segment be longer than `most`, options included, sent or asked for: the peer hears of it if the
    /// connection is yet to be asked for.
    pub fn limit_segments(&mut self, most: u32) {
        let most = most.max(MSS_MIN);
        self.limit_mss(most);
        if self.state == State::SynSent {
            self.receive.mss = self.receive.mss.min(most);
        }
    }

    /// The next `len` bytes that are queued answer so many requests, the oldest of which arrived at
    /// `arrived_ns`.
    #[inline]
    pub fn note_answer(&mut self, arrived_ns: u64, requests: u32, len: u32) {
        let end = self.send.end() + len;
        let is_full = self.answers.len() >= ANSWERS_MAX;
        match self.answers.last_mut() {
            // Who asks and asks does not have us remember without end: then several count as one.
            Some(last) if is_full => {
                (last.end, last.requests) = (end, last.requests.saturating_add(requests));
            }
            _ => self.answers.push(Due { end, arrived_ns, requests }),
        }
    }

    /// The answers that `segment` carries to their ends, as one that is as old as the oldest.
    pub fn take_answer(&mut self, segment: &Segment) -> Option<Due> {
        if segment.sequence_len() == 0 { None } else { self.take_answer_before(segment.end()) }
    }

    /// The answers that end at `end` or before.
    #[inline]
    pub fn take_answer_before(&mut self, end: Seq) -> Option<Due> {
        // Nearly always there is one, and it fits into a segment.
        match self.answers[..] {
            [] => return None,
            [due] if due.end.at_most(end) => {
                self.answers.clear();
                return Some(due);
            }
            _ => {}
        }
        let count = self.answers.iter().take_while(|due| due.end.at_most(end)).count();
        let carried = self.answers.drain(..count);
        carried.reduce(|first, due| Due { requests: first.requests.saturating_add(due.requests), ..first })
    }

    /// The clock of our timestamps (RFC 7323 section 5.4), in milliseconds.
    #[inline]
    pub fn stamp_clock(&self, now: Instant) -> u32 {
        now.millis_wrapping().wrapping_add(self.stamp_offset)
    }

    /// Whether the handshake is over and the connection not.
    pub fn is_synchronised(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Ends it.
    pub fn end(&mut self, why: Closed, effects: &mut Effects<B>) {
        self.state = State::Closed;
        effects.closed = Some(why);
    }
}

/// Smaller segments than this are refused: a peer that wants them wants us to waste our time.
const MSS_MIN: u32 = 88;

/// The smallest shift with which `window` fits into 16 bits.
fn scale_for(window: u32) -> u8 {
    (0..14).find(|&scale| window >> scale <= 0xffff).unwrap_or(14)
}
