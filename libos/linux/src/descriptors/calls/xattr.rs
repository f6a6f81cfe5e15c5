//! Extended attributes of files: xattr(7).

use super::{directory, get, path, with_vfs};
use crate::call::Call;
use crate::table::{CallHandler, SystemCall};
use alloc::vec;
use alloc::vec::Vec;
use linux_raw_sys::general as abi;
use nom_fs::{ATTRIBUTE_NAME_MAX, ATTRIBUTE_VALUE_MAX, Errno, LastLink, NodeId};

/// Descriptor of where relative paths begin.
const HERE: i32 = abi::AT_FDCWD;
/// What has any.
const WHERE: &str =
    "files in memory; of volumes EOPNOTSUPP, as are lists of rights (`system.posix_acl_access`)";
const SET: &[&str] = &["file", "name", "value", "size", "flags"];
const GET: &[&str] = &["file", "name", "value", "size"];
const LIST: &[&str] = &["file", "names", "size"];
const REMOVE: &[&str] = &["file", "name"];

const fn row(
    number: u32,
    name: &'static str,
    arguments: &'static [&'static str],
    answer: CallHandler,
) -> SystemCall {
    SystemCall::partial(number, name, arguments, answer, WHERE)
}

/// These calls.
pub const ROWS: &[SystemCall] = &[
    row(abi::__NR_setxattr, "setxattr", SET, |call| set(call, followed(call)?)),
    row(abi::__NR_lsetxattr, "lsetxattr", SET, |call| set(call, itself(call)?)),
    row(abi::__NR_fsetxattr, "fsetxattr", SET, |call| set(call, open(call)?)),
    row(abi::__NR_getxattr, "getxattr", GET, |call| value(call, followed(call)?)),
    row(abi::__NR_lgetxattr, "lgetxattr", GET, |call| value(call, itself(call)?)),
    row(abi::__NR_fgetxattr, "fgetxattr", GET, |call| value(call, open(call)?)),
    row(abi::__NR_listxattr, "listxattr", LIST, |call| names(call, followed(call)?)),
    row(abi::__NR_llistxattr, "llistxattr", LIST, |call| names(call, itself(call)?)),
    row(abi::__NR_flistxattr, "flistxattr", LIST, |call| names(call, open(call)?)),
    row(abi::__NR_removexattr, "removexattr", REMOVE, |call| remove(call, followed(call)?)),
    row(abi::__NR_lremovexattr, "lremovexattr", REMOVE, |call| remove(call, itself(call)?)),
    row(abi::__NR_fremovexattr, "fremovexattr", REMOVE, |call| remove(call, open(call)?)),
];

/// What the path leads to; nothing if a descriptor is of no file.
fn of_path(call: &Call<'_>, link: LastLink) -> Result<Option<NodeId>, Errno> {
    let path = path(call, call.arguments[0])?;
    let at = directory(call, HERE, &path)?;
    with_vfs(call, |vfs, caller| vfs.resolve(caller, at, &path, link)).map(Some)
}

fn followed(call: &Call<'_>) -> Result<Option<NodeId>, Errno> {
    of_path(call, LastLink::Follow)
}

fn itself(call: &Call<'_>) -> Result<Option<NodeId>, Errno> {
    of_path(call, LastLink::Keep)
}

fn open(call: &Call<'_>) -> Result<Option<NodeId>, Errno> {
    Ok(get(call, call.int(0))?.node().map(|node| node.node))
}

/// The attribute's name. Errors: `ERANGE` if that is none.
fn name(call: &Call<'_>) -> Result<Vec<u8>, Errno> {
    let name = call.memory().read_string(call.arguments[1], ATTRIBUTE_NAME_MAX + 1);
    match name {
        Err(Errno::ENAMETOOLONG) => Err(Errno::ERANGE),
        Ok(name) if name.is_empty() => Err(Errno::ERANGE),
        name => name,
    }
}

fn set(call: &Call<'_>, node: Option<NodeId>) -> Result<u64, Errno> {
    let [_, _, value, size, flags, _] = call.arguments;
    if flags as u32 & !(abi::XATTR_CREATE | abi::XATTR_REPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    let name = name(call)?;
    if size > ATTRIBUTE_VALUE_MAX as u64 {
        return Err(Errno::E2BIG);
    }
    let mut bytes = vec![0; size as usize];
    call.memory().read(value, &mut bytes)?;
    let node = node.ok_or(Errno::EOPNOTSUPP)?;
    with_vfs(call, |vfs, caller| vfs.set_extended(caller, node, &name, &bytes, flags as u32)).map(|()| 0)
}

/// Copies to where the caller wants it, and says how much it is; without room for any of it only that.
fn told(call: &Call<'_>, address: u64, size: u64, bytes: &[u8]) -> Result<u64, Errno> {
    if size > 0 {
        if bytes.len() as u64 > size {
            return Err(Errno::ERANGE);
        }
        call.memory().write(address, bytes)?;
    }
    Ok(bytes.len() as u64)
}

fn value(call: &Call<'_>, node: Option<NodeId>) -> Result<u64, Errno> {
    let [_, _, address, size, ..] = call.arguments;
    let name = name(call)?;
    let node = node.ok_or(Errno::EOPNOTSUPP)?;
    let value = with_vfs(call, |vfs, caller| vfs.extended(caller, node, &name).map(<[u8]>::to_vec))?;
    told(call, address, size, &value)
}

fn names(call: &Call<'_>, node: Option<NodeId>) -> Result<u64, Errno> {
    let [_, address, size, ..] = call.arguments;
    let all = node.map(|node| with_vfs(call, |vfs, caller| vfs.extended_names(caller, node)));
    told(call, address, size, &all.unwrap_or_default())
}

fn remove(call: &Call<'_>, node: Option<NodeId>) -> Result<u64, Errno> {
    let name = name(call)?;
    let node = node.ok_or(Errno::EOPNOTSUPP)?;
    with_vfs(call, |vfs, caller| vfs.remove_extended(caller, node, &name)).map(|()| 0)
}
