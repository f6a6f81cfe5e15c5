//! Virtqueues (section 2.6): memory that is lent to the device, and comes back with an answer.
//!
//! One type hides which of the two layouts was negotiated. Each chain of descriptors carries a token, the
//! driver's own note about it, which comes back when the device has used the chain. The device's words are
//! checked: an identifier that is not outstanding, or more answers than questions, is counted in [`Errors`];
//! after the latter the queue is broken and says nothing more.

mod chains;
mod packed;
mod split;

use crate::error::{Error, Result};
use crate::memory::Carver;
pub use packed::Packed;
pub use split::Split;

/// The device writes to the memory, rather than reads it (section 2.7.5).
const WRITE: u16 = 2;
/// More descriptors of the chain follow.
const NEXT: u16 = 1;
/// The memory holds a table of descriptors.
const INDIRECT: u16 = 4;

/// Memory that one descriptor lends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    bus: u64,
    bytes: u32,
    flags: u16,
}

impl Descriptor {
    /// `bytes` from `bus` on, for the device to read.
    #[inline]
    pub fn readable(bus: u64, bytes: u32) -> Descriptor {
        Descriptor { bus, bytes, flags: 0 }
    }

    /// `bytes` from `bus` on, for the device to write.
    #[inline]
    pub fn writable(bus: u64, bytes: u32) -> Descriptor {
        Descriptor { bus, bytes, flags: WRITE }
    }

    /// A table of `count` descriptors at `bus`, of [`Queue::table_entry`].
    #[inline]
    pub fn indirect(bus: u64, count: u32) -> Descriptor {
        Descriptor { bus, bytes: count * TABLE_ENTRY as u32, flags: INDIRECT }
    }
}

/// Bytes of one entry of an indirect table.
pub const TABLE_ENTRY: usize = 16;

/// What a device did against the rules of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// It used a chain whose identifier no chain can have.
    pub identifier_out_of_range: u64,
    /// It used a chain that it was not lent.
    pub identifier_not_lent: u64,
    /// It used more chains than it was lent; the queue is broken.
    pub overrun: u64,
}

/// How a queue is laid out and what was negotiated for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its entries: a power of two up to 32768 if it is split.
    pub size: u16,
    /// VIRTIO_F_RING_PACKED.
    pub packed: bool,
    /// VIRTIO_F_RING_EVENT_IDX.
    pub event_index: bool,
}

impl Layout {
    /// Bytes of memory for one queue, the space to align it included.
    pub fn bytes(&self) -> usize {
        if self.packed { packed::bytes(self.size) } else { split::bytes(self.size) }
    }
}

/// Where the device finds a queue: bus addresses of its descriptor, driver and device area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// Descriptor area.
    pub descriptors: u64,
    /// Driver area: the available ring, or the driver's event suppression structure.
    pub driver: u64,
    /// Device area: the used ring, or the device's event suppression structure.
    pub device: u64,
}

/// A virtqueue, driver's side, with tokens of type `T`.
#[derive(Debug)]
pub enum Queue<T> {
    /// Split layout (section 2.7).
    Split(Split<T>),
    /// Packed layout (section 2.8).
    Packed(Packed<T>),
}

macro_rules! either {
    ($self:ident, $queue:ident => $result:expr) => {
        match $self {
            Queue::Split($queue) => $result,
            Queue::Packed($queue) => $result,
        }
    };
}

impl<T> Queue<T> {
    /// An empty queue in memory of `carver`, and where that is. The device may be told once it is negotiated.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is less than [`Layout::bytes`].
    ///
    /// # Panics
    /// If `layout.size` is 0, above 32768, or no power of two for a split queue.
    pub fn new(layout: Layout, carver: &mut Carver) -> Result<(Queue<T>, Areas)> {
        assert!((1..=1 << 15).contains(&layout.size), "a queue of {} entries", layout.size);
        let made = if layout.packed {
            Packed::new(layout, carver).map(|(queue, areas)| (Queue::Packed(queue), areas))
        } else {
            assert!(layout.size.is_power_of_two(), "a split queue of {} entries", layout.size);
            Split::new(layout, carver).map(|(queue, areas)| (Queue::Split(queue), areas))
        };
        made.ok_or(Error::OutOfMemory)
    }

    /// Descriptors that are free.
    #[inline]
    pub fn free(&self) -> usize {
        either!(self, queue => queue.free())
    }

    /// Chains that the device has.
    pub fn lent(&self) -> usize {
        either!(self, queue => queue.lent())
    }

    /// The number, below the size, that the next chain will have; no other chain has it at that time. `None`
    /// if the queue is full.
    #[inline]
    pub fn next_id(&self) -> Option<u16> {
        either!(self, queue => queue.next_id())
    }

    /// Lends a chain to the device, which may not see it before [`Queue::publish`].
    ///
    /// # Errors
    /// Gives the token back if there are fewer free descriptors, or none to lend.
    #[inline]
    pub fn push(&mut self, chain: &[Descriptor], token: T) -> core::result::Result<(), T> {
        either!(self, queue => queue.push(chain, token))
    }

    /// The same with a chain of one descriptor, as most are.
    ///
    /// # Errors
    /// Gives the token back if no descriptor is free.
    #[inline]
    pub fn push_one(&mut self, descriptor: Descriptor, token: T) -> core::result::Result<(), T> {
        match self {
            Queue::Split(queue) => queue.push_one(descriptor, token),
            Queue::Packed(queue) => queue.push(&[descriptor], token),
        }
    }

    /// Entry `index` of an indirect table in the queue's layout; the table is lent as
    /// [`Descriptor::indirect`].
    #[inline]
    pub fn table_entry(&self, descriptor: Descriptor, index: usize, is_last: bool) -> [u8; TABLE_ENTRY] {
        either!(self, queue => queue.table_entry(descriptor, index, is_last))
    }

    /// Shows the device all that was pushed. `true` if it wants to be notified.
    #[inline]
    pub fn publish(&mut self) -> bool {
        either!(self, queue => queue.publish())
    }

    /// Whether the device has used a chain that [`Queue::pop`] has not returned.
    #[inline]
    pub fn is_ready(&self) -> bool {
        either!(self, queue => queue.is_ready())
    }

    /// Whether that is known without looking at what the device writes: chains that were found together with
    /// the last one.
    #[inline]
    pub fn has_seen(&self) -> bool {
        either!(self, queue => queue.has_seen())
    }

    /// The next chain that the device has used: its token, and how many bytes the device says it wrote.
    #[inline]
    pub fn pop(&mut self) -> Option<(T, u32)> {
        either!(self, queue => queue.pop())
    }

    /// Asks for an interrupt when the next chain is used. `false` if one is already: none may come then.
    pub fn arm(&mut self) -> bool {
        either!(self, queue => queue.arm())
    }

    /// Asks for no more interrupts. The device may not see it in time.
    pub fn disarm(&mut self) {
        either!(self, queue => queue.disarm());
    }

    /// What the device did wrong so far.
    pub fn errors(&self) -> Errors {
        either!(self, queue => queue.errors())
    }
}

/// Whether a step of an index from `old` to `new` passes `event` (section 2.7.7.1): the other side wants to
/// hear of it.
#[inline]
fn passes(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests;
