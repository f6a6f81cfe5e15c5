//! The cores of one machine: which of them a frame comes to, who rings for whom, who is there.

use crate::random::Random;
use nom_elastic::CorePool;
use nom_port::world::Doorbell;
use nom_rt::inbox::Remote;
use nom_virtio::net::NetDevice;
use nom_virtio_fake::FakeRegisters;
use siphasher::sip::SipHasher13;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// How a device chooses a queue for what it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// By a hash of the flow (RSS).
    Hash,
    /// The same, until a core has sent for the flow: then that one (Linux's TAP).
    Learning,
    /// By chance.
    Random,
}

/// What identifies a frame's flow, from the side of who receives it: local and remote end, or as much as the
/// frame shows of them.
type Key = (Vec<u8>, Vec<u8>);

/// The ends of what a frame carries: sender's and receiver's addresses, with ports if there are any.
fn ends(frame: &[u8]) -> Option<Key> {
    let (addresses, protocol, transport) = match frame.get(12..14)? {
        [8, 0] => (26, *frame.get(23)?, 14 + 4 * usize::from(frame[14] & 15)),
        [0x86, 0xdd] => (22, *frame.get(20)?, 54),
        _ => return None,
    };
    let len = if addresses == 26 { 4 } else { 16 };
    let mut from = frame.get(addresses..addresses + len)?.to_vec();
    let mut to = frame.get(addresses + len..addresses + 2 * len)?.to_vec();
    if let (6 | 17, Some(ports)) = (protocol, frame.get(transport..transport + 4)) {
        from.extend_from_slice(&ports[..2]);
        to.extend_from_slice(&ports[2..]);
    }
    Some((from, to))
}

/// What the world and a machine's cores know of the machine.
pub struct Group {
    steering: Steering,
    random: Random,
    learned: BTreeMap<Key, usize>,
    pool: Arc<Lender>,
    remotes: Vec<Remote>,
}

impl Group {
    /// A machine of so many cores, whose device steers so.
    pub fn new(cores: usize, steering: Steering, random: Random) -> Group {
        let pool = Arc::new(Lender {
            rung: AtomicU64::new(0),
            lent: Mutex::new(Lent {
                serving: cores,
                away: vec![false; cores],
                back: Vec::new(),
                device: None,
            }),
        });
        let remotes = (0..cores).map(|core| Remote::new(core, pool.clone())).collect();
        Group { steering, random, learned: BTreeMap::new(), pool, remotes }
    }

    /// The ways to its cores.
    pub fn remotes(&self) -> Vec<Remote> {
        self.remotes.clone()
    }

    /// Who lends the cores.
    pub fn pool(&self) -> Arc<Lender> {
        self.pool.clone()
    }

    /// The core whose queue a frame comes to.
    pub fn steer(&mut self, frame: &[u8]) -> usize {
        let cores = self.pool.serving();
        let key = ends(frame);
        match (self.steering, key) {
            (Steering::Random, _) | (_, None) => self.random.within(0..cores as u64) as usize,
            (Steering::Hash, Some(key)) => spread(&key, cores),
            (Steering::Learning, Some(key)) => {
                let known = self.learned.get(&key).copied().filter(|core| *core < cores);
                known.unwrap_or_else(|| spread(&key, cores))
            }
        }
    }

    /// A core has sent a frame.
    pub fn learn(&mut self, core: usize, frame: &[u8]) {
        if self.steering == Steering::Learning
            && let Some((from, to)) = ends(frame)
        {
            self.learned.insert((to, from), core);
        }
    }

    /// Cores for which others have rung since the last call.
    pub fn take_rung(&self) -> impl Iterator<Item = usize> + use<> {
        let bits = self.pool.rung.swap(0, Ordering::Relaxed);
        (0..64).filter(move |core| bits >> core & 1 == 1)
    }

    /// Cores that have come back since the last call.
    pub fn take_back(&self) -> Vec<usize> {
        std::mem::take(&mut self.pool.lock().back)
    }

    /// Whether a core has left.
    pub fn is_away(&self, core: usize) -> bool {
        self.pool.lock().away[core]
    }
}

/// One of so many, by a hash of `key`.
fn spread(key: &Key, cores: usize) -> usize {
    let mut hash = SipHasher13::new_with_keys(7, 7);
    hash.write(&key.0);
    hash.write(&key.1);
    (hash.finish() % cores as u64) as usize
}

thread_local! {
    /// Devices that are told how many of their queue pairs serve, by number: whoever lends cores is shared
    /// by threads, a device is not.
    static DEVICES: RefCell<Vec<NetDevice<FakeRegisters>>> = const { RefCell::new(Vec::new()) };
}

/// Lends cores, which leave by not being run any more.
#[derive(Debug)]
pub struct Lender {
    rung: AtomicU64,
    lent: Mutex<Lent>,
}

#[derive(Debug)]
struct Lent {
    serving: usize,
    away: Vec<bool>,
    /// Those that have come back since somebody asked.
    back: Vec<usize>,
    device: Option<usize>,
}

impl Lender {
    fn lock(&self) -> std::sync::MutexGuard<'_, Lent> {
        self.lent.lock().expect("one thread")
    }

    /// Cores that the device spreads over what it receives.
    pub fn serving(&self) -> usize {
        self.lock().serving
    }

    /// From now on it is this device that is told.
    pub fn tell(&self, device: NetDevice<FakeRegisters>) {
        DEVICES.with_borrow_mut(|devices| {
            self.lock().device = Some(devices.len());
            devices.push(device);
        });
    }
}

impl CorePool for Lender {
    fn resize(&self, cores: usize) -> usize {
        let lent = &mut *self.lock();
        let is_told = lent.device.is_none_or(|device| {
            DEVICES.with_borrow_mut(|devices| devices[device].set_pairs(cores as u16).is_ok())
        });
        if !is_told {
            return lent.serving;
        }
        for core in lent.serving..cores {
            if std::mem::take(&mut lent.away[core]) {
                lent.back.push(core);
            }
        }
        lent.serving = cores;
        cores
    }

    fn leave(&self, index: usize) {
        let lent = &mut *self.lock();
        assert!(index > 0 && !lent.away[index], "core {index} leaves");
        lent.away[index] = index >= lent.serving;
    }
}

impl Doorbell for Lender {
    fn ring(&self, core: usize) {
        self.rung.fetch_or(1 << core, Ordering::Relaxed);
    }
}
