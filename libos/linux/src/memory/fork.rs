//! A copy of a process's memory: fork(2). No page is copied before one of both writes to it.

use super::{Bad, Hold, MappedRegion, PAGE, ProcessMemory, Run, Sharing, Touch};
use alloc::vec::Vec;
use core::ops::Range;
use nom_fs::Errno;

impl ProcessMemory {
    /// Has the running core be where this memory is, so that its program can go on.
    pub fn enter(&self) {
        self.pages.enter();
    }

    /// The same memory for a child. What is mapped shared both have from now on; of everything else each has
    /// what it writes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn duplicate(&self) -> Result<ProcessMemory, Errno> {
        self.bring_shared()?;
        let child = ProcessMemory::new(self.pages.another().ok_or(Errno::ENOMEM)?, self.place());
        let own = &mut *self.state.borrow_mut();
        {
            let copy = &mut *child.state.borrow_mut();
            (copy.regions, copy.heap) = (own.regions.clone(), own.heap.clone());
        }
        let private: Vec<_> =
            own.regions.iter().filter(|(_, region)| region.sharing == Sharing::Private).collect();
        let parts = private.into_iter().flat_map(|(range, _)| own.runs.overlapping(range));
        for (part, run) in parts.collect::<Vec<_>>() {
            let run = Run { hold: Hold::Common, ..run };
            let protection = run.allowed(run.protection);
            if protection != run.protection {
                self.pages.protect(part.start, (part.end - part.start) / PAGE, protection);
            }
            own.runs.insert(part, Run { protection, ..run });
        }
        // The child drops what it has if there is no room for the rest.
        for (part, run) in own.runs.iter() {
            let count = (part.end - part.start) / PAGE;
            if !child.pages.show(part.start, count, run.frame, run.protection) {
                return Err(Errno::ENOMEM);
            }
            child.state.borrow_mut().runs.insert(part, run.clone());
        }
        Ok(child)
    }

    /// Makes all pages there that are mapped shared: who has them must be able to find them.
    fn bring_shared(&self) -> Result<(), Errno> {
        let shared = |(range, region): (Range<u64>, MappedRegion)| {
            (region.sharing == Sharing::Shared && region.rights.allow(Touch::Read)).then_some(range)
        };
        for range in self.regions().into_iter().filter_map(shared) {
            for page in range.step_by(PAGE as usize) {
                match self.touch(page, Touch::Read) {
                    Ok(()) | Err(Bad::BehindFile) => {}
                    Err(_) => return Err(Errno::ENOMEM),
                }
            }
        }
        Ok(())
    }

    /// Where an address is for all who have it mapped shared: a number that no other such address has.
    pub fn shared_word(&self, address: u64) -> Option<u64> {
        let state = self.state.borrow();
        let (_, region) = state.regions.find(address)?;
        if region.sharing == Sharing::Private {
            return None;
        }
        let (range, run) = state.runs.find(address)?;
        Some(run.frame * PAGE + address - range.start)
    }
}
