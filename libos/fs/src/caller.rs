//! Who asks, and what that may do.

use crate::attributes::FileTime;
use crate::attributes::{Ownership, Stamp};
use crate::errno::Errno;
use crate::node::{Inode, NodeId};
use crate::proc::{NoProcesses, Processes};
use alloc::vec::Vec;
use core::fmt;

/// Whose rights a call has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user for files; 0 may do everything.
    pub user: u32,
    /// The group for files.
    pub group: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Whether they are root's.
    pub fn is_root(&self) -> bool {
        self.user == 0
    }

    /// What `permissions` let them do to what belongs to this user and group: the lowest three bits
    /// (path_resolution(7)).
    pub fn granted(&self, (user, group): (u32, u32), permissions: u32) -> u32 {
        if self.user == user {
            permissions >> 6
        } else if self.is_in(group) {
            permissions >> 3
        } else {
            permissions
        }
    }

    /// Whether they belong to a group.
    pub fn is_in(&self, group: u32) -> bool {
        self.group == group || self.groups.contains(&group)
    }
}

/// Who makes a call, and what that sees of the world.
#[derive(Clone, Copy)]
pub struct Caller<'c> {
    /// Its rights.
    pub credentials: &'c Credentials,
    /// Where absolute paths begin.
    pub root: NodeId,
    /// Where relative paths begin, for calls that name no directory.
    pub directory: NodeId,
    /// Permissions that what it makes does not get.
    pub umask: u32,
    /// Its process, which `/proc/self` is.
    pub process: u32,
    /// Its thread, which `/proc/thread-self` is.
    pub thread: u32,
    /// The time.
    pub now: FileTime,
    /// Who knows the processes.
    pub processes: &'c dyn Processes,
    /// Which ways its paths may take.
    pub scope: Scope,
}

/// Which ways paths may not take: `RESOLVE_*` of openat2(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope(u32);

impl Scope {
    /// To another file system.
    pub const ONE_FILE_SYSTEM: Scope = Scope(1);
    /// By links of `/proc`, which lead to files and not to paths.
    pub const NO_MAGIC_LINKS: Scope = Scope(2);
    /// By any symbolic link.
    pub const NO_LINKS: Scope = Scope(4);
    /// Out of [`Caller::root`], not even by who is there already: such a way is none (`EXDEV`).
    pub const BENEATH: Scope = Scope(8);
    /// The same, but that the root is its own parent, as after chroot(2).
    pub const IN_ROOT: Scope = Scope(16);

    /// What openat2(2) calls `resolve`, but for `RESOLVE_CACHED`.
    ///
    /// # Errors
    /// `EINVAL` for other bits, and for both [`Scope::BENEATH`] and [`Scope::IN_ROOT`].
    pub fn from_bits(bits: u64) -> Result<Scope, Errno> {
        let both = Scope::BENEATH.0 | Scope::IN_ROOT.0;
        let scope = Scope(u32::try_from(bits).map_err(|_| Errno::EINVAL)?);
        if bits > 31 || scope.0 & both == both { Err(Errno::EINVAL) } else { Ok(scope) }
    }

    /// Whether one of these ways is barred.
    pub fn bars(self, ways: Scope) -> bool {
        self.0 & ways.0 != 0
    }

    /// Whether paths stay in [`Caller::root`].
    pub fn is_within(self) -> bool {
        self.bars(Scope(Scope::BENEATH.0 | Scope::IN_ROOT.0))
    }
}

impl<'c> Caller<'c> {
    /// The first process, in the root directory: who is there before all others, and who acts for a process
    /// that may be gone.
    #[must_use]
    pub fn first(credentials: &'c Credentials, root: NodeId, now: FileTime) -> Caller<'c> {
        let processes = &NoProcesses;
        let scope = Scope::default();
        let (process, thread) = (1, 1);
        Caller { credentials, root, directory: root, umask: 0o022, process, thread, now, processes, scope }
    }
}

impl fmt::Debug for Caller<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Caller({}, {:?})", self.process, self.credentials)
    }
}

/// What somebody wants to do with a file; the bits are those of a permission triple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// To know that it exists.
    pub const EXISTS: Access = Access(0);
    /// To run it, or to go through a directory.
    pub const EXECUTE: Access = Access(1);
    /// To change it.
    pub const WRITE: Access = Access(2);
    /// To read it.
    pub const READ: Access = Access(4);

    /// What `access(2)` calls `mode`.
    ///
    /// # Errors
    /// `EINVAL` for other bits.
    pub fn from_bits(mode: u32) -> Result<Access, Errno> {
        if mode > 7 { Err(Errno::EINVAL) } else { Ok(Access(mode)) }
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    /// As a permission triple has it.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn includes(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Whose a file is, and what others may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub user: u32,
    pub group: u32,
    /// The lowest twelve bits of the mode.
    pub permissions: u32,
    pub is_directory: bool,
}

impl Credentials {
    /// Whether an inode's permissions let them do this (path_resolution(7)).
    pub(crate) fn check(&self, inode: &Inode, wanted: Access) -> Result<(), Errno> {
        self.check_rights(&inode.rights(), wanted)
    }

    /// Whether a file's permissions let them do this.
    pub(crate) fn check_rights(&self, file: &Rights, wanted: Access) -> Result<(), Errno> {
        let granted = self.granted((file.user, file.group), file.permissions);
        if granted & wanted.0 == wanted.0 {
            return Ok(());
        }
        // Root needs one execute bit to run a file, and nothing to go through a directory.
        let is_runnable = file.is_directory || file.permissions & 0o111 != 0;
        let is_enough = self.is_root() && (is_runnable || !wanted.includes(Access::EXECUTE));
        if is_enough { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether they may change what only an owner may.
    pub(crate) fn check_owner(&self, file: &Rights) -> Result<(), Errno> {
        if self.is_root() || self.user == file.user { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether they may give a file away: only root does, and an owner chooses among its own groups.
    pub(crate) fn check_new_owner(&self, file: &Rights, to: Ownership) -> Result<(), Errno> {
        let (user, group) = (to.user.unwrap_or(file.user), to.group.unwrap_or(file.group));
        let chooses = self.user == file.user && user == file.user;
        let is_allowed = self.is_root() || (chooses && (group == file.group || self.is_in(group)));
        if is_allowed || to == Ownership::default() { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether they may say when a file was read and changed: only its owner names a time; who may write it
    /// may say that it is now.
    pub(crate) fn check_times(&self, file: &Rights, accessed: Stamp, modified: Stamp) -> Result<(), Errno> {
        match (self.check_owner(file), accessed, modified) {
            (Ok(()), ..) => Ok(()),
            (Err(_), Stamp::Now, Stamp::Now) => self.check_rights(file, Access::WRITE),
            (Err(error), ..) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_includes_two_if_it_has_both() {
        let both = Access::READ.and(Access::WRITE);
        assert!(both.includes(both) && both.includes(Access::WRITE) && both.includes(Access::EXISTS));
        assert!(!Access::READ.includes(both) && !Access::EXISTS.includes(Access::READ));
        assert!(!both.includes(Access::WRITE.and(Access::EXECUTE)));
    }
}
