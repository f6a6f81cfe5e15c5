//! A device with one queue, on which one request is under way at a time: its core looks for the answer until
//! it is there.

use crate::error::{Error, Result};
use crate::memory::Carver;
use crate::queue::{Descriptor, Layout, Queue};
use crate::transport::{Doorbell, Transport, feature};
use core::sync::atomic::AtomicU64;
use nom_port::device::{Dma, Registers};

/// Looks for an answer before the device is asked whether it broke.
const LOOKS: u32 = 1 << 16;

/// Memory that the device reads or writes, and where it sees that.
pub(crate) type LentWords = (&'static [AtomicU64], u64);

/// So many words of `world`'s memory, for a device.
///
/// # Errors
/// If memory is exhausted.
pub(crate) fn lend(world: &mut impl Dma, words: usize) -> Result<LentWords> {
    carver(world, words * size_of::<u64>())?.words(words).ok_or(Error::OutOfMemory)
}

fn carver(world: &mut impl Dma, bytes: usize) -> Result<Carver> {
    world.allocate(bytes).map(Carver::new).ok_or(Error::OutOfMemory)
}

/// The device, and its queue.
pub(crate) struct PolledDevice<R: Registers> {
    transport: Transport<R>,
    queue: Queue<()>,
    doorbell: Doorbell,
    is_broken: bool,
}

impl<R: Registers> PolledDevice<R> {
    /// Has a device with which these `features` are agreed upon begin, with so many entries of its queue.
    ///
    /// # Errors
    /// If it has no such queue, or memory is exhausted.
    pub fn start(
        transport: Transport<R>,
        features: u64,
        entries: u16,
        world: &mut impl Dma,
    ) -> Result<PolledDevice<R>> {
        if transport.queue_size_max(0)? < entries {
            return Err(Error::NoQueue(0));
        }
        let event_index = features & feature::EVENT_INDEX != 0;
        let layout = Layout { size: entries, packed: false, event_index };
        let (queue, areas) = Queue::new(layout, &mut carver(world, layout.bytes())?)?;
        let doorbell = transport.enable_queue(0, entries, areas, None)?;
        transport.start();
        Ok(PolledDevice { transport, queue, doorbell, is_broken: false })
    }

    /// Lends the device a request with the memory for its answer, and waits until they come back: how many
    /// bytes it says that it has written. `None` if it broke. What broke once is asked nothing any more: an
    /// answer that comes late would be taken for another's.
    pub fn exchange(&mut self, chain: &[Descriptor]) -> Option<u32> {
        if self.is_broken {
            return None;
        }
        self.queue.push(chain, ()).ok()?;
        if self.queue.publish() {
            self.transport.notify(self.doorbell);
        }
        let mut looks = 0_u32;
        loop {
            if let Some(((), written)) = self.queue.pop() {
                return Some(written);
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) && (self.transport.is_broken() || self.queue.errors().overrun > 0)
            {
                self.is_broken = true;
                return None;
            }
            core::hint::spin_loop();
        }
    }
}
