//! Stacks for threads of the runtime.

use crate::memory::Shared;
use core::num::NonZeroUsize;
use corosensei::stack::{MIN_STACK_SIZE, Stack, StackPointer};
use nom_abi::PageSize;
use nom_abi::error::Result;

/// The page below a region, which is never mapped: who overflows a stack faults there.
const GUARD: u64 = PageSize::Small.bytes();

/// The stack of one thread.
#[derive(Debug)]
pub struct ThreadStack(Shared);

impl ThreadStack {
    /// A stack of at least `bytes`.
    ///
    /// # Errors
    /// As `memory_grant` and `memory_map` say.
    pub fn new(bytes: usize) -> Result<ThreadStack> {
        let pages = (bytes.max(MIN_STACK_SIZE) as u64).div_ceil(PageSize::Small.bytes());
        Shared::new(PageSize::Small, pages).map(ThreadStack)
    }

    fn at(&self, address: u64) -> StackPointer {
        NonZeroUsize::new(address as usize).expect("no region is at address 0")
    }
}

// SAFETY: the memory is mapped readable and writable for as long as `self` lives, and handed out to nobody
// else; it has at least MIN_STACK_SIZE bytes, its ends are aligned to pages, and the page below is never
// mapped (`Region::reserve`), so that an overflow is a page fault.
unsafe impl Stack for ThreadStack {
    fn base(&self) -> StackPointer {
        self.at(self.0.region().address() + self.0.region().bytes())
    }

    fn limit(&self) -> StackPointer {
        self.at(self.0.region().address() - GUARD)
    }
}
