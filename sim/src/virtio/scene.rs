//! Servers over the real driver, on one core or several.

use super::device::{Machinery, VirtioCard};
use super::pair::{Counts, Pair};
use crate::card::Card;
use crate::host::{HostClock, Plan};
use crate::random::Random;
use crate::scenario::Builder;
use nom_virtio::Error;
use nom_virtio::net::{NetDevice, Options, PairSetup, feature, open};
use nom_virtio::transport;
use nom_virtio_fake::{ALL_FEATURES, FakeFunction, FakeMemory, FakeOptions, FakeRegisters};
use std::cell::RefCell;
use std::rc::Rc;

/// A queue pair on its way to its core.
pub struct Setup {
    pair: PairSetup<FakeFunction, FakeMemory>,
    counts: Rc<Counts>,
    on_failure: fn(Error),
}

impl Setup {
    /// Makes it the queue pair of a core.
    pub fn start(self, clock: &HostClock) -> Pair {
        let bit = self.pair.number() as u8;
        let driver = self.pair.start(clock.clone(), bit).expect("there is memory for rings");
        Pair::new(driver.on_failure(self.on_failure), clock.clone(), self.counts)
    }
}

/// A device with its driver, before it runs.
pub struct Outfit {
    /// What each core gets.
    pub cores: Vec<(Rc<RefCell<dyn Card>>, Setup)>,
    /// The driver's view of the device as a whole.
    pub device: NetDevice<FakeRegisters>,
    /// The device itself.
    pub machinery: Rc<RefCell<Machinery>>,
}

/// Features that a device may be without.
const OPTIONAL: [u64; 10] = [
    feature::CHECKSUM,
    feature::GUEST_CHECKSUM,
    feature::HOST_TSO4,
    feature::HOST_TSO6,
    feature::GUEST_TSO4,
    feature::GUEST_TSO6,
    feature::MERGEABLE,
    transport::feature::INDIRECT,
    transport::feature::EVENT_INDEX,
    transport::feature::PACKED,
];

/// Features of some device.
fn features(random: &mut Random) -> u64 {
    let without = OPTIONAL.into_iter().filter(|_| random.happens(300_000)).fold(0, |all, one| all | one);
    let mut features = ALL_FEATURES & !without;
    // Section 5.1.3.1: these need others.
    for (needs, needed) in [
        (feature::HOST_TSO4 | feature::HOST_TSO6, feature::CHECKSUM),
        (feature::GUEST_TSO4 | feature::GUEST_TSO6, feature::GUEST_CHECKSUM),
    ] {
        features &= if features & needed == 0 { !needs } else { u64::MAX };
    }
    features
}

impl Builder {
    /// A device of any kind with so many queue pairs, for a host of this plan. If the driver gives it up,
    /// `on_failure` is told why.
    pub(crate) fn outfit(&mut self, plan: &mut Plan, pairs: u16, on_failure: fn(Error)) -> Outfit {
        let random = &mut self.random;
        let fake = FakeOptions {
            features: features(random),
            pairs,
            queue_size: random.choose(&[64, 128, 256]),
            mac: plan.shape.properties.mac,
            mtu: plan.shape.properties.mtu,
            mmio: (pairs == 1 && random.happens(250_000)).then_some((2, 1)),
            ..FakeOptions::default()
        };
        let memory = FakeMemory::new(256 << 20);
        let options = Options {
            pairs,
            queue_size: random.choose(&[32, 64, 256]),
            receive_buffers: random.choose(&[16, 64, 256]),
            memory_bytes: random.choose(&[4 << 20, 16 << 20]),
            refused: 0,
            ..Options::default()
        };
        let function = FakeFunction::new(fake, memory.clone());
        let opened = open(function.clone(), &memory, &options).expect("a device that can be used");
        let properties = opened.pairs[0].properties();
        plan.shape.properties = properties;
        let machinery = Machinery::new(function, properties, pairs, random.fork());
        let cores = opened.pairs.into_iter().enumerate().map(|(index, pair)| {
            let counts = Rc::<Counts>::default();
            let ring = options.queue_size.into();
            let card = VirtioCard::new(machinery.clone(), index, counts.clone(), ring);
            (card as Rc<RefCell<dyn Card>>, Setup { pair, counts, on_failure })
        });
        Outfit { cores: cores.collect(), device: opened.device, machinery }
    }
}
