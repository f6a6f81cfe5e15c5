//! What is known of files: stat(2), statfs(2), getdents(2).

use super::{directory, get, path, with_vfs};
use crate::call::Call;
use crate::descriptors::open::Description;
use crate::table::SystemCall;
use alloc::vec::Vec;
use linux_raw_sys::general as abi;
use nom_fs::{Attributes, DirectoryEntry, Errno, FileTime, LastLink, MountAccess, NodeId};

const HERE: i32 = abi::AT_FDCWD;
/// Flags of a file system (`linux/statfs.h`): that there are any (without, the C library looks for them in
/// `/proc/mounts`), with times of access as they are usual; that nobody can write.
const FLAGS_TOLD: u64 = 0x20 | 0x1000;
const READ_ONLY: u64 = 1;
/// Bytes that are best read at once.
const BLOCK: u64 = 4096;

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_stat, "stat", &["path", "status"], |call| status(call, HERE, 0, 0)),
    SystemCall::complete(abi::__NR_lstat, "lstat", &["path", "status"], |call| {
        status(call, HERE, 0, abi::AT_SYMLINK_NOFOLLOW)
    }),
    SystemCall::complete(abi::__NR_fstat, "fstat", &["descriptor", "status"], status_open),
    SystemCall::complete(
        abi::__NR_newfstatat,
        "newfstatat",
        &["directory", "path", "status", "flags"],
        |call| status(call, call.int(0), 1, call.arguments[3] as u32),
    ),
    SystemCall::complete(
        abi::__NR_statx,
        "statx",
        &["directory", "path", "flags", "mask", "status"],
        extended_status,
    ),
    SystemCall::complete(abi::__NR_statfs, "statfs", &["path", "status"], |call| {
        let path = path(call, call.arguments[0])?;
        let at = directory(call, HERE, &path)?;
        let node = with_vfs(call, |vfs, caller| vfs.resolve(caller, at, &path, LastLink::Follow))?;
        space(call, node)
    }),
    SystemCall::complete(abi::__NR_fstatfs, "fstatfs", &["descriptor", "status"], |call| {
        let description = get(call, call.int(0))?;
        let root = with_vfs(call, |vfs, _| vfs.root());
        space(call, description.node().map_or(root, |node| node.node))
    }),
    SystemCall::complete(abi::__NR_getdents64, "getdents64", &["descriptor", "buffer", "length"], list),
    SystemCall::refused(abi::__NR_getdents, "getdents", "programs take `getdents64`"),
    SystemCall::refused(abi::__NR_mount, "mount", "the tree is as it was packed"),
    SystemCall::refused(abi::__NR_umount2, "umount2", "the tree is as it was packed"),
];

/// What `stat` tells of something that is open.
fn of_open(call: &Call<'_>, description: &Description) -> Result<Attributes, Errno> {
    if let Some(node) = description.opened_as() {
        return with_vfs(call, |vfs, caller| vfs.attributes(caller, node));
    }
    let stream = description.stream().ok_or(Errno::EBADF)?;
    let (user, group) = with_vfs(call, |_, caller| (caller.credentials.user, caller.credentials.group));
    let now = FileTime::default();
    Ok(Attributes {
        device: 1,
        // What has no name has no number either, but one that is not another's.
        number: description.number(),
        kind: stream.kind(),
        permissions: 0o600,
        links: 1,
        user,
        group,
        rdev: 0,
        size: 0,
        blocks: 0,
        accessed: now,
        modified: now,
        changed: now,
        born: now,
    })
}

fn of_path(call: &Call<'_>, descriptor: i32, index: usize, flags: u32) -> Result<Attributes, Errno> {
    let is_empty_fine = flags & abi::AT_EMPTY_PATH != 0;
    let path = match call.arguments[index] {
        0 if is_empty_fine => Vec::new(),
        address => path(call, address)?,
    };
    if path.is_empty() && is_empty_fine && descriptor != HERE {
        return of_open(call, &*get(call, descriptor)?);
    }
    let at = directory(call, descriptor, &path)?;
    let link = if flags & abi::AT_SYMLINK_NOFOLLOW != 0 { LastLink::Keep } else { LastLink::Follow };
    with_vfs(call, |vfs, caller| {
        let node = match path.is_empty() && is_empty_fine {
            true => at,
            false => vfs.resolve(caller, at, &path, link)?,
        };
        vfs.attributes(caller, node)
    })
}

/// Linux's `struct stat` on x86-64, as words.
fn to_words(known: &Attributes) -> [u64; 18] {
    let time = |time: FileTime| [time.seconds as u64, time.nanoseconds.into()];
    let (accessed, modified, changed) = (time(known.accessed), time(known.modified), time(known.changed));
    [
        known.device,
        known.number,
        known.links.into(),
        u64::from(known.mode()) | u64::from(known.user) << 32,
        known.group.into(),
        known.rdev,
        known.size,
        BLOCK,
        known.blocks,
        accessed[0],
        accessed[1],
        modified[0],
        modified[1],
        changed[0],
        changed[1],
        0,
        0,
        0,
    ]
}

fn status(call: &Call<'_>, descriptor: i32, index: usize, flags: u32) -> Result<u64, Errno> {
    let known = of_path(call, descriptor, index, flags)?;
    call.memory().write_value(call.arguments[index + 1], &to_words(&known)).map(|()| 0)
}

fn status_open(call: &Call<'_>) -> Result<u64, Errno> {
    let known = of_open(call, &*get(call, call.int(0))?)?;
    call.memory().write_value(call.arguments[1], &to_words(&known)).map(|()| 0)
}

fn extended_status(call: &Call<'_>) -> Result<u64, Errno> {
    let known = of_path(call, call.int(0), 1, call.arguments[2] as u32)?;
    let low = |value: u64| value & 0xffff_ffff;
    // A time has 16 bytes: seconds, nanoseconds, and 4 of nothing.
    let time = |time: FileTime| [time.seconds as u64, time.nanoseconds.into()];
    let (major, minor) =
        (|device: u64| device >> 8 & 0xfff, |device: u64| device & 0xff | device >> 12 & !0xff);
    let pair = |first: u64, second: u64| low(first) | second << 32;
    let mask = u64::from(abi::STATX_BASIC_STATS | abi::STATX_BTIME);
    let mut words = [0_u64; 32];
    words[0] = pair(mask, BLOCK);
    words[2] = pair(known.links.into(), known.user.into());
    words[3] = pair(known.group.into(), known.mode().into());
    (words[4], words[5], words[6]) = (known.number, known.size, known.blocks);
    for (index, at) in [known.accessed, known.born, known.changed, known.modified].into_iter().enumerate() {
        words[8 + 2 * index..10 + 2 * index].copy_from_slice(&time(at));
    }
    words[16] = pair(major(known.rdev), minor(known.rdev));
    words[17] = pair(major(known.device), minor(known.device));
    call.memory().write_value(call.arguments[4], &words).map(|()| 0)
}

fn space(call: &Call<'_>, node: NodeId) -> Result<u64, Errno> {
    let facts = with_vfs(call, |vfs, _| vfs.space(node));
    let name_max = 255;
    let words: [u64; 15] = [
        facts.magic,
        BLOCK,
        facts.pages,
        facts.pages_free,
        facts.pages_free,
        facts.files + facts.pages_free,
        facts.pages_free,
        0,
        name_max,
        BLOCK,
        FLAGS_TOLD | if facts.access == MountAccess::ReadOnly { READ_ONLY } else { 0 },
        0,
        0,
        0,
        0,
    ];
    call.memory().write_value(call.arguments[1], &words).map(|()| 0)
}

/// Bytes of an entry before its name.
const ENTRY: usize = 19;
/// Most bytes of entries that one call tells, whatever there is room for: they are the library's memory.
const LISTED_MAX: u64 = 256 << 10;

/// Entries of a directory, as `struct linux_dirent64` has them.
struct Listing {
    bytes: Vec<u8>,
    most: usize,
    /// Where the next one is.
    position: u64,
    /// Whether not even the first found room.
    is_short: bool,
}

impl Listing {
    /// For so many bytes, from there on.
    fn new(room: u64, position: u64) -> Listing {
        let most = room.min(LISTED_MAX) as usize;
        Listing { bytes: Vec::new(), most, position, is_short: false }
    }

    fn put(&mut self, entry: &DirectoryEntry<'_>) -> Option<()> {
        let size = (ENTRY + entry.name.len() + 1).next_multiple_of(8);
        if self.bytes.len() + size > self.most {
            self.is_short = self.bytes.is_empty();
            return None;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&entry.number.to_ne_bytes());
        self.bytes.extend_from_slice(&entry.next.to_ne_bytes());
        self.bytes.extend_from_slice(&(size as u16).to_ne_bytes());
        self.bytes.push(entry.kind.entry_type());
        self.bytes.extend_from_slice(entry.name);
        self.bytes.resize(start + size, 0);
        self.position = entry.next;
        Some(())
    }
}

fn list(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, buffer, len, ..] = call.arguments;
    let description = get(call, call.int(0))?;
    let node = description.node().ok_or(Errno::ENOTDIR)?;
    let position = description.position.get();
    let mut listing = Listing::new(u64::from(len as u32), position);
    with_vfs(call, |vfs, caller| vfs.list(caller, node.node, position, |entry| listing.put(&entry)))?;
    if listing.is_short {
        return Err(Errno::EINVAL);
    }
    call.memory().write(buffer, &listing.bytes)?;
    description.position.set(listing.position);
    Ok(listing.bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_fs::NodeType;

    #[test]
    fn a_call_lists_no_more_than_the_library_keeps_for_it() {
        let entry = |name, next| DirectoryEntry { name, number: 7, kind: NodeType::File, next };
        let put = |room: u64| {
            let mut listing = Listing::new(room, 0);
            let fit = (1..100_000).map_while(|next| listing.put(&entry(b"name", next))).count();
            (fit, listing.bytes.len(), listing.position, listing.is_short)
        };
        assert_eq!(put(23), (0, 0, 0, true));
        assert_eq!(put(24), (1, 24, 1, false));
        assert_eq!(put(71), (2, 48, 2, false));
        let (fit, bytes, position, _) = put(u64::MAX);
        assert!(bytes as u64 <= LISTED_MAX && bytes == 24 * fit && position == fit as u64, "{bytes}");
    }
}
