//! What shared memory, semaphores and messages of System V have in common: keys, owners, permissions
//! (sysvipc(7)).

use crate::call::Call;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use nom_fs::Errno;

/// A key that finds nothing.
pub(super) const IPC_PRIVATE: i32 = 0;
pub(super) const IPC_CREAT: u32 = 0o1000;
pub(super) const IPC_EXCL: u32 = 0o2000;
/// In the flags of an operation: it does not wait.
pub(super) const IPC_NOWAIT: u32 = 0o4000;
/// Commands of shmctl(2), semctl(2) and msgctl(2).
pub(super) const IPC_RMID: u32 = 0;
pub(super) const IPC_SET: u32 = 1;
pub(super) const IPC_STAT: u32 = 2;
const MODE: u32 = 0o777;
/// What is wanted of an object.
pub(super) const READ: u32 = 0o4;
pub(super) const ALTER: u32 = 0o2;

/// Whose something is, and who may do what with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Permissions {
    key: i32,
    mode: u32,
    /// User and group: whose it is, and who made it.
    owner: (u32, u32),
    creator: (u32, u32),
}

impl Permissions {
    /// Of something that the caller makes.
    pub fn new(call: &Call<'_>, key: i32, flags: u32) -> Permissions {
        let view = call.process().view.borrow();
        let owner = (view.credentials.user, view.credentials.group);
        Permissions { key, mode: flags & MODE, owner, creator: owner }
    }

    /// Whether a key that is not private finds it.
    pub fn has_key(&self, key: i32) -> bool {
        key != IPC_PRIVATE && self.key == key
    }

    /// No key finds it any more.
    pub fn forget_key(&mut self) {
        self.key = IPC_PRIVATE;
    }

    /// Errors: EACCES if the caller may not do that.
    pub fn check(&self, call: &Call<'_>, wanted: u32) -> Result<(), Errno> {
        let view = call.process().view.borrow();
        let credentials = &view.credentials;
        let triple = match () {
            () if [self.owner.0, self.creator.0].contains(&credentials.user) => self.mode >> 6,
            () if credentials.is_in(self.owner.1) || credentials.is_in(self.creator.1) => self.mode >> 3,
            () => self.mode,
        };
        if credentials.is_root() || triple & wanted == wanted { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Errors: EACCES if the caller may not do what flags with a mode name, for whomever they name it.
    pub fn check_flags(&self, call: &Call<'_>, flags: u32) -> Result<(), Errno> {
        self.check(call, (flags | flags >> 3 | flags >> 6) & (READ | ALTER))
    }

    /// Errors: EPERM unless the caller is root or has it.
    pub fn check_owner(&self, call: &Call<'_>) -> Result<(), Errno> {
        let user = call.process().user();
        if user == 0 || [self.owner.0, self.creator.0].contains(&user) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// `struct ipc64_perm`.
    pub fn words(&self) -> [u64; 6] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let (owner, creator) = (self.owner, self.creator);
        [pair(self.key as u32, owner.0), pair(owner.1, creator.0), pair(creator.1, self.mode), 0, 0, 0]
    }

    /// Takes owner and mode from what begins as `struct ipc64_perm` at an address.
    pub fn set(&mut self, call: &Call<'_>, address: u64) -> Result<(), Errno> {
        let [_, user, group, _, _, mode]: [u32; 6] = call.memory().read_value(address)?;
        (self.owner, self.mode) = ((user, group), mode & MODE);
        Ok(())
    }
}

/// Seconds since 1970.
pub(super) fn now(call: &Call<'_>) -> u64 {
    call.now().0 / 1_000_000_000
}

/// Objects of a kind, by their identifiers.
#[derive(Debug)]
pub(super) struct Objects<T> {
    all: RefCell<BTreeMap<i32, Rc<T>>>,
    next: Cell<i32>,
}

impl<T> Default for Objects<T> {
    fn default() -> Objects<T> {
        Objects { all: RefCell::default(), next: Cell::new(0) }
    }
}

/// Something that has a key.
pub(super) trait Keyed {
    /// How many there may be: they are the library's memory, and nobody is charged for them.
    const MOST: usize;
    /// Who may do what with it.
    fn permissions(&self) -> &Cell<Permissions>;
}

impl<T: Keyed> Objects<T> {
    /// The one with this identifier. Errors: EINVAL.
    pub fn get(&self, id: i32) -> Result<Rc<T>, Errno> {
        self.all.borrow().get(&id).cloned().ok_or(Errno::EINVAL)
    }

    /// Takes one away. Errors: EINVAL; EPERM.
    pub fn remove(&self, call: &Call<'_>, id: i32) -> Result<Rc<T>, Errno> {
        let object = self.get(id)?;
        object.permissions().get().check_owner(call)?;
        self.all.borrow_mut().remove(&id);
        Ok(object)
    }

    /// Forgets all but those that `keep` wants.
    pub fn retain(&self, keep: impl Fn(&T) -> bool) {
        self.all.borrow_mut().retain(|_, object| keep(object));
    }

    /// All of them.
    pub fn list(&self) -> alloc::vec::Vec<Rc<T>> {
        self.all.borrow().values().cloned().collect()
    }

    /// The identifier of the one with a key, which is made if the flags say so. Errors: ENOENT, EEXIST,
    /// EACCES; ENOSPC; what `fits` says of the one that is there, and `make`.
    pub fn find_or_make(
        &self,
        call: &Call<'_>,
        (key, flags): (i32, u32),
        fits: impl FnOnce(&T) -> Result<(), Errno>,
        make: impl FnOnce(Permissions) -> Result<T, Errno>,
    ) -> Result<u64, Errno> {
        if let Some((id, object)) = self.find(key) {
            if flags & (IPC_CREAT | IPC_EXCL) == IPC_CREAT | IPC_EXCL {
                return Err(Errno::EEXIST);
            }
            fits(&object)?;
            object.permissions().get().check_flags(call, flags)?;
            return Ok(id as u64);
        }
        if key != IPC_PRIVATE && flags & IPC_CREAT == 0 {
            return Err(Errno::ENOENT);
        }
        self.add(|| make(Permissions::new(call, key, flags))).map(|id| id as u64)
    }

    /// One more: its identifier. Errors: ENOSPC if there are as many as there may be; what `make` says.
    pub(super) fn add(&self, make: impl FnOnce() -> Result<T, Errno>) -> Result<i32, Errno> {
        let object = make()?;
        if self.all.borrow().len() >= T::MOST {
            return Err(Errno::ENOSPC);
        }
        let id = self.next.replace(self.next.get() + 1);
        self.all.borrow_mut().insert(id, Rc::new(object));
        Ok(id)
    }

    fn find(&self, key: i32) -> Option<(i32, Rc<T>)> {
        let all = self.all.borrow();
        let mut with_key = all.iter().filter(|(_, object)| object.permissions().get().has_key(key));
        with_key.next().map(|(id, object)| (*id, object.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Few(Cell<Permissions>);

    impl Keyed for Few {
        const MOST: usize = 3;

        fn permissions(&self) -> &Cell<Permissions> {
            &self.0
        }
    }

    #[test]
    fn there_are_no_more_of_a_kind_than_may_be() {
        let all = Objects::<Few>::default();
        for id in 0..3 {
            assert_eq!(all.add(|| Ok(Few::default())), Ok(id));
        }
        assert_eq!(all.add(|| Ok(Few::default())), Err(Errno::ENOSPC));
        all.all.borrow_mut().remove(&1);
        assert_eq!(all.add(|| Err(Errno::EINVAL)), Err(Errno::EINVAL));
        assert_eq!(all.add(|| Ok(Few::default())), Ok(3));
    }
}
