//! The root's files, as the host packed them: an archive in cpio's "newc" format, that of Linux's
//! initramfs. The contents of its files lie on pages of their own, and stay where they are.
//!
//! It is read here and not by a crate: those that there are stop without a word where an archive is
//! damaged, or read all contents once.

use crate::attributes::{FileTime, Ownership, Stamp};
use crate::caller::Caller;
use crate::contents::Contents;
use crate::disk::{FirstBytes, RootDisk};
use crate::errno::Errno;
use crate::listing::NodeType;
use crate::node::{Body, NodeId};
use crate::vfs::Vfs;
use crate::walk::LastLink;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use core::fmt;
use nom_port::disk::Disk;
use nom_port::root_disk::{ELSEWHERE, Extent};

const MAGIC: &[u8] = b"070701";
const FIELDS: usize = 13;
const HEADER: usize = MAGIC.len() + 8 * FIELDS;
const TRAILER: &[u8] = b"TRAILER!!!";

/// What is wrong with an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadArchive(String);

impl BadArchive {
    pub(crate) fn new(problem: String) -> BadArchive {
        BadArchive(problem)
    }
}

impl fmt::Display for BadArchive {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the archive of the root: {}", self.0)
    }
}

impl core::error::Error for BadArchive {}

/// One entry.
struct Packed {
    name: &'static [u8],
    number: u32,
    mode: u32,
    user: u32,
    group: u32,
    links: u32,
    modified: u32,
    device: u64,
    /// What it holds, or, if it is [`ELSEWHERE`], where that is.
    contents: &'static [u8],
    check: u32,
}

impl Packed {
    /// The first entry, and what follows it.
    fn read(archive: &'static [u8]) -> Option<(Packed, &'static [u8])> {
        let header = archive.get(..HEADER)?.strip_prefix(MAGIC)?;
        let mut fields = [0; FIELDS];
        for (field, digits) in fields.iter_mut().zip(header.chunks(8)) {
            *field = u32::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        let [number, mode, user, group, links, modified, len, _, _, major, minor, name_len, check] = fields;
        let name_end = HEADER.checked_add(name_len as usize)?;
        let name = archive.get(HEADER..name_end)?;
        let name = &name[..name.iter().position(|byte| *byte == 0)?];
        let start = name_end.next_multiple_of(4);
        let end = start.checked_add(len as usize)?;
        let contents = archive.get(start..end)?;
        let rest = archive.get(end.next_multiple_of(4)..).unwrap_or_default();
        let device = device_number(major, minor);
        Some((Packed { name, number, mode, user, group, links, modified, device, contents, check }, rest))
    }
}

impl Packed {
    /// What a file holds, if that is anywhere.
    fn first_bytes(&self, disk: Option<&Rc<RootDisk>>) -> Option<FirstBytes> {
        match (self.check, disk) {
            (ELSEWHERE, Some(disk)) => {
                Some(FirstBytes::disk(disk, Extent::decode(self.contents, disk.blocks())?))
            }
            (0, _) => Some(FirstBytes::image(self.contents)),
            _ => None,
        }
    }
}

/// As Linux has it in `st_rdev`.
pub(crate) const fn device_number(major: u32, minor: u32) -> u64 {
    let (major, minor) = (major as u64, minor as u64);
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32
}

/// Its major and minor number.
pub(crate) const fn device_parts(number: u64) -> (u32, u32) {
    let (major, minor) =
        ((number >> 8 & 0xfff) | (number >> 32 & !0xfff), (number & 0xff) | (number >> 12 & !0xff));
    (major as u32, minor as u32)
}

impl Vfs {
    /// Makes the files of an archive. Parents come before what is in them; entries of one number are names
    /// of one file, whose contents come with the first.
    ///
    /// # Errors
    /// What is wrong with it, by the entry's name.
    pub fn unpack(&mut self, caller: &Caller<'_>, archive: &'static [u8]) -> Result<(), BadArchive> {
        self.unpack_all(caller, archive, None)
    }

    /// Makes the files of a disk, of whose blocks so many are kept in memory at most when they were read.
    /// What cannot be read later is `EIO` to who asks for it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn unpack_disk(
        &mut self,
        caller: &Caller<'_>,
        disk: Box<dyn Disk>,
        blocks: usize,
    ) -> Result<(), BadArchive> {
        let (disk, archive) = RootDisk::open(disk, blocks)?;
        let disk = Rc::new(disk);
        self.disk = Some(disk.clone());
        self.unpack_all(caller, archive, Some(&disk))
    }

    fn unpack_all(
        &mut self,
        caller: &Caller<'_>,
        mut archive: &'static [u8],
        disk: Option<&Rc<RootDisk>>,
    ) -> Result<(), BadArchive> {
        let mut linked = BTreeMap::new();
        let mut before: &[u8] = b"its beginning";
        loop {
            let (entry, rest) = Packed::read(archive)
                .ok_or_else(|| BadArchive(format!("no entry behind {}", String::from_utf8_lossy(before))))?;
            if entry.name == TRAILER {
                return Ok(());
            }
            let made = self.unpack_one(caller, &entry, disk, &mut linked);
            made.map_err(|error| BadArchive(format!("{}: {error}", String::from_utf8_lossy(entry.name))))?;
            (before, archive) = (entry.name, rest);
        }
    }

    fn unpack_one(
        &mut self,
        caller: &Caller<'_>,
        entry: &Packed,
        disk: Option<&Rc<RootDisk>>,
        linked: &mut BTreeMap<u32, NodeId>,
    ) -> Result<(), Errno> {
        let root = self.root();
        let kind = NodeType::from_mode(entry.mode).ok_or(Errno::EINVAL)?;
        if let Some(node) = linked.get(&entry.number).filter(|_| entry.links > 1 && !kind.is_directory()) {
            return self.link(caller, *node, root, entry.name);
        }
        match kind {
            // The root itself is there.
            NodeType::Directory => match self.make_directory(caller, root, entry.name, 0o755) {
                Err(Errno::EEXIST) => {}
                made => made?,
            },
            NodeType::Link => self.make_link(caller, entry.contents, root, entry.name)?,
            _ => drop(self.make_node(caller, root, entry.name, kind, 0o600, entry.device)?),
        }
        let node = self.resolve(caller, root, entry.name, LastLink::Keep)?;
        let id = node.stored().ok_or(Errno::EEXIST)?;
        if kind == NodeType::File {
            let contents = entry.first_bytes(disk).ok_or(Errno::EINVAL)?;
            self.inode_mut(id).body = Body::File(Contents::packed(contents));
        }
        self.set_owner(caller, node, Ownership { user: Some(entry.user), group: Some(entry.group) })?;
        self.inode_mut(id).permissions = if kind.is_link() { 0o777 } else { entry.mode & 0o7777 };
        let modified = Stamp::At(FileTime { seconds: entry.modified.into(), nanoseconds: 0 });
        self.set_times(caller, node, modified, modified)?;
        if entry.links > 1 {
            linked.insert(entry.number, node);
        }
        Ok(())
    }
}
