//! The program's own network interfaces.

use crate::serve::Core;
use alloc::sync::Arc;
use core::fmt;
use nom_port::world::Doorbell;
use nom_sys::port::{Clock, Dma, Function, Idle, Window};
use nom_virtio::net;

pub use nom_virtio::memory::DmaBuffer;
pub use nom_virtio::net::{Counters, Options, feature};
pub use nom_virtio::{Error, pci::feature as ring_feature};

/// The queue pair of one core; `nom_port::nic::Nic` says what it does.
pub type QueuePair = net::QueuePair<Window, Dma, Clock>;
/// A device as a whole.
pub type NetDevice = net::NetDevice<Window>;
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
    net::open(function, &Dma, options)
}

/// A queue pair on its way to its core.
pub type PairSetup = net::PairSetup<Function, Dma>;

/// Makes `pair` the running core's, with its interrupts as bit `bit`.
///
/// # Errors
/// As [`PairSetup::start`].
pub fn start(pair: PairSetup, bit: u8) -> Result<QueuePair, Error> {
    pair.start(Clock, bit)
}

/// Why there is no interface.
#[derive(Debug)]
pub enum NoInterface {
    /// The machine has no network device for this application.
    NoDevice(nom_sys::Error),
    /// The device cannot be used.
    Device(Error),
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
            NoInterface::Device(error) => write!(out, "the network device: {error}"),
        }
    }
}

/// The bit by which the device wakes its core.
const INTERRUPT_BIT: u8 = 0;

/// The running core with the first queue pair of the program's network device.
///
/// # Errors
/// If there is no network device, or it cannot be used.
pub(crate) fn core() -> Result<Core, NoInterface> {
    let index = find().map_err(NoInterface::NoDevice)?;
    let mut opened = open(index, &Options::default()).map_err(NoInterface::Device)?;
    let pair = start(opened.pairs.remove(0), INTERRUPT_BIT).map_err(NoInterface::Device)?;
    Ok(Core { index: nom_sys::cores::current(), pair, idle: Idle, doorbell: Arc::new(Alone) })
}

/// The doorbell of a program on one core: nobody else is there to ring it.
struct Alone;

impl Doorbell for Alone {
    fn ring(&self, _: usize) {}
}
