//! The network device (section 5.1), one queue pair for each core.
//!
//! [`open`] brings the device up and leaves a [`PairSetup`] for each core, which can be sent there and
//! becomes that core's [`QueuePair`]. Everything of a queue pair stays on its core: rings, memory, counters.

mod control;
mod counters;
mod header;
mod pair;
mod receive;
mod rss;
mod shared;
mod transmit;

pub use control::NetDevice;
pub use counters::Counters;
pub use pair::{Interrupt, PairSetup, QueuePair};
pub use rss::KEY_BYTES;

use crate::error::{Error, Result};
use crate::memory::Carver;
use crate::queue::{Layout, Queue};
use crate::transport::{self, Doorbell, Transport};
use alloc::sync::Arc;
use alloc::vec::Vec;
use control::Control;
use nom_port::device::{Dma, PciFunction, Registers};
use nom_port::nic::{Offloads, Properties};
use rss::Rss;
use shared::Shared;

/// Type of the device (section 5.1.1), and its identifier where it is transitional.
const KIND: u16 = 1;
const TRANSITIONAL: u16 = 0x1000;

/// Feature bits of the network device (section 5.1.3).
pub mod feature {
    /// The device finishes checksums of frames that are sent.
    pub const CHECKSUM: u64 = 1;
    /// The driver takes frames whose checksum is not finished.
    pub const GUEST_CHECKSUM: u64 = 1 << 1;
    /// The device says how large packets may be.
    pub const MTU: u64 = 1 << 3;
    /// The device says its address.
    pub const MAC: u64 = 1 << 5;
    /// The driver takes several IPv4 TCP segments as one.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// The driver takes several IPv6 TCP segments as one.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// The device cuts IPv4 TCP segments.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// The device cuts IPv6 TCP segments.
    pub const HOST_TSO6: u64 = 1 << 12;
    /// A received frame may fill several buffers.
    pub const MERGEABLE: u64 = 1 << 15;
    /// The device says whether the link is up.
    pub const STATUS: u64 = 1 << 16;
    /// There is a control queue.
    pub const CONTROL: u64 = 1 << 17;
    /// The control queue takes receive modes.
    pub const CONTROL_RECEIVE: u64 = 1 << 18;
    /// There may be several queue pairs.
    pub const MULTIQUEUE: u64 = 1 << 22;
    /// The control queue takes an address.
    pub const CONTROL_MAC: u64 = 1 << 23;
    /// Frames go to queue pairs by a hash.
    pub const RSS: u64 = 1 << 60;
}

/// What the driver can make use of.
const WANTED: u64 = feature::CHECKSUM
    | feature::GUEST_CHECKSUM
    | feature::MTU
    | feature::MAC
    | feature::GUEST_TSO4
    | feature::GUEST_TSO6
    | feature::HOST_TSO4
    | feature::HOST_TSO6
    | feature::MERGEABLE
    | feature::STATUS
    | feature::CONTROL
    | feature::CONTROL_RECEIVE
    | feature::MULTIQUEUE
    | feature::CONTROL_MAC
    | feature::RSS
    | transport::feature::INDIRECT
    | transport::feature::EVENT_INDEX
    | transport::feature::PACKED;

/// Each feature with those of which it needs one (section 5.1.3.1; the last three are the driver's own, which
/// has no buffers of 64 KiB).
const NEEDS: [(u64, u64); 9] = [
    (feature::HOST_TSO4, feature::CHECKSUM),
    (feature::HOST_TSO6, feature::CHECKSUM),
    (feature::CONTROL_RECEIVE, feature::CONTROL),
    (feature::CONTROL_MAC, feature::CONTROL),
    (feature::MULTIQUEUE, feature::CONTROL),
    (feature::GUEST_TSO4, feature::GUEST_CHECKSUM),
    (feature::GUEST_TSO6, feature::GUEST_CHECKSUM),
    (feature::GUEST_TSO4 | feature::GUEST_TSO6, feature::MERGEABLE),
    (feature::RSS, feature::MULTIQUEUE),
];

/// Features to accept of those `offered`, without those that are `refused`.
fn choose(offered: u64, refused: u64) -> u64 {
    NEEDS.iter().fold(offered & WANTED & !refused, |chosen, (features, need)| {
        if chosen & need == 0 { chosen & !features } else { chosen }
    })
}

/// How the device is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Queue pairs, at most; there are as many as the device has, if those are fewer.
    pub pairs: u16,
    /// Entries of a queue, at most.
    pub queue_size: u16,
    /// Buffers of 2 KiB that wait for frames at each queue pair, at most as many as the queue has entries.
    pub receive_buffers: u16,
    /// Bytes of memory for buffers that a queue pair takes at most: those that wait, those that the
    /// application keeps, and those that are sent, for which an eighth is set apart.
    pub memory_bytes: usize,
    /// Features that are not used though the device offers them, as [`feature`] and
    /// [`transport::feature`] name them.
    pub refused: u64,
    /// The key of the hash by which a device with [`feature::RSS`] spreads frames over several pairs. Whoever
    /// knows it can have all his frames go to one.
    pub hash_key: [u8; KEY_BYTES],
}

/// Spreads frames, but is no secret: a pattern that Woo and Park ("Scalable TCP session monitoring with
/// symmetric receive-side scaling", 2012) give, with which both ways of a flow have the same hash.
const HASH_KEY: [u8; KEY_BYTES] = {
    let mut key = [0x6d; KEY_BYTES];
    let mut at = 1;
    while at < KEY_BYTES {
        key[at] = 0x5a;
        at += 2;
    }
    key
};

impl Default for Options {
    fn default() -> Options {
        Options {
            pairs: 1,
            queue_size: 256,
            receive_buffers: 256,
            memory_bytes: 64 << 20,
            refused: 0,
            hash_key: HASH_KEY,
        }
    }
}

/// The device's configuration (section 5.1.4).
#[derive(Clone, Copy, Debug)]
struct Config {
    mac: [u8; 6],
    status: u16,
    pairs_max: u16,
    mtu: u16,
}

impl Config {
    fn read<R: Registers>(transport: &Transport<R>) -> Result<Config> {
        let [a, b, c, d, e, f, status @ .., p, q, m, n] = transport.config::<12>()?;
        Ok(Config {
            mac: [a, b, c, d, e, f],
            status: u16::from_le_bytes(status),
            pairs_max: u16::from_le_bytes([p, q]),
            mtu: u16::from_le_bytes([m, n]),
        })
    }
}

/// Most queue pairs: the control queue behind them has a number, too (the specification has one pair more).
const PAIRS_MAX: u16 = 0x7fff;
/// Most bytes of a packet where the device does not say.
const MTU_DEFAULT: u16 = 1500;
/// The address of a device that has none: a local one of nom's.
const MAC_DEFAULT: [u8; 6] = [0x52, 0x54, 0x00, 0x6e, 0x6f, 0x6d];

fn properties(features: u64, config: &Config) -> Properties {
    let has = |feature| features & feature != 0;
    Properties {
        mac: if has(feature::MAC) { config.mac } else { MAC_DEFAULT },
        mtu: if has(feature::MTU) { config.mtu } else { MTU_DEFAULT },
        offloads: Offloads {
            checksum: has(feature::CHECKSUM),
            segment_tcp4: has(feature::HOST_TSO4),
            segment_tcp6: has(feature::HOST_TSO6),
        },
    }
}

/// A device that was brought up.
#[derive(Debug)]
pub struct Opened<F: PciFunction, D> {
    /// The device as a whole.
    pub device: NetDevice<F::Registers>,
    /// Its queue pairs, to be started each on its core.
    pub pairs: Vec<PairSetup<F, D>>,
}

/// Brings up the network device behind `function`. Clones of `function` are further handles on the same
/// function, and those of `world` allocate from the same memory.
///
/// # Errors
/// If it is no such device, lacks what a driver needs, or memory is exhausted.
pub fn open<F, D>(mut function: F, world: &D, options: &Options) -> Result<Opened<F, D>>
where
    F: PciFunction + Clone,
    D: Dma + Clone,
{
    let transport = Transport::open(&mut function, KIND, TRANSITIONAL)?;
    // A lone pair gets all frames: the device is spared the hash.
    let refused = options.refused | if options.pairs <= 1 { feature::RSS } else { 0 };
    let features = transport.negotiate(choose(transport.offered(), refused))?;
    let config = Config::read(&transport)?;
    let pairs_max = if features & feature::MULTIQUEUE == 0 { 1 } else { config.pairs_max };
    if !(1..=PAIRS_MAX).contains(&pairs_max) {
        return Err(Error::BadPairs(pairs_max));
    }
    let count = options.pairs.clamp(1, pairs_max.min(transport.pairs_max()));
    let mut builder = Builder { transport: &transport, world: world.clone(), features, options };
    let queues = (0..count).map(|pair| builder.pair(pair)).collect::<Result<Vec<_>>>()?;
    let spare = queues.iter().map(|lanes| builder.spare(lanes)).collect::<Result<Vec<_>>>()?;
    let control = match features & feature::CONTROL {
        0 => None,
        _ => Some(builder.control(2 * pairs_max)?),
    };
    let rss = match features & feature::RSS {
        0 => None,
        _ => Rss::read(&transport, options.hash_key)?,
    };
    transport.start();
    let shared = Arc::new(Shared::new(transport, features, control, spare));
    let mut device = NetDevice::new(shared.clone(), rss);
    if count > 1 {
        device.set_pairs(count)?;
    }
    let common = pair::Common { shared, options: *options, properties: properties(features, &config) };
    let setup =
        |(queues, pair)| PairSetup::new(pair, queues, common.clone(), function.clone(), world.clone());
    Ok(Opened { device, pairs: queues.into_iter().zip(0..).map(setup).collect() })
}

/// A queue that the device knows, and how to notify it.
#[derive(Debug)]
struct Lane<T> {
    queue: Queue<T>,
    doorbell: Doorbell,
}

/// Where it lies and how the device knows it: it can be sent to another core, unlike what a queue holds.
#[derive(Debug)]
struct LaneSetup {
    layout: Layout,
    memory: Carver,
    doorbell: Doorbell,
    /// Its number, and the vector of its interrupts.
    number: u16,
    vector: Option<u16>,
}

impl LaneSetup {
    /// Makes the queue, on the core that it is for. Only one is in use at a time.
    fn lane<T>(&mut self) -> Result<Lane<T>> {
        let (queue, _) = Queue::new(self.layout, &mut self.memory)?;
        Ok(Lane { queue, doorbell: self.doorbell })
    }

    /// Empties the queue and tells the device, which was reset, where it lies.
    fn enable<R: Registers>(&mut self, transport: &Transport<R>) -> Result<()> {
        if transport.queue_size_max(self.number)? < self.layout.size {
            return Err(Error::NoQueue(self.number));
        }
        self.memory.rewind();
        let (_, areas) = Queue::<()>::new(self.layout, &mut self.memory)?;
        self.doorbell = transport.enable_queue(self.number, self.layout.size, areas, self.vector)?;
        self.memory.rewind();
        Ok(())
    }
}

/// Makes queues.
struct Builder<'a, R: Registers, D> {
    transport: &'a Transport<R>,
    world: D,
    features: u64,
    options: &'a Options,
}

impl<R: Registers, D: Dma> Builder<'_, R, D> {
    /// The queues of pair number `pair`, whose vector has the same number (section 5.1.2).
    fn pair(&mut self, pair: u16) -> Result<pair::Lanes> {
        Ok(pair::Lanes {
            receive: self.lane(2 * pair, Some(pair))?,
            transmit: self.lane(2 * pair + 1, Some(pair))?,
        })
    }

    /// Further queues of the same pair, which the device does not know.
    fn spare(&mut self, lanes: &pair::Lanes) -> Result<pair::Lanes> {
        let mut spare = |lane: &LaneSetup| {
            let block = self.world.allocate(lane.layout.bytes()).ok_or(Error::OutOfMemory)?;
            Ok::<_, Error>(LaneSetup { memory: Carver::new(block), ..*lane })
        };
        Ok(pair::Lanes { receive: spare(&lanes.receive)?, transmit: spare(&lanes.transmit)? })
    }

    fn control(&mut self, queue: u16) -> Result<Control> {
        let setup = self.lane(queue, None)?;
        let block = self.world.allocate(control::BYTES).ok_or(Error::OutOfMemory)?;
        Control::new(setup, block)
    }

    /// Lays a queue out to tell the device where it is. It is made in the same place where it is used.
    fn lane(&mut self, queue: u16, vector: Option<u16>) -> Result<LaneSetup> {
        let layout = self.layout(self.transport.queue_size_max(queue)?);
        let block = self.world.allocate(layout.bytes()).ok_or(Error::OutOfMemory)?;
        let mut memory = Carver::new(block);
        let (_, areas) = Queue::<()>::new(layout, &mut memory)?;
        let doorbell = self.transport.enable_queue(queue, layout.size, areas, vector)?;
        memory.rewind();
        Ok(LaneSetup { layout, memory, doorbell, number: queue, vector })
    }

    /// A split queue's size must be a power of two, and so is each that we choose.
    fn layout(&self, size_max: u16) -> Layout {
        let size = size_max.min(self.options.queue_size).clamp(1, 1 << 15);
        Layout {
            size: 1 << size.ilog2(),
            packed: self.features & transport::feature::PACKED != 0,
            event_index: self.features & transport::feature::EVENT_INDEX != 0,
        }
    }
}

#[cfg(test)]
mod tests;
