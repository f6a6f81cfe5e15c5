//! Reflection: system calls of programs that were made for another kernel go to their application's library,
//! past this one.
//!
//! The page that is told where such a call was is pinned: it counts one mapping more, so it stays its owner's
//! until the reflection ends.

use crate::frames::Owner;
use crate::ids::{AppId, CoreId};
use crate::kernel::Kernel;
use crate::machine::{Machine, PhysAddr, Reflection};
use crate::paging::Caching;
use crate::space::UserAddr;
use crate::syscalls::{Caller, Reply};
use nom_abi::error::{Error, Result};
use nom_abi::image::flag;
use nom_abi::memory::PageSize;
use nom_abi::syscall::arguments::SyscallReflect;

impl<M: Machine> Kernel<'_, M> {
    pub(crate) fn syscall_reflect(&mut self, caller: Caller<'_>, asked: SyscallReflect) -> Result<Reply> {
        let (Caller { core, app, .. }, SyscallReflect { entry, word }) = (caller, asked);
        if self.record(app).flags & flag::MAKES_CODE == 0 {
            return Err(Error::NotPermitted);
        }
        let reflection = match entry {
            0 => None,
            _ => Some(Reflection { entry: UserAddr::code(entry)?, word: self.pin_word(app, word)? }),
        };
        self.end_reflection(core, app);
        self.context(core, app).reflection = reflection;
        self.machine.reflect(reflection);
        Ok(Reply::DONE)
    }

    /// Where the word at `address` is in memory, whose frame is the application's until it is unpinned.
    fn pin_word(&mut self, app: AppId, address: u64) -> Result<PhysAddr> {
        if !address.is_multiple_of(size_of::<u64>() as u64) {
            return Err(Error::Misaligned);
        }
        let space = self.applications[app].space()?;
        let leaf = space.translate(&self.machine, UserAddr::pointer(address)?).ok_or(Error::BadPointer)?;
        if !leaf.protection.writable() || leaf.caching == Caching::Uncached {
            return Err(Error::BadPointer);
        }
        let word = PhysAddr::of_frame(leaf.frame) + (address - leaf.address);
        self.frames.reference(Owner::grants(app), word.frame(), PageSize::Small, 1)?;
        Ok(word)
    }

    /// Lets go of the word that an application's core had for its reflection. The core itself has forgotten
    /// it before it runs the application again: it is told anew, or unparks a context.
    pub(crate) fn end_reflection(&mut self, core: CoreId, app: AppId) {
        if let Some(Reflection { word, .. }) = self.context(core, app).reflection.take() {
            self.frames.dereference(word.frame(), PageSize::Small, 1);
        }
    }
}
