//! The heap: small blocks from the core's own [`Cache`], all others from `talc`, which grows by grants.
//!
//! Upcall handlers do not allocate: one that does so while the computation it interrupted is allocating
//! ends the program with a message (see [`crate::sync::RawLock`] and [`Cache::take`]).

#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "hosts have their own heap"))]
mod cache;
mod grow;

use crate::local;
use crate::sync::RawLock;
pub(crate) use cache::Cache;
use cache::Class;
use core::alloc::{GlobalAlloc, Layout};
use grow::Grow;
use talc::TalcLock;

/// What all cores share.
static SHARED: TalcLock<RawLock, Grow> = TalcLock::new(Grow::NOTHING);

/// The global allocator.
#[derive(Debug)]
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "hosts have their own heap"))]
pub(crate) struct Heap;

// SAFETY: a block comes from the core's cache if its layout has a class, else from the shared heap, and goes
// back the same way, because the layout is the same; both give memory that nobody else has, as large and
// aligned as the layout demands.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match Class::of(layout) {
            Some(class) => own().take(class, &SHARED),
            // SAFETY: the caller's promise.
            None => unsafe { SHARED.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, that it was allocated with this layout.
        unsafe {
            match Class::of(layout) {
                Some(class) => own().put(block, class, &SHARED),
                None => SHARED.dealloc(block, layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise about size and alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (Class::of(layout), Class::of(new)) {
            (None, None) => {
                // SAFETY: the caller's promise.
                unsafe { SHARED.realloc(block, layout, new_size) }
            }
            (before, after) if before == after => block,
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

/// The running core's cache.
#[inline]
fn own() -> &'static Cache {
    &local::current().cache
}
