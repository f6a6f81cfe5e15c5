//! Address spaces of programs: the library is the same in all of them.

#[cfg(target_os = "none")]
use super::entry::running_space;
use crate::raw;
use core::sync::atomic::Ordering::Relaxed;
#[cfg(not(target_os = "none"))]
use elsewhere::running_space;
use nom_abi::error::Result;

/// The space in which an application begins.
const FIRST: u64 = 0;

/// An address space in which only what programs have is not the library's: see [`super::memory`], which maps
/// in the one that the core is in.
#[derive(Debug)]
pub struct ProgramSpace {
    number: u64,
}

impl ProgramSpace {
    /// One where nothing of a program's is mapped.
    ///
    /// # Errors
    /// As `space_create` says.
    pub fn new() -> Result<ProgramSpace> {
        // SAFETY: nothing is in it, and no core.
        unsafe { raw::space_create() }.map(|number| ProgramSpace { number })
    }

    /// Has the running core be in it, if it is not.
    ///
    /// # Panics
    /// If the kernel does not know it, which it does until it is dropped.
    pub fn enter(&self) {
        switch(self.number);
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

impl Drop for ProgramSpace {
    fn drop(&mut self) {
        if running_space().load(Relaxed) == self.number {
            switch(FIRST);
        }
        // SAFETY: the kernel refuses one that a core is in, or where anything is mapped: then it stays until
        // the application ends.
        let _ = unsafe { raw::space_end(self.number) };
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
