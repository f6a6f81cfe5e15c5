//! A TCP connection of a socket, with a peer that says what the fuzzer says: segments around the right
//! sequence numbers, time, and the application's calls, in any order.
//!
//! Each byte that the peer sends is the low byte of its sequence number: so what a socket receives must count
//! upwards, whatever was lost, repeated, overlapping or out of order.

use crate::device::{Device, OUR_MAC, THEIR_MAC, config, device, take_sent};
use crate::input::Input;
use nom_net::checksum;
use nom_net::frame::{self, Packet, Path, protocol};
use nom_net::tcp::segment::{Flags, Options, Ports, Segment, Timestamps};
use nom_net::tcp::sequence::Seq;
use nom_net::{Instant, Stack};
use nom_socket::{Shutdown, SocketId, Sockets};
use std::net::SocketAddr;
use std::time::Duration;

const PORT: u16 = 80;

struct World {
    sockets: Sockets<Device>,
    device: Device,
    listener: SocketId,
    /// Open sockets, each with the byte that it must receive next.
    open: Vec<(SocketId, Option<u8>)>,
    now: Instant,
    /// Ports of the connection: the peer's and ours.
    ports: Ports,
    /// The peer's next sequence number.
    next: Seq,
    /// What the peer has seen of ours.
    seen: Seq,
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut world = World::new(&mut input);
    while !input.is_empty() {
        world.step(&mut input);
        world.settle();
    }
    // Timers run out, all of them: nothing is kept for ever.
    for _ in 0..200 {
        world.now = world.now + Duration::from_secs(30);
        world.settle();
    }
    while let Some((socket, _)) = world.open.pop() {
        world.sockets.close(socket).expect("it is open");
    }
    world.now = world.now + Duration::from_secs(600);
    world.settle();
    assert_eq!(world.sockets.len(), 1, "only the listener is left");
}

impl World {
    fn new(input: &mut Input<'_>) -> World {
        let device = device(true);
        let mut stack = Stack::new(device.clone(), config());
        stack.set_delay(Duration::from_micros(u64::from(input.byte() & 31))).expect("a short delay");
        let mut sockets = Sockets::new(stack);
        sockets.set_receive_max(4096);
        let listener = sockets.listen(PORT, 4).expect("the port is free");
        // Some begin right before sequence numbers wrap.
        let next = if input.byte() & 1 == 0 { Seq(1000) } else { Seq(0xffff_ff80) };
        let ports = Ports { from: 4000, to: PORT };
        let (now, seen) = (Instant::from_micros(1_000_000), Seq(0));
        let mut world = World { sockets, device, listener, open: Vec::new(), now, ports, next, seen };
        world.greet();
        world
    }

    /// Makes the peer's Ethernet address known.
    fn greet(&mut self) {
        let mut arp = [&[0xff; 6][..], &THEIR_MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &THEIR_MAC].concat();
        arp.extend([10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
        self.device.deliver(self.now.nanos(), arp);
        self.settle();
    }

    /// One thing happens.
    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let socket = self.open.get(usize::from(choice >> 4) % self.open.len().max(1)).map(|(id, _)| *id);
        match (choice & 15, socket) {
            (0..=6, _) => self.segment(input),
            (7, _) => self.handshake(),
            (8, _) => self.now = self.now + Duration::from_micros(1 << (input.byte() % 27)),
            (9, Some(socket)) => {
                let bytes = vec![b'x'; usize::from(input.word() % 8192)];
                let _ = self.sockets.send(socket, &bytes);
            }
            (10 | 11, Some(socket)) => self.receive(socket, usize::from(input.byte())),
            (12, Some(socket)) => {
                let sides = [Shutdown::Receive, Shutdown::Send, Shutdown::Both];
                let _ = self.sockets.shutdown(socket, sides[usize::from(input.byte()) % 3]);
            }
            (13, Some(socket)) => {
                self.open.retain(|(other, _)| *other != socket);
                self.sockets.close(socket).expect("it is open");
            }
            (14, _) if self.open.len() < 8 => self.connect(),
            _ => self.next = self.next + u32::from(input.word()),
        }
    }

    /// A segment of the peer's, near to what would be right.
    fn segment(&mut self, input: &mut Input<'_>) {
        let (bits, shape) = (input.byte(), input.byte());
        let known = [Flags::FIN, Flags::SYN, Flags::RST, Flags::PSH, Flags::ACK];
        let chosen = known.into_iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
        let flags = chosen.fold(Flags::default(), |flags, (_, flag)| flags | flag);
        let offset = |byte: u8, step: u32| (i32::from(byte as i8) as u32).wrapping_mul(step);
        let seq = self.next + offset(input.byte(), if bits & 0x80 == 0 { 1 } else { 500 });
        let ack = self.seen + offset(input.byte(), if bits & 0x40 == 0 { 1 } else { 500 });
        let len = if bits & 0x20 == 0 { 0 } else { usize::from(input.word() % 1461) };
        let options = Options {
            mss: (shape & 1 != 0).then(|| input.word()),
            scale: (shape & 2 != 0).then(|| input.byte()),
            timestamps: (shape & 4 != 0)
                .then(|| Timestamps { value: u32::from(input.word()), echo: u32::from(input.word()) }),
            sack_permitted: shape & 8 != 0,
            ..Options::default()
        };
        let window = input.word();
        let segment = Segment { seq, ack, flags, window, options, ..Segment::default() };
        self.send(&segment, len);
        if shape & 16 == 0 {
            // It counts as said; else it may be said again.
            let fin_and_syn = u32::from(flags.any(Flags::FIN)) + u32::from(flags.any(Flags::SYN));
            self.next = seq + len as u32 + fin_and_syn;
        }
    }

    /// What every client does first.
    fn handshake(&mut self) {
        let syn = Segment { seq: self.next, flags: Flags::SYN, window: 8000, ..Segment::default() };
        self.send(&syn, 0);
        self.next = self.next + 1;
        self.settle();
        let (seq, ack) = (self.next, self.seen);
        self.send(&Segment { seq, ack, flags: Flags::ACK, window: 8000, ..Segment::default() }, 0);
    }

    /// Our side asks the peer.
    fn connect(&mut self) {
        let Ok(socket) = self.sockets.connect(SocketAddr::from(([10, 0, 0, 2], 99))) else { return };
        self.open.push((socket, None));
    }

    fn send(&mut self, segment: &Segment, len: usize) {
        let path =
            Path { mac: THEIR_MAC, hop: OUR_MAC, from: [10, 0, 0, 2].into(), to: [10, 0, 0, 1].into() };
        let (head, start) = frame::ip(&path, protocol::TCP, segment.header_len(), len);
        let mut bytes = head.to_vec();
        segment.emit(self.ports, &mut bytes[start..]);
        let first = segment.seq + u32::from(segment.flags.any(Flags::SYN));
        bytes.extend((0..len as u32).map(|at| (first + at).0 as u8));
        let sum = checksum::pseudo_header(path.from, path.to, protocol::TCP, bytes.len() - start);
        let sum = !checksum::add(sum, checksum::sum(&bytes[start..]));
        bytes[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
        self.device.deliver(self.now.nanos(), bytes);
    }

    fn receive(&mut self, socket: SocketId, len: usize) {
        let mut bytes = vec![0; len];
        let Ok(count) = self.sockets.receive(socket, &mut bytes) else { return };
        let Some((_, expected)) = self.open.iter_mut().find(|(id, _)| *id == socket) else { return };
        for byte in &bytes[..count] {
            assert!(
                expected.is_none_or(|expected| expected == *byte),
                "{byte} where {expected:?} comes next"
            );
            *expected = Some(byte.wrapping_add(1));
        }
    }

    /// Lets the stack do what there is to do, and the peer see what it sends.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 100, "the stack wants to be polled for ever");
            let due = self.sockets.poll(self.now);
            for frame in take_sent(&self.device) {
                self.see(&frame);
            }
            if due.is_none_or(|due| due > self.now) {
                break;
            }
        }
        while let Ok((socket, _)) = self.sockets.accept(self.listener) {
            self.open.push((socket, None));
        }
    }

    fn see(&mut self, bytes: &[u8]) {
        if bytes[12..14] != [8, 0] {
            return;
        }
        let Ok(packet) = Packet::parse_v4(bytes) else { return };
        if packet.protocol != protocol::TCP {
            return;
        }
        let transport = &bytes[packet.start..packet.start + packet.len];
        let (ports, segment, head) = Segment::parse(transport, packet.len).expect("it is sound");
        let len = (packet.len - head) as u32;
        let fin_and_syn = u32::from(segment.flags.any(Flags::SYN)) + u32::from(segment.flags.any(Flags::FIN));
        self.seen = segment.seq + len + fin_and_syn;
        // The peer goes on with whoever spoke last: so connections that we ask for are reached, too.
        self.ports = Ports { from: ports.to, to: ports.from };
    }
}
