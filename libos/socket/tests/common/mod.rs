//! Two machines on a simulated link, on virtual time, from a seed.
#![allow(dead_code, reason = "each test uses a part")]

use nom_net::{Cidr, Config, Instant, Slice, Stack};
use nom_port::nic::{Checksum, Nic, Offloads, Outgoing, Properties, Received, gather};
use nom_socket::Sockets;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

pub type Memory = Rc<[u8]>;

/// What a device received and sent.
#[derive(Debug, Default)]
pub struct Queues {
    pub received: VecDeque<(u64, Vec<u8>)>,
    queued: Vec<Vec<u8>>,
    pub sent: Vec<Vec<u8>>,
}

/// A device of a simulated machine. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Device {
    pub queues: Rc<RefCell<Queues>>,
    number: u8,
    room: usize,
}

impl Device {
    pub fn new(number: u8) -> Device {
        Device { queues: Rc::default(), number, room: 64 }
    }
}

impl Nic for Device {
    type Buffer = Memory;

    fn properties(&self) -> Properties {
        Properties { mac: [2, 0, 0, 0, 0, self.number], mtu: 1500, offloads: Offloads::default() }
    }

    fn receive(&mut self) -> Option<Received<Memory>> {
        let (at_ns, bytes) = self.queues.borrow_mut().received.pop_front()?;
        let frame = [Slice::new(Memory::from(bytes))].into_iter().collect();
        Some(Received { frame, checksum: Checksum::Unknown, at_ns })
    }

    fn room(&mut self) -> usize {
        self.room - self.queues.borrow().queued.len()
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

/// Numbers that look random and replay from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

pub fn stack(device: &Device) -> Stack<Device> {
    let address = Cidr { address: [10, 0, 0, device.number].into(), prefix: 24 };
    let secret = [u64::from(device.number); 4];
    Stack::new(device.clone(), Config { addresses: vec![address], secret, ..Config::default() })
}

pub fn address(number: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], port))
}

/// Frames between devices, each on its way for 100 us.
#[derive(Debug)]
pub struct Wire {
    devices: [Device; 2],
    flying: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    count: u64,
    random: Random,
    /// Per cent of frames that are lost.
    pub loss: u64,
}

const DELAY_NS: u64 = 100_000;

impl Wire {
    pub fn new(seed: u64, loss: u64) -> Wire {
        let devices = [Device::new(1), Device::new(2)];
        Wire { devices, flying: BTreeMap::new(), count: 0, random: Random(seed), loss }
    }

    pub fn device(&self, index: usize) -> &Device {
        &self.devices[index]
    }

    /// Takes what was sent, and says when the next frame arrives.
    pub fn carry(&mut self, now_ns: u64) -> Option<u64> {
        for from in 0..2 {
            let sent = std::mem::take(&mut self.devices[from].queues.borrow_mut().sent);
            for frame in sent {
                if !self.random.chance(self.loss) {
                    self.count += 1;
                    self.flying.insert((now_ns + DELAY_NS, self.count), (1 - from, frame));
                }
            }
        }
        self.flying.keys().next().map(|(at_ns, _)| *at_ns)
    }

    /// Delivers what has arrived.
    pub fn deliver(&mut self, now_ns: u64) {
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            let (to, frame) = entry.remove();
            self.devices[to].queues.borrow_mut().received.push_back((now_ns, frame));
        }
    }
}

/// Two machines with sockets.
pub struct Pair {
    pub sockets: [Sockets<Device>; 2],
    pub wire: Wire,
    pub now_ns: u64,
}

impl Pair {
    pub fn new(seed: u64, loss: u64) -> Pair {
        let wire = Wire::new(seed, loss);
        let sockets = [0, 1].map(|index| Sockets::new(stack(wire.device(index))));
        Pair { sockets, wire, now_ns: 1_000_000_000 }
    }

    /// Goes to the next thing that happens; `false` if nothing will within `limit`.
    fn step(&mut self, end_ns: u64) -> bool {
        let now = Instant::from_nanos(self.now_ns);
        let due = [0, 1].map(|index| self.sockets[index].poll(now).map(Instant::nanos));
        let arrival = self.wire.carry(self.now_ns);
        let Some(next) = due.into_iter().chain([arrival]).flatten().min() else { return false };
        if next > end_ns {
            return false;
        }
        self.now_ns = self.now_ns.max(next);
        self.wire.deliver(self.now_ns);
        true
    }

    /// Runs until `done`, or nothing more happens within a minute of virtual time.
    pub fn run(&mut self, mut done: impl FnMut(&mut [Sockets<Device>; 2]) -> bool) -> bool {
        let end_ns = self.now_ns + Duration::from_secs(60).as_nanos() as u64;
        loop {
            if done(&mut self.sockets) {
                return true;
            }
            if !self.step(end_ns) {
                return done(&mut self.sockets);
            }
        }
    }

    /// Lets things happen for so long.
    pub fn pass(&mut self, time: Duration) {
        let end_ns = self.now_ns + time.as_nanos() as u64;
        while self.step(end_ns) {}
        self.now_ns = end_ns;
    }
}
