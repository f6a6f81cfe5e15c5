//! Extended attributes of files in memory (xattr(7)): names with values, by which programs keep what they
//! know of a file beside it.

use crate::caller::{Access, Caller};
use crate::contents::PAGE;
use crate::errno::Errno;
use crate::listing::NodeType;
use crate::node::{InodeId, NodeId};
use crate::vfs::Vfs;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use linux_raw_sys::general::{IN_ATTRIB, XATTR_CREATE, XATTR_REPLACE};

/// Longest name, and longest value, in bytes (limits(7): `XATTR_NAME_MAX`, `XATTR_SIZE_MAX`).
pub const ATTRIBUTE_NAME_MAX: usize = 255;
/// See [`ATTRIBUTE_NAME_MAX`].
pub const ATTRIBUTE_VALUE_MAX: usize = 65_536;
/// Bytes that the names and values of one file may take in all.
const FILE_MAX: usize = 2 * ATTRIBUTE_VALUE_MAX;

/// Who may have an attribute, by how its name begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    /// Whoever may read or write the file, of files and directories.
    User,
    /// Root alone, who alone sees it.
    Trusted,
    /// Whoever sees the file; root sets it.
    Security,
}

impl Namespace {
    /// Of a name. Errors: `EOPNOTSUPP` if nobody has such, `EINVAL` if there is nothing behind it.
    fn of(name: &[u8]) -> Result<Namespace, Errno> {
        const ALL: [(&[u8], Namespace); 3] = [
            (b"user.", Namespace::User),
            (b"trusted.", Namespace::Trusted),
            (b"security.", Namespace::Security),
        ];
        let found = ALL.into_iter().find(|(prefix, _)| name.starts_with(prefix));
        let (prefix, namespace) = found.ok_or(Errno::EOPNOTSUPP)?;
        if name.len() == prefix.len() { Err(Errno::EINVAL) } else { Ok(namespace) }
    }
}

/// The attributes of those files that have any.
#[derive(Debug, Default)]
pub(crate) struct ExtendedAttributes(BTreeMap<InodeId, BTreeMap<Vec<u8>, Vec<u8>>>);

impl ExtendedAttributes {
    fn bytes(&self, id: InodeId) -> usize {
        self.0.get(&id).map_or(0, |all| all.iter().map(|(name, value)| name.len() + value.len()).sum())
    }

    /// Its file has gone.
    pub fn forget(&mut self, id: InodeId) {
        self.0.remove(&id);
    }
}

impl Vfs {
    /// Sets an attribute; `flags` may say that it must be new or that it must be there.
    ///
    /// # Errors
    /// `EINVAL` (flags; no name behind the namespace), `ERANGE` (of names), `E2BIG` (of values), `EOPNOTSUPP`
    /// (no such namespace, or not in this file system), `EPERM`, `EACCES`, `EEXIST`, `ENODATA`, `ENOSPC`,
    /// `ENOMEM`.
    pub fn set_extended(
        &mut self,
        caller: &Caller<'_>,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        check_name(name)?;
        if flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
            return Err(Errno::EINVAL);
        }
        if value.len() > ATTRIBUTE_VALUE_MAX {
            return Err(Errno::E2BIG);
        }
        let id = self.change_extended(caller, node, name)?;
        let before = self.extended.0.get(&id).and_then(|all| all.get(name)).map(|value| value.len());
        if flags & XATTR_CREATE != 0 && before.is_some() {
            return Err(Errno::EEXIST);
        }
        if flags & XATTR_REPLACE != 0 && before.is_none() {
            return Err(Errno::ENODATA);
        }
        let taken = before.map_or(0, |len| name.len() + len);
        if self.extended.bytes(id) - taken + name.len() + value.len() > FILE_MAX {
            return Err(Errno::ENOSPC);
        }
        self.check_room((name.len() + value.len()) as u64 / PAGE + 1)?;
        self.extended.0.entry(id).or_default().insert(name.into(), value.into());
        self.inode_mut(id).changed = caller.now;
        self.tell_of(node, IN_ATTRIB);
        Ok(())
    }

    /// Takes an attribute away.
    ///
    /// # Errors
    /// As for [`Vfs::set_extended`]; `ENODATA`.
    pub fn remove_extended(&mut self, caller: &Caller<'_>, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        check_name(name)?;
        let id = self.change_extended(caller, node, name)?;
        let all = self.extended.0.get_mut(&id).ok_or(Errno::ENODATA)?;
        all.remove(name).ok_or(Errno::ENODATA)?;
        if all.is_empty() {
            self.extended.forget(id);
        }
        self.inode_mut(id).changed = caller.now;
        self.tell_of(node, IN_ATTRIB);
        Ok(())
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none that the caller may see, `ERANGE`, `EOPNOTSUPP`, `EINVAL`, `EACCES`.
    pub fn extended(&self, caller: &Caller<'_>, node: NodeId, name: &[u8]) -> Result<&[u8], Errno> {
        check_name(name)?;
        let namespace = Namespace::of(name);
        let id = node.stored().ok_or(Errno::EOPNOTSUPP)?;
        match namespace? {
            Namespace::User if !self.has_user_attributes(node) => return Err(Errno::ENODATA),
            Namespace::User => self.access(caller, node, Access::READ)?,
            Namespace::Trusted if !caller.credentials.is_root() => return Err(Errno::ENODATA),
            Namespace::Trusted | Namespace::Security => {}
        }
        let value = self.extended.0.get(&id).and_then(|all| all.get(name));
        value.map(Vec::as_slice).ok_or(Errno::ENODATA)
    }

    /// The names of those that the caller may see, each with a zero behind it.
    pub fn extended_names(&self, caller: &Caller<'_>, node: NodeId) -> Vec<u8> {
        let all = node.stored().and_then(|id| self.extended.0.get(&id));
        let is_seen =
            |name: &&Vec<u8>| caller.credentials.is_root() || Namespace::of(name) != Ok(Namespace::Trusted);
        let names = all.into_iter().flatten().map(|(name, _)| name).filter(is_seen);
        names.flat_map(|name| name.iter().copied().chain([0])).collect()
    }

    /// The file whose attribute of this name the caller may change.
    fn change_extended(&self, caller: &Caller<'_>, node: NodeId, name: &[u8]) -> Result<InodeId, Errno> {
        let namespace = Namespace::of(name);
        let id = node.stored().ok_or(Errno::EOPNOTSUPP)?;
        match namespace? {
            Namespace::User if !self.has_user_attributes(node) => return Err(Errno::EPERM),
            Namespace::User => {
                // Whoever writes to a directory that all write to must not write on it.
                const STICKY: u32 = 0o1000;
                let inode = self.inode(id);
                if inode.is_directory() && inode.permissions & STICKY != 0 {
                    caller.credentials.check_owner(&inode.rights())?;
                }
                self.access(caller, node, Access::WRITE)?;
            }
            Namespace::Trusted | Namespace::Security if !caller.credentials.is_root() => {
                return Err(Errno::EPERM);
            }
            Namespace::Trusted | Namespace::Security => {}
        }
        Ok(id)
    }

    /// Links and devices have none: who may write to them is another question there.
    fn has_user_attributes(&self, node: NodeId) -> bool {
        matches!(self.kind(node), NodeType::File | NodeType::Directory)
    }
}

/// Errors: `ERANGE` unless it has one to [`ATTRIBUTE_NAME_MAX`] bytes.
fn check_name(name: &[u8]) -> Result<(), Errno> {
    if (1..=ATTRIBUTE_NAME_MAX).contains(&name.len()) { Ok(()) } else { Err(Errno::ERANGE) }
}
