//! A process by a descriptor: pidfd_open(2). Its identifier may be another's one day, it never is.

use super::open::Stream;
use super::ready::Events;
use crate::process::Process;
use alloc::rc::Rc;
use core::fmt;
use core::task::Waker;
use nom_fs::{Errno, NodeType};

/// A process, by a descriptor.
pub(crate) struct ProcessDescriptor(Rc<Process>);

impl fmt::Debug for ProcessDescriptor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ProcessDescriptor({})", self.0.id)
    }
}

impl ProcessDescriptor {
    /// One of this process.
    pub fn new(process: Rc<Process>) -> ProcessDescriptor {
        ProcessDescriptor(process)
    }

    /// The process, unless its parent has heard of its end.
    ///
    /// # Errors
    /// `ESRCH`.
    pub fn process(&self) -> Result<Rc<Process>, Errno> {
        let known = self.0.family.process(self.0.id);
        known.filter(|known| Rc::ptr_eq(known, &self.0)).ok_or(Errno::ESRCH)
    }

    /// The identifier that it has or had.
    pub fn id(&self) -> u32 {
        self.0.id
    }
}

impl Stream for ProcessDescriptor {
    fn ready(&self) -> Events {
        Events::IN.when(self.0.has_ended())
    }

    fn wake(&self, waker: &Waker) {
        self.0.end_waiters.add(waker);
    }

    fn kind(&self) -> NodeType {
        NodeType::File
    }

    fn process(&self) -> Option<&ProcessDescriptor> {
        Some(self)
    }
}
