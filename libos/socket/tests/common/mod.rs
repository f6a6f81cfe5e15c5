//! Two machines on a simulated link, on virtual time, from a seed.
#![allow(dead_code, reason = "each test uses a part")]

use nom_net::{Cidr, Config, Instant, Stack};
use nom_port::nic::Offloads;
use nom_port::world::{Clock, Doorbell, Idle, Wakeup};
use nom_rt::EventLoop;
use nom_socket::{Network, Sockets};
pub use nom_wire::{Device, Random};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Numbers of the machines, which are in their addresses.
const NUMBERS: [u8; 2] = [1, 2];

pub fn stack(device: &Device) -> Stack<Device> {
    Stack::new(device.clone(), config(device.properties.mac[5]))
}

/// What machine `number` is told.
pub fn config(number: u8) -> Config {
    let address = Cidr { address: [10, 0, 0, number].into(), prefix: 24 };
    let secret = [u64::from(number); 4];
    let nameservers = vec![[10, 0, 0, NUMBERS[0]].into()];
    Config { addresses: vec![address], nameservers, ..Config::new(secret) }
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
        let device = |number| Device { room: 64, ..Device::new(number, Offloads::default()) };
        let devices = NUMBERS.map(device);
        Wire { devices, flying: BTreeMap::new(), count: 0, random: Random::new(seed), loss }
    }

    pub fn device(&self, index: usize) -> &Device {
        &self.devices[index]
    }

    /// Takes what was sent, and says when the next frame arrives.
    pub fn carry(&mut self, now_ns: u64) -> Option<u64> {
        for from in 0..2 {
            for frame in self.devices[from].take_sent() {
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
            self.devices[to].deliver(now_ns, frame);
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

/// The time of all machines, which passes as they read it.
#[derive(Clone, Default)]
pub struct Time(Rc<Cell<u64>>);

impl Clock for Time {
    fn now_ns(&self) -> u64 {
        self.0.set(self.0.get() + 100);
        self.0.get()
    }
}

impl Idle for Time {
    /// Others have their turn: the test's loop sees to it that time passes.
    fn sleep(&mut self, _: Option<u64>) -> Wakeup {
        Wakeup::default()
    }
}

pub struct Bell;

impl Doorbell for Bell {
    fn ring(&self, _: usize) {}
}

pub type Loop = EventLoop<Time, Time>;

/// Two machines whose tasks and threads wait for sockets.
pub struct World {
    time: Time,
    wire: Wire,
    pub loops: [Loop; 2],
    pub networks: [Network<Device>; 2],
}

impl World {
    pub fn new(loss: u64) -> World {
        let (time, wire) = (Time::default(), Wire::new(3, loss));
        let loops = [0, 1].map(|index| EventLoop::new(index, time.clone(), time.clone(), Arc::new(Bell)));
        let networks = [0, 1].map(|index| Network::start(loops[index].handle(), stack(wire.device(index))));
        World { time, wire, loops, networks }
    }

    /// Runs until `done`.
    pub fn run(&mut self, done: impl Fn() -> bool) {
        for _ in 0..2_000_000 {
            if done() {
                return;
            }
            let worked = self.loops.iter_mut().fold(false, |worked, each| each.turn() | worked);
            let now = self.time.0.get();
            let arrival = self.wire.carry(now);
            if !worked {
                // Nothing happens before the next frame arrives, or a timer of 50 us at the earliest.
                self.time.0.set(arrival.unwrap_or(u64::MAX).clamp(now, now + 50_000));
            }
            self.wire.deliver(self.time.0.get());
        }
        panic!("it never ends");
    }
}
