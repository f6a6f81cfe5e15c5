//! The program's own network interfaces.

use nom_sys::port::{Clock, Dma, Function, Window};
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

/// The index on the board of the first network device.
///
/// # Errors
/// NoDevice.
pub fn find() -> Result<usize, nom_sys::Error> {
    nom_sys::devices::find(|vendor, device| vendor == VENDOR && DEVICES.contains(&device))
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
