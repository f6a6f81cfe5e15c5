//! `nom-port`'s world in a virtual machine: its traits over nom's system calls.

use crate::devices::{self, Device};
use crate::events;
use crate::memory::{self, Shared};
use alloc::sync::Arc;
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_abi::error::Result;
use nom_abi::{Error, PageSize, Upcall};
use nom_port::device::{self, DmaBlock, PciFunction, Refused};
use nom_port::world::{self, Wakeup};

/// The board's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl world::Clock for Clock {
    #[inline]
    fn now_ns(&self) -> u64 {
        crate::time::now_ns()
    }
}

/// Sleep of the running core until the kernel has something to say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idle;

impl world::Idle for Idle {
    fn sleep(&mut self, deadline_ns: Option<u64>) -> Wakeup {
        crate::heap::settle();
        let events = events::wait(deadline_ns);
        let messages = events.pending & !Upcall::Interrupt.mask() != 0;
        Wakeup { interrupts: events.interrupts, messages }
    }
}

/// The doorbells of this program's cores, by their numbers on the board.
#[derive(Clone, Copy, Debug, Default)]
pub struct Doorbell;

impl world::Doorbell for Doorbell {
    fn ring(&self, core: usize) {
        // A core that was given up has nobody to wake.
        let _ = crate::cores::notify(core);
    }
}

/// Interruptions of what the running core computes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interrupter;

impl world::Preemption for Interrupter {
    fn preemptible(&self, compute: &mut (dyn FnMut() + Send), interrupted: &dyn Fn()) {
        crate::preempt::preemptible(compute, interrupted);
    }

    fn undisturbed(&self, section: &mut dyn FnMut()) {
        crate::preempt::undisturbed(section);
    }

    fn set_alarm(&self, deadline_ns: Option<u64>) {
        crate::preempt::set_alarm(deadline_ns);
    }
}

/// Panics of what the running core does, kept within it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Container;

impl world::Containment for Container {
    fn contained(&self, work: &mut dyn FnMut(), escape: &dyn Fn()) {
        crate::contain::contained(work, escape);
    }
}

/// Random bytes from the seed that the kernel gave the program: ChaCha20, each source a stream of its own.
pub struct Entropy(ChaCha20Rng);

impl Entropy {
    /// A source that no other one repeats.
    pub fn new() -> Entropy {
        static STREAMS: AtomicU64 = AtomicU64::new(0);
        let mut generator = ChaCha20Rng::from_seed(*crate::start::seed());
        generator.set_stream(STREAMS.fetch_add(1, Relaxed));
        Entropy(generator)
    }
}

impl Default for Entropy {
    fn default() -> Entropy {
        Entropy::new()
    }
}

impl core::fmt::Debug for Entropy {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Entropy")
    }
}

impl world::Entropy for Entropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

/// A PCI function of this program. Clones are handles on the same; it is released with the last of them and
/// of the registers mapped from it.
///
/// Registers make a device write to memory by itself, so who has a `Function` answers for what the device is
/// told: only addresses of [`Dma`] blocks, and only for as long as nothing else uses them. That is the
/// business of driver crates; applications are not given it.
#[derive(Clone, Debug)]
pub struct Function(Arc<Device>);

impl Function {
    /// Acquires the device with this `index` on the board.
    ///
    /// # Errors
    /// NoDevice, NotPermitted.
    pub fn acquire(index: usize) -> Result<Function> {
        Device::acquire(index).map(|device| Function(Arc::new(device)))
    }

    /// Its index on the board.
    pub fn index(&self) -> usize {
        self.0.index()
    }
}

impl PciFunction for Function {
    type Registers = RegisterWindow;

    fn config(&self, offset: u16) -> u32 {
        self.0.config(offset.into()).unwrap_or(u32::MAX)
    }

    fn mmio(&self) -> Option<u64> {
        let address = crate::start::board().devices[self.index()].address.load(Relaxed);
        (address > 0xffff).then_some(u64::from(address) % PageSize::Small.bytes())
    }

    fn map(&mut self, bar: u8, offset: u64, bytes: u64) -> core::result::Result<RegisterWindow, Refused> {
        let page = PageSize::Small.bytes();
        let start = offset - offset % page;
        let end = offset.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page));
        let end = end.ok_or(Refused(Error::Overflow.name()))?;
        // SAFETY: who has a `Function` tells the device only addresses of blocks of `Dma`, as its
        // documentation demands, and those are used as shared memory.
        let registers = unsafe { self.0.map(bar.into(), start, end - start) }.map_err(refused)?;
        Ok(RegisterWindow { registers, offset: offset - start, _device: self.0.clone() })
    }

    fn bind_interrupt(&mut self, vector: u16, bit: u8) -> core::result::Result<(), Refused> {
        self.0.bind_interrupt(vector.into(), bit.into()).map_err(refused)
    }
}

fn refused(error: Error) -> Refused {
    Refused(error.name())
}

/// Registers from an offset on.
#[derive(Debug)]
pub struct RegisterWindow {
    // Unmapped before the device is released.
    registers: devices::Registers,
    offset: u64,
    _device: Arc<Device>,
}

macro_rules! forward {
    ($($read:ident $write:ident $type:ty;)+) => { $(
        #[inline]
        fn $read(&self, offset: u64) -> $type {
            self.registers.$read(self.offset + offset)
        }

        #[inline]
        fn $write(&self, offset: u64, value: $type) {
            self.registers.$write(self.offset + offset, value);
        }
    )+ };
}

impl device::Registers for RegisterWindow {
    forward! {
        read8 write8 u8;
        read16 write16 u16;
        read32 write32 u32;
        read64 write64 u64;
    }
}

/// Granted memory for devices: contiguous and mapped.
///
/// Who has a `Dma` answers for the blocks that it releases: nothing refers to them any more. It is given to
/// drivers alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dma;

impl device::Dma for Dma {
    fn allocate(&mut self, bytes: usize) -> Option<DmaBlock> {
        let pages = (bytes as u64).max(1).div_ceil(PageSize::Small.bytes());
        let shared = core::mem::ManuallyDrop::new(Shared::new(PageSize::Small, pages).ok()?);
        let region = shared.region();
        Some(DmaBlock {
            pointer: NonNull::new(core::ptr::with_exposed_provenance_mut(region.address() as usize))?,
            bus: shared.grant().physical_address(),
            bytes: region.bytes() as usize,
        })
    }

    fn release(&mut self, block: DmaBlock) {
        let address = block.pointer.as_ptr().expose_provenance() as u64;
        // SAFETY: `allocate` made region and grant, and forgot them; they are released together, once, and
        // nobody refers to the memory: the driver's promise (condition 7).
        let released = unsafe { memory::release(address, block.bus, block.bytes as u64) };
        // Refused means that it was no such block: a driver that is wrong about that must not go on.
        released.expect("a block of memory for devices that was granted and mapped as a whole");
    }
}

/// For libraries that ask the crate `getrandom`, which does not know nom.
fn fill(bytes: &mut [u8]) -> core::result::Result<(), getrandom::Error> {
    world::Entropy::fill(&mut Entropy::new(), bytes);
    Ok(())
}

getrandom::register_custom_getrandom!(fill);
