//! The program's own network interfaces.

use super::core_pool::LentCores;
use super::waiting_cores::WaitingCores;
use crate::serve::Core;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicUsize, fence};
use nom_elastic::CorePool;
use nom_port::world::{Doorbell, Entropy as _};
use nom_sys::port::{Clock, Dma, Entropy, Function, Idle, RegisterWindow};
use nom_virtio::net;

pub use nom_virtio::memory::DmaBuffer;
pub use nom_virtio::net::{Counters, KEY_BYTES, Options, feature};
pub use nom_virtio::{Error, transport::feature as ring_feature};

/// The queue pair of one core; `nom_port::nic::Nic` says what it does.
pub type QueuePair = net::QueuePair<RegisterWindow, Dma, Clock>;
/// A device as a whole.
pub type NetDevice = net::NetDevice<RegisterWindow>;
/// A device that was brought up.
pub type Opened = net::Opened<Function, Dma>;

/// Vendor and device identifiers of virtio network devices: modern, and transitional with a modern interface.
const VENDOR: u32 = 0x1af4;
const DEVICES: [u32; 2] = [0x1041, 0x1000];

/// The index on the board of the network device that is this program's: the environment's `network` counts
/// the machine's network devices from 0, in the order of the board. The first, if it says nothing.
///
/// # Errors
/// NoDevice if there are not so many; InvalidArgument if `network` is no number.
pub fn find() -> Result<usize, nom_sys::Error> {
    let number = nom_sys::start::var("network").unwrap_or("0");
    let number = number.parse().map_err(|_| nom_sys::Error::InvalidArgument)?;
    nom_sys::devices::find_nth(number, |vendor, device| vendor == VENDOR && DEVICES.contains(&device))
}

/// Acquires the network device with this index on the board and brings it up. Each of its queue pairs is then
/// started on the core that it is for, which [`start`] does.
///
/// # Errors
/// As [`net::open`]; and [`Error::World`] if the kernel does not give the device.
pub fn open(index: usize, options: &Options) -> Result<Opened, Error> {
    let refused = |error: nom_sys::Error| Error::World(nom_port::device::Refused(error.name()));
    let function = Function::acquire(index).map_err(refused)?;
    let mut opened = net::open(function, &Dma, options)?;
    opened.device.on_reset(Arc::new(tell));
    Ok(opened)
}

/// Whoever runs the program is to know: what was under way was lost once more, and some devices get worse.
fn tell(cause: Error) {
    crate::println!("the network device broke and was reset: {cause}");
}

/// A queue pair on its way to its core.
pub type PairSetup = net::PairSetup<Function, Dma>;
/// The interrupt of a queue pair.
pub(super) type Interrupt = net::Interrupt<Function>;

/// Makes `pair` the running core's, with its interrupts as bit `bit`.
///
/// # Errors
/// As [`PairSetup::start`].
pub fn start(pair: PairSetup, bit: u8) -> Result<QueuePair, Error> {
    Ok(pair.start(Clock, bit)?.on_failure(end))
}

/// Status of a program whose network device broke: as sysexits.h calls an input or output error.
const BROKEN_STATUS: u8 = 74;

/// A server without its network would be silent for ever: who started it can start it again, maybe with
/// another device.
fn end(error: Error) {
    crate::println!("error: the network device broke: {error}");
    crate::exit(BROKEN_STATUS)
}

/// Why there is no interface.
#[derive(Debug)]
pub enum NoInterface {
    /// The machine has no network device for this application.
    NoDevice(nom_sys::Error),
    /// The manifest does not allow any device of the kind.
    NotGranted,
    /// The device cannot be used.
    Device(Error),
}

impl NoInterface {
    /// The kernel answers for the manifest: whoever may not have a device forgot to ask for it there.
    fn of(error: Error) -> NoInterface {
        match error {
            Error::World(refused) if refused.0 == nom_sys::Error::NotPermitted.name() => {
                NoInterface::NotGranted
            }
            other => NoInterface::Device(other),
        }
    }
}

impl fmt::Display for NoInterface {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoInterface::NoDevice(error) => {
                let (name, number) = (error.name(), nom_sys::start::var("network").unwrap_or("0"));
                write!(
                    out,
                    "no network device {number}: {name}; the machine has too few, or the environment's "
                )?;
                out.write_str("`network` is not the number of one, counted from 0")
            }
            NoInterface::NotGranted => out.write_str(
                "the manifest grants no network device: add `devices = [{ class = \"network\" }]`",
            ),
            NoInterface::Device(error) => write!(out, "the network device: {error}"),
        }
    }
}

/// Least memory for the buffers of a queue pair: those that wait take half of it.
const BUFFER_BYTES_MIN: u64 = 1 << 20;

/// Memory for the buffers of each queue pair of a program that may have `memory` bytes: all pairs together
/// take up to three quarters of it, so that what a server keeps can lie where it is sent from; connections
/// have a quarter ([`FLOWS_PART`](crate::serve::settings)). It is taken as it is needed: a program that keeps
/// other things has it for those.
fn buffer_bytes(memory: u64, pairs: u16) -> usize {
    (memory / 4 * 3 / u64::from(pairs).max(1)).max(BUFFER_BYTES_MIN) as usize
}

/// The bit by which the device wakes its core.
pub(super) const INTERRUPT_BIT: u8 = 0;

/// The program's network device with a core for each of its queue pairs, before they start.
pub(crate) struct Network {
    device: NetDevice,
    /// One for each core, the running one's first.
    pairs: Vec<PairSetup>,
    others: WaitingCores,
    doorbells: Arc<Doorbells>,
}

impl Network {
    /// The network device with up to `cores` cores: as many as the program may hold and the device has
    /// queue pairs.
    ///
    /// # Errors
    /// If there is no network device, or it cannot be used.
    pub fn open(cores: usize) -> Result<Network, NoInterface> {
        let index = find().map_err(NoInterface::NoDevice)?;
        let others = WaitingCores::acquire(cores.saturating_sub(1));
        let pairs = u16::try_from(1 + others.len()).unwrap_or(u16::MAX);
        let memory_bytes = buffer_bytes(super::memory_max(), pairs);
        let mut options = Options { pairs, memory_bytes, ..Options::default() };
        Entropy::new().fill(&mut options.hash_key);
        let Opened { device, pairs } = open(index, &options).map_err(NoInterface::of)?;
        let doorbells = Arc::new(Doorbells::new(pairs.len()));
        Ok(Network { device, pairs, others, doorbells })
    }

    /// Cores that will serve.
    pub fn cores(&self) -> usize {
        self.pairs.len()
    }

    /// How they wake each other, by their numbers from 0 on.
    pub fn doorbell(&self) -> Arc<dyn Doorbell> {
        self.doorbells.clone()
    }

    /// Runs `work` on each core, with one of `seeds` and, if there is more than one core, the pool. Returns
    /// what it returns on the running one.
    ///
    /// # Errors
    /// If the running core's queue pair does not start. Where another's does not, the program ends.
    pub fn run<T: Send + 'static>(
        self,
        seeds: Vec<T>,
        work: impl Fn(T, QueuePair, Idle, Option<Arc<dyn CorePool>>) -> u8 + Send + Sync + 'static,
    ) -> Result<u8, NoInterface> {
        let Network { mut device, mut pairs, others: waiting, doorbells } = self;
        let (bells, cores) = (doorbells.clone(), pairs.len());
        device.on_reset(Arc::new(move |cause| {
            tell(cause);
            // Whoever sleeps takes its part of the device up again.
            (0..cores).for_each(|core| bells.ring(core));
        }));
        let work = Arc::new(work);
        let ours = Arc::new(LentCores::new(device, &pairs, doorbells.clone()));
        let pool = (pairs.len() > 1).then(|| ours.clone() as Arc<dyn CorePool>);
        let others = pairs.split_off(1);
        let mut seeds = seeds.into_iter();
        let first = seeds.next().expect("there is a seed for each core");
        let task = |(index, (setup, seed))| {
            let (work, doorbells, pool) = (work.clone(), doorbells.clone(), pool.clone());
            Box::new(move || serve_on(index, &doorbells, setup, |pair| work(seed, pair, Idle, pool)))
                as Box<dyn FnOnce() + Send>
        };
        ours.lead(waiting.set_to((1..).zip(others.into_iter().zip(seeds)).map(task).collect()));
        doorbells.belongs_here(0);
        let pair = start(pairs.remove(0), INTERRUPT_BIT).map_err(NoInterface::Device)?;
        Ok(work(first, pair, Idle, pool))
    }
}

/// The first queue pair of the program's network device, on the running core.
pub(super) fn pair(options: &Options) -> Result<QueuePair, NoInterface> {
    let index = find().map_err(NoInterface::NoDevice)?;
    let mut opened = open(index, options).map_err(NoInterface::of)?;
    start(opened.pairs.remove(0), INTERRUPT_BIT).map_err(NoInterface::Device)
}

/// The running core with the first queue pair of the program's network device.
///
/// # Errors
/// If there is no network device, or it cannot be used.
pub(crate) fn core() -> Result<Core, NoInterface> {
    let Network { mut pairs, doorbells, .. } = Network::open(1)?;
    doorbells.belongs_here(0);
    let pair = start(pairs.remove(0), INTERRUPT_BIT).map_err(NoInterface::Device)?;
    Ok(Core { index: 0, pair, idle: Idle, doorbell: doorbells })
}

/// What a further core does until the program ends.
fn serve_on(index: usize, doorbells: &Doorbells, setup: PairSetup, work: impl FnOnce(QueuePair) -> u8) {
    doorbells.belongs_here(index);
    let status = match start(setup, INTERRUPT_BIT) {
        Ok(pair) => work(pair),
        Err(error) => {
            crate::println!("error: queue pair {index}: {}", NoInterface::Device(error));
            1
        }
    };
    // A server without one of its cores would leave clients without an answer.
    crate::exit(status)
}

/// The doorbells of the cores that serve, by their numbers among these.
pub(super) struct Doorbells(Vec<AtomicUsize>);

/// A core that has not begun, and so does not sleep.
const NOBODY: usize = usize::MAX;

impl Doorbells {
    fn new(cores: usize) -> Doorbells {
        Doorbells((0..cores).map(|_| AtomicUsize::new(NOBODY)).collect())
    }

    /// Doorbell `index` is the running core's. Whoever sees afterwards that the core sleeps rings here.
    pub fn belongs_here(&self, index: usize) {
        self.0[index].store(nom_sys::cores::current(), Relaxed);
        fence(Release);
    }
}

impl Doorbell for Doorbells {
    fn ring(&self, index: usize) {
        fence(Acquire);
        match self.0.get(index).map(|core| core.load(Relaxed)) {
            None | Some(NOBODY) => {}
            Some(core) => nom_sys::port::Doorbell.ring(core),
        }
    }
}
