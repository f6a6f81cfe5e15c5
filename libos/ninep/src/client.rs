//! What one asks a server for.

use crate::message::{ERROR, Kind};
use crate::wire::{HEAD, Reader, Writer};
use crate::{Answered, Error, MESSAGE_BYTES, NinepChannel};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

const VERSION: &[u8] = b"9P2000.L";
/// The tag of the request that agrees about the version, and of all others: one is under way at a time.
const NO_TAG: u16 = u16::MAX;
const TAG: u16 = 1;
/// No handle: nobody authenticates.
const NO_FID: u32 = u32::MAX;
/// Whom the server asks with: what a file's owner may is decided by who calls.
const ROOT: u32 = 0;
/// Bytes of a read or written piece beside its data.
const PIECE_HEAD: usize = 24;
/// What is known of a file without its generation and version.
const BASIC: u64 = 0x7ff;

/// A handle of a file of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fid(u32);

/// What tells a file from all others that are there at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qid {
    /// The file's number.
    pub path: u64,
}

/// What is known of a file; the words are those of `stat(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentAttributes {
    /// What tells it from others.
    pub qid: Qid,
    /// `st_mode`.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Names.
    pub links: u64,
    /// Of a device, which one.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// When it was read, changed, and changed in any way: seconds since 1970, and nanoseconds.
    pub times: [(u64, u64); 3],
}

/// A change of what is known of a file: what is not named stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The lowest twelve bits of `st_mode`.
    pub mode: Option<u32>,
    /// Owner.
    pub user: Option<u32>,
    /// Group.
    pub group: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// When it was read: seconds and nanoseconds.
    pub accessed: Option<(u64, u64)>,
    /// When it was changed.
    pub modified: Option<(u64, u64)>,
}

/// What there is of room; the words are those of `statfs(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentSpace {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks.
    pub blocks: u64,
    /// Blocks that are free for whom the server asks with.
    pub available: u64,
    /// Files.
    pub files: u64,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentEntry<'e> {
    /// What it leads to.
    pub qid: Qid,
    /// Where the listing goes on behind it.
    pub next: u64,
    /// What that is, as `d_type` has it.
    pub kind: u8,
    /// Its name.
    pub name: &'e [u8],
}

/// A client of one server.
pub struct Client {
    channel: Box<dyn NinepChannel>,
    request: Vec<u8>,
    answer: Vec<u8>,
    /// Bytes of a message at most, as was agreed.
    message_bytes: usize,
    /// Handles that were given back, and the first that nobody had.
    free: Vec<u32>,
    next: u32,
}

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Client({} handles)", self.next as usize - self.free.len())
    }
}

impl Client {
    /// A client, and a handle of the root of what the server lends.
    ///
    /// # Errors
    /// If the server speaks another protocol, or refuses.
    pub fn new(channel: Box<dyn NinepChannel>) -> Answered<(Client, Fid)> {
        let mut client = Client {
            channel,
            request: Vec::with_capacity(MESSAGE_BYTES),
            answer: vec![0; MESSAGE_BYTES],
            message_bytes: MESSAGE_BYTES,
            free: Vec::new(),
            next: 0,
        };
        Writer::request(&mut client.request, Kind::Version, NO_TAG)
            .number((MESSAGE_BYTES as u32).to_le_bytes())
            .text(VERSION)
            .finish();
        let mut answer = client.send(Kind::Version, NO_TAG)?;
        let (bytes, version) = (answer.u32()? as usize, answer.text()?);
        if version != VERSION || !(PIECE_HEAD + 512..=MESSAGE_BYTES).contains(&bytes) {
            return Err(Error::Broken);
        }
        client.message_bytes = bytes;
        let root = client.take_fid();
        client
            .write(Kind::Attach)
            .number(root.0.to_le_bytes())
            .number(NO_FID.to_le_bytes())
            .text(b"root")
            .text(b"")
            .number(ROOT.to_le_bytes())
            .finish();
        client.send(Kind::Attach, TAG)?;
        Ok((client, root))
    }

    fn write(&mut self, kind: Kind) -> Writer<'_> {
        Writer::request(&mut self.request, kind, TAG)
    }

    /// Sends what was written; the rest of the answer.
    fn send(&mut self, kind: Kind, tag: u16) -> Answered<Reader<'_>> {
        // A name that is too long makes the message longer than the server takes.
        if self.request.len() > self.message_bytes {
            const ENAMETOOLONG: u32 = 36;
            return Err(Error::Refused(ENAMETOOLONG));
        }
        let count = self.channel.exchange(&self.request, &mut self.answer[..self.message_bytes])?;
        let answer = self.answer.get(..count).ok_or(Error::Broken)?;
        let mut reader = Reader::new(answer);
        let (length, number, answered) = (reader.u32()?, reader.u8()?, reader.u16()?);
        if length as usize > count || (length as usize) < HEAD || answered != tag {
            return Err(Error::Broken);
        }
        let mut reader = Reader::new(&answer[HEAD..length as usize]);
        match number {
            ERROR => Err(Error::Refused(reader.u32()?)),
            number if number == kind as u8 + 1 => Ok(reader),
            _ => Err(Error::Broken),
        }
    }

    fn take_fid(&mut self) -> Fid {
        Fid(self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        }))
    }

    /// A request about one handle, with nothing else in it.
    fn ask(&mut self, kind: Kind, fid: Fid) -> Answered<Reader<'_>> {
        self.write(kind).number(fid.0.to_le_bytes()).finish();
        self.send(kind, TAG)
    }

    /// A handle of what a name in a directory leads to, or another handle of the same file.
    ///
    /// # Errors
    /// `ENOENT` and others of the server's.
    pub fn walk(&mut self, from: Fid, name: Option<&[u8]>) -> Answered<Fid> {
        let to = self.take_fid();
        let names = u16::from(name.is_some());
        let writer = self.write(Kind::Walk).number(from.0.to_le_bytes()).number(to.0.to_le_bytes());
        let writer = writer.number(names.to_le_bytes());
        match name {
            Some(name) => writer.text(name).finish(),
            None => writer.finish(),
        }
        let walked = match self.send(Kind::Walk, TAG).and_then(|mut answer| answer.u16()) {
            Ok(count) if count == names => return Ok(to),
            Ok(_) => Error::Broken,
            Err(error) => error,
        };
        self.free.push(to.0);
        Err(walked)
    }

    /// Gives a handle back. What the server says of it does not matter: it is gone in any case.
    pub fn clunk(&mut self, fid: Fid) {
        let _ = self.ask(Kind::Clunk, fid);
        self.free.push(fid.0);
    }

    /// What is known of a file.
    ///
    /// # Errors
    /// The server's.
    pub fn attributes(&mut self, fid: Fid) -> Answered<LentAttributes> {
        self.write(Kind::GetAttributes).number(fid.0.to_le_bytes()).number(BASIC.to_le_bytes()).finish();
        let mut answer = self.send(Kind::GetAttributes, TAG)?;
        answer.u64()?;
        let qid = qid(&mut answer)?;
        let (mode, user, group) = (answer.u32()?, answer.u32()?, answer.u32()?);
        let (links, rdev, size) = (answer.u64()?, answer.u64()?, answer.u64()?);
        let (_, blocks) = (answer.u64()?, answer.u64()?);
        let mut times = [(0, 0); 3];
        for time in &mut times {
            *time = (answer.u64()?, answer.u64()?);
        }
        Ok(LentAttributes { qid, mode, user, group, links, rdev, size, blocks, times })
    }

    /// Changes what is known of a file.
    ///
    /// # Errors
    /// The server's.
    pub fn change(&mut self, fid: Fid, change: &Change) -> Answered<()> {
        const MODE: u32 = 1;
        const USER: u32 = 2;
        const GROUP: u32 = 4;
        const SIZE: u32 = 8;
        const ACCESSED: u32 = 0x10 | 0x80;
        const MODIFIED: u32 = 0x20 | 0x100;
        let bit = |is_there: bool, bit: u32| if is_there { bit } else { 0 };
        let valid = bit(change.mode.is_some(), MODE)
            | bit(change.user.is_some(), USER)
            | bit(change.group.is_some(), GROUP)
            | bit(change.size.is_some(), SIZE)
            | bit(change.accessed.is_some(), ACCESSED)
            | bit(change.modified.is_some(), MODIFIED);
        let mut writer = self.write(Kind::SetAttributes).number(fid.0.to_le_bytes());
        for number in [Some(valid), change.mode, change.user, change.group] {
            writer = writer.number(number.unwrap_or(0).to_le_bytes());
        }
        writer = writer.number(change.size.unwrap_or(0).to_le_bytes());
        for (seconds, nanoseconds) in [change.accessed, change.modified].map(Option::unwrap_or_default) {
            writer = writer.number(seconds.to_le_bytes()).number(nanoseconds.to_le_bytes());
        }
        writer.finish();
        self.send(Kind::SetAttributes, TAG).map(drop)
    }

    /// Opens what a handle leads to, which is for reading and writing then and for nothing else. `flags` are
    /// Linux's.
    ///
    /// # Errors
    /// The server's.
    pub fn open(&mut self, fid: Fid, flags: u32) -> Answered<()> {
        self.write(Kind::Open).number(fid.0.to_le_bytes()).number(flags.to_le_bytes()).finish();
        self.send(Kind::Open, TAG).map(drop)
    }

    /// Makes a file in the directory that a handle leads to, and opens it: the handle is the file's then.
    ///
    /// # Errors
    /// The server's; then the handle is the directory's still.
    pub fn create(&mut self, at: Fid, name: &[u8], flags: u32, mode: u32, group: u32) -> Answered<()> {
        let mut writer = self.write(Kind::Create).number(at.0.to_le_bytes()).text(name);
        for number in [flags, mode, group] {
            writer = writer.number(number.to_le_bytes());
        }
        writer.finish();
        self.send(Kind::Create, TAG).map(drop)
    }

    /// Bytes that are read or written at most by one request.
    pub fn piece_bytes(&self) -> usize {
        self.message_bytes - PIECE_HEAD
    }

    /// Reads from an offset on, as much as there is, or [`Client::piece_bytes`].
    ///
    /// # Errors
    /// The server's.
    pub fn read(&mut self, fid: Fid, offset: u64, target: &mut [u8]) -> Answered<usize> {
        let most = target.len().min(self.piece_bytes());
        self.piece(Kind::Read, fid, offset, most).finish();
        let mut answer = self.send(Kind::Read, TAG)?;
        let count = answer.u32()? as usize;
        let target = target.get_mut(..count).filter(|_| count <= most).ok_or(Error::Broken)?;
        target.copy_from_slice(answer.bytes(count)?);
        Ok(count)
    }

    /// Writes at an offset, as much as fits into a message.
    ///
    /// # Errors
    /// The server's.
    pub fn write_at(&mut self, fid: Fid, offset: u64, bytes: &[u8]) -> Answered<usize> {
        let most = bytes.len().min(self.piece_bytes());
        self.piece(Kind::Write, fid, offset, most).raw(&bytes[..most]).finish();
        let count = self.send(Kind::Write, TAG)?.u32()? as usize;
        if count <= most { Ok(count) } else { Err(Error::Broken) }
    }

    fn piece(&mut self, kind: Kind, fid: Fid, offset: u64, count: usize) -> Writer<'_> {
        let writer = self.write(kind).number(fid.0.to_le_bytes());
        writer.number(offset.to_le_bytes()).number((count as u32).to_le_bytes())
    }

    /// Tells `see` of entries of an open directory from `position` on, 0 at first, until it has no more room
    /// and says `None`. Says whether there may be more.
    ///
    /// # Errors
    /// The server's.
    pub fn list(
        &mut self,
        fid: Fid,
        position: u64,
        see: &mut dyn FnMut(LentEntry<'_>) -> Option<()>,
    ) -> Answered<Option<u64>> {
        let most = self.piece_bytes();
        self.piece(Kind::ReadDirectory, fid, position, most).finish();
        let mut answer = self.send(Kind::ReadDirectory, TAG)?;
        let count = answer.u32()? as usize;
        let mut entries = Reader::new(answer.bytes(count)?);
        let mut last = None;
        while !entries.is_empty() {
            let qid = qid(&mut entries)?;
            let (next, kind, name) = (entries.u64()?, entries.u8()?, entries.text()?);
            if see(LentEntry { qid, next, kind, name }).is_none() {
                return Ok(None);
            }
            last = Some(next);
        }
        Ok(last)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// The server's.
    pub fn make_directory(&mut self, at: Fid, name: &[u8], mode: u32, group: u32) -> Answered<()> {
        let writer = self.write(Kind::MakeDirectory).number(at.0.to_le_bytes()).text(name);
        writer.number(mode.to_le_bytes()).number(group.to_le_bytes()).finish();
        self.send(Kind::MakeDirectory, TAG).map(drop)
    }

    /// Makes a file, a pipe, a socket or a device: `mode` says which. `device` is its major and minor number.
    ///
    /// # Errors
    /// The server's.
    pub fn make_node(
        &mut self,
        at: Fid,
        name: &[u8],
        mode: u32,
        device: (u32, u32),
        group: u32,
    ) -> Answered<()> {
        let mut writer = self.write(Kind::MakeNode).number(at.0.to_le_bytes()).text(name);
        for number in [mode, device.0, device.1, group] {
            writer = writer.number(number.to_le_bytes());
        }
        writer.finish();
        self.send(Kind::MakeNode, TAG).map(drop)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// The server's.
    pub fn make_link(&mut self, at: Fid, name: &[u8], target: &[u8], group: u32) -> Answered<()> {
        let writer = self.write(Kind::Symlink).number(at.0.to_le_bytes()).text(name).text(target);
        writer.number(group.to_le_bytes()).finish();
        self.send(Kind::Symlink, TAG).map(drop)
    }

    /// Makes another name of a file.
    ///
    /// # Errors
    /// The server's.
    pub fn link(&mut self, at: Fid, file: Fid, name: &[u8]) -> Answered<()> {
        self.write(Kind::Link).number(at.0.to_le_bytes()).number(file.0.to_le_bytes()).text(name).finish();
        self.send(Kind::Link, TAG).map(drop)
    }

    /// Gives a file another name; what has that name loses it.
    ///
    /// # Errors
    /// The server's.
    pub fn rename(&mut self, from: (Fid, &[u8]), to: (Fid, &[u8])) -> Answered<()> {
        let writer = self.write(Kind::RenameAt).number(from.0.0.to_le_bytes()).text(from.1);
        writer.number(to.0.0.to_le_bytes()).text(to.1).finish();
        self.send(Kind::RenameAt, TAG).map(drop)
    }

    /// Takes a name away; `flags` are those of `unlinkat(2)`.
    ///
    /// # Errors
    /// The server's.
    pub fn unlink(&mut self, at: Fid, name: &[u8], flags: u32) -> Answered<()> {
        self.write(Kind::UnlinkAt).number(at.0.to_le_bytes()).text(name).number(flags.to_le_bytes()).finish();
        self.send(Kind::UnlinkAt, TAG).map(drop)
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// The server's.
    pub fn read_link(&mut self, fid: Fid) -> Answered<Vec<u8>> {
        Ok(self.ask(Kind::ReadLink, fid)?.text()?.to_vec())
    }

    /// What there is of room.
    ///
    /// # Errors
    /// The server's.
    pub fn space(&mut self, fid: Fid) -> Answered<LentSpace> {
        let mut answer = self.ask(Kind::StatFs, fid)?;
        answer.u32()?;
        let block_bytes = answer.u32()?;
        let (blocks, _, available, files) = (answer.u64()?, answer.u64()?, answer.u64()?, answer.u64()?);
        Ok(LentSpace { block_bytes, blocks, available, files })
    }

    /// Has what was written to an open file be on the disk when this returns; its data alone, and what is
    /// needed to read it, if `data_only` is 1, as `fdatasync(2)`, or all, if it is 0.
    ///
    /// # Errors
    /// The server's: then it may not be there.
    pub fn sync(&mut self, fid: Fid, data_only: u32) -> Answered<()> {
        self.write(Kind::Sync).number(fid.0.to_le_bytes()).number(data_only.to_le_bytes()).finish();
        self.send(Kind::Sync, TAG).map(drop)
    }
}

fn qid(reader: &mut Reader<'_>) -> Answered<Qid> {
    reader.u8()?;
    reader.u32()?;
    Ok(Qid { path: reader.u64()? })
}
