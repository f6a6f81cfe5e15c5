//! What is in `/dev`. The devices themselves are their readers': here are their names and numbers.

use crate::caller::Caller;
use crate::errno::Errno;
use crate::listing::NodeType;
use crate::node::NodeId;
use crate::packed::device_number;
use crate::vfs::Vfs;

/// Takes everything, has nothing.
pub const NULL: u64 = device_number(1, 3);
/// Has zeros.
pub const ZERO: u64 = device_number(1, 5);
/// Has zeros, takes nothing.
pub const FULL: u64 = device_number(1, 7);
/// Has random bytes.
pub const RANDOM: u64 = device_number(1, 8);
/// Has random bytes.
pub const URANDOM: u64 = device_number(1, 9);
/// The terminal of the process that asks.
pub const TTY: u64 = device_number(5, 0);
/// The machine's console.
pub const CONSOLE: u64 = device_number(5, 1);

const DEVICES: [(&[u8], u64, u32); 7] = [
    (b"null", NULL, 0o666),
    (b"zero", ZERO, 0o666),
    (b"full", FULL, 0o666),
    (b"random", RANDOM, 0o666),
    (b"urandom", URANDOM, 0o666),
    (b"tty", TTY, 0o666),
    (b"console", CONSOLE, 0o620),
];

const LINKS: [(&[u8], &[u8]); 4] = [
    (b"fd", b"/proc/self/fd"),
    (b"stdin", b"/proc/self/fd/0"),
    (b"stdout", b"/proc/self/fd/1"),
    (b"stderr", b"/proc/self/fd/2"),
];

/// Makes what is in `/dev`.
pub(crate) fn fill(vfs: &mut Vfs, caller: &Caller<'_>, dev: NodeId) -> Result<(), Errno> {
    for (name, number, permissions) in DEVICES {
        let node = vfs.make_node(caller, dev, name, NodeType::Character, permissions, number)?;
        vfs.set_permissions(caller, node, permissions)?;
    }
    for (name, target) in LINKS {
        vfs.make_link(caller, target, dev, name)?;
    }
    Ok(())
}
