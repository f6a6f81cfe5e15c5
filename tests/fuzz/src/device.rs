//! A device whose other side is the fuzzer.

use nom_net::checksum;
use nom_net::frame::{Ethernet, Packet, protocol};
use nom_net::{Cidr, Config, Slice};
use nom_port::nic::{Checksum, Nic, Offloads, Outgoing, Properties, Received, gather};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

pub type Memory = Rc<[u8]>;

pub const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// Room behind a received frame, for answers in place.
const SPARE: usize = 1024;

#[derive(Debug, Default)]
struct Queues {
    received: VecDeque<(u64, Vec<u8>)>,
    queued: Vec<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

/// Clones are the same device.
#[derive(Clone, Debug)]
pub struct Device {
    queues: Rc<RefCell<Queues>>,
    /// Whether transport checksums of received frames are said to be good: a fuzzer does not find them.
    is_sum_good: bool,
}

impl Device {
    pub fn new(is_sum_good: bool) -> Device {
        Device { queues: Rc::default(), is_sum_good }
    }

    pub fn deliver(&self, at_ns: u64, frame: Vec<u8>) {
        self.queues.borrow_mut().received.push_back((at_ns, frame));
    }

    /// Frames that were sent since the last call, each of them sound.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        let sent = std::mem::take(&mut self.queues.borrow_mut().sent);
        sent.iter().for_each(|frame| check(frame));
        sent
    }
}

impl Nic for Device {
    type Buffer = Memory;

    fn properties(&self) -> Properties {
        Properties { mac: OUR_MAC, mtu: 1500, offloads: Offloads::default() }
    }

    fn receive(&mut self) -> Option<Received<Memory>> {
        let (at_ns, mut bytes) = self.queues.borrow_mut().received.pop_front()?;
        let len = bytes.len();
        bytes.resize(len + SPARE, 0);
        let frame = [Slice::new(Memory::from(bytes)).part(0..len)].into_iter().collect();
        let checksum = if self.is_sum_good { Checksum::Good } else { Checksum::Unknown };
        Some(Received { frame, checksum, at_ns })
    }

    fn room(&mut self) -> usize {
        256 - self.queues.borrow().queued.len()
    }

    fn transmit(&mut self, frame: Outgoing<Memory>) -> Result<(), Outgoing<Memory>> {
        if self.room() == 0 {
            return Err(frame);
        }
        self.queues.borrow_mut().queued.push([&frame.head[..], &gather(&frame.payload)].concat());
        Ok(())
    }

    fn kick(&mut self) {
        let queues = &mut *self.queues.borrow_mut();
        queues.sent.append(&mut queues.queued);
    }

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Memory>> {
        Some(Slice::new(bytes.into()))
    }

    fn arm(&mut self) -> bool {
        self.queues.borrow().received.is_empty()
    }

    fn disarm(&mut self) {}
}

/// What is the same in every run.
pub fn config() -> Config {
    let addresses = vec![
        Cidr { address: [10, 0, 0, 1].into(), prefix: 24 },
        Cidr { address: [0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), prefix: 64 },
    ];
    let (gateway4, nameservers) = (Some([10, 0, 0, 2].into()), vec![[10, 0, 0, 2].into()]);
    Config { addresses, gateway4, nameservers, secret: [1, 2, 3, 4], ..Config::default() }
}

/// A frame of ours has our address, whole headers and right checksums.
fn check(frame: &[u8]) {
    let ethernet = Ethernet::parse(frame).expect("a whole Ethernet header");
    assert_eq!(ethernet.from, OUR_MAC, "{frame:02x?}");
    let packet = match frame[12..14] {
        [8, 0] => Packet::parse_v4(frame),
        [0x86, 0xdd] => Packet::parse_v6(frame),
        _ => return,
    };
    let Ok(packet) = packet else { panic!("a bad header was sent: {frame:02x?}") };
    assert!(packet.start + packet.len <= frame.len().max(60), "a cut packet was sent: {frame:02x?}");
    let transport = &frame[packet.start..packet.start + packet.len];
    let sum = match packet.protocol {
        protocol::ICMP => 0,
        other => checksum::pseudo_header(packet.from, packet.to, other, packet.len),
    };
    let sum = checksum::add(sum, checksum::sum(transport));
    assert_eq!(sum, 0xffff, "a bad checksum was sent: {frame:02x?}");
}
