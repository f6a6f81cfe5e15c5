//! Small free blocks that a core keeps to itself, so that it allocates and frees them without a lock.
//!
//! A thread cache as in TCMalloc ("TCMalloc: Thread-Caching Malloc", Ghemawat and Menage), with a core in the
//! thread's place: lists of free blocks by size, filled from and emptied into the shared heap by batches.
//! A block that another core allocated stays with the core that frees it.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};

/// Sizes are multiples of it, and so are the addresses.
const GRANULE: usize = 16;
/// Bytes of the largest block that is kept.
const BLOCK_MAX: usize = 512;
const CLASSES: usize = BLOCK_MAX / GRANULE;
/// Bytes that are fetched or given back together.
const BATCH_BYTES: usize = 2048;

/// The size of a block, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(usize);

impl Class {
    /// The class that serves `layout`, if it is small.
    #[inline]
    pub fn of(layout: Layout) -> Option<Class> {
        let index = layout.size().wrapping_sub(1) / GRANULE;
        (index < CLASSES && layout.align() <= GRANULE).then_some(Class(index))
    }

    /// What the shared heap is asked for.
    fn layout(self) -> Layout {
        Layout::from_size_align((self.0 + 1) * GRANULE, GRANULE).expect("a small size")
    }

    /// Blocks that are fetched or given back together.
    fn batch(self) -> u32 {
        (BATCH_BYTES / self.layout().size()) as u32
    }
}

/// A free block: its first word leads to the next one.
struct Block {
    next: *mut Block,
}

/// Free blocks of one size.
#[derive(Debug)]
struct List {
    first: Cell<*mut Block>,
    count: Cell<u32>,
}

/// The free blocks of one core.
#[derive(Debug)]
pub(crate) struct Cache {
    lists: [List; CLASSES],
    /// Whether an operation is under way. An upcall handler looks at it between any two instructions, so the
    /// compiler must not move what the lists go through beyond it.
    is_busy: AtomicBool,
    /// How often the shared heap had shrunk when everything was last given back for that.
    settled: Cell<u64>,
}

impl Cache {
    pub const fn new() -> Cache {
        Cache {
            lists: [const { List::new() }; CLASSES],
            is_busy: AtomicBool::new(false),
            settled: Cell::new(0),
        }
    }

    /// A block of `class`; null if `shared` has no more memory.
    ///
    /// # Panics
    /// If an upcall handler allocates while what it interrupted does: the lists are half changed.
    #[inline]
    pub fn take(&self, class: Class, shared: &impl GlobalAlloc) -> *mut u8 {
        self.enter();
        let list = &self.lists[class.0];
        if list.first.get().is_null() {
            list.fill(class, shared);
        }
        let block = list.pop();
        self.leave();
        block.cast()
    }

    /// Keeps a block.
    ///
    /// # Safety
    /// [`Self::take`] of some cache over the same shared heap gave it for the same class, and nobody uses it
    /// any more.
    ///
    /// # Panics
    /// As [`Self::take`].
    #[inline]
    pub unsafe fn put(&self, block: *mut u8, class: Class, shared: &impl GlobalAlloc) {
        self.enter();
        let list = &self.lists[class.0];
        // SAFETY: the block is the caller's to give, and at least as large and aligned as a `Block`.
        unsafe { list.push(block.cast()) };
        let batch = class.batch();
        if list.count.get() > 2 * batch {
            list.empty(batch, class, shared);
        }
        self.leave();
    }

    /// Gives everything back if the shared heap has shrunk since the last time, of now so many.
    #[inline]
    pub fn settle(&self, shrunk: u64, shared: &impl GlobalAlloc) {
        if self.settled.replace(shrunk) != shrunk {
            self.drain(shared);
        }
    }

    /// Gives everything back, because the core leaves.
    pub fn drain(&self, shared: &impl GlobalAlloc) {
        self.enter();
        for (index, list) in self.lists.iter().enumerate() {
            list.empty(list.count.get(), Class(index), shared);
        }
        self.leave();
    }

    /// Whether an operation was interrupted.
    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Relaxed)
    }

    #[inline]
    fn enter(&self) {
        // One core alone looks at it, so that no atomic exchange is needed.
        assert!(!self.is_busy.load(Relaxed), "an upcall handler allocates while what it interrupted does");
        self.is_busy.store(true, Relaxed);
        compiler_fence(SeqCst);
    }

    #[inline]
    fn leave(&self) {
        compiler_fence(SeqCst);
        self.is_busy.store(false, Relaxed);
    }
}

impl List {
    const fn new() -> List {
        List { first: Cell::new(ptr::null_mut()), count: Cell::new(0) }
    }

    /// # Safety
    /// The block is at least as large and aligned as `Block`, and nobody uses it.
    #[inline]
    unsafe fn push(&self, block: *mut Block) {
        // SAFETY: the caller's promise.
        unsafe { block.write(Block { next: self.first.get() }) };
        self.first.set(block);
        self.count.set(self.count.get() + 1);
    }

    /// The first block; null if there is none.
    #[inline]
    fn pop(&self) -> *mut Block {
        let block = self.first.get();
        if !block.is_null() {
            // SAFETY: condition 9: the list leads to blocks that nobody else has.
            self.first.set(unsafe { (*block).next });
            self.count.set(self.count.get() - 1);
        }
        block
    }

    #[cold]
    fn fill(&self, class: Class, shared: &impl GlobalAlloc) {
        for _ in 0..class.batch() {
            // SAFETY: no class is of size zero.
            let block = unsafe { shared.alloc(class.layout()) };
            if block.is_null() {
                return;
            }
            // SAFETY: the heap just gave it, in a class's size, which has room for a word.
            unsafe { self.push(block.cast()) };
        }
    }

    /// Gives `count` blocks back, of at least as many.
    #[cold]
    fn empty(&self, count: u32, class: Class, shared: &impl GlobalAlloc) {
        for _ in 0..count {
            // SAFETY: the block came from the shared heap in this layout.
            unsafe { shared.dealloc(self.pop().cast(), class.layout()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    /// The system's heap, with an account of it, and an end.
    struct Counted {
        held: Cell<usize>,
        most: usize,
    }

    // SAFETY: what the system's heap promises holds; refusing is allowed.
    unsafe impl GlobalAlloc for Counted {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if self.held.get() == self.most {
                return ptr::null_mut();
            }
            self.held.set(self.held.get() + 1);
            // SAFETY: the caller's promise.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            self.held.set(self.held.get() - 1);
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(block, layout) }
        }
    }

    fn class(size: usize) -> Class {
        Class::of(Layout::from_size_align(size, 8).expect("a layout")).expect("small")
    }

    #[test]
    fn a_class_holds_every_size_up_to_its_own() {
        for size in 1..=BLOCK_MAX {
            let layout = class(size).layout();
            assert!(layout.size() >= size && layout.size() < size + GRANULE);
        }
        for (size, align) in [(0, 1), (BLOCK_MAX + 1, 8), (64, 32)] {
            let layout = Layout::from_size_align(size, align).expect("a layout");
            assert_eq!(Class::of(layout), None, "{layout:?}");
        }
    }

    #[test]
    fn what_was_freed_is_what_is_allocated_next_without_the_shared_heap() {
        let shared = Counted { held: Cell::new(0), most: usize::MAX };
        let cache = Cache::new();
        let first = cache.take(class(100), &shared);
        let held = shared.held.get();
        for _ in 0..1000 {
            // SAFETY: it was just taken, and is not used.
            unsafe { cache.put(first, class(100), &shared) };
            assert_eq!(cache.take(class(100), &shared), first);
        }
        assert_eq!(shared.held.get(), held, "no block was fetched or given back");
        // SAFETY: as above.
        unsafe { cache.put(first, class(100), &shared) };
        cache.drain(&shared);
        assert_eq!(shared.held.get(), 0);
    }

    #[test]
    fn blocks_that_one_core_frees_for_another_go_back_to_the_shared_heap() {
        let shared = Counted { held: Cell::new(0), most: usize::MAX };
        let (from, to) = (Cache::new(), Cache::new());
        let kept = 2 * class(64).batch() as usize;
        for _ in 0..10 * kept {
            let block = from.take(class(64), &shared);
            // SAFETY: it was just taken, and is not used.
            unsafe {
                block.write_bytes(0xff, 64);
                to.put(block, class(64), &shared);
            }
            assert!(shared.held.get() <= 2 * kept, "{} blocks pile up", shared.held.get());
        }
        from.drain(&shared);
        to.drain(&shared);
        assert_eq!(shared.held.get(), 0);
    }

    #[test]
    fn a_core_keeps_nothing_of_a_heap_that_has_shrunk() {
        let shared = Counted { held: Cell::new(0), most: usize::MAX };
        let cache = Cache::new();
        let block = cache.take(class(64), &shared);
        // SAFETY: it was just taken, and is not used.
        unsafe { cache.put(block, class(64), &shared) };
        let held = shared.held.get();
        cache.settle(0, &shared);
        assert_eq!(shared.held.get(), held, "it has not shrunk");
        cache.settle(1, &shared);
        assert_eq!(shared.held.get(), 0);
        cache.take(class(64), &shared);
        cache.settle(1, &shared);
        assert!(shared.held.get() > 0, "it has not shrunk again");
    }

    #[test]
    fn an_exhausted_heap_gives_null_and_what_is_there() {
        let shared = Counted { held: Cell::new(0), most: 3 };
        let cache = Cache::new();
        let blocks: Vec<*mut u8> = (0..4).map(|_| cache.take(class(512), &shared)).collect();
        assert!(blocks[..3].iter().all(|block| !block.is_null()) && blocks[3].is_null());
        for block in &blocks[..3] {
            // SAFETY: they were taken, and are not used.
            unsafe { cache.put(*block, class(512), &shared) };
        }
        cache.drain(&shared);
        assert_eq!(shared.held.get(), 0);
    }

    #[test]
    #[should_panic(expected = "an upcall handler allocates")]
    fn an_operation_within_another_is_refused() {
        let cache = Cache::new();
        cache.enter();
        cache.take(class(16), &System);
    }
}
