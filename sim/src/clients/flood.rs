//! A host that sends frames of its own making: SYN from hosts that are not there, resets and acknowledgements
//! at a guess, and frames that lie about their lengths.

use crate::clients::pace::Pace;
use crate::memory::{Bytes, Memory};
use crate::program::{HostStack, Program};
use crate::random::{Random, text};
use nom_net::frame::{self, Path, protocol};
use nom_net::tcp::segment::{Flags, Ports, Segment};
use nom_net::tcp::sequence::Seq;
use nom_net::{Chain, Closed, FlowId, checksum};
use nom_port::nic::{Nic as _, Outgoing};
use std::net::{IpAddr, SocketAddr};

/// A victim.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// A port on which it listens.
    pub address: SocketAddr,
    /// One whom it talks with.
    pub friend: IpAddr,
}

/// Such a host.
pub struct Flood {
    victims: Vec<Victim>,
    random: Random,
    pace: Pace,
    sent: u64,
}

impl Flood {
    /// A flood of frames to `victims`, one at each beat of `pace`.
    pub fn new(pace: Pace, random: Random, victims: Vec<Victim>) -> Flood {
        Flood { victims, random, pace, sent: 0 }
    }

    fn stranger(&mut self, like: IpAddr) -> IpAddr {
        let low = self.random.word() as u16;
        match like {
            IpAddr::V4(_) => IpAddr::from([10, 0, 200 | (low >> 8) as u8, low as u8]),
            IpAddr::V6(_) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 1, low]),
        }
    }

    fn send(&mut self, stack: &mut HostStack) {
        self.sent += 1;
        let victim = self.random.choose(&self.victims);
        let is_syn = self.random.happens(600_000);
        let from = if is_syn { self.stranger(victim.address.ip()) } else { victim.friend };
        let flags = match self.random.within(0..4) {
            _ if is_syn => Flags::SYN,
            0 => Flags::RST,
            1 => Flags::RST | Flags::ACK,
            2 => Flags::ACK,
            _ => Flags::FIN | Flags::ACK,
        };
        let (seq, ack) = (Seq(self.random.word() as u32), Seq(self.random.word() as u32));
        let segment = Segment { seq, ack, flags, window: 1000, ..Segment::default() };
        let port = if is_syn { 1024 + (self.random.word() as u16 >> 1) } else { self.ephemeral() };
        let mac = stack.nic().properties().mac;
        let mut frame = segment_frame(mac, &victim, SocketAddr::new(from, port), &segment);
        if self.random.happens(200_000) {
            self.spoil(&mut frame);
        }
        // The head of an outgoing frame is all that there is of it.
        stack.transmit(frame);
    }

    fn ephemeral(&mut self) -> u16 {
        self.random.within(49_152..65_535) as u16
    }

    /// Puts nonsense into a frame, anywhere behind its Ethernet header.
    fn spoil(&mut self, frame: &mut Outgoing<Memory>) {
        let len = frame.head.len() as u64;
        for byte in text(self.random.word(), 0, self.random.within(1..6) as usize) {
            frame.head[self.random.within(14..len) as usize] = byte;
        }
    }
}

fn segment_frame(mac: [u8; 6], victim: &Victim, from: SocketAddr, segment: &Segment) -> Outgoing<Memory> {
    let (from_ip, to) = (from.ip(), victim.address);
    let path = Path { mac, hop: victim.mac, from: from_ip, to: to.ip() };
    let (mut head, start) = frame::ip(&path, protocol::TCP, segment.header_len(), 0);
    segment.emit(Ports { from: from.port(), to: to.port() }, &mut head[start..]);
    let sum = checksum::pseudo_header(from_ip, to.ip(), protocol::TCP, head.len() - start);
    let sum = !checksum::add(sum, checksum::sum(&head[start..]));
    head[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
    Outgoing { head, payload: Chain::new(), checksum: None, segmentation: None, tag: None }
}

impl Program for Flood {
    fn at(&mut self, stack: &mut HostStack, now_ns: u64) {
        if self.pace.has_ended(now_ns) {
            return;
        }
        while self.pace.is_due(now_ns) {
            self.send(stack);
            self.pace.rest(&mut self.random);
        }
    }

    fn due_ns(&self) -> Option<u64> {
        (!self.is_over()).then(|| self.pace.due_ns())
    }

    fn connected(&mut self, _: &mut HostStack, _: FlowId) {}

    fn received(&mut self, _: &mut HostStack, _: FlowId, _: Bytes) {}

    fn sendable(&mut self, _: &mut HostStack, _: FlowId) {}

    fn finished(&mut self, _: &mut HostStack, _: FlowId) {}

    fn closed(&mut self, _: &mut HostStack, _: FlowId, _: Closed) {}

    fn is_over(&self) -> bool {
        self.pace.is_over()
    }

    fn achieved(&self) -> u64 {
        self.sent
    }
}
