//! The system calls about descriptors.

mod control;
pub(crate) mod flags;
pub(crate) mod io;
pub(crate) mod locks;
pub(crate) mod make;
pub(crate) mod messages;
pub(crate) mod notices;
pub(crate) mod options;
mod owners;
pub(crate) mod paths;
pub(crate) mod process;
pub(crate) mod queues;
pub(crate) mod ready;
pub(crate) mod sockets;
pub(crate) mod splice;
pub(crate) mod status;
pub(crate) mod xattr;

use super::open::Description;
use crate::call::Call;
use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general::AT_FDCWD;
use nom_fs::{Caller, Errno, NodeId, Vfs};

/// Longest path, with the zero behind it.
const PATH_MAX: usize = 4096;

/// What a descriptor of the caller's leads to.
pub(crate) fn get(call: &Call<'_>, descriptor: i32) -> Result<Rc<Description>, Errno> {
    call.process().descriptors.borrow().get(descriptor)
}

/// Does something with the tree of files.
pub(crate) fn with_vfs<T>(call: &Call<'_>, act: impl FnOnce(&mut Vfs, &Caller<'_>) -> T) -> T {
    call.process().with_vfs(call.task().id, act)
}

/// The path at an address.
pub(crate) fn path(call: &Call<'_>, address: u64) -> Result<Vec<u8>, Errno> {
    call.memory().read_string(address, PATH_MAX)
}

/// The directory that a descriptor is, where relative paths begin.
pub(crate) fn directory(call: &Call<'_>, descriptor: i32, path: &[u8]) -> Result<NodeId, Errno> {
    if descriptor == AT_FDCWD || path.first() == Some(&b'/') {
        return Ok(call.process().view.borrow().directory.node());
    }
    let description = get(call, descriptor)?;
    description.node().map(|node| node.node).ok_or(Errno::ENOTDIR)
}
