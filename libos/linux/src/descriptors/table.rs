//! The descriptors of a process.

use super::open::Description;
use crate::calls::limits::Limits;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use nom_fs::{Errno, LockOwner};

/// What becomes of a descriptor when the process gets another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnExec {
    /// It stays.
    Keep,
    /// It is closed.
    Close,
}

impl OnExec {
    /// As `FD_CLOEXEC`, or a flag that means the same, says.
    pub fn closes_if(flag: u32) -> OnExec {
        if flag != 0 { OnExec::Close } else { OnExec::Keep }
    }
}

#[derive(Clone, Debug)]
struct Slot {
    description: Rc<Description>,
    on_exec: OnExec,
}

/// The descriptors of a process.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// The process whose they are.
    process: u32,
    slots: RefCell<Vec<Option<Slot>>>,
    /// How many there may be, as `RLIMIT_NOFILE` says.
    limit: Cell<u64>,
}

impl Descriptors {
    /// With these from 0 on.
    pub fn new(process: u32, descriptions: impl IntoIterator<Item = Rc<Description>>) -> Descriptors {
        let slot = |description| Some(Slot { description, on_exec: OnExec::Keep });
        let slots = descriptions.into_iter().map(slot).collect();
        let limit = Cell::new(Limits::default().descriptors());
        Descriptors { process, slots: RefCell::new(slots), limit }
    }

    /// Those of a child.
    #[must_use]
    pub fn duplicate(&self, child: u32) -> Descriptors {
        Descriptors { process: child, slots: self.slots.clone(), limit: self.limit.clone() }
    }

    /// A descriptor is gone, and with it all locks that its process has on the file, also by another one
    /// (fcntl(2), "Advisory record locking").
    fn closed(&self, slot: Slot) {
        // Nor is who closes a queue of messages told of any (mq_notify(3)).
        if let Some(queue) = slot.description.stream().and_then(|stream| stream.queue()) {
            queue.forget(self.process);
        }
        if let Some(node) = slot.description.node() {
            node.locks.release_all(node.node, LockOwner::Process(self.process));
        }
    }

    /// How many there may be.
    pub fn limit(&self) -> u64 {
        self.limit.get()
    }

    /// Sets that; those that there are stay.
    pub fn set_limit(&self, limit: u64) {
        self.limit.set(limit);
    }

    /// What a descriptor leads to.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn get(&self, descriptor: i32) -> Result<Rc<Description>, Errno> {
        let slots = self.slots.borrow();
        let slot = usize::try_from(descriptor).ok().and_then(|index| slots.get(index)?.as_ref());
        slot.map(|slot| slot.description.clone()).ok_or(Errno::EBADF)
    }

    /// The lowest descriptor from `first` on that is free, for this.
    ///
    /// # Errors
    /// `EMFILE`; `EINVAL` if `first` is beyond what there may be.
    pub fn add_from(&self, first: i32, description: Rc<Description>, on_exec: OnExec) -> Result<i32, Errno> {
        let limit = self.limit() as usize;
        let first = usize::try_from(first).ok().filter(|first| *first < limit).ok_or(Errno::EINVAL)?;
        let mut slots = self.slots.borrow_mut();
        let index =
            (first..slots.len()).find(|index| slots[*index].is_none()).unwrap_or(slots.len().max(first));
        if index >= limit {
            return Err(Errno::EMFILE);
        }
        if index >= slots.len() {
            slots.resize(index + 1, None);
        }
        slots[index] = Some(Slot { description, on_exec });
        Ok(index as i32)
    }

    /// Errors: `EMFILE` unless there may be one more.
    pub fn check_room(&self) -> Result<(), Errno> {
        let (slots, limit) = (self.slots.borrow(), self.limit() as usize);
        let has_room = slots.len() < limit || slots.iter().take(limit).any(Option::is_none);
        if has_room { Ok(()) } else { Err(Errno::EMFILE) }
    }

    /// The lowest descriptor that is free, for this.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn add(&self, description: Rc<Description>, on_exec: OnExec) -> Result<i32, Errno> {
        self.add_from(0, description, on_exec)
    }

    /// This descriptor for this; what it led to is closed.
    ///
    /// # Errors
    /// `EBADF` if there may be no such descriptor.
    pub fn put(&self, descriptor: i32, description: Rc<Description>, on_exec: OnExec) -> Result<(), Errno> {
        let limit = self.limit() as usize;
        let index = usize::try_from(descriptor).ok().filter(|index| *index < limit).ok_or(Errno::EBADF)?;
        let mut slots = self.slots.borrow_mut();
        if index >= slots.len() {
            slots.resize(index + 1, None);
        }
        let before = slots[index].replace(Slot { description, on_exec });
        // What is closed may look at descriptors.
        drop(slots);
        before.into_iter().for_each(|slot| self.closed(slot));
        Ok(())
    }

    /// Closes a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&self, descriptor: i32) -> Result<(), Errno> {
        let mut slots = self.slots.borrow_mut();
        let index = usize::try_from(descriptor).map_err(|_| Errno::EBADF)?;
        let before = slots.get_mut(index).and_then(Option::take).ok_or(Errno::EBADF)?;
        drop(slots);
        self.closed(before);
        Ok(())
    }

    /// What becomes of a descriptor when the process gets another program.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn on_exec(&self, descriptor: i32) -> Result<OnExec, Errno> {
        let slots = self.slots.borrow();
        let slot = usize::try_from(descriptor).ok().and_then(|index| slots.get(index)?.as_ref());
        slot.map(|slot| slot.on_exec).ok_or(Errno::EBADF)
    }

    /// Sets that.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_on_exec(&self, descriptor: i32, on_exec: OnExec) -> Result<(), Errno> {
        let mut slots = self.slots.borrow_mut();
        let slot = usize::try_from(descriptor).ok().and_then(|index| slots.get_mut(index)?.as_mut());
        slot.map(|slot| slot.on_exec = on_exec).ok_or(Errno::EBADF)
    }

    /// All there are, in order.
    pub fn list(&self) -> Vec<i32> {
        let slots = self.slots.borrow();
        (0..).zip(slots.iter()).filter(|(_, slot)| slot.is_some()).map(|(index, _)| index).collect()
    }

    /// What the library has because of them: `each` for each, and bytes that wait to be read; and because of
    /// those that wait to be received by these.
    pub fn waiting_bytes(&self, each: u64) -> u64 {
        let waiting = |slot: &Slot| {
            let mut bytes = each + slot.description.waiting_bytes();
            if let Some(stream) = slot.description.stream() {
                stream.each_attached(&mut |passed| bytes += each + passed.waiting_bytes());
            }
            bytes
        };
        self.slots.borrow().iter().flatten().map(waiting).sum()
    }

    /// Closes what a new program does not get.
    pub fn close_on_exec(&self) {
        for descriptor in self.list() {
            if self.on_exec(descriptor) == Ok(OnExec::Close) {
                self.close(descriptor).expect("it is in the list");
            }
        }
    }

    /// Closes everything.
    pub fn close_all(&self) {
        let slots = core::mem::take(&mut *self.slots.borrow_mut());
        slots.into_iter().flatten().for_each(|slot| self.closed(slot));
    }
}
