//! One core's stack: takes frames from the device, hands what is in them to the application, and sends what
//! it says.
//!
//! [`Stack::poll`] is the whole of it as a list, and `stages` the way of a frame. The other files each carry
//! one protocol between the wire and the state functions.

mod cookies;
mod datagrams;
mod flows;
mod fragmented;
mod icmp;
mod in_place;
mod information;
mod moves;
mod neighbours;
mod pieces;
mod plain;
mod segments;
mod services;
mod setup;
mod stages;

use crate::batch::{Batch, DelayTooLong, Tallies};
use crate::buffer::Slice;
use crate::config::{Config, link_local};
use crate::counters::Counters;
use crate::dns::ResolveError;
use crate::fragments::Fragments;
use crate::frame::{Drop, Ethernet, Marks, Packet, is_answerable, protocol};
use crate::identification::Identifications;
use crate::link::Link;
use crate::neighbour::Neighbours;
use crate::paths::Paths;
use crate::ports::Ports;
use crate::shares::Shares;
use crate::table::{FlowId, FourTuple, Table};
use crate::tcp::connection::{Closed, Effects};
use crate::tcp::memory::Held;
use crate::time::{Instant, earliest};
use crate::timers::Timers;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use flows::Flow;
use nom_port::buffer::Chain;
use nom_port::nic::{Label, Nic, Received};
use services::Services;
use smoltcp::wire::EthernetProtocol;

pub use datagrams::DatagramError;
pub use flows::{ConnectError, Noted};
pub use information::FlowInformation;
pub use moves::{AdoptError, Detached};
pub use services::QueryId;
pub use setup::{Dispute, Ear, Finding, Setup};
pub use stages::{Arrival, BATCH_MAX, Direct, Queues};

/// What an application does with its flows. Every method may use the stack, that is: send at once. What it
/// sends goes together with the acknowledgement of what it received.
pub trait Application<N: Nic> {
    /// Sees each frame before the stack does; a frame that is not given back is taken (the packet API). To
    /// answer, [`Stack::transmit`].
    fn filter(&mut self, stack: &mut Stack<N>, frame: Received<N::Buffer>) -> Option<Received<N::Buffer>> {
        let _ = stack;
        Some(frame)
    }

    /// Whether [`Application::filter`] wants segments of connections, too. If not, those that go the short
    /// way are not shown to it.
    fn filters_segments(&self) -> bool {
        true
    }

    /// A segment came for a flow that this stack does not have, but another of this host may
    /// ([`Stack::share`]), or that answers another handshake than the one here.
    /// What is not given back is taken; what is, is answered as a stray.
    fn stranger(&mut self, stack: &mut Stack<N>, frame: Received<N::Buffer>) -> Option<Received<N::Buffer>> {
        let _ = stack;
        Some(frame)
    }

    /// Somebody asks for a connection, or says something about one that no stack has, while none is to begin
    /// here ([`Stack::set_admitting`]). What is not given back is taken; what is, begins here all the same.
    fn newcomer(&mut self, stack: &mut Stack<N>, frame: Received<N::Buffer>) -> Option<Received<N::Buffer>> {
        let _ = stack;
        Some(frame)
    }

    /// For whom a flow between these addresses is that somebody asks for: told to whoever stands between the
    /// stack and its device ([`Nic::attribute`]) whenever something is done for it.
    fn classify(&mut self, tuple: &FourTuple) -> Label {
        let _ = tuple;
        Label::default()
    }

    /// Whether a connection between these addresses, to a port that we listen on, can be taken at present. If
    /// not, whoever asks hears nothing and asks again later, as Linux leaves those who find the queue of a
    /// listener full (listen(2)). It is asked twice, when the peer begins and when its handshake ends, since
    /// the queue may have filled in between.
    fn has_room(&mut self, tuple: &FourTuple) -> bool {
        let _ = tuple;
        true
    }

    /// Somebody asked for a connection to port `port`, and is refused: there is no place for it.
    fn refused(&mut self, stack: &mut Stack<N>, port: u16) {
        let _ = (stack, port);
    }

    /// A flow is open: somebody connected to a port that we listen on, or somebody accepted our connection.
    fn connected(&mut self, stack: &mut Stack<N>, flow: FlowId) {
        let _ = (stack, flow);
    }

    /// Bytes came. The slice is the memory that the device filled: it can be kept and sent again.
    fn received(&mut self, stack: &mut Stack<N>, flow: FlowId, bytes: Slice<N::Buffer>);

    /// What is kept of what came on a flow has changed ([`Stack::kept`]): a segment came behind a hole, or
    /// filled it.
    fn kept(&mut self, stack: &mut Stack<N>, flow: FlowId) {
        let _ = (stack, flow);
    }

    /// A flow whose queue was full can take more.
    fn sendable(&mut self, stack: &mut Stack<N>, flow: FlowId) {
        let _ = (stack, flow);
    }

    /// The peer will send no more. Unless told otherwise, neither shall we.
    fn finished(&mut self, stack: &mut Stack<N>, flow: FlowId) {
        stack.close(flow);
    }

    /// A flow is over, and its name is about to mean nothing. Said once of each flow that was `connected` or
    /// that [`Stack::connect`] returned, but not after [`Stack::abort`].
    fn closed(&mut self, stack: &mut Stack<N>, flow: FlowId, why: Closed) {
        let _ = (stack, flow, why);
    }

    /// A datagram came to a port that was bound.
    fn datagram(&mut self, stack: &mut Stack<N>, to: SocketAddr, from: SocketAddr, bytes: Chain<N::Buffer>) {
        let _ = (stack, to, from, bytes);
    }

    /// A datagram that was sent from a port of ours came where nobody takes it: said by the host that it was
    /// for, or by anybody who knows both addresses.
    fn nobody_there(&mut self, stack: &mut Stack<N>, own: SocketAddr, remote: SocketAddr) {
        let _ = (stack, own, remote);
    }

    /// Addresses, router or name servers have changed ([`Stack::start_dhcp`]); [`Stack::config`] has them.
    fn configured(&mut self, stack: &mut Stack<N>) {
        let _ = stack;
    }

    /// Another machine claims an address of ours ([`Stack::discover`]).
    fn disputed(&mut self, stack: &mut Stack<N>, dispute: Dispute) {
        let _ = (stack, dispute);
    }

    /// A name's addresses, which may be none; or why they are not known ([`Stack::resolve`]).
    fn resolved(
        &mut self,
        stack: &mut Stack<N>,
        query: QueryId,
        addresses: Result<Vec<IpAddr>, ResolveError>,
    ) {
        let _ = (stack, query, addresses);
    }
}

/// The stack of one core, over one queue pair.
pub struct Stack<N: Nic> {
    link: Link<N>,
    config: Config,
    neighbours: Neighbours<N::Buffer>,
    flows: Table<Flow<N::Buffer>>,
    shares: Shares,
    paths: Paths,
    identifications: Identifications,
    /// TCP ports on which connections are accepted.
    listeners: Ports,
    /// Whether connections that peers ask for begin here.
    is_admitting: bool,
    /// UDP ports that are bound.
    bound: Ports,
    timers: Timers,
    /// Flows in TIME-WAIT with the end of it, which is nearly in order.
    waiting: VecDeque<(Instant, FlowId)>,
    half_open: usize,
    /// What the queues of all flows hold.
    held: Held,
    probes: u64,
    /// Flows that may have something to send.
    dirty: Vec<FlowId>,
    receive_batch: Batch,
    /// Most frames that are handled before anything is sent.
    batch_max: usize,
    /// Whether the device may have frames that were not taken.
    has_more: bool,
    /// Whether what was sent since the last poll has begun to leave.
    has_let_go: bool,
    /// When the frame that is being looked at arrived.
    arrived_ns: u64,
    /// What the header of the last datagram said.
    arrived_marks: Marks,
    /// Kept for its memory.
    effects: Effects<N::Buffer>,
    cookies_until: Instant,
    services: Services,
    /// What finds out about the network, if anything does.
    discovery: Option<Box<setup::Discovery>>,
    /// Neighbours that it has yet to hear are gone.
    gone: Vec<IpAddr>,
    fragments: Fragments,
    next_port: u16,
    /// Errors of ICMP that may still be sent in this second (RFC 1812 section 4.3.2.8).
    errors_left: u32,
    errors_until: Instant,
    now: Instant,
}

impl<N: Nic> Stack<N> {
    /// A stack with no flows.
    pub fn new(nic: N, mut config: Config) -> Stack<N> {
        let mut link = Link::new(nic);
        config.addresses.push(link_local(link.properties.mac));
        link.mtu6 = config.mtu6.map_or(link.mtu6, |mtu6| mtu6.min(link.mtu6));
        let [a, b, ..] = config.secret;
        let mut stack = Stack {
            link,
            neighbours: Neighbours::new(),
            flows: Table::new(config.flows_max, [a, b]),
            shares: Shares::new([a, b]),
            paths: Paths::new([a, b]),
            identifications: Identifications::new([b, a]),
            listeners: Ports::default(),
            is_admitting: true,
            bound: Ports::default(),
            timers: Timers::default(),
            waiting: VecDeque::new(),
            half_open: 0,
            held: Held::default(),
            probes: 0,
            dirty: Vec::new(),
            receive_batch: Batch::default(),
            batch_max: 1,
            has_more: false,
            has_let_go: false,
            arrived_ns: 0,
            arrived_marks: Marks::USUAL,
            effects: Effects::default(),
            cookies_until: Instant::default(),
            services: Services::default(),
            discovery: None,
            gone: Vec::new(),
            fragments: Fragments::default(),
            next_port: 0,
            errors_left: 0,
            errors_until: Instant::default(),
            now: Instant::default(),
            config,
        };
        stack.set_batch_max();
        stack
    }

    /// Does all there is to do now, and says when there will be more: at once if that time is not after
    /// `now`, when a frame comes if there is none. What was sent or closed outside [`Application`]'s methods
    /// goes with this call.
    pub fn poll(&mut self, now: Instant, application: &mut impl Application<N>) -> Option<Instant> {
        self.poll_through(now, application, &mut Direct)
    }

    /// The same with `queues` between the stages classify and input.
    pub fn poll_through(
        &mut self,
        now: Instant,
        application: &mut impl Application<N>,
        queues: &mut impl Queues<N::Buffer>,
    ) -> Option<Instant> {
        self.advance(now);
        self.expire(application);
        self.expire_fragments();
        self.serve(application);
        self.set_up(application);
        self.ask_for_neighbours();
        self.receive(application, queues);
        self.emit_all();
        self.has_let_go = false;
        earliest([self.next_deadline(), queues.due()])
    }

    /// It is `now`, unless a flow that was adopted knew better.
    #[inline]
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let blocked = (!self.dirty.is_empty()).then(|| self.now + RING_RETRY);
        let waiting = self.waiting.front().map(|(until, _)| *until);
        earliest([
            self.has_more.then_some(self.now),
            self.link.batch.due(),
            self.timers.first(),
            self.neighbours.first(),
            self.services.due(),
            self.discovery.as_ref().and_then(|discovery| discovery.due()),
            self.fragments.due(),
            waiting,
            blocked,
        ])
    }

    fn demultiplex(
        &mut self,
        application: &mut impl Application<N>,
        received: Received<N::Buffer>,
    ) -> Result<(), Drop> {
        let Some(first) = received.frame.first() else {
            return Err(|counters| &mut counters.dropped_malformed);
        };
        let ethernet = Ethernet::parse(first).ok_or((|counters| &mut counters.dropped_malformed) as Drop)?;
        if ethernet.to != self.link.properties.mac && ethernet.to[0] & 1 == 0 {
            return Err(|counters| &mut counters.dropped_other_host);
        }
        match ethernet.protocol {
            EthernetProtocol::Ipv4 => {
                let Ok(packet) = Packet::parse_v4(first) else {
                    return self.fragment(application, ethernet, received);
                };
                self.check_v4(&packet)?;
                self.ip(application, &packet, received)
            }
            EthernetProtocol::Ipv6 => {
                let Ok(packet) = Packet::parse_v6(first) else {
                    return self.extended(application, ethernet, received, false);
                };
                self.check_v6(&packet)?;
                self.ip(application, &packet, received)
            }
            EthernetProtocol::Arp => self.arp(application, &received.frame),
            _ => Err(|counters| &mut counters.dropped_protocol),
        }
    }

    fn ip(
        &mut self,
        application: &mut impl Application<N>,
        packet: &Packet,
        received: Received<N::Buffer>,
    ) -> Result<(), Drop> {
        match packet.protocol {
            protocol::TCP => self.segment(application, packet, received),
            protocol::UDP => self.datagram(application, packet, received),
            protocol::ICMP if packet.from.is_ipv4() => self.icmp(application, packet, received),
            protocol::ICMPV6 if packet.from.is_ipv6() => self.icmpv6(application, packet, received),
            _ => Err(|counters| &mut counters.dropped_protocol),
        }
    }

    /// For us, and from somebody who can be answered (RFC 1122 section 3.2.1.3).
    fn check_v4(&self, packet: &Packet) -> Result<(), Drop> {
        let (IpAddr::V4(from), IpAddr::V4(to)) = (packet.from, packet.to) else {
            unreachable!("parsed as IPv4")
        };
        if !is_answerable(from) {
            return Err(|counters| &mut counters.dropped_source);
        }
        if self.config.is_ours(packet.to) {
            return Ok(());
        }
        let is_for_all =
            to.is_broadcast() || self.config.addresses.iter().any(|cidr| cidr.is_broadcast(packet.to));
        if is_for_all && packet.protocol == protocol::UDP {
            return Ok(());
        }
        Err(|counters| &mut counters.dropped_other_address)
    }

    fn check_v6(&self, packet: &Packet) -> Result<(), Drop> {
        let (IpAddr::V6(from), IpAddr::V6(to)) = (packet.from, packet.to) else {
            unreachable!("parsed as IPv6")
        };
        // Duplicate address detection asks without an address (RFC 4862 section 5.4.2).
        let is_nobody = from.is_unspecified() && packet.protocol != protocol::ICMPV6;
        if from.is_multicast() || from.is_loopback() || is_nobody {
            return Err(|counters| &mut counters.dropped_source);
        }
        if self.config.is_ours(packet.to)
            || packet.protocol != protocol::TCP && to.is_multicast() && self.is_listening(to)
        {
            return Ok(());
        }
        Err(|counters| &mut counters.dropped_other_address)
    }

    /// Sets the batching delay W of both directions; 0 holds nothing.
    ///
    /// # Errors
    /// If `delay` is longer than [`crate::batch::DELAY_MAX`]; the old delay stays.
    pub fn set_delay(&mut self, delay: Duration) -> Result<(), DelayTooLong> {
        self.link.batch.set_delay(delay)?;
        self.receive_batch.set_delay(delay)?;
        self.set_batch_max();
        Ok(())
    }

    /// The batching delay W.
    pub fn delay(&self) -> Duration {
        self.link.batch.delay()
    }

    /// Flushes so far, with the packets that they carried: received ones, and sent ones.
    pub fn tallies(&self) -> (Tallies, Tallies) {
        (self.receive_batch.tallies(), self.link.batch.tallies())
    }

    /// What the stack did, and why it dropped what it dropped.
    pub fn counters(&self) -> &Counters {
        &self.link.counters
    }

    /// What the stack was told.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Flows, TIME-WAIT included.
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// The time of the present or last [`Stack::poll`].
    pub fn now(&self) -> Instant {
        self.now
    }

    /// When the frame that is being handled reached the driver, in nanoseconds of the world's clock.
    pub fn arrived_ns(&self) -> u64 {
        self.arrived_ns
    }

    /// What the header of the datagram that is being handled says of how it is to be treated; of one that
    /// came in fragments nothing is known.
    pub fn arrived_marks(&self) -> Marks {
        self.arrived_marks
    }

    /// The device, to arm its interrupt or to ask it about itself.
    pub fn nic(&mut self) -> &mut N {
        &mut self.link.nic
    }

    /// When to look again whether the ring has room for a packet; `None` if it has.
    pub fn next_look_for_room(&mut self) -> Option<Instant> {
        (!self.link.has_room()).then(|| self.now + RING_RETRY)
    }

    /// Puts bytes into memory that the device reaches; `None` if that is exhausted.
    pub fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<N::Buffer>> {
        self.link.nic.buffer(bytes)
    }

    /// The same for `len` bytes that `fill` writes to where they are sent from: all of them.
    #[inline]
    pub fn filled(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<Slice<N::Buffer>> {
        let mut slice = self.link.nic.blank(len)?;
        let range = slice.range();
        let Some(memory) = slice.memory() else {
            // Of a kind that is written once.
            let mut bytes = alloc::vec![0; len];
            fill(&mut bytes);
            return self.buffer(&bytes);
        };
        fill(&mut memory[range]);
        Some(slice)
    }
}

/// When to look again for room in the ring.
const RING_RETRY: Duration = Duration::from_micros(50);
