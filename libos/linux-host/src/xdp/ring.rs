//! The rings that Linux and an XDP socket share: of one entry at a time, from one side to the other.
//!
//! Each has a power of two of entries and two counters that only grow, modulo 2^32: how many entries its
//! producer put in, and how many its consumer took out (Linux, Documentation/networking/af_xdp.rst, "Rings").
//! Who owns a counter stores it with release, after the entries; who reads the other's loads it with acquire,
//! before them.

use rustix::io::Result;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::xdp::XdpRingOffset;
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory that was mapped, until it is dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(map: impl FnOnce(ProtFlags, MapFlags) -> Result<*mut c_void>, bytes: usize) -> Result<Mapping> {
        let start = map(ProtFlags::READ | ProtFlags::WRITE, MapFlags::POPULATE)?;
        let start = NonNull::new(start.cast()).expect("nothing is mapped at address 0");
        Ok(Mapping { start, bytes })
    }

    /// Where the `bytes` at `offset` are, which must lie in it.
    fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let end = offset.checked_add(bytes).expect("no ring is so large");
        assert!(end <= self.bytes, "{bytes} bytes at {offset} of {}", self.bytes);
        // SAFETY: it lies in the mapping, as was asserted.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and all pointers into it are of who owns this.
        let outcome = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(outcome.is_ok(), "what was mapped can be unmapped");
    }
}

/// A ring of `T`, of which both sides know all bytes to be a value.
#[derive(Debug)]
struct Ring<T> {
    mapping: Mapping,
    offsets: XdpRingOffset,
    mask: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// The ring of `entries` entries at `page_offset` of `socket`.
    fn map(socket: &OwnedFd, page_offset: u64, offsets: XdpRingOffset, entries: u32) -> Result<Ring<T>> {
        assert!(entries.is_power_of_two(), "a ring of {entries} entries");
        let bytes = offsets.desc as usize + entries as usize * size_of::<T>();
        // SAFETY: a new mapping, at an address that the kernel chooses, takes nobody's memory.
        let map = |protection, flags| unsafe {
            mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED | flags, socket, page_offset)
        };
        Ok(Ring {
            mapping: Mapping::new(map, bytes)?,
            offsets,
            mask: entries - 1,
            entry: std::marker::PhantomData,
        })
    }

    fn counter(&self, offset: u64) -> &AtomicU32 {
        let counter = self.mapping.at(offset as usize, size_of::<AtomicU32>()).cast();
        // SAFETY: the kernel has an aligned counter of 32 bits there as long as it is mapped, which it, too,
        // only reads and writes whole (condition 5).
        unsafe { counter.as_ref() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.counter(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.counter(self.offsets.consumer)
    }

    /// Where entry number `index` is, counted from the ring's beginning of time.
    fn entry(&self, index: u32) -> NonNull<T> {
        let number = (index & self.mask) as usize;
        self.mapping.at(self.offsets.desc as usize + number * size_of::<T>(), size_of::<T>()).cast()
    }
}

/// A ring into which this program puts what the kernel takes out.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Entries that were ever put in, of which the kernel knows those that were published.
    filled: u32,
}

impl<T: Copy> Producer<T> {
    /// See [`Ring::map`]; `T` is what the kernel has there (condition 5).
    pub fn map(socket: &OwnedFd, page_offset: u64, offsets: XdpRingOffset, entries: u32) -> Result<Self> {
        Ok(Producer { ring: Ring::map(socket, page_offset, offsets, entries)?, filled: 0 })
    }

    /// Entries that the kernel has not taken out.
    pub fn held(&self) -> u32 {
        self.filled.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    /// Puts one in, if there is room; whether there was.
    pub fn push(&mut self, value: T) -> bool {
        if self.held() > self.ring.mask {
            return false;
        }
        // SAFETY: a free entry is nobody's but ours, since the kernel reads none that is not published.
        unsafe { self.ring.entry(self.filled).write(value) };
        self.filled = self.filled.wrapping_add(1);
        true
    }

    /// Lets the kernel see all that was put in.
    pub fn publish(&mut self) {
        self.ring.producer().store(self.filled, Ordering::Release);
    }
}

/// A ring out of which this program takes what the kernel puts in.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Entries that were ever taken out.
    taken: u32,
}

impl<T: Copy> Consumer<T> {
    /// See [`Ring::map`]; `T` is what the kernel has there (condition 5).
    pub fn map(socket: &OwnedFd, page_offset: u64, offsets: XdpRingOffset, entries: u32) -> Result<Self> {
        Ok(Consumer { ring: Ring::map(socket, page_offset, offsets, entries)?, taken: 0 })
    }

    pub fn is_empty(&self) -> bool {
        self.ring.producer().load(Ordering::Acquire) == self.taken
    }

    /// The next one, if one is there.
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the kernel has published it, and does not write it again until it is said to be taken.
        let value = unsafe { self.ring.entry(self.taken).read() };
        self.taken = self.taken.wrapping_add(1);
        self.ring.consumer().store(self.taken, Ordering::Release);
        Some(value)
    }
}

/// The memory of frames that a socket and the kernel lend each other by chunks (UMEM).
#[derive(Debug)]
pub(super) struct Frames(Mapping);

impl Frames {
    /// `bytes` of memory, in whole pages.
    pub fn map(bytes: usize) -> Result<Frames> {
        // SAFETY: a new mapping, at an address that the kernel chooses, takes nobody's memory.
        let map = |protection, flags| unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE | flags)
        };
        Mapping::new(map, bytes).map(Frames)
    }

    /// Its address, for the kernel, and its size in bytes.
    pub fn place(&self) -> (u64, u64) {
        (self.0.start.as_ptr().expose_provenance() as u64, self.0.bytes as u64)
    }

    /// Copies what is at `offset`, which must be in a chunk that the kernel has lent us.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let (from, bytes) = (self.0.at(offset, into.len()), into.len());
        // SAFETY: both are valid for as many bytes, and nobody else's: the kernel writes none of a chunk that
        // is ours, and `into` is none of them, since no reference to a chunk is ever made (condition 6).
        unsafe { from.copy_to_nonoverlapping(NonNull::from(into).cast(), bytes) };
    }

    /// Fills what is at `offset`, which must be in a chunk that is ours.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let to = self.0.at(offset, bytes.len());
        // SAFETY: as for `read`, the other way.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }
}
