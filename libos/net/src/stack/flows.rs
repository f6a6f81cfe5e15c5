//! Flows as the application handles them, their timers, and what they send.

use super::{Application, Stack};
use crate::answer::Answer;
use crate::buffer::{Chain, Slice};
use crate::frame::{self, Marks, Path, protocol};
use crate::link::Link;
use crate::neighbour::Hop;
use crate::table::{FlowId, FourTuple, LASTING, SPARSE, keyed};
use crate::tcp::close::SendError;
use crate::tcp::connection::{Connection, Context, Effects, Origin, PeerTimeouts, SmallSegments, State};
use crate::tcp::memory::Held;
use crate::tcp::plain::Plain;
use crate::tcp::segment::{Ports, Segment};
use crate::tcp::sequence::Seq;
use crate::template::Template;
use crate::time::Instant;
use crate::timers::Timers;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU32;
use nom_port::nic::{Head, Label, Nic, Outgoing, PartialChecksum, Properties, Segmentation};

/// Most bytes of payload in a segment that the device cuts: an IP packet counts its length in 16 bits.
const LARGE_MAX: u32 = 65_535 - 60 - 60;
/// Ports for connections that we ask for (RFC 6335 section 6).
pub(super) const EPHEMERAL: core::ops::Range<u16> = 49_152..65_535;

/// A connection in the table.
#[derive(Debug)]
pub(super) struct Open<B> {
    pub connection: Connection<B>,
    /// The next hop's Ethernet address, while it holds, and what its plain segments begin with then.
    pub hop: Option<Hop>,
    pub template: Option<Template>,
    /// When its timer will be looked at.
    pub looked_at: Option<Instant>,
    /// Whether it is in the list of those that may have something to send.
    pub is_dirty: bool,
    /// Whether the application knows its name.
    pub is_known: bool,
    /// For whom it is, as the application says.
    pub label: Label,
    /// How its packets are to be treated.
    pub marks: Marks,
}

impl<B> Open<B> {
    /// Sees to it that its timer is looked at by `at`, if that is not so already.
    #[inline]
    pub fn look_at(&mut self, id: FlowId, at: Instant, timers: &mut Timers) {
        if self.looked_at.is_none_or(|known| at < known) {
            self.looked_at = Some(at);
            timers.set(id, at);
        }
    }

    /// Puts it, whose name is `id`, into the list of those that may have something to send.
    #[inline]
    pub fn mark(&mut self, id: FlowId, dirty: &mut Vec<FlowId>) {
        if !core::mem::replace(&mut self.is_dirty, true) {
            dirty.push(id);
        }
    }
}

/// What is remembered of a connection that is over (RFC 9293 section 3.6.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeWait {
    pub send_next: Seq,
    pub receive_next: Seq,
    pub recent: Option<u32>,
    pub stamp_offset: u32,
    pub window: u16,
    /// When it is forgotten.
    pub until: Instant,
}

/// What a name stands for.
#[derive(Debug)]
pub(super) enum Flow<B> {
    Open(Box<Open<B>>),
    Waiting(Box<TimeWait>),
}

/// What the next bytes that are sent on a flow answer: so many requests, the oldest of which came in a frame
/// that arrived at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// When that frame arrived.
    pub arrived_ns: u64,
    /// How many requests.
    pub requests: u32,
    /// Bytes of the answer.
    pub len: usize,
}

/// Why a connection could not be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// No address of ours, or no router, reaches the peer.
    NoRoute,
    /// All ports to that peer, or all places in the table, are taken.
    Full,
}

impl core::fmt::Display for ConnectError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            ConnectError::NoRoute => "no address or router of ours reaches the peer",
            ConnectError::Full => "all ports to the peer, or all places for flows, are taken",
        })
    }
}

impl core::error::Error for ConnectError {}

impl<N: Nic> Stack<N> {
    /// Accepts connections to `port`; each is told by [`Application::connected`].
    pub fn listen(&mut self, port: u16) {
        self.listeners.insert(port);
    }

    /// Accepts no more connections to `port`. Those that are open stay.
    pub fn unlisten(&mut self, port: u16) {
        self.listeners.remove(port);
    }

    /// Accepts no more connections at all.
    pub fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    /// Asks `remote` for a connection. Bytes can be queued at once; [`Application::connected`] or
    /// [`Application::closed`] tells how it went.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, remote: SocketAddr) -> Result<FlowId, ConnectError> {
        let from = self.config.source_for(remote.ip()).ok_or(ConnectError::NoRoute)?;
        self.config.next_hop(remote.ip()).ok_or(ConnectError::NoRoute)?;
        let tuple = self.free_tuple(from, remote).ok_or(ConnectError::Full)?;
        let connection = Connection::ask(self.origin(&tuple), &self.config.tcp);
        self.add(tuple, connection, true).ok_or(ConnectError::Full)
    }

    /// A port that differs by peer and cannot be foretold (RFC 6056 algorithm 3).
    fn free_tuple(&mut self, from: IpAddr, remote: SocketAddr) -> Option<FourTuple> {
        let [_, _, a, b] = self.config.secret;
        let start = keyed([a, b], &(from, remote)) as u16;
        let count = EPHEMERAL.len() as u16;
        for _ in 0..count {
            self.next_port = self.next_port.wrapping_add(1);
            let port = EPHEMERAL.start + start.wrapping_add(self.next_port) % count;
            let tuple = FourTuple { local: SocketAddr::new(from, port), remote };
            if !self.listeners.contains(port) && self.flows.find(&tuple).is_none() {
                return Some(tuple);
            }
        }
        None
    }

    /// Initial sequence number (RFC 6528), offset of timestamps (RFC 7323 section 7.1) and the rest of a
    /// beginning. Both are the same for the same addresses: a further connection goes on where the last was.
    pub(super) fn origin(&self, tuple: &FourTuple) -> Origin {
        let [_, _, a, b] = self.config.secret;
        let clock = (self.now.micros() / 4) as u32;
        let hash = keyed([a, b], tuple);
        // Its last bits are a cookie's.
        let (iss, stamp_offset) = (Seq(hash as u32) + clock, (hash >> 32) as u32 & !63);
        Origin { iss, stamp_offset, mss: self.mss_for(tuple.remote.ip()), now: self.now }
    }

    pub(super) fn mss_for(&self, remote: IpAddr) -> u16 {
        self.link.mtu_to(remote).saturating_sub(headers_of_segment(remote)).max(88)
    }

    pub(super) fn add(
        &mut self,
        tuple: FourTuple,
        mut connection: Connection<N::Buffer>,
        is_known: bool,
    ) -> Option<FlowId> {
        let remote = tuple.remote.ip();
        if let Some(mss) = self.paths.mss(remote, self.now) {
            connection.limit_mss(mss);
        }
        if let Some(rtt) = self.paths.rtt(remote, self.now) {
            connection.rtt.suppose(rtt);
        }
        let (hop, template, looked_at, label) = (None, None, None, Label::default());
        let marks = Marks::USUAL;
        let open = Open { connection, hop, template, looked_at, is_dirty: false, is_known, label, marks };
        self.make_room();
        let id = self.flows.insert(tuple, Flow::Open(Box::new(open)))?;
        self.shares.add(tuple.remote.ip());
        self.mark(id);
        Some(id)
    }

    /// Whether somebody at `address` may have another flow here.
    pub(super) fn has_place_for(&self, address: IpAddr) -> bool {
        self.shares.allow(address, self.config.flows_share.min(self.config.flows_max))
    }

    /// A full table forgets those who only wait for strays.
    pub(super) fn make_room(&mut self) {
        while self.flows.len() >= self.config.flows_max {
            let Some((_, oldest)) = self.waiting.pop_front() else { return };
            if let Some((_, Flow::Waiting(_))) = self.flows.get(oldest) {
                self.flows.remove(oldest);
            }
        }
    }

    #[inline]
    pub(super) fn open_mut(&mut self, id: FlowId) -> Option<&mut Open<N::Buffer>> {
        match self.flows.get_mut(id)?.1 {
            Flow::Open(open) => Some(open),
            Flow::Waiting(_) => None,
        }
    }

    /// Says for whom a flow is from now on, to whoever [is told](Nic::attribute).
    pub fn set_label(&mut self, flow: FlowId, label: Label) {
        if let Some(open) = self.open_mut(flow) {
            open.label = label;
        }
    }

    /// For whom a flow is.
    #[inline]
    pub(super) fn label(&self, flow: FlowId) -> Label {
        match self.flows.get(flow) {
            Some((_, Flow::Open(open))) => open.label,
            _ => Label::default(),
        }
    }

    /// Queues bytes to be sent, without a copy. While there is any room, a slice is taken whole.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued. After [`SendError::Full`], [`Application::sendable`] tells when to
    /// try again.
    pub fn send(&mut self, flow: FlowId, bytes: Slice<N::Buffer>) -> Result<(), SendError> {
        let outcome = self.queue(flow, None, bytes).map_err(|(error, _)| error);
        self.note_shortness(flow, outcome)
    }

    /// Queues a slice if there is room, puts the flow into the list of those that have something to send, and
    /// notes what the slice answers; otherwise gives it back, and says why.
    #[inline]
    fn queue(
        &mut self,
        flow: FlowId,
        noted: Option<Noted>,
        bytes: Slice<N::Buffer>,
    ) -> Result<(), (SendError, Slice<N::Buffer>)> {
        let Some((_, Flow::Open(open))) = self.flows.get_mut(flow) else {
            return Err((SendError::Closed, bytes));
        };
        if let Some(Noted { arrived_ns, requests, len }) = noted {
            open.connection.note_answer(arrived_ns, requests, len as u32);
        }
        if let Err(error) = open.connection.make_room(&self.config.tcp, &self.held) {
            return Err((error, bytes));
        }
        open.connection.push_within(bytes, &mut self.held);
        open.mark(flow, &mut self.dirty);
        Ok(())
    }

    /// Counts a queue that is full although it is short, as all together hold too much.
    fn note_shortness(&mut self, flow: FlowId, outcome: Result<(), SendError>) -> Result<(), SendError> {
        if outcome == Err(SendError::Full) {
            let is_short = self.queued(flow) < self.config.tcp.send_max;
            self.link.counters.send_queues_short += u64::from(is_short);
        }
        outcome
    }

    /// Queues one slice, which answers what `noted` says; the slice if there is no room for it.
    ///
    /// # Errors
    /// The slice, of which nothing was queued.
    #[inline]
    pub fn send_answer(
        &mut self,
        flow: FlowId,
        noted: Option<Noted>,
        bytes: Slice<N::Buffer>,
    ) -> Result<(), Slice<N::Buffer>> {
        self.queue(flow, noted, bytes).map_err(|(_, bytes)| bytes)
    }

    /// The same for as many of `slices` as there is room for, from the front; of one that is longer than a
    /// short queue may be, for as much of it. If `noted` says so, what is sent next answers requests.
    ///
    /// # Errors
    /// [`SendError`]; `slices` has what was not queued.
    #[inline]
    pub fn send_all(
        &mut self,
        flow: FlowId,
        mut noted: Option<Noted>,
        slices: &mut VecDeque<Slice<N::Buffer>>,
    ) -> Result<(), SendError> {
        while let Some(mut slice) = slices.pop_front() {
            // Who is slow to read what is long holds a part of the queue, and not all of it.
            if slice.len() > self.config.tcp.send_max {
                let rest = slice.part(self.config.tcp.send_max..usize::MAX);
                slice.truncate(self.config.tcp.send_max);
                slices.push_front(rest);
            }
            if let Err((error, slice)) = self.queue(flow, noted.take(), slice) {
                slices.push_front(slice);
                return self.note_shortness(flow, Err(error));
            }
        }
        Ok(())
    }

    /// Says that the next `len` bytes that are sent on a flow answer so many requests, the oldest of which
    /// came in a frame that arrived at `arrived_ns`: the frame that carries the last of them will tell
    /// ([`Outgoing::tag`]).
    pub fn note_answer(&mut self, flow: FlowId, arrived_ns: u64, requests: u32, len: usize) {
        if let Some(open) = self.open_mut(flow) {
            open.connection.note_answer(arrived_ns, requests, len as u32);
        }
    }

    /// Bytes queued on a flow and not yet acknowledged.
    pub fn queued(&self, flow: FlowId) -> usize {
        match self.flows.get(flow) {
            Some((_, Flow::Open(open))) => open.connection.send.queue.len(),
            _ => 0,
        }
    }

    /// Bytes of memory kept of what came on a flow: behind a hole, or not yet used by the application.
    pub fn kept(&self, flow: FlowId) -> usize {
        match self.flows.get(flow) {
            Some((_, Flow::Open(open))) => open.connection.kept(),
            _ => 0,
        }
    }

    /// Sends no more after what is queued. Bytes may still come until [`Application::finished`], or until the
    /// peer has been silent for `linger`: who closes is served, but wants nothing more.
    pub fn close(&mut self, flow: FlowId) {
        let patience = self.now + self.config.tcp.linger;
        if let Some(open) = self.open_mut(flow) {
            open.connection.close(patience);
            self.mark(flow);
        }
    }

    /// Nobody waits for a flow any more, though it may yet be given more to send before it is closed: a peer
    /// that takes nothing of that for `linger` is reset, and [`Application::closed`] says so.
    pub fn limit_patience(&mut self, flow: FlowId) {
        if let Some(open) = self.open_mut(flow)
            && !core::mem::replace(&mut open.connection.is_orphan, true)
        {
            self.mark(flow);
        }
    }

    /// Sends no more after what is queued, and goes on receiving, however long the peer takes (a half-close,
    /// RFC 9293 section 3.6).
    pub fn shut_down(&mut self, flow: FlowId) {
        if let Some(open) = self.open_mut(flow) {
            open.connection.shut_down();
            self.mark(flow);
        }
    }

    /// Ends a flow at once, by a reset, and forgets it: nothing more is said of it.
    pub fn abort(&mut self, flow: FlowId) {
        let Some(open) = self.open_mut(flow) else { return };
        let reset = open.connection.abort();
        let Some((tuple, _)) = self.flows.get(flow) else { return };
        let tuple = *tuple;
        self.remove(flow);
        if let Some(reset) = reset {
            self.reply(&tuple, &reset);
        }
    }

    /// Lets the peer of `flow` send at most `bytes` ahead from now on; 0 stops it. What it was already
    /// allowed may still come.
    pub fn window(&mut self, flow: FlowId, bytes: u32) {
        let Some((_, Flow::Open(open))) = self.flows.get_mut(flow) else { return };
        let (counters, held) = (&mut self.link.counters, &mut self.held);
        let mut context = Context { now: self.now, settings: &self.config.tcp, counters, held };
        open.connection.set_window(bytes, &mut context);
        open.mark(flow, &mut self.dirty);
    }

    /// Says that the application has `bytes` of what came on `flow` and has not yet used: the peer may send
    /// so much less ahead, and the window grows by what is used, not by what comes. Who says nothing uses
    /// all at once.
    pub fn hold(&mut self, flow: FlowId, bytes: u32) {
        let Some((_, Flow::Open(open))) = self.flows.get_mut(flow) else { return };
        let (counters, held) = (&mut self.link.counters, &mut self.held);
        let mut context = Context { now: self.now, settings: &self.config.tcp, counters, held };
        open.connection.hold(bytes, &mut context);
        open.mark(flow, &mut self.dirty);
    }

    /// Whether [`Stack::send`] would not be told to wait. If it would, [`Application::sendable`] says when
    /// there is room: who found some before may find none now, as what a queue may hold shrinks, too.
    #[inline]
    pub fn ask_for_room(&mut self, flow: FlowId) -> bool {
        let Some((_, Flow::Open(open))) = self.flows.get_mut(flow) else { return true };
        let outcome = open.connection.make_room(&self.config.tcp, &self.held);
        self.note_shortness(flow, outcome) != Err(SendError::Full)
    }

    /// What all flows hold.
    pub fn held(&self) -> Held {
        self.held
    }

    /// When segments of a flow go that are not full, from now on.
    pub fn set_small_segments(&mut self, flow: FlowId, when: SmallSegments) {
        if let Some(open) = self.open_mut(flow) {
            open.connection.set_small_segments(when);
            self.mark(flow);
        }
    }

    /// Has no segment of a flow be longer than `most` bytes, options included, sent or asked for: the peer of
    /// one that is yet to be asked for hears of it.
    pub fn limit_segments(&mut self, flow: FlowId, most: u32) {
        if let Some(open) = self.open_mut(flow) {
            open.connection.limit_segments(most);
        }
    }

    /// Has what is queued now go, though it fills no segment.
    pub fn push(&mut self, flow: FlowId) {
        if let Some(open) = self.open_mut(flow) {
            open.connection.is_small_allowed = true;
            self.mark(flow);
        }
    }

    /// How long a flow waits for a peer that says nothing, from now on.
    pub fn set_peer_timeouts(&mut self, flow: FlowId, timeouts: PeerTimeouts) {
        let (usual, now) = (self.config.tcp.keep_alive, self.now);
        if let Some(open) = self.open_mut(flow) {
            open.connection.set_peer_timeouts(timeouts, usual, now);
            self.mark(flow);
        }
    }

    /// How packets of a flow are to be treated from now on.
    pub fn set_marks(&mut self, flow: FlowId, marks: Marks) {
        if let Some(open) = self.open_mut(flow) {
            open.marks = marks;
        }
    }

    /// A flow's addresses.
    pub fn addresses(&self, flow: FlowId) -> Option<&FourTuple> {
        self.flows.get(flow).map(|(tuple, _)| tuple)
    }

    /// All open flows, in no particular order.
    pub fn flows(&self) -> impl Iterator<Item = FlowId> {
        let open = |flow: &Flow<N::Buffer>| matches!(flow, Flow::Open(_));
        self.flows.iter().filter(move |(_, flow)| open(flow)).map(|(id, _)| id)
    }

    /// How many open flows have a peer that has yet to take something, our end of the flow included.
    pub fn unfinished(&self) -> usize {
        let is_unfinished = |flow: &Flow<N::Buffer>| match flow {
            Flow::Open(open) => !open.connection.is_half_open && open.connection.state != State::FinWait2,
            Flow::Waiting(_) => false,
        };
        self.flows.iter().filter(|(_, flow)| is_unfinished(flow)).count()
    }

    /// Flows that were looked at to find those that segments were for: as many as segments, if all is well.
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// Looks at a flow before the end of the present event or [`Stack::poll`].
    pub(super) fn mark(&mut self, id: FlowId) {
        if let Some((_, Flow::Open(open))) = self.flows.get_mut(id) {
            open.mark(id, &mut self.dirty);
        }
    }

    pub(super) fn remove(&mut self, id: FlowId) {
        self.take_out(id);
    }

    /// Takes a flow out of all lists and counts.
    pub(super) fn take_out(&mut self, id: FlowId) -> Option<Flow<N::Buffer>> {
        self.timers.remove(id);
        let remote = self.flows.get(id)?.0.remote.ip();
        let flow = self.flows.remove(id)?;
        if let Flow::Open(open) = &flow {
            self.shares.remove(remote);
            self.remember_path(remote, &open.connection);
            self.half_open -= usize::from(open.connection.is_half_open);
            self.held.forget(&open.connection);
        }
        Some(flow)
    }

    /// Remembers what a connection that goes knew of its path.
    fn remember_path(&mut self, remote: IpAddr, connection: &Connection<N::Buffer>) {
        if let Some(rtt) = connection.rtt.smoothed().filter(|_| !connection.is_half_open) {
            self.paths.measured(remote, rtt, self.now);
        }
    }

    /// Runs timers whose time has come.
    pub(super) fn expire(&mut self, application: &mut impl Application<N>) {
        while let Some(id) = self.timers.take_due(self.now) {
            let mut effects = core::mem::take(&mut self.effects);
            if let Some((_, Flow::Open(open))) = self.flows.get_mut(id) {
                let counters = &mut self.link.counters;
                let held = &mut self.held;
                let mut context = Context { now: self.now, settings: &self.config.tcp, counters, held };
                self.link.nic.attribute(open.label);
                open.looked_at = None;
                open.connection.expire(&mut context, &mut effects);
                self.mark(id);
            }
            self.apply(application, id, effects);
        }
        while let Some((_, id)) = self.waiting.pop_front_if(|(until, _)| *until <= self.now) {
            match self.flows.get(id) {
                // It began anew meanwhile.
                Some((_, Flow::Waiting(wait))) if wait.until > self.now => {
                    self.waiting.push_back((wait.until, id))
                }
                _ => _ = self.flows.remove(id),
            }
        }
        if self.waiting.len() < self.waiting.capacity() / SPARSE && self.waiting.capacity() > LASTING {
            self.waiting.shrink_to((self.waiting.len() * 2).max(LASTING));
        }
    }

    /// Tells the application what happened to a flow.
    pub(super) fn apply(
        &mut self,
        application: &mut impl Application<N>,
        id: FlowId,
        mut effects: Effects<N::Buffer>,
    ) {
        if effects.connected {
            self.opened(id);
            application.connected(self, id);
        }
        for bytes in effects.data.drain(..) {
            if self.flows.get(id).is_some() {
                application.received(self, id, bytes);
            }
        }
        if effects.sendable {
            application.sendable(self, id);
        }
        if effects.finished {
            application.finished(self, id);
        }
        if let Some(why) = effects.closed {
            if self.open_mut(id).is_some_and(|open| open.is_known) {
                application.closed(self, id, why);
            }
            self.over(id);
        }
        self.effects = Effects { data: effects.data, ..Effects::default() };
    }

    fn opened(&mut self, id: FlowId) {
        let Some(open) = self.open_mut(id) else { return };
        open.is_known = true;
        if core::mem::take(&mut open.connection.is_half_open) {
            self.half_open -= 1;
        }
    }

    /// Keeps of a connection what TIME-WAIT needs, or nothing.
    fn over(&mut self, id: FlowId) {
        self.emit_flow(id);
        let until = self.now + self.config.time_wait;
        let Some((tuple, flow)) = self.flows.get_mut(id) else { return };
        let Flow::Open(open) = flow else { return };
        let connection = &open.connection;
        if connection.state != State::TimeWait {
            return self.remove(id);
        }
        self.shares.remove(tuple.remote.ip());
        if let Some(rtt) = connection.rtt.smoothed() {
            self.paths.measured(tuple.remote.ip(), rtt, self.now);
        }
        self.held.forget(connection);
        let window = (connection.receive.window >> connection.receive.scale).min(0xffff) as u16;
        *flow = Flow::Waiting(Box::new(TimeWait {
            send_next: connection.send.max,
            receive_next: connection.receive.next,
            stamp_offset: connection.stamp_offset,
            recent: connection.stamps.map(|stamps| stamps.recent),
            window,
            until,
        }));
        self.timers.remove(id);
        self.waiting.push_back((until, id));
    }

    /// Sends what all marked flows have to send.
    #[inline]
    pub(super) fn emit(&mut self) {
        if self.dirty.is_empty() {
            return;
        }
        // Those that find no room come back behind these.
        let count = self.dirty.len();
        for index in 0..count {
            let id = self.dirty[index];
            self.emit_flow(id);
        }
        if self.dirty.len() == count {
            self.dirty.clear();
        } else {
            self.dirty.drain(..count);
        }
    }

    /// Sends what a flow has to send, as far as the ring has room.
    fn emit_flow(&mut self, id: FlowId) {
        loop {
            let has_room = self.link.has_room();
            let offloads = self.link.properties.offloads;
            let Some((tuple, Flow::Open(open))) = self.flows.get_mut(id) else { return };
            open.is_dirty = !has_room;
            if !has_room {
                return self.dirty.push(id);
            }
            if open.connection.is_quiet() {
                break;
            }
            self.link.nic.attribute(open.label);
            let counters = &mut self.link.counters;
            let held = &mut self.held;
            let mut context = Context { now: self.now, settings: &self.config.tcp, counters, held };
            let Open { connection, template, hop, marks, .. } = &mut **open;
            if *marks == Marks::USUAL
                && let Some(template) =
                    plain_way(template, tuple, *hop, self.neighbours.version(), &self.link.properties)
                && let Some(plain) = connection.emit_plain(&mut context)
            {
                send_plain(&mut self.link, id, template, &plain, connection, self.now);
                // All that was queued has gone, with the acknowledgement, of a connection in which nothing is
                // amiss.
                if open.connection.is_probe_due {
                    continue;
                }
                debug_assert!(open.connection.is_quiet(), "a plain segment says all there is to say");
                if let Some(first) = open.connection.first_deadline() {
                    open.look_at(id, first, &mut self.timers);
                }
                return;
            }
            let is_large = if tuple.remote.is_ipv4() { offloads.segment_tcp4 } else { offloads.segment_tcp6 };
            let Some((segment, payload)) =
                open.connection.emit(&mut context, if is_large { LARGE_MAX } else { 0 })
            else {
                break;
            };
            let payload_max = (open.connection.send.mss as usize - segment.options.len()) as u16;
            let answers = open.connection.take_answer(&segment).map(|due| Answer {
                arrived_ns: due.arrived_ns,
                requests: due.requests,
                flow: Some(id.index() as u32),
            });
            let (hop, marks) = (open.hop, open.marks);
            let tuple = *tuple;
            let extra = Extra { payload_max, answers, hop, marks };
            let found = self.transmit_segment(&tuple, &segment, payload, extra);
            if found != hop
                && let Some(open) = self.open_mut(id)
            {
                open.hop = found;
            }
        }
        self.schedule(id);
    }

    #[inline]
    fn schedule(&mut self, id: FlowId) {
        let Some((_, Flow::Open(open))) = self.flows.get_mut(id) else { return };
        open.connection.tidy(self.now);
        if let Some(first) = open.connection.first_deadline() {
            open.look_at(id, first, &mut self.timers);
        }
    }

    /// Sends a segment that belongs to no connection.
    pub(super) fn reply(&mut self, tuple: &FourTuple, segment: &Segment) {
        let extra = Extra { payload_max: 0, answers: None, hop: None, marks: Marks::USUAL };
        self.transmit_segment(tuple, segment, Chain::new(), extra);
    }

    /// Sends one segment; the next hop by which it went.
    fn transmit_segment(
        &mut self,
        tuple: &FourTuple,
        segment: &Segment,
        payload: Chain<N::Buffer>,
        extra: Extra,
    ) -> Option<Hop> {
        let (from, to) = (tuple.local.ip(), tuple.remote.ip());
        let hop =
            extra.hop.filter(|hop| hop.version == self.neighbours.version()).or_else(|| self.hop_to(to));
        let path = Path { mac: self.link.properties.mac, hop: hop.map_or([0; 6], |hop| hop.mac), from, to };
        let (start, header_len) = (path.header_len(), segment.header_len());
        let is_large = segment.len > u32::from(extra.payload_max);
        let segmentation = Segmentation { payload_max: extra.payload_max, is_ipv6: to.is_ipv6() };
        // Headers are written where they are sent from: they are too large to be moved about.
        let mut packet = Outgoing {
            head: Head::zeroed(start + header_len),
            payload,
            checksum: None,
            segmentation: is_large.then_some(segmentation),
            tag: extra.answers.map(Answer::tag),
        };
        let Outgoing { head, payload, .. } = &mut packet;
        frame::put_ip(&mut head[..start], &path, protocol::TCP, header_len + segment.len as usize);
        if extra.marks != Marks::USUAL {
            extra.marks.put(&mut head[..start]);
        }
        segment.emit(Ports { from: tuple.local.port(), to: tuple.remote.port() }, &mut head[start..]);
        let is_offloaded = self.link.properties.offloads.checksum;
        let field = frame::ChecksumField { start, offset: 16, protocol: protocol::TCP };
        packet.checksum = frame::put_checksum(head, field, &path, payload, is_offloaded);
        match hop {
            // Its address is in the header.
            Some(_) => self.link.transmit(self.now, packet),
            None => self.transmit_to(to, None, packet),
        }
        hop
    }
}

/// Bytes of the headers of a segment to an address, without options.
pub(super) fn headers_of_segment(to: IpAddr) -> u16 {
    if to.is_ipv4() { 40 } else { 60 }
}

/// What a flow's plain segments begin with, if headers can be written for it in one go.
#[inline]
fn plain_way<'a>(
    template: &'a mut Option<Template>,
    tuple: &FourTuple,
    hop: Option<Hop>,
    version: NonZeroU32,
    properties: &Properties,
) -> Option<&'a Template> {
    if template.as_ref().is_none_or(|template| template.version() != version) {
        *template = write_template(tuple, hop, version, properties);
    }
    template.as_ref()
}

#[cold]
fn write_template(
    tuple: &FourTuple,
    hop: Option<Hop>,
    version: NonZeroU32,
    properties: &Properties,
) -> Option<Template> {
    let (SocketAddr::V4(local), SocketAddr::V4(remote)) = (tuple.local, tuple.remote) else { return None };
    let hop = hop.filter(|hop| hop.version == version && properties.offloads.checksum)?;
    let ports = Ports { from: local.port(), to: remote.port() };
    Some(Template::new((properties.mac, hop.mac), (*local.ip(), *remote.ip()), ports, version))
}

/// Sends a plain segment, whose payload is next in the queue. A short payload is copied behind the headers:
/// that is less work than to lend it to the device, and to take it back.
#[inline]
fn send_plain<N: Nic>(
    link: &mut Link<N>,
    id: FlowId,
    template: &Template,
    plain: &Plain,
    connection: &mut Connection<N::Buffer>,
    now: Instant,
) {
    let answers = connection.take_answer_before(plain.seq + plain.len).map(|due| Answer {
        arrived_ns: due.arrived_ns,
        requests: due.requests,
        flow: Some(id.index() as u32),
    });
    let packet = &mut link.outgoing;
    packet.head.restart(frame::PLAIN_TCP4 + plain.options_len());
    packet.checksum = Some(PartialChecksum { start: frame::PLAIN_TCP4_AT, offset: 16 });
    packet.segmentation = None;
    packet.tag = answers.map(Answer::tag);
    template.write(&mut packet.head, plain);
    let short = connection.peek(plain.seq, plain.len).filter(|bytes| packet.head.has_room(bytes.len()));
    match short {
        Some(short) => link.send_behind(now, short),
        None => {
            packet.payload = connection.cut(plain.seq, plain.len);
            link.send(now);
        }
    }
}

struct Extra {
    payload_max: u16,
    answers: Option<Answer>,
    hop: Option<Hop>,
    marks: Marks,
}
