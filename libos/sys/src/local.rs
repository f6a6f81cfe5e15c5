//! What each core of the program knows about itself, behind the GS register: FS is for whatever threads the
//! program has.
//!
//! The block's first word points to the block, as in x86-64 thread-local storage, so that one load finds it.

use crate::events::Kept;
use crate::heap::Cache;
use crate::memory::Pages;
use crate::pause::Pause;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, compiler_fence,
};
use nom_abi::syscall::Segment;
use nom_port::world::HERE_OFFSET;

/// One core's block. It never moves and lives as long as the core's work.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Local {
    this: AtomicPtr<Local>,
    /// The block, too, but null in the handler and while a computation runs that may be interrupted:
    /// [`HERE_OFFSET`].
    here: AtomicPtr<Local>,
    /// The core's number.
    pub core: AtomicU64,
    /// The handler, an [`crate::upcall::Handler`], or null.
    pub handler: AtomicPtr<()>,
    /// Whether the core is in its handler.
    pub is_handling: AtomicBool,
    /// How its work pauses; the first core's does not, since nobody could resume it.
    pub pause: Option<Pause>,
    /// Events that the core was told of while it did not wait, or waited for a lock.
    pub kept: Kept,
    /// The upcall stack, once a handler was registered.
    pub upcall_stack: UnsafeCell<Option<Pages>>,
    /// The base of FS, where the processor has no instruction to ask for it.
    pub thread_pointer: AtomicU64,
    /// What interrupts the running computation, an [`crate::preempt::Interruption`]; null if nothing may.
    interruption: AtomicPtr<()>,
    /// Something happened that would have interrupted a computation, but none was to be.
    pub has_missed: AtomicBool,
    /// The handler that [`crate::preempt`] found, once it listens; null before.
    pub preempts: AtomicPtr<()>,
    /// Where the core goes on when what it does panics, a [`crate::contain::Escape`]; null if nowhere.
    pub escape: AtomicPtr<()>,
    /// How often it has begun something from which it may escape, and what that was at the last alarm.
    pub works: AtomicU64,
    pub works_before: AtomicU64,
    /// Whether an alarm is set that looks whether it comes back.
    pub is_watched: AtomicBool,
    /// Locks that the core has, or waits for. Written by the core alone, outside of its handler.
    pub locks: AtomicU64,
    /// Free blocks of the heap.
    pub cache: Cache,
    /// The program that was made for another kernel, if the core runs one.
    #[cfg(target_os = "none")]
    pub program: crate::program::Slots,
}

const _: () = assert!(offset_of!(Local, here) == HERE_OFFSET, "where drivers look for it");

// SAFETY: `upcall_stack`, like `program.page`, is reached only by the core that the block belongs to, outside
// of its handler,
// and by its owner when the core has left the block; `cache` only by that core; everything else is atomic.
unsafe impl Sync for Local {}

impl Local {
    pub const fn new(pause: Option<Pause>) -> Local {
        Local {
            this: AtomicPtr::new(ptr::null_mut()),
            here: AtomicPtr::new(ptr::null_mut()),
            core: AtomicU64::new(0),
            handler: AtomicPtr::new(ptr::null_mut()),
            is_handling: AtomicBool::new(false),
            pause,
            kept: Kept::new(),
            upcall_stack: UnsafeCell::new(None),
            thread_pointer: AtomicU64::new(0),
            interruption: AtomicPtr::new(ptr::null_mut()),
            has_missed: AtomicBool::new(false),
            preempts: AtomicPtr::new(ptr::null_mut()),
            escape: AtomicPtr::new(ptr::null_mut()),
            works: AtomicU64::new(0),
            works_before: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            locks: AtomicU64::new(0),
            cache: Cache::new(),
            #[cfg(target_os = "none")]
            program: crate::program::Slots::new(),
        }
    }

    /// Makes this the block of the running core, which is `core`.
    ///
    /// # Safety
    /// The block stays where it is for as long as the core runs this program.
    pub unsafe fn install(&self, core: u64) {
        self.this.store(ptr::from_ref(self).cast_mut(), Relaxed);
        self.here.store(ptr::from_ref(self).cast_mut(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.arrive(core) };
    }

    /// What interrupts the running computation.
    pub fn interruption(&self) -> *mut () {
        self.interruption.load(Relaxed)
    }

    /// From now on `interruption` interrupts what runs; nothing does if that is null. Returns what did.
    pub fn set_interruption(&self, interruption: *mut ()) -> *mut () {
        let before = self.interruption();
        if !interruption.is_null() {
            self.here.store(ptr::null_mut(), Relaxed);
        }
        // Nobody has the core to himself while he may be interrupted, nor the other way round.
        compiler_fence(SeqCst);
        self.interruption.store(interruption, Relaxed);
        compiler_fence(SeqCst);
        if interruption.is_null() && !self.is_handling.load(Relaxed) {
            self.here.store(ptr::from_ref(self).cast_mut(), Relaxed);
        }
        before
    }

    /// The core is in its handler from now on.
    pub fn enter_handler(&self) {
        self.is_handling.store(true, Relaxed);
        self.here.store(ptr::null_mut(), Relaxed);
        compiler_fence(SeqCst);
    }

    /// The core is out of its handler, and goes on with what that interrupted.
    pub fn leave_handler(&self) {
        compiler_fence(SeqCst);
        self.is_handling.store(false, Relaxed);
        let itself = ptr::from_ref(self).cast_mut();
        let here = if self.interruption().is_null() { itself } else { ptr::null_mut() };
        self.here.store(here, Relaxed);
    }

    /// Makes this, which was installed, the block of the running core, which is `core`.
    ///
    /// # Safety
    /// As for [`Local::install`]; and no other core has the block.
    pub unsafe fn arrive(&self, core: u64) {
        self.core.store(core, Relaxed);
        // SAFETY: GS is used for nothing but this block, and the caller keeps the block in place. The call
        // fails only outside of user space, where the block is not.
        let _ = unsafe { crate::raw::segment_base(Segment::Core as u64, self.this.load(Relaxed) as u64) };
    }
}

/// The running core's block.
pub(crate) fn current() -> &'static Local {
    let this: *const Local;
    // SAFETY: the entry code of every core installs a block before any other code of the program runs,
    // and the block stays while the core runs; a reference cannot leave the core before that ends,
    // because nothing in this crate hands it on.
    unsafe {
        asm!("mov {}, gs:0", out(reg) this, options(nostack, readonly, preserves_flags));
        &*this
    }
}
