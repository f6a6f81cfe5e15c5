//! The way of a frame through the stack, in stages.
//!
//! ```text
//!  harvest ──► classify ──┬──────────────────► input ──► emit ──► flush
//!  a batch of  flow and   │                      ▲       for four   one kick
//!  32 frames   label      └──► queues, if any ───┘       answers    for them
//! ```
//! Whoever has [`Queues`] between classify and input decides whose frame goes on next, when what it is for is
//! known and nothing has been done for it. Where nobody waits a frame is never put anywhere: the stages are
//! calls of one another.

use super::{Application, Stack};
use crate::batch::{Reason, Unheld};
use crate::frame::{Ethernet, Packet, protocol};
use crate::table::{FlowId, FourTuple};
use crate::tcp::plain::Plain;
use crate::time::Instant;
use core::net::SocketAddr;
use core::ops::Range;
use nom_port::buffer::{Buffer, chain_len};
use nom_port::nic::{Label, Nic, Received};
use smoltcp::wire::EthernetProtocol;

/// Most frames of a batch: what is harvested before anything is sent.
pub const BATCH_MAX: usize = 32;

/// How many answers leave together when nothing is held (W = 0): the device and the clients get on with them
/// while the rest is answered. If all of a batch left at its end, clients would ask while nobody answers, and
/// wait while nobody asks. A device that is still busy with the last is told of them without a kick.
const TOGETHER: usize = 4;

/// Frames handled in one call, at most: so that a flood of them does not keep the rest of the core from its
/// work.
const FRAMES_MAX: usize = 256;

/// A frame that was classified, and waits for its turn.
#[derive(Clone, Debug)]
pub struct Arrival<B> {
    received: Received<B>,
    located: Option<Located>,
    label: Label,
    /// Bytes of the frame, and how many of them are to go on yet.
    bytes: usize,
    left: usize,
    /// Most bytes of its payload that go on at a time.
    piece_max: usize,
}

impl<B: Buffer> Arrival<B> {
    /// One of which nothing has gone on, and all goes on at once unless it is cut.
    fn new(received: Received<B>, located: Option<Located>, label: Label) -> Arrival<B> {
        let bytes = chain_len(&received.frame);
        Arrival { received, located, label, bytes, left: bytes, piece_max: usize::MAX }
    }

    /// For whom it is: as its flow, or as [`Application::classify`] says of its addresses. That is the
    /// default, if it is for no connection and no port.
    #[inline]
    pub fn label(&self) -> Label {
        self.label
    }

    /// Bytes of the frame.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lets so many bytes of its payload go on at a time, if it is a segment that nothing is unusual about:
    /// one that the device has merged from many may hold more requests than others can wait for. The rest
    /// goes on when the frame is the next again.
    #[inline]
    pub fn cut(&mut self, piece_max: usize) {
        self.piece_max = piece_max.max(1);
    }

    /// How many of its bytes have yet to go on.
    #[inline]
    pub fn left(&self) -> usize {
        self.left
    }

    /// When the driver first saw it, in nanoseconds of the world's clock.
    #[inline]
    pub fn at_ns(&self) -> u64 {
        self.received.at_ns
    }
}

/// Where a segment belongs that nothing is unusual about: found once, when it was classified.
#[derive(Clone, Debug)]
pub(super) struct Located {
    pub flow: FlowId,
    pub plain: Plain,
    pub payload: Range<usize>,
}

/// Who says which frame goes on next. Frames of one label that go on in the order in which they came keep
/// the segments of their flows in order; nothing breaks if they do not, but TCP takes it for a loss.
pub trait Queues<B> {
    /// Whether anybody may have to wait: if not, every frame goes on at once, and the stack need not look
    /// for whom it is.
    #[inline]
    fn tells_apart(&self) -> bool {
        true
    }

    /// Whether a frame for `label` goes on at once, as nobody waits who would come first.
    fn goes_on(&mut self, label: Label) -> bool;

    /// The place for a frame of so many bytes that does not, which is filled before anything else is asked;
    /// none, if it is lost.
    fn push(&mut self, label: Label, bytes: usize) -> Option<&mut Option<Arrival<B>>>;

    /// The frame that goes on now, or the next piece of one; none, if nobody may at present.
    fn next(&mut self) -> Option<&mut Arrival<B>>;

    /// Whether the frames that went on of late took so long that what was answered leaves at once, before
    /// others go on: who is answered may then ask again before it is his turn again.
    #[inline]
    fn is_turn_over(&mut self) -> bool {
        false
    }

    /// When the next may go on, if some wait and none may at present.
    fn due(&self) -> Option<Instant>;
}

/// Every frame goes on at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct;

impl<B> Queues<B> for Direct {
    #[inline]
    fn tells_apart(&self) -> bool {
        false
    }

    #[inline]
    fn goes_on(&mut self, _: Label) -> bool {
        true
    }

    fn push(&mut self, _: Label, _: usize) -> Option<&mut Option<Arrival<B>>> {
        unreachable!("every frame goes on at once")
    }

    #[inline]
    fn next(&mut self) -> Option<&mut Arrival<B>> {
        None
    }

    #[inline]
    fn due(&self) -> Option<Instant> {
        None
    }
}

/// Without queues every frame goes on at once.
impl<B, Q: Queues<B>> Queues<B> for Option<Q> {
    #[inline]
    fn tells_apart(&self) -> bool {
        self.as_ref().is_some_and(Q::tells_apart)
    }

    #[inline]
    fn goes_on(&mut self, label: Label) -> bool {
        self.as_mut().is_none_or(|queues| queues.goes_on(label))
    }

    #[inline]
    fn push(&mut self, label: Label, bytes: usize) -> Option<&mut Option<Arrival<B>>> {
        self.as_mut().expect("without queues every frame goes on at once").push(label, bytes)
    }

    #[inline]
    fn next(&mut self) -> Option<&mut Arrival<B>> {
        self.as_mut()?.next()
    }

    #[inline]
    fn is_turn_over(&mut self) -> bool {
        self.as_mut().is_some_and(Q::is_turn_over)
    }

    #[inline]
    fn due(&self) -> Option<Instant> {
        self.as_ref()?.due()
    }
}

impl<N: Nic> Stack<N> {
    /// Takes batches of frames through the stages until the device has no more, or enough were taken.
    pub(super) fn receive(
        &mut self,
        application: &mut impl Application<N>,
        queues: &mut impl Queues<N::Buffer>,
    ) {
        self.has_more = false;
        let mut left = FRAMES_MAX;
        loop {
            let most = left.min(self.batch_max);
            let count = self.harvest(application, queues, most);
            while let Some(arrival) = queues.next() {
                self.link.nic.attribute(arrival.label);
                self.input(application, arrival);
                if self.batch_max == 1 || queues.is_turn_over() {
                    self.emit_all();
                }
                self.flush_overdue();
            }
            if count == 0 {
                return;
            }
            self.emit();
            let now = self.clock();
            self.link.flush(now);
            self.now = now;
            left -= count;
            if left == 0 {
                self.has_more = true;
                return;
            }
        }
    }

    /// Most frames of a batch from now on.
    pub(super) fn set_batch_max(&mut self) {
        let is_alone = self.delay().is_zero() && self.config.unheld == Unheld::Alone;
        self.batch_max = if is_alone { 1 } else { BATCH_MAX };
    }

    /// Takes up to `most` frames from the device and says where each belongs. Those that go on at once do;
    /// the others are in their queues. Returns how many came.
    #[inline]
    fn harvest(
        &mut self,
        application: &mut impl Application<N>,
        queues: &mut impl Queues<N::Buffer>,
        most: usize,
    ) -> usize {
        let mut count = 0;
        // W may be set to 0 while a batch is handled.
        while count < most.min(self.batch_max) {
            let Some(received) = self.link.nic.receive() else { break };
            count += 1;
            self.link.counters.frames_received += 1;
            if self.delay().is_zero() {
                self.receive_batch.count_unheld();
            } else {
                self.receive_batch.push(Instant::from_nanos(received.at_ns));
            }
            if queues.tells_apart() {
                self.admit(application, queues, received);
            } else {
                self.pass(application, received);
            }
            self.flush_overdue();
        }
        self.receive_batch.flush(if count == most { Reason::Ring } else { Reason::NothingMore });
        count
    }

    /// Takes one frame from classify to input where nobody can stand between: what was found is not put
    /// anywhere.
    #[inline(always)]
    fn pass(&mut self, application: &mut impl Application<N>, received: Received<N::Buffer>) {
        let located = if application.filters_segments() { None } else { self.locate(&received) };
        self.go_on(application, located, received);
    }

    #[inline(always)]
    fn go_on(
        &mut self,
        application: &mut impl Application<N>,
        located: Option<Located>,
        mut received: Received<N::Buffer>,
    ) {
        if let Some(located) = located {
            self.arrived_ns = received.at_ns;
            if self.input_plain(application, &located, &mut received) {
                return;
            }
        }
        self.input_any(application, received);
    }

    /// Finds the flow of a frame, if nothing is unusual about it, and for whom it is; and lets it go on, or
    /// has it wait.
    fn admit(
        &mut self,
        application: &mut impl Application<N>,
        queues: &mut impl Queues<N::Buffer>,
        received: Received<N::Buffer>,
    ) {
        let located = if application.filters_segments() { None } else { self.locate(&received) };
        let label = self.label_of(application, located.as_ref(), &received);
        if queues.goes_on(label) {
            self.go_on(application, located, received);
        } else if let Some(place) = queues.push(label, chain_len(&received.frame)) {
            *place = Some(Arrival::new(received, located, label));
        }
    }

    /// For whom a frame is.
    fn label_of(
        &self,
        application: &mut impl Application<N>,
        located: Option<&Located>,
        received: &Received<N::Buffer>,
    ) -> Label {
        if let Some(located) = located {
            return self.label(located.flow);
        }
        let Some(tuple) = addresses(received) else { return Label::default() };
        match self.flows.find(&tuple) {
            Some(id) => self.label(id),
            None => application.classify(&tuple),
        }
    }

    /// Takes one frame in, or a piece of it: to its connection, and what it carries to the application.
    #[inline(never)]
    fn input(&mut self, application: &mut impl Application<N>, arrival: &mut Arrival<N::Buffer>) {
        let Arrival { received, located, piece_max, left, .. } = arrival;
        if let Some(located) = located {
            self.arrived_ns = received.at_ns;
            if located.payload.len() > *piece_max {
                if self.input_piece(application, located, received, *piece_max) {
                    *left -= *piece_max;
                    return;
                }
            } else if self.input_plain(application, located, received) {
                received.frame.clear();
                *left = 0;
                return;
            }
        }
        *left = 0;
        // What of it went on is not new to its connection.
        let Received { frame, checksum, at_ns } = received;
        let received = Received { frame: core::mem::take(frame), checksum: *checksum, at_ns: *at_ns };
        self.input_any(application, received);
    }

    /// Takes the first `len` bytes of a segment's payload in as if they had come in a segment of their own;
    /// whether they are what the connection expects next.
    fn input_piece(
        &mut self,
        application: &mut impl Application<N>,
        located: &mut Located,
        received: &Received<N::Buffer>,
        len: usize,
    ) -> bool {
        let (start, mut first) = (located.payload.start, located.clone());
        first.payload.end = start + len;
        first.plain.len = len as u32;
        if !self.input_plain(application, &first, &mut received.clone()) {
            return false;
        }
        located.payload.start += len;
        located.plain.seq = located.plain.seq + len as u32;
        located.plain.len -= len as u32;
        true
    }

    /// The same for a frame with anything.
    #[inline(never)]
    fn input_any(&mut self, application: &mut impl Application<N>, received: Received<N::Buffer>) {
        self.arrived_ns = received.at_ns;
        let Some(received) = application.filter(self, received) else { return };
        if let Err(counter) = self.demultiplex(application, received) {
            *counter(&mut self.link.counters) += 1;
        }
    }

    /// Takes a frame that another core received, as if this stack's device had. What is sent for it goes
    /// with the next [`Stack::poll`].
    pub fn take(&mut self, now: Instant, application: &mut impl Application<N>, frame: Received<N::Buffer>) {
        self.advance(now);
        self.link.counters.frames_received += 1;
        let located = if application.filters_segments() { None } else { self.locate(&frame) };
        self.input(application, &mut Arrival::new(frame, located, Label::default()));
        self.emit();
    }

    /// Lets go of what has been answered so far if handling a batch takes longer than W, or if it is enough:
    /// the device and the clients get on with it while the rest is handled.
    #[inline]
    fn flush_overdue(&mut self) {
        if !self.delay().is_zero() {
            self.flush_due();
        } else if self.unsent() >= TOGETHER {
            self.emit_all();
        }
    }

    /// Sends what all marked flows have to send, and tells the device. Not inlined: each of whoever asks
    /// would have it.
    #[inline(never)]
    pub(super) fn emit_all(&mut self) {
        self.emit();
        self.link.flush(self.now);
    }

    /// Flows with something to send, and packets that the device was not told of.
    #[inline]
    fn unsent(&self) -> usize {
        self.dirty.len() + self.link.batch.len()
    }

    /// Lets go of what was sent outside [`Application`]'s methods, if it must not wait for the next
    /// [`Stack::poll`]: what is sent first after one goes at once, what follows when it is enough, or when W
    /// is over. What one connection is given in pieces mostly goes as one segment so, or as two.
    #[inline(never)]
    pub fn let_go(&mut self) {
        if !self.delay().is_zero() {
            self.flush_due();
        } else if !self.has_let_go || self.unsent() >= TOGETHER || self.batch_max == 1 {
            self.advance(Instant::from_nanos(self.link.nic.now_ns(self.now.nanos())));
            self.has_let_go = true;
            self.emit_all();
        }
    }

    fn flush_due(&mut self) {
        let now = self.clock();
        // What is sent for this batch counts as held since the batch was begun.
        let begun_due = self.now + self.delay();
        if now >= self.link.batch.due().map_or(begun_due, |due| due.min(begun_due)) {
            self.emit();
            self.link.flush(now);
            self.now = now;
        }
    }

    /// The time as the device knows it. Nobody asks for it when nothing is held.
    #[inline]
    fn clock(&self) -> Instant {
        if self.delay().is_zero() {
            return self.now;
        }
        Instant::from_nanos(self.link.nic.now_ns(self.now.nanos())).max(self.now)
    }
}

/// The addresses of a segment or datagram that lies whole in its frame, with no headers of other protocols
/// between.
fn addresses<B: Buffer>(received: &Received<B>) -> Option<FourTuple> {
    let first = received.frame.first()?;
    let packet = match Ethernet::parse(first)?.protocol {
        EthernetProtocol::Ipv4 => Packet::parse_v4(first).ok()?,
        EthernetProtocol::Ipv6 => Packet::parse_v6(first).ok()?,
        _ => return None,
    };
    if packet.protocol != protocol::TCP && packet.protocol != protocol::UDP {
        return None;
    }
    // Both begin with their ports.
    let [a, b, c, d] = *first.get(packet.start..)?.first_chunk()?;
    let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Some(FourTuple { local: SocketAddr::new(packet.to, to), remote: SocketAddr::new(packet.from, from) })
}
