//! A simulated link between stacks, on virtual time, from a seed.
#![allow(dead_code, reason = "each test uses a part")]

use nom_net::checksum;
use nom_net::frame::{self, Packet, Path, protocol};
use nom_net::tcp::segment::{Ports, Segment};
use nom_net::{Application, Arrival, Chain, Cidr, Closed, Config, FlowId, Instant, Queues, Slice, Stack};
use nom_port::nic::Label;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

pub use nom_wire::{Device, Memory, Random};

/// What a link does to frames, in per cent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub reorder: u64,
    pub duplicate: u64,
    pub corrupt: u64,
}

/// A narrow line: so many bits a second each way, and a queue in front that drops what would wait for longer.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub rate: u64,
    pub queue: Duration,
    /// Of a million frames, how many are lost.
    pub loss: u64,
    /// Of a million frames, how many come 2 ms late, behind others that were sent after them.
    pub late: u64,
    /// When each way has sent what waits in front of it.
    pub busy: [Instant; 2],
}

/// A machine: a stack and its application.
pub struct Machine<A> {
    pub stack: Stack<Device>,
    pub device: Device,
    pub application: A,
    /// Who says which frame goes on next, if anybody does.
    pub queues: Option<Lottery>,
    /// When it wants to be called.
    pub due: Option<Instant>,
}

/// Queues by label, of which a random one is served next, or none for a while.
pub struct Lottery {
    random: Random,
    waiting: BTreeMap<u32, VecDeque<Option<Arrival<Memory>>>>,
    /// What is served, by its label.
    present: Option<(u32, Arrival<Memory>)>,
    now: Instant,
    /// Nobody is served before.
    closed_until: Instant,
    pub pushed: usize,
    /// How often not all of a frame went on at once.
    pub cut: usize,
}

impl Lottery {
    pub fn new(seed: u64) -> Lottery {
        let (waiting, now) = (BTreeMap::new(), Instant::default());
        let random = Random::new(seed);
        Lottery { random, waiting, present: None, now, closed_until: now, pushed: 0, cut: 0 }
    }
}

impl Queues<Memory> for Lottery {
    fn goes_on(&mut self, _: Label) -> bool {
        self.waiting.is_empty() && self.random.chance(20)
    }

    fn push(&mut self, label: Label, _: usize) -> Option<&mut Option<Arrival<Memory>>> {
        self.pushed += 1;
        let queue = self.waiting.entry(label.0).or_default();
        queue.push_back(None);
        queue.back_mut()
    }

    fn next(&mut self) -> Option<&mut Arrival<Memory>> {
        if let Some((label, arrival)) = self.present.take()
            && arrival.left() > 0
        {
            self.cut += 1;
            self.waiting.entry(label).or_default().push_front(Some(arrival));
        }
        if self.now < self.closed_until {
            return None;
        }
        if self.random.chance(10) {
            self.closed_until = self.now + Duration::from_micros(50);
            return None;
        }
        let chosen = self.random.below(self.waiting.len().max(1) as u64) as usize;
        let (&label, queue) = self.waiting.iter_mut().nth(chosen)?;
        let mut arrival = queue.pop_front()??;
        if queue.is_empty() {
            self.waiting.remove(&label);
        }
        arrival.cut(self.random.below(2_000) as usize);
        Some(&mut self.present.insert((label, arrival)).1)
    }

    fn due(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.closed_until.max(self.now))
    }
}

pub fn config(number: u8, seed: u64) -> Config {
    let mut random = Random::new(seed ^ u64::from(number));
    let secret = core::array::from_fn(|_| random.next());
    let addresses = vec![
        Cidr { address: [10, 0, 0, number].into(), prefix: 24 },
        Cidr { address: [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)].into(), prefix: 64 },
    ];
    Config { addresses, ..Config::new(secret) }
}

impl<A: Application<Device>> Machine<A> {
    pub fn new(device: Device, config: Config, application: A) -> Machine<A> {
        let stack = Stack::new(device.clone(), config);
        Machine { stack, device, application, queues: None, due: Some(Instant::default()) }
    }

    /// Polls; who was busy for longer than `now` does so when he is done.
    pub fn poll(&mut self, now: Instant) {
        let now = now.max(Instant::from_nanos(self.device.port.borrow().now_ns));
        self.device.port.borrow_mut().now_ns = now.nanos();
        self.queues.iter_mut().for_each(|queues| queues.now = now);
        self.due = self.stack.poll_through(now, &mut self.application, &mut self.queues);
    }

    pub fn take_sent(&mut self) -> Vec<Vec<u8>> {
        self.device.take_sent()
    }
}

/// Two machines and the link between them.
pub struct World<A, B> {
    pub left: Machine<A>,
    pub right: Machine<B>,
    pub random: Random,
    pub faults: Faults,
    pub delay: Duration,
    pub line: Option<Line>,
    pub now: Instant,
    /// Frames on their way, by arrival and number: whether to the right, and the frame.
    pub flying: BTreeMap<(Instant, u64), (bool, Vec<u8>)>,
    pub count: u64,
}

impl<A: Application<Device>, B: Application<Device>> World<A, B> {
    pub fn new(left: Machine<A>, right: Machine<B>, seed: u64, faults: Faults) -> World<A, B> {
        let delay = Duration::from_micros(100);
        let (random, now) = (Random::new(seed), Instant::default());
        World { left, right, random, faults, delay, line: None, now, flying: BTreeMap::new(), count: 0 }
    }

    /// Through the line: when it arrives, if it does.
    fn squeeze(&mut self, is_to_right: bool, frame: &[u8]) -> Option<Instant> {
        let Some(line) = &mut self.line else { return Some(self.now + self.delay) };
        let busy = &mut line.busy[usize::from(is_to_right)];
        let start = self.now.max(*busy);
        if start - self.now > line.queue {
            return None;
        }
        *busy = start + Duration::from_nanos(frame.len() as u64 * 8 * 1_000_000_000 / line.rate);
        let departure = *busy;
        let (is_lost, is_late) =
            (self.random.below(1_000_000) < line.loss, self.random.below(1_000_000) < line.late);
        let late = Duration::from_millis(2 * u64::from(is_late));
        (!is_lost).then_some(departure + self.delay + late)
    }

    fn carry(&mut self, is_to_right: bool, mut frame: Vec<u8>) {
        let faults = self.faults;
        if self.random.chance(faults.loss) {
            return;
        }
        if self.random.chance(faults.corrupt) {
            // Nothing but the frame check sequence, which this link has not, guards ARP.
            if frame[12..14] == [8, 6] {
                return;
            }
            let at = self.random.below(frame.len() as u64) as usize;
            frame[at] ^= 1 << self.random.below(8);
        }
        let Some(arrival) = self.squeeze(is_to_right, &frame) else { return };
        let copies = 1 + usize::from(self.random.chance(faults.duplicate));
        for _ in 0..copies {
            let late = if self.random.chance(faults.reorder) { self.random.below(2000) } else { 0 };
            let at = arrival + Duration::from_micros(late);
            self.count += 1;
            self.flying.insert((at, self.count), (is_to_right, frame.clone()));
        }
    }

    /// Goes to the next thing that happens; `false` if nothing ever will.
    pub fn step(&mut self) -> bool {
        let arrival = self.flying.keys().next().map(|(at, _)| *at);
        let Some(next) = [arrival, self.left.due, self.right.due].into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (is_to_right, frame) = entry.remove();
            let device = if is_to_right { &self.right.device } else { &self.left.device };
            device.port.borrow_mut().received.push_back((self.now.nanos(), frame));
        }
        self.left.poll(self.now);
        self.right.poll(self.now);
        for frame in self.left.take_sent() {
            self.carry(true, frame);
        }
        for frame in self.right.take_sent() {
            self.carry(false, frame);
        }
        true
    }

    /// Runs until `done`, at most for `limit` of virtual time.
    pub fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        while self.now < end {
            if done(self) {
                return true;
            }
            if !self.step() {
                return done(self);
            }
        }
        false
    }
}

/// Sends `outgoing` on each flow it has, keeps what comes, and closes when all is sent and the peer has
/// closed, or at once.
#[derive(Debug, Default)]
pub struct Peer {
    pub outgoing: Vec<u8>,
    pub sent: usize,
    pub incoming: Vec<u8>,
    pub flow: Option<FlowId>,
    pub is_finished: bool,
    pub closed: Option<Closed>,
    pub is_closing_when_sent: bool,
    pub datagrams: Vec<(SocketAddr, Vec<u8>)>,
}

impl Peer {
    pub fn sending(outgoing: Vec<u8>) -> Peer {
        Peer { outgoing, is_closing_when_sent: true, ..Peer::default() }
    }

    pub fn pump(&mut self, stack: &mut Stack<Device>) {
        let Some(flow) = self.flow else { return };
        while self.sent < self.outgoing.len() {
            let end = self.outgoing.len().min(self.sent + 5000);
            let bytes = stack.buffer(&self.outgoing[self.sent..end]).unwrap();
            if stack.send(flow, bytes).is_err() {
                return;
            }
            self.sent = end;
        }
        if self.is_closing_when_sent {
            stack.close(flow);
        }
    }
}

impl Application<Device> for Peer {
    fn connected(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        self.flow = Some(flow);
        self.pump(stack);
    }

    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, bytes: Slice<Memory>) {
        self.incoming.extend_from_slice(&bytes);
    }

    fn sendable(&mut self, stack: &mut Stack<Device>, _: FlowId) {
        self.pump(stack);
    }

    fn finished(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        self.is_finished = true;
        if self.sent == self.outgoing.len() {
            stack.close(flow);
        }
    }

    fn closed(&mut self, _: &mut Stack<Device>, _: FlowId, why: Closed) {
        self.closed = Some(why);
    }

    fn datagram(
        &mut self,
        stack: &mut Stack<Device>,
        to: SocketAddr,
        from: SocketAddr,
        bytes: Chain<Memory>,
    ) {
        self.datagrams.push((from, nom_port::nic::gather(&bytes)));
        if to.port() == 7 {
            // An answer to a made-up address may have no way.
            let _ = stack.send_datagram(to, from, bytes);
        }
    }
}

pub fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next() as u8).collect()
}

pub fn server(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 80))
}

/// Of a machine that is no stack but a test.
pub const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// A frame with a segment, from a stranger to machine 1.
pub fn segment_frame(from: SocketAddr, to: SocketAddr, segment: &Segment, payload: &[u8]) -> Vec<u8> {
    let path = Path { mac: STRANGER, hop: [2, 0, 0, 0, 0, 1], from: from.ip(), to: to.ip() };
    let (head, start) = frame::ip(&path, protocol::TCP, segment.header_len(), payload.len());
    let mut bytes = head.to_vec();
    segment.emit(Ports { from: from.port(), to: to.port() }, &mut bytes[start..]);
    bytes.extend_from_slice(payload);
    let sum = checksum::pseudo_header(from.ip(), to.ip(), protocol::TCP, bytes.len() - start);
    let sum = !checksum::add(sum, checksum::sum(&bytes[start..]));
    bytes[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The segment in a frame over IPv4, with where it goes; `None` if there is none. A bad checksum is a
/// failure.
pub fn parse_frame(frame: &[u8]) -> Option<(Ports, SocketAddr, Segment)> {
    if frame[12..14] != [8, 0] || frame[23] != protocol::TCP {
        return None;
    }
    let Ok(packet) = Packet::parse_v4(frame) else { panic!("a bad header: {frame:02x?}") };
    let bytes = &frame[packet.start..];
    let sum = checksum::pseudo_header(packet.from, packet.to, protocol::TCP, packet.len);
    assert_eq!(checksum::add(sum, checksum::sum(bytes)), 0xffff, "a bad checksum: {frame:02x?}");
    let (ports, segment, _) = Segment::parse(bytes, packet.len).expect("a sound segment");
    Some((ports, SocketAddr::new(packet.to, ports.to), segment))
}

/// The stranger's question, as owner of 10.0.0.2, for the Ethernet address of machine 1: so it becomes known.
pub fn greeting() -> Vec<u8> {
    let mut arp = vec![0xff; 6];
    arp.extend(STRANGER);
    arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.extend(STRANGER);
    arp.extend([10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
    arp
}

impl<A: Application<Device>> Machine<A> {
    /// Takes one frame now.
    pub fn take(&mut self, now: Instant, frame: Vec<u8>) {
        self.device.port.borrow_mut().received.push_back((now.nanos(), frame));
        self.poll(now);
    }
}

/// A frame with a datagram, from a stranger to machine 1.
pub fn datagram_frame(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let path = Path { mac: STRANGER, hop: [2, 0, 0, 0, 0, 1], from: from.ip(), to: to.ip() };
    let (head, start) = frame::ip(&path, protocol::UDP, 8, payload.len());
    let mut bytes = head.to_vec();
    bytes[start..start + 2].copy_from_slice(&from.port().to_be_bytes());
    bytes[start + 2..start + 4].copy_from_slice(&to.port().to_be_bytes());
    bytes[start + 4..start + 6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    bytes.extend_from_slice(payload);
    let sum = checksum::pseudo_header(from.ip(), to.ip(), protocol::UDP, bytes.len() - start);
    let sum = !checksum::add(sum, checksum::sum(&bytes[start..]));
    bytes[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Source, destination and payload of each datagram in `frames`.
pub fn datagrams(frames: &[Vec<u8>]) -> Vec<(SocketAddr, SocketAddr, Vec<u8>)> {
    let packets = frames.iter().filter(|frame| frame[12..14] == [8, 0]).filter_map(|frame| {
        let packet = Packet::parse_v4(frame).ok().filter(|packet| packet.protocol == protocol::UDP)?;
        let udp = &frame[packet.start..];
        let sum = checksum::pseudo_header(packet.from, packet.to, protocol::UDP, packet.len);
        assert_eq!(checksum::add(sum, checksum::sum(udp)), 0xffff, "a bad checksum");
        let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        let (from, to) = (SocketAddr::new(packet.from, port(0)), SocketAddr::new(packet.to, port(2)));
        Some((from, to, udp[8..].to_vec()))
    });
    packets.collect()
}
