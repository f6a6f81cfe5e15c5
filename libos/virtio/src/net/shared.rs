//! What the queue pairs of a device share, and its reset after it broke.
//!
//! The device is one, its queue pairs are on many cores. Whichever core finds it broken resets it, and gives
//! each pair rings in other memory than before: a core that does not know yet goes on with rings at which no
//! device looks, sleeping or not, and nobody has to wait for it. It takes the new ones when it looks for
//! frames, and leaves the old ones for the reset after the next, so that no pair ever has more than two.

use super::control::Control;
use super::feature;
use super::pair::Lanes;
use crate::error::{Error, Result};
use crate::transport::{Doorbell, Transport};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::DerefMut;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use nom_port::device::Registers;
use spinning_top::Spinlock;

/// Called with the reason after a device was reset.
pub type OnReset = Arc<dyn Fn(Error) + Send + Sync>;

/// Resets in a minute that are put up with: one that breaks more often does not do what it is for.
pub(super) const RESETS_MAX: usize = 8;
const MINUTE_NS: u64 = 60_000_000_000;

/// What all queue pairs of a device have in common.
pub(super) struct Shared<R: Registers> {
    // Dropped first: a device that was reset knows nothing of the memory that goes after it.
    pub(super) transport: Transport<R>,
    pub(super) features: u64,
    /// Where each receive queue is notified.
    receiving: Vec<Doorbell>,
    /// Resets so far.
    epoch: AtomicU64,
    control: Spinlock<Option<Control>>,
    resets: Spinlock<Resets>,
}

struct Resets {
    /// By queue pair: the rings that it does not use.
    berths: Vec<Berth>,
    /// When the last ones were.
    times_ns: Vec<u64>,
    on_reset: Option<OnReset>,
}

/// The rings of a queue pair that the pair does not use.
struct Berth {
    lanes: Lanes,
    /// Whether the device uses them, since the last reset. Otherwise the pair has left them.
    is_next: bool,
}

impl<R: Registers> Shared<R> {
    /// What the pairs of a device have in common that runs with `features`, has `control` and, for each pair,
    /// `spare` rings.
    pub(super) fn new(
        transport: Transport<R>,
        features: u64,
        control: Option<Control>,
        spare: Vec<Lanes>,
    ) -> Shared<R> {
        let receiving = spare.iter().map(|lanes| lanes.receive.doorbell).collect();
        let berths = spare.into_iter().map(|lanes| Berth { lanes, is_next: false }).collect();
        Shared {
            transport,
            features,
            receiving,
            epoch: AtomicU64::new(0),
            control: Spinlock::new(control),
            resets: Spinlock::new(Resets { berths, times_ns: Vec::new(), on_reset: None }),
        }
    }

    /// The control queue, for one core at a time.
    pub(super) fn control(&self) -> impl DerefMut<Target = Option<Control>> {
        self.control.lock()
    }

    /// Tells the device, which had too few, that a receive queue has buffers again.
    ///
    /// One that spreads frames by a hash may take them from several queues of the host's. QEMU's (7.2) holds
    /// a frame for which there is no buffer back where it took it from, with all that come there later,
    /// until the receive queue of that number is notified, which need not be the one that lacked buffers.
    pub(super) fn notify_receive(&self, doorbell: Doorbell) {
        self.transport.notify(doorbell);
        if self.features & feature::RSS != 0 {
            let others = self.receiving.iter().filter(|other| **other != doorbell);
            others.for_each(|other| self.transport.notify(*other));
        }
    }

    pub(super) fn on_reset(&self, on_reset: OnReset) {
        self.resets.lock().on_reset = Some(on_reset);
    }

    /// Another number after each reset.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    /// Resets the device at `now_ns`, which broke by `cause`, unless it was since `epoch`, and has it use the
    /// rings that no pair uses. Returns whether it did.
    ///
    /// # Errors
    /// [`Error::BrokeOften`]; or if the device is not any more what it was. Nobody uses it then: it was reset
    /// or does not hear.
    pub(super) fn reset(&self, epoch: u64, now_ns: u64, cause: Error) -> Result<bool> {
        let mut resets = self.resets.lock();
        if self.epoch() != epoch {
            return Ok(false);
        }
        resets.times_ns.retain(|time_ns| now_ns.saturating_sub(*time_ns) < MINUTE_NS);
        if resets.times_ns.len() == RESETS_MAX {
            return Err(Error::BrokeOften(1 + RESETS_MAX));
        }
        resets.times_ns.push(now_ns);
        self.begin_anew(&mut resets)?;
        // Whoever sees it finds the rings, under the lock.
        self.epoch.store(epoch + 1, Release);
        let on_reset = resets.on_reset.clone();
        drop(resets);
        on_reset.inspect(|on_reset| on_reset(cause));
        Ok(true)
    }

    fn begin_anew(&self, resets: &mut Resets) -> Result<()> {
        let mut control = self.control.lock();
        self.transport.restart()?;
        let features = self.transport.negotiate(self.features)?;
        if features != self.features {
            return Err(Error::FeaturesRefused(self.features & !features));
        }
        for Berth { lanes, is_next } in &mut resets.berths {
            lanes.receive.enable(&self.transport)?;
            lanes.transmit.enable(&self.transport)?;
            *is_next = true;
        }
        control.as_mut().map_or(Ok(()), |control| control.enable(&self.transport))?;
        self.transport.start();
        control.as_mut().map_or(Ok(()), |control| control.repeat(&self.transport))
    }

    /// Gives pair `number` the rings that the device uses for those that it used before. Returns the epoch
    /// that they are of.
    pub(super) fn take(&self, number: u16, lanes: &mut Lanes) -> u64 {
        let berth = &mut self.resets.lock();
        let epoch = self.epoch.load(Acquire);
        let berth = &mut berth.berths[usize::from(number)];
        if core::mem::take(&mut berth.is_next) {
            core::mem::swap(&mut berth.lanes, lanes);
        }
        epoch
    }
}

impl<R: Registers + fmt::Debug> fmt::Debug for Shared<R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Shared({:?}, {:#x}, epoch {})", self.transport, self.features, self.epoch())
    }
}
