//! Memory that a device reaches: words of a ring, which both sides change, and slots, which at any moment are
//! one side's.
//!
//! All unsafe code of the crate is here. `docs/safety/libos-virtio.md` has the argument; its conditions are
//! referred to by number.

mod trim;

pub use trim::TrimBudget;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence};
use nom_port::buffer::Buffer;
use nom_port::device::DmaBlock;

/// An atomic word: memory that holds one is valid whatever the device writes there.
///
/// # Safety
/// Every bit pattern is a value of the type, and its alignment is its size.
pub unsafe trait Word: 'static {}

// SAFETY: an atomic integer has the size, alignment and bit validity of the integer.
unsafe impl Word for AtomicU16 {}
// SAFETY: as above.
unsafe impl Word for AtomicU32 {}
// SAFETY: as above.
unsafe impl Word for AtomicU64 {}

/// The part of a block that nobody uses yet, given out from its front.
#[derive(Debug)]
pub struct Carver {
    next: NonNull<u8>,
    bus: u64,
    left: usize,
    taken: usize,
}

// SAFETY: it is the only way to its memory (condition 1), so it may move to another core.
unsafe impl Send for Carver {}

impl Carver {
    /// Begins with all of `block`, which belongs to whoever has it.
    pub fn new(block: DmaBlock) -> Carver {
        Carver { next: block.pointer, bus: block.bus, left: block.bytes, taken: 0 }
    }

    /// Begins again, with words that are 0. Who still has some of those that were given out shares them.
    pub fn rewind(&mut self) {
        // SAFETY: as many bytes before it are inside the block, from which they were given out.
        self.next = unsafe { self.next.sub(self.taken) };
        self.bus -= self.taken as u64;
        self.left += self.taken;
        self.taken = 0;
        let (next, bus) = (self.next, self.bus);
        let words = self.words::<AtomicU64>(self.left / size_of::<u64>());
        words.iter().flat_map(|(words, _)| words.iter()).for_each(|word| word.store(0, Relaxed));
        (self.next, self.bus, self.left) = (next, bus, self.left + core::mem::take(&mut self.taken));
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Gives out `bytes` as they come; `None` if there are not that many.
    fn take(&mut self, bytes: usize) -> Option<(NonNull<u8>, u64)> {
        let left = self.left.checked_sub(bytes)?;
        let taken = (self.next, self.bus);
        // SAFETY: `bytes` more are inside the block (condition 1), or the result is one past its end.
        self.next = unsafe { self.next.add(bytes) };
        self.bus += bytes as u64;
        self.left = left;
        self.taken += bytes;
        Some(taken)
    }

    /// Leaves out bytes until bus address and pointer are `offset` behind a multiple of `align`, a power of
    /// two up to 4096; `None` if there are not enough.
    pub fn align(&mut self, align: usize, offset: usize) -> Option<()> {
        let excess = self.next.as_ptr().addr().wrapping_sub(offset) & (align - 1);
        self.take((align - excess) & (align - 1)).map(drop)
    }

    /// The next `count` words, with the bus address of the first; `None` if the block is used up or the place
    /// not aligned to a word.
    pub fn words<W: Word>(&mut self, count: usize) -> Option<(&'static [W], u64)> {
        if !self.next.as_ptr().addr().is_multiple_of(size_of::<W>()) {
            return None;
        }
        let (pointer, bus) = self.take(count.checked_mul(size_of::<W>())?)?;
        // SAFETY: the memory is inside the block, initialised, there for ever and nobody else's but for
        // atomic accesses and the device's (condition 1); it is aligned, as was checked; any value is valid.
        Some((unsafe { core::slice::from_raw_parts(pointer.cast().as_ptr(), count) }, bus))
    }
}

/// A range of device-reachable memory and who uses it. Places live for ever; their memory is another one
/// after their list gave it back.
///
/// The memory is written only through the one `Slot` of a place, and read by other cores only through handles
/// that were made of that slot (condition 2), which reach them by something that orders memory, as whatever
/// sends a value to another core does. So does where it is: only the list changes that.
struct Place {
    data: AtomicPtr<u8>,
    bus: AtomicU64,
    bytes: u32,
    /// Bytes from its start that handles show.
    filled: AtomicU32,
    /// Handles on it; of no meaning while it is free or a [`Slot`].
    count: AtomicUsize,
    /// The next free place.
    next: AtomicPtr<Place>,
    returned: &'static Returned,
    tract: &'static Tract,
}

/// What the places of one block have in common.
#[derive(Default)]
struct Tract {
    /// Whether the block could be given back if the little that is in use there lay elsewhere.
    is_sparse: AtomicBool,
    /// Those of its places that are free, and how many: while their list sorts them.
    first: AtomicPtr<Place>,
    free: AtomicUsize,
}

/// A block that was cut into places.
struct Cut {
    block: DmaBlock,
    places: &'static [Place],
    tract: &'static Tract,
}

impl Place {
    /// Where it begins. Whoever has its slot or a handle knows that it has memory.
    #[inline]
    fn data(&self) -> NonNull<u8> {
        let data = self.data.load(Relaxed);
        // SAFETY: a place was given memory before it came into a list, and so before anybody had it
        // (condition 4).
        unsafe { NonNull::new_unchecked(data) }
    }
}

/// What names the core that runs, for as long as nobody else of it comes in between; 0 if somebody may.
#[inline]
fn here() -> usize {
    #[cfg(target_os = "none")]
    {
        let here: usize;
        // SAFETY: the world keeps such a word there.
        unsafe {
            core::arch::asm!(
                "mov {}, gs:[{offset}]",
                out(reg) here,
                offset = const nom_port::world::HERE_OFFSET,
                options(nostack, readonly, preserves_flags),
            );
        }
        here
    }
    #[cfg(not(target_os = "none"))]
    {
        // A core is a thread there.
        std::thread_local! { static HERE: u8 = const { 0 } }
        HERE.with(|here| ptr::from_ref(here).addr())
    }
}

/// The owner of a list that nobody has alone.
const NOBODY: usize = usize::MAX;

/// Places that came back. What the [`FreeList`]'s own core gives back is a list that it puts and takes
/// without locking memory; what others do is another, from which only that core takes, and all at once, so
/// that it cannot mistake a place that went and came back for one that stayed.
struct Returned {
    /// What names the list's core.
    owner: usize,
    /// Whether the list's owner found none and could not make more.
    scarce: AtomicBool,
    own: Own,
    first: AtomicPtr<Place>,
}

/// The first place that the list's own core gave back: on a line of its own, which others do not take away.
#[derive(Default)]
#[repr(align(64))]
struct Own(AtomicPtr<Place>);

impl Returned {
    /// Of the core that runs.
    fn new() -> Returned {
        let owner = Some(here()).filter(|here| *here != 0).unwrap_or(NOBODY);
        let (scarce, own, first) = Default::default();
        Returned { owner, scarce, own, first }
    }

    #[inline]
    fn put(&self, place: &'static Place) {
        if here() == self.owner {
            place.next.store(self.own.0.load(Relaxed), Relaxed);
            self.own.0.store(ptr::from_ref(place).cast_mut(), Relaxed);
        } else {
            self.put_from_elsewhere(place);
        }
    }

    #[inline(never)]
    fn put_from_elsewhere(&self, place: &'static Place) {
        let mut first = self.first.load(Relaxed);
        loop {
            place.next.store(first, Relaxed);
            let place = ptr::from_ref(place).cast_mut();
            // Whoever takes the place sees that its handles have been done with.
            match self.first.compare_exchange_weak(first, place, Release, Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// What the list's core gave back, or, if that is nothing, what others did. Only for that core.
    #[inline]
    fn take(&self) -> *mut Place {
        let own = self.own.0.load(Relaxed);
        if own.is_null() {
            return self.take_from_elsewhere();
        }
        self.own.0.store(ptr::null_mut(), Relaxed);
        own
    }

    #[inline]
    fn take_from_elsewhere(&self) -> *mut Place {
        // The look before saves the core from taking the line away from the others for nothing.
        if self.first.load(Relaxed).is_null() {
            return ptr::null_mut();
        }
        self.first.swap(ptr::null_mut(), Acquire)
    }
}

/// Places that nobody uses. It belongs to the core that made it, though places may be given back on any.
pub struct FreeList {
    first: Cell<*mut Place>,
    returned: &'static Returned,
    /// The blocks behind all its places, in use or not.
    cuts: Vec<Cut>,
    /// Places whose block was given back.
    bare: Vec<&'static [Place]>,
}

impl Default for FreeList {
    fn default() -> FreeList {
        // Handles may outlive the list.
        let returned = Box::leak(Box::new(Returned::new()));
        FreeList { first: Cell::default(), returned, cuts: Vec::new(), bare: Vec::new() }
    }
}

impl FreeList {
    /// Cuts a block, which belongs to whoever has it, into as many slots of `bytes` as there is room for, all
    /// of them free.
    pub fn add(&mut self, block: DmaBlock, bytes: u32) {
        assert!(bytes > 0, "slots of nothing have no end");
        let count = block.bytes / bytes as usize;
        if count == 0 {
            return;
        }
        let fits = |places: &&[Place]| places.len() == count && places[0].bytes == bytes;
        let places = match self.bare.iter().position(fits) {
            Some(index) => self.bare.swap_remove(index),
            None => self.places(count, bytes),
        };
        let tract = places[0].tract;
        tract.is_sparse.store(false, Relaxed);
        for (index, place) in places.iter().enumerate().rev() {
            let offset = index * bytes as usize;
            place.data.store(block.pointer.as_ptr().wrapping_add(offset), Relaxed);
            place.bus.store(block.bus + offset as u64, Relaxed);
            self.put(place);
        }
        self.cuts.push(Cut { block, places, tract });
    }

    /// So many places of this list without memory.
    fn places(&self, count: usize, bytes: u32) -> &'static [Place] {
        let tract = &*Box::leak(Box::<Tract>::default());
        let place = || Place {
            data: AtomicPtr::default(),
            bus: AtomicU64::default(),
            bytes,
            filled: AtomicU32::default(),
            count: AtomicUsize::default(),
            next: AtomicPtr::default(),
            returned: self.returned,
            tract,
        };
        Vec::leak(core::iter::repeat_with(place).take(count).collect())
    }

    /// Takes a slot, if one is free.
    #[inline]
    pub fn take(&self) -> Option<Slot> {
        let mut first = self.first.get();
        if first.is_null() {
            first = self.returned.take();
        }
        let place = place(first)?;
        self.first.set(place.next.load(Relaxed));
        Some(Slot(place))
    }

    /// Says on every buffer of the list's whether there are too few of them.
    pub fn set_scarce(&self, is_scarce: bool) {
        self.returned.scarce.store(is_scarce, Relaxed);
    }

    fn put(&self, place: &'static Place) {
        place.next.store(self.first.get(), Relaxed);
        self.first.set(ptr::from_ref(place).cast_mut());
    }

    /// How many are free; takes as long as there are many.
    pub fn count(&self) -> usize {
        let from =
            |first| core::iter::successors(place(first), |free| place(free.next.load(Relaxed))).count();
        from(self.first.get())
            + from(self.returned.own.0.load(Relaxed))
            + from(self.returned.first.load(Acquire))
    }
}

/// The place of a list, if it has one.
#[inline]
fn place(pointer: *mut Place) -> Option<&'static Place> {
    // SAFETY: lists hold only what `put` made of a reference to a place, and places live for ever and are
    // never referred to exclusively.
    unsafe { pointer.as_ref() }
}

impl fmt::Debug for FreeList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FreeList({})", self.count())
    }
}

/// Memory that is the driver's alone, or that the driver has lent to the device. Dropped, it is free.
pub struct Slot(&'static Place);

impl Slot {
    /// Where the device sees it.
    #[inline]
    pub fn bus(&self) -> u64 {
        self.0.bus.load(Relaxed)
    }

    /// Its length.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.0.bytes
    }

    /// Copies `source` to `offset`.
    ///
    /// # Panics
    /// If it does not fit.
    #[inline]
    pub fn write(&mut self, offset: usize, source: &[u8]) {
        let end = offset.checked_add(source.len()).expect("a place and a length in memory");
        assert!(end <= self.0.bytes as usize, "{end} bytes into a slot of {}", self.0.bytes);
        // SAFETY: the range is inside the place, as was checked; no handle refers to it and no other slot
        // does (condition 2), so `source` is other memory.
        unsafe {
            self.0.data().add(offset).copy_from_nonoverlapping(NonNull::from(source).cast(), source.len())
        };
    }

    /// All of it, to be written.
    #[inline]
    pub fn memory(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are the place, initialised (condition 1). No handle refers to it and no other
        // slot does (condition 2), and this one is borrowed for as long as they are lent; what of it the
        // device was lent it only reads, or the driver does not touch before it comes back (condition 3).
        unsafe { core::slice::from_raw_parts_mut(self.0.data().as_ptr(), self.0.bytes as usize) }
    }

    /// Copies what lies at `offset` into `target`: for tests and small answers of the device.
    ///
    /// # Panics
    /// If there is not that much.
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        let end = offset.checked_add(target.len()).expect("a place and a length in memory");
        assert!(end <= self.0.bytes as usize, "{end} bytes out of a slot of {}", self.0.bytes);
        // SAFETY: the range is inside the place, as was checked, and initialised (condition 1).
        unsafe {
            self.0.data().add(offset).copy_to_nonoverlapping(NonNull::from(&mut *target).cast(), target.len())
        };
    }

    /// The first `bytes` of it, or all if there are fewer, as a handle that can be cloned and kept. From now
    /// on nobody writes there, until the last handle is dropped and the place is free.
    #[inline]
    pub fn share(self, bytes: u32) -> DmaBuffer {
        let place = self.0;
        core::mem::forget(self);
        place.count.store(1, Relaxed);
        place.filled.store(bytes.min(place.bytes), Relaxed);
        DmaBuffer(place)
    }
}

impl Drop for Slot {
    #[inline]
    fn drop(&mut self) {
        self.0.returned.put(self.0);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Slot({:#x}, {} bytes)", self.bus(), self.0.bytes)
    }
}

/// A counted handle on memory that a device filled, or that it is to read. It may go to any core; when the
/// last handle is dropped, wherever that is, the memory goes back to its pool.
pub struct DmaBuffer(&'static Place);

impl DmaBuffer {
    /// Where the device sees its first byte.
    #[inline]
    pub fn bus(&self) -> u64 {
        self.0.bus.load(Relaxed)
    }

    /// Handles on the same memory, this one included.
    pub fn handles(&self) -> usize {
        self.0.count.load(Relaxed)
    }
}

impl Clone for DmaBuffer {
    #[inline]
    fn clone(&self) -> DmaBuffer {
        // It cannot overflow: that takes 2^64 clones, one instruction each at the least.
        self.0.count.fetch_add(1, Relaxed);
        DmaBuffer(self.0)
    }
}

impl Drop for DmaBuffer {
    #[inline]
    fn drop(&mut self) {
        // The only handle stays the only one: nobody else is there to clone it. That is the usual case, and
        // saves an atomic operation.
        if self.0.count.load(Acquire) == 1 || self.0.count.fetch_sub(1, Release) == 1 {
            // What was read through other handles was read before the memory is written again.
            fence(Acquire);
            self.0.returned.put(self.0);
        }
    }
}

impl AsRef<[u8]> for DmaBuffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the bytes are inside the place, which `share` saw to, and initialised (condition 1); while
        // there are handles nobody writes there (conditions 2 and 3), and the memory is not given back
        // (condition 4).
        unsafe { core::slice::from_raw_parts(self.0.data().as_ptr(), self.0.filled.load(Relaxed) as usize) }
    }
}

impl Buffer for DmaBuffer {
    fn pinned(&self) -> usize {
        self.0.bytes as usize
    }

    fn is_scarce(&self) -> bool {
        self.0.returned.scarce.load(Relaxed)
    }

    fn is_sparse(&self) -> bool {
        self.0.tract.is_sparse.load(Relaxed)
    }

    #[inline]
    fn memory(&mut self) -> Option<&mut [u8]> {
        // What other cores read through handles that are gone was read before.
        if self.0.count.load(Acquire) != 1 {
            return None;
        }
        self.0.filled.store(self.0.bytes, Relaxed);
        // SAFETY: the bytes are the place, initialised (condition 1). This is its only handle, borrowed for
        // as long as they are lent, so that nobody else reads or makes another (condition 2); the device has
        // only what a handle of its queue keeps (condition 3).
        Some(unsafe { core::slice::from_raw_parts_mut(self.0.data().as_ptr(), self.0.bytes as usize) })
    }
}

impl fmt::Debug for DmaBuffer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DmaBuffer({:#x}, {} bytes)", self.bus(), self.0.filled.load(Relaxed))
    }
}

#[cfg(test)]
mod tests;
