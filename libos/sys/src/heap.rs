//! The heap: small blocks from the core's own [`Cache`], the largest each from an [`Extent`] of its own, all
//! others from `talc`, which grows and shrinks by extents.
//!
//! Upcall handlers do not allocate: one that does so while the computation it interrupted is allocating
//! ends the program with a message (see [`crate::sync::RawLock`] and [`Cache::take`]).

#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "hosts have their own heap"))]
mod cache;
mod extent;
mod grow;

use crate::local;
use crate::sync::RawLock;
pub(crate) use cache::Cache;
use cache::Class;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use extent::Extent;
use grow::Grow;
use nom_abi::PageSize;
use talc::TalcLock;

/// What all cores share.
static SHARED: Shared = Shared(TalcLock::new(Grow::NOTHING));

/// How often it gave memory back.
static SHRUNK: AtomicU64 = AtomicU64::new(0);

/// The allocator behind all caches, which gives back to the kernel what it has too much of.
struct Shared(TalcLock<RawLock, Grow>);

// SAFETY: what `talc` promises holds: `shrink` takes away only memory of which no block is in use.
unsafe impl GlobalAlloc for Shared {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let mut talc = self.0.lock();
        // SAFETY: the caller's promise.
        unsafe { talc.deallocate(block, layout) };
        if talc.source.is_ample() {
            grow::shrink(&mut talc);
            SHRUNK.fetch_add(1, Relaxed);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { self.0.realloc(block, layout, new_size) }
    }
}

/// Blocks from this size on are mapped and unmapped by themselves. Tables that grow pass through many sizes:
/// in the holes that they leave, small blocks would keep much memory from going back.
const ALONE_BYTES: usize = 256 * 1024;

/// Where a block of some layout comes from.
#[derive(PartialEq, Eq)]
enum Origin {
    Cache(Class),
    Shared,
    Alone,
}

impl Origin {
    #[inline]
    fn of(layout: Layout) -> Origin {
        match Class::of(layout) {
            Some(class) => Origin::Cache(class),
            None if layout.size() < ALONE_BYTES || layout.align() > PageSize::Small.bytes() as usize => {
                Origin::Shared
            }
            None => Origin::Alone,
        }
    }
}

/// The global allocator.
#[derive(Debug)]
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "hosts have their own heap"))]
pub(crate) struct Heap;

// SAFETY: a block comes from the core's cache, the shared heap or an extent of its own by its layout alone,
// and goes back the same way, because the layout is the same; all give memory that nobody else has, as large
// and aligned as the layout demands.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match Origin::of(layout) {
            Origin::Cache(class) => own().take(class, &SHARED),
            // SAFETY: the caller's promise.
            Origin::Shared => unsafe { SHARED.alloc(layout) },
            Origin::Alone => Extent::of_block(layout.size()).map_or(ptr::null_mut(), NonNull::as_ptr),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, that it was allocated with this layout and nobody uses it any more.
        unsafe {
            match Origin::of(layout) {
                Origin::Cache(class) => own().put(block, class, &SHARED),
                Origin::Shared => SHARED.dealloc(block, layout),
                Origin::Alone => Extent::of(block).give_back(),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise about size and alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (Origin::of(layout), Origin::of(new)) {
            (Origin::Shared, Origin::Shared) => {
                // SAFETY: the caller's promise.
                unsafe { SHARED.realloc(block, layout, new_size) }
            }
            (before @ Origin::Cache(_), after) if before == after => block,
            // SAFETY: the new block is another one; both hold the smaller of the two sizes.
            _ => unsafe {
                let moved = self.alloc(new);
                if !moved.is_null() {
                    moved.copy_from_nonoverlapping(block, layout.size().min(new_size));
                    self.dealloc(block, layout);
                }
                moved
            },
        }
    }
}

/// Gives the running core's free blocks back, because it leaves.
pub(crate) fn leave() {
    own().drain(&SHARED);
}

/// Gives the running core's free blocks back if the heap has shrunk since the last time: one of them would
/// keep a whole extent. Called before a core sleeps.
#[inline]
pub(crate) fn settle() {
    own().settle(SHRUNK.load(Relaxed), &SHARED);
}

/// Bytes that the heap has taken and nobody uses, in holes of any size. What cores keep to themselves counts
/// as used.
pub(crate) fn idle() -> u64 {
    SHARED.0.lock().counters().available_bytes as u64
}

/// The running core's cache.
#[inline]
fn own() -> &'static Cache {
    &local::current().cache
}
