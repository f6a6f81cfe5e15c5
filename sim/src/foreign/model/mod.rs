//! A host whose TCP was written from the text of RFC 9293, and from nothing else: no line of it, and no type,
//! is our stack's. It does what a standard asks for and little more: it sends again from the first byte that
//! is missing on, knows no option but the maximum segment size, and no congestion. IPv4 only.

mod block;
mod wire;

use super::scene::Facts;
use super::{Endpoint, State};
use crate::random::Random;
use block::{Block, Manner, State as Phase};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use wire::{RST, SYN, Segment};

/// The model, as a host.
pub struct Model {
    mac: [u8; 6],
    address: Ipv4Addr,
    mtu: u16,
    port: u16,
    random: Random,
    neighbours: BTreeMap<Ipv4Addr, [u8; 6]>,
    /// By their numbers; `None` when they are over.
    blocks: Vec<Option<(Ipv4Addr, Block)>>,
    accepted: VecDeque<usize>,
    sent: Vec<Vec<u8>>,
    now_ns: u64,
    packets: u16,
    next_port: u16,
}

impl Model {
    /// A host; how it behaves is drawn from the seed.
    pub fn new(facts: Facts) -> Model {
        let Facts { mac, mtu, addresses, port, now_ns, mut random } = facts;
        let address = addresses.iter().find_map(|(address, _)| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        });
        Model {
            mac,
            address: address.expect("hosts have one of each family"),
            mtu,
            port,
            next_port: 20_000 + random.within(0..10_000) as u16,
            random,
            neighbours: BTreeMap::new(),
            blocks: Vec::new(),
            accepted: VecDeque::new(),
            sent: Vec::new(),
            now_ns,
            packets: 0,
        }
    }

    fn manner(&mut self) -> Manner {
        let random = &mut self.random;
        let segment_max = self.mtu - 40;
        let segment_max = random.choose(&[segment_max, segment_max, 536, 100]);
        Manner {
            segment_max,
            is_uneven: random.happens(500_000),
            flight: random.choose(&[1, 4, 40]) * usize::from(segment_max),
            ack_delay_ns: random.choose(&[0, 0, 40_000_000, 200_000_000]),
            window: random.choose(&[1_000, 8_000, 65_535]),
            keeps: random.happens(500_000),
            pauses: random.choose(&[0, 0, 5_000]),
        }
    }

    fn arp(&mut self, arp: &wire::Arp) {
        self.neighbours.insert(arp.sender.1, arp.sender.0);
        if arp.is_request && arp.target == self.address {
            self.sent.push(wire::arp((self.mac, self.address), arp.sender.1, Some(arp.sender.0)));
        }
    }

    fn find(&self, from: Ipv4Addr, segment: &Segment) -> Option<usize> {
        self.blocks.iter().position(|place| {
            place.as_ref().is_some_and(|(remote, block)| {
                *remote == from && (block.local, block.remote) == (segment.to, segment.from)
            })
        })
    }

    fn segment(&mut self, from: Ipv4Addr, segment: &Segment) {
        if let Some(id) = self.find(from, segment) {
            let (_, block) = self.blocks[id].as_mut().expect("it was found");
            if block.state != Phase::Closed {
                let now_ns = self.now_ns;
                let answer = block.arrives(now_ns, segment);
                return answer.into_iter().for_each(|answer| self.transmit(from, &answer));
            }
        }
        let is_opening = segment.flags & (SYN | RST | wire::ACK) == SYN;
        if is_opening && segment.to == self.port {
            let (manner, random) = (self.manner(), self.random.fork());
            let block = Block::new((segment.to, segment.from), manner, random, Some(segment));
            self.accepted.push_back(self.blocks.len());
            self.blocks.push(Some((from, block)));
        } else if !segment.has(RST) {
            self.transmit(from, &block::reset(segment));
        }
    }

    fn transmit(&mut self, to: Ipv4Addr, segment: &Segment) {
        let Some(mac) = self.neighbours.get(&to) else {
            // What waits for the answer is lost, and sent again.
            return self.sent.push(wire::arp((self.mac, self.address), to, None));
        };
        self.packets = self.packets.wrapping_add(1);
        self.sent.push(wire::tcp((self.mac, *mac), self.address, to, self.packets, segment));
    }

    fn get(&mut self, id: usize) -> Option<&mut Block> {
        self.blocks[id].as_mut().map(|(_, block)| block)
    }
}

impl Endpoint for Model {
    fn frame(&mut self, now_ns: u64, frame: Vec<u8>) {
        self.now_ns = now_ns;
        if let Some(arp) = wire::parse_arp(&frame) {
            self.arp(&arp);
        } else if let Some((from, segment)) = wire::parse_tcp(&frame, self.address) {
            self.segment(from, &segment);
        }
    }

    fn poll(&mut self, now_ns: u64, sent: &mut Vec<Vec<u8>>) {
        self.now_ns = now_ns;
        for id in 0..self.blocks.len() {
            let Some((remote, block)) = &mut self.blocks[id] else { continue };
            let (remote, mut segments) = (*remote, Vec::new());
            block.poll(now_ns, &mut segments);
            segments.iter().for_each(|segment| self.transmit(remote, segment));
        }
        sent.append(&mut self.sent);
    }

    fn due_ns(&mut self, _: u64) -> Option<u64> {
        let alive = self.blocks.iter().flatten().filter(|(_, block)| block.state != Phase::Closed);
        alive.filter_map(|(_, block)| block.due_ns()).min()
    }

    fn connect(&mut self, _: u64, remote: SocketAddr) -> Option<usize> {
        let IpAddr::V4(to) = remote.ip() else { return None };
        self.next_port = self.next_port.checked_add(1).unwrap_or(20_000);
        let (manner, random) = (self.manner(), self.random.fork());
        let block = Block::new((self.next_port, remote.port()), manner, random, None);
        self.blocks.push(Some((to, block)));
        Some(self.blocks.len() - 1)
    }

    fn accept(&mut self) -> Option<usize> {
        self.accepted.pop_front()
    }

    fn state(&self, id: usize) -> State {
        let Some((_, block)) = &self.blocks[id] else { return State::Gone };
        match block.state {
            Phase::Closed => State::Gone,
            Phase::SynSent | Phase::SynReceived => State::Opening,
            Phase::Established | Phase::FinWait1 | Phase::FinWait2 => State::Open,
            _ if !block.received.is_empty() => State::Open,
            Phase::CloseWait | Phase::Closing | Phase::LastAck | Phase::TimeWait => State::Finished,
        }
    }

    fn send(&mut self, id: usize, bytes: &[u8]) -> usize {
        self.get(id).map_or(0, |block| block.send(bytes))
    }

    fn take(&mut self, id: usize) -> Vec<u8> {
        let now_ns = self.now_ns;
        self.get(id).map_or(Vec::new(), |block| block.take(now_ns))
    }

    fn close(&mut self, id: usize) {
        self.get(id).into_iter().for_each(Block::close);
    }

    fn forget(&mut self, id: usize) {
        self.blocks[id] = None;
    }

    fn count(&self) -> usize {
        self.blocks.iter().flatten().filter(|(_, block)| block.state != Phase::Closed).count()
    }
}
