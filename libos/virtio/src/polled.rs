//! A device with one queue, on which one request is waited for at a time: its core looks for the answer until
//! it is there. Others may be under way whose answers nobody needs.

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
    queue: Queue<Place>,
    doorbell: Doorbell,
    is_broken: bool,
    /// Places of requests that are under way, and nobody waits for: a bit each.
    posted: u32,
}

/// Which request it is: none of those that nobody waits for, or one of them.
type Place = Option<u8>;

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
        Ok(PolledDevice { transport, queue, doorbell, is_broken: false, posted: 0 })
    }

    /// Lends the device a request with the memory for its answer, and waits until they come back: how many
    /// bytes it says that it has written. `None` if it broke. What broke once is asked nothing any more: an
    /// answer that comes late would be taken for another's.
    pub fn exchange(&mut self, chain: &[Descriptor]) -> Option<u32> {
        self.push(chain, None)?;
        self.look_until(PolledDevice::answered)
    }

    /// Lends the device a request, and memory for an answer that nobody waits for, in a
    /// [free place](PolledDevice::free_place). `None` if it broke.
    pub fn post(&mut self, chain: &[Descriptor], place: usize) -> Option<()> {
        self.push(chain, Some(place as u8))?;
        self.posted |= 1 << place;
        Some(())
    }

    /// One of so many places, 32 at most, whose request has been answered; waits until there is one. `None`
    /// if the device broke.
    pub fn free_place(&mut self, places: usize) -> Option<usize> {
        self.look_until(|device| {
            // The answer to what is waited for is taken before anything else is asked.
            device.answered();
            Some(device.posted.trailing_ones() as usize).filter(|place| *place < places)
        })
    }

    fn push(&mut self, chain: &[Descriptor], place: Place) -> Option<()> {
        if self.is_broken {
            return None;
        }
        self.queue.push(chain, place).ok()?;
        if self.queue.publish() {
            self.transport.notify(self.doorbell);
        }
        Some(())
    }

    /// Takes what the device has answered, up to the request that is waited for: how many bytes it says that
    /// it has written of that one.
    fn answered(&mut self) -> Option<u32> {
        while let Some((place, written)) = self.queue.pop() {
            match place {
                None => return Some(written),
                Some(place) => self.posted &= !(1 << place),
            }
        }
        None
    }

    /// Looks until it is there; nothing if the device broke.
    fn look_until<T>(&mut self, look: impl Fn(&mut PolledDevice<R>) -> Option<T>) -> Option<T> {
        let mut looks = 0_u32;
        while !self.is_broken {
            let found = look(self);
            if found.is_some() {
                return found;
            }
            looks = looks.wrapping_add(1);
            let is_asked = looks.is_multiple_of(LOOKS);
            self.is_broken = is_asked && (self.transport.is_broken() || self.queue.errors().overrun > 0);
            core::hint::spin_loop();
        }
        None
    }
}
