//! A family: the address spaces of one application. Its library is at the same addresses in all of them, and
//! each has a part for itself ([`OWN_LOW`], [`OWN_HIGH`]).
//!
//! Whatever is not a space's own hangs below entries of its root table that are the same in all of them, so a
//! table is linked everywhere or nowhere; who maps or unmaps there copies the root's entries
//! ([`Kernel::share`]) before the kernel's lock is given up. The family's own frame has the root of each
//! space, by its number.

use crate::frames::Owner;
use crate::ids::AppId;
use crate::kernel::Kernel;
use crate::machine::{Machine, PhysAddr};
use crate::paging::{ENTRIES, ROOT_LEVEL, index};
use crate::space::{Space, entry_address};
use crate::syscalls::{Caller, Reply};
use core::ops::{Range, RangeInclusive};
use nom_abi::PageSize;
use nom_abi::error::{Error, Result};
use nom_abi::layout::{OWN_HIGH, OWN_LOW};
use nom_abi::syscall::arguments::{SpaceCreate, SpaceEnd};

/// Whether an entry of a root table is for what each space has for itself.
fn is_own(entry: &usize) -> bool {
    [const { entries(OWN_LOW) }, const { entries(OWN_HIGH) }].iter().any(|part| part.contains(entry))
}

/// The entries of a root table behind which a range lies.
const fn entries(range: Range<u64>) -> RangeInclusive<usize> {
    index(range.start, ROOT_LEVEL)..=index(range.end - 1, ROOT_LEVEL)
}

impl<M: Machine> Kernel<'_, M> {
    /// Where the root of space `number` is noted. Errors: InvalidArgument (no space can have that number, or
    /// the application has but one).
    fn note(&self, app: AppId, number: u64) -> Result<PhysAddr> {
        let number = usize::try_from(number).ok().filter(|number| *number < ENTRIES);
        let family = self.applications[app].family.ok_or(Error::InvalidArgument)?;
        number.map(|number| entry_address(family, number)).ok_or(Error::InvalidArgument)
    }

    /// Space `number` of an application. Errors: InvalidArgument (there is none).
    pub(crate) fn member(&self, app: AppId, number: u64) -> Result<Space> {
        let root = PhysAddr::new(self.machine.read(self.note(app, number)?));
        Space::noted(root).ok_or(Error::InvalidArgument)
    }

    /// Has all spaces of an application show what `space` shows at `length` bytes of `address`, as far as
    /// that is nobody's own.
    pub(crate) fn share(&mut self, app: AppId, space: Space, address: u64, length: u64) {
        let Some(family) = self.applications[app].family else { return };
        for entry in entries(address..address + length).filter(|entry| !is_own(entry)) {
            let shown = self.machine.read(entry_address(space.root(), entry));
            let mut is_new = false;
            // Not by [`Kernel::member`]: 511 times and more in one hold of the lock.
            for number in 0..ENTRIES {
                let root = PhysAddr::new(self.machine.read(entry_address(family, number)));
                if root == PhysAddr::default() || root == space.root() {
                    continue;
                }
                let there = entry_address(root, entry);
                if !is_new && self.machine.read(there) == shown {
                    break; // All others show the same, then: nothing is new here.
                }
                is_new = true;
                self.machine.write(there, shown);
            }
        }
    }

    /// Does something with the root of each space that an application is in on any core: no processor knows
    /// anything of the others.
    pub(crate) fn for_spaces_in_use(&mut self, app: AppId, act: impl Fn(&mut M, PhysAddr)) {
        for core in self.all_cores() {
            let Ok(space) = self.space_of(core, app) else { continue };
            let mut before = self.all_cores().take_while(|it| *it != core);
            if !before.any(|it| self.space_of(it, app) == Ok(space)) {
                act(&mut self.machine, space.root());
            }
        }
    }

    pub(crate) fn space_create(&mut self, Caller { app, .. }: Caller<'_>, _: SpaceCreate) -> Result<Reply> {
        let first = self.member(app, 0).map_err(|_| Error::NotPermitted)?;
        let number = (0..ENTRIES as u64).find(|number| self.member(app, *number).is_err());
        let number = number.ok_or(Error::TableFull)?;
        let by = &mut self.means(app, Owner::tables);
        let space = Space::new(by, first.root(), |entry| !is_own(entry))?;
        self.machine.write(self.note(app, number)?, space.root().word());
        self.publish_memory(app);
        Ok(Reply::Value(number))
    }

    pub(crate) fn space_end(&mut self, Caller { app, .. }: Caller<'_>, asked: SpaceEnd) -> Result<Reply> {
        let space = self.member(app, asked.space)?;
        if asked.space == 0 {
            return Err(Error::InvalidArgument);
        }
        if self.all_cores().any(|core| self.space_of(core, app) == Ok(space)) {
            return Err(Error::WrongState);
        }
        let is_used = |entry| self.machine.read(entry_address(space.root(), entry)) != 0;
        if (0..ENTRIES).filter(is_own).any(is_used) {
            return Err(Error::StillMapped);
        }
        self.frames.release(Owner::tables(app), space.root().frame(), PageSize::Small, 1)?;
        self.machine.write(self.note(app, asked.space)?, 0);
        self.publish_memory(app);
        Ok(Reply::DONE)
    }
}
