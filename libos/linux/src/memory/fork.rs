//! A copy of a process's memory: fork(2). No page is copied before one of both writes to it.

use super::{Backing, Hold, MappedRegion, OnFork, PAGE, ProcessMemory, Run, SharedPages, Sharing};
use alloc::rc::Rc;
use alloc::vec::Vec;
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
        let child = ProcessMemory::new(self.pages.another().ok_or(Errno::ENOMEM)?, self.place());
        let own = &mut *self.state.borrow_mut();
        {
            let copy = &mut *child.state.borrow_mut();
            (copy.regions, copy.heap) = (own.regions.clone(), own.heap.clone());
            let is_left = |region: &MappedRegion| region.on_fork == OnFork::Leave;
            for (range, _) in own.regions.iter().filter(|(_, region)| is_left(region)) {
                copy.regions.remove(range);
            }
        }
        let is_shown =
            |region: &MappedRegion| region.sharing == Sharing::Private && region.on_fork == OnFork::Keep;
        let private: Vec<_> = own.regions.iter().filter(|(_, region)| is_shown(region)).collect();
        // What is shared, and what is kept for whoever runs the same program, the child finds when it touches
        // it: most of it it never does.
        let parts: Vec<_> = private
            .into_iter()
            .flat_map(|(range, region)| {
                let start = range.start;
                let parts = own.runs.overlapping(range);
                parts.filter(move |(part, run)| !region.keeps(&*self.pages, part.start - start, part, run))
            })
            .collect();
        let mut shown = Vec::new();
        child.takes_large.set(self.takes_large.get());
        for (part, run) in parts {
            let run = Run { hold: Hold::Common, ..run };
            let protection = run.allowed(run.protection);
            if protection != run.protection {
                self.pages.protect(part.start, (part.end - part.start) / PAGE, protection);
            }
            let run = Run { protection, ..run };
            own.runs.insert(part.clone(), run.clone());
            shown.push((part, run));
        }
        // The child drops what it has if there is no room for the rest.
        for (part, run) in shown {
            let count = (part.end - part.start) / PAGE;
            if !child.pages.show(part.start, count, run.frame, run.protection) {
                return Err(Errno::ENOMEM);
            }
            child.state.borrow_mut().runs.insert(part, run);
        }
        Ok(child)
    }

    /// Where an address is for all who have it mapped shared: of what, and where in that.
    pub fn shared_word(&self, address: u64) -> Option<(*const SharedPages, u64)> {
        let state = self.state.borrow();
        let (range, region) = state.regions.find(address)?;
        let Backing::Shared(part) = &region.backing else { return None };
        Some((Rc::as_ptr(&part.pages), part.offset + address - range.start))
    }
}
