//! Address spaces of programs: the library is the same in all of them.

#[cfg(target_os = "none")]
use super::entry::running_space;
use crate::raw;
use crate::sync::Mutex;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
#[cfg(not(target_os = "none"))]
use elsewhere::running_space;
use nom_abi::error::Result;

/// The space in which an application begins.
const FIRST: u64 = 0;

/// Spaces that nobody has any more, but that a core was in when the last went: to be ended later.
static LEFT: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// An address space in which only what programs have is not the library's: see [`super::memory`], which maps
/// in the one that the core is in. Clones are the same one, which ends with the last.
#[derive(Clone, Debug)]
pub struct ProgramSpace(Arc<Number>);

#[derive(Debug)]
struct Number(u64);

/// Which space a core is in: never that of another one that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceNumber(u64);

impl SpaceNumber {
    /// Of no space.
    pub const NONE: SpaceNumber = SpaceNumber(u64::MAX);

    /// Of the one that the running core is in.
    #[inline]
    pub fn running() -> SpaceNumber {
        SpaceNumber(running_space().load(Relaxed))
    }
}

impl ProgramSpace {
    /// One where nothing of a program's is mapped.
    ///
    /// # Errors
    /// As `space_create` says.
    pub fn new() -> Result<ProgramSpace> {
        LEFT.lock().retain(|number| !end(*number));
        // SAFETY: nothing is in it, and no core.
        unsafe { raw::space_create() }.map(|number| ProgramSpace(Arc::new(Number(number))))
    }

    /// Has the running core be in it, if it is not.
    ///
    /// # Panics
    /// If the kernel does not know it, which it does until it is dropped.
    pub fn enter(&self) {
        switch(self.0.0);
    }

    /// Has the running core be in none of programs.
    pub fn leave() {
        switch(FIRST);
    }

    /// Whether both are the same.
    pub fn is(&self, other: &ProgramSpace) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

fn switch(number: u64) {
    let space = running_space();
    if space.load(Relaxed) != number {
        // SAFETY: only what is where programs are becomes another's, and nothing of Rust's lies there.
        unsafe { raw::space_switch(number) }.expect("a space that was made and has not ended");
        space.store(number, Relaxed);
    }
}

/// Ends a space; the kernel refuses one that a core is in, or where anything is mapped: whether it did not.
fn end(number: u64) -> bool {
    // SAFETY: nobody has it any more.
    unsafe { raw::space_end(number) }.is_ok()
}

impl Drop for Number {
    fn drop(&mut self) {
        if running_space().load(Relaxed) == self.0 {
            ProgramSpace::leave();
        }
        if !end(self.0) {
            LEFT.lock().push(self.0);
        }
    }
}

#[cfg(not(target_os = "none"))]
mod elsewhere {
    use core::sync::atomic::AtomicU64;

    pub(super) fn running_space() -> &'static AtomicU64 {
        static SPACE: AtomicU64 = AtomicU64::new(super::FIRST);
        &SPACE
    }
}
