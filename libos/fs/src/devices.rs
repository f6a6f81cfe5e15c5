//! What is in `/dev`. The devices themselves are their readers': here are their names and numbers.

use crate::attributes::Ownership;
use crate::caller::Caller;
use crate::errno::Errno;
use crate::listing::NodeType;
use crate::node::NodeId;
use crate::packed::device_number;
use crate::vfs::Vfs;
use crate::walk::LastLink;

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

/// Makes a pseudoterminal for each who opens it.
pub const PTMX: u64 = device_number(5, 2);
/// The major numbers of the slaves of pseudoterminals, each with 256 of them (`UNIX98_PTY_SLAVE_MAJOR`).
const SLAVES: core::ops::Range<u32> = 136..144;
const SLAVES_EACH: u32 = 256;
/// Where those have their names.
const SLAVE_NAMES: &[u8] = b"/dev/pts";

/// The number of the pseudoterminal whose slave has this number of a device.
pub fn terminal_of(device: u64) -> Option<u32> {
    let major = (device >> 8 & 0xfff) as u32;
    SLAVES.contains(&major).then(|| (major - SLAVES.start) * SLAVES_EACH + (device & 0xff) as u32)
}

fn slave_number(terminal: u32) -> u64 {
    device_number(SLAVES.start + terminal / SLAVES_EACH, terminal % SLAVES_EACH)
}

const DEVICES: [(&[u8], u64, u32); 8] = [
    (b"null", NULL, 0o666),
    (b"zero", ZERO, 0o666),
    (b"full", FULL, 0o666),
    (b"random", RANDOM, 0o666),
    (b"urandom", URANDOM, 0o666),
    (b"tty", TTY, 0o666),
    (b"console", CONSOLE, 0o620),
    (b"ptmx", PTMX, 0o666),
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
    vfs.make_directory(caller, dev, b"pts", 0o755)
}

impl Vfs {
    /// Names the slave of a pseudoterminal, `/dev/pts/N`, which belongs to `owner`.
    ///
    /// # Errors
    /// If somebody has taken the name, or removed the directory.
    pub fn add_terminal(&mut self, caller: &Caller<'_>, number: u32, owner: Ownership) -> Result<(), Errno> {
        const PERMISSIONS: u32 = 0o620;
        let at = self.resolve(caller, caller.root, SLAVE_NAMES, LastLink::Follow)?;
        let name = alloc::format!("{number}");
        let device = slave_number(number);
        let node = self.make_node(caller, at, name.as_bytes(), NodeType::Character, PERMISSIONS, device)?;
        self.set_permissions(caller, node, PERMISSIONS)?;
        self.set_owner(caller, node, owner)
    }

    /// Removes that name.
    ///
    /// # Errors
    /// If it is not there.
    pub fn remove_terminal(&mut self, caller: &Caller<'_>, number: u32) -> Result<(), Errno> {
        let at = self.resolve(caller, caller.root, SLAVE_NAMES, LastLink::Follow)?;
        self.unlink(caller, at, alloc::format!("{number}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slaves_of_terminals_have_numbers_of_their_own() {
        assert_eq!(
            [0, 255, 256, 1000].map(|number| terminal_of(slave_number(number))),
            [0, 255, 256, 1000].map(Some)
        );
        assert_eq!([NULL, TTY, PTMX, CONSOLE].map(terminal_of), [None; 4]);
    }
}
