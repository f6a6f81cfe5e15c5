//! Extended attributes, of which no file has any: xattr(7).

use super::{directory, get, path, with_vfs};
use crate::call::Call;
use crate::table::{CallHandler, SystemCall};
use linux_raw_sys::general as abi;
use nom_fs::{Errno, LastLink};

/// Descriptor of where relative paths begin.
const HERE: i32 = abi::AT_FDCWD;
const NONE: &str = "no file has any: EOPNOTSUPP";
const SET: &[&str] = &["file", "name", "value", "size", "flags"];
const GET: &[&str] = &["file", "name", "value", "size"];
const LIST: &[&str] = &["file", "names", "size"];
const REMOVE: &[&str] = &["file", "name"];

const fn row(
    number: u32,
    name: &'static str,
    arguments: &'static [&'static str],
    of: CallHandler,
) -> SystemCall {
    SystemCall::partial(number, name, arguments, of, NONE)
}

/// These calls.
pub const ROWS: &[SystemCall] = &[
    row(abi::__NR_setxattr, "setxattr", SET, none_of_path),
    row(abi::__NR_lsetxattr, "lsetxattr", SET, none_of_link),
    row(abi::__NR_fsetxattr, "fsetxattr", SET, none_of_open),
    row(abi::__NR_getxattr, "getxattr", GET, none_of_path),
    row(abi::__NR_lgetxattr, "lgetxattr", GET, none_of_link),
    row(abi::__NR_fgetxattr, "fgetxattr", GET, none_of_open),
    SystemCall::complete(abi::__NR_listxattr, "listxattr", LIST, |call| of_path(call, LastLink::Follow)),
    SystemCall::complete(abi::__NR_llistxattr, "llistxattr", LIST, |call| of_path(call, LastLink::Keep)),
    SystemCall::complete(abi::__NR_flistxattr, "flistxattr", LIST, of_open),
    row(abi::__NR_removexattr, "removexattr", REMOVE, none_of_path),
    row(abi::__NR_lremovexattr, "lremovexattr", REMOVE, none_of_link),
    row(abi::__NR_fremovexattr, "fremovexattr", REMOVE, none_of_open),
];

/// How many bytes the names of a file's attributes take.
fn of_path(call: &Call<'_>, link: LastLink) -> Result<u64, Errno> {
    let path = path(call, call.arguments[0])?;
    let at = directory(call, HERE, &path)?;
    with_vfs(call, |vfs, caller| vfs.resolve(caller, at, &path, link)).map(|_| 0)
}

fn of_open(call: &Call<'_>) -> Result<u64, Errno> {
    get(call, call.int(0)).map(|_| 0)
}

fn none_of_path(call: &Call<'_>) -> Result<u64, Errno> {
    of_path(call, LastLink::Follow).and(Err(Errno::EOPNOTSUPP))
}

fn none_of_link(call: &Call<'_>) -> Result<u64, Errno> {
    of_path(call, LastLink::Keep).and(Err(Errno::EOPNOTSUPP))
}

fn none_of_open(call: &Call<'_>) -> Result<u64, Errno> {
    of_open(call).and(Err(Errno::EOPNOTSUPP))
}
