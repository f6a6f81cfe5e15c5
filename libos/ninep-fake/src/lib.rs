//! A server of 9P2000.L over a directory of this computer, for tests: what QEMU's does as root with the
//! security model "passthrough". What is said of a handle that is not open is said of what has its path,
//! which changes with that of a directory above, as there. Else a handle stays with its file when that loses
//! its name, unlike QEMU's.
#![forbid(unsafe_code)]

use nom_ninep::{Kind, NinepChannel, NoAnswer, Reader, Writer};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, RawDir, Stat, Uid};
use rustix::io::Errno;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::path::Path;

/// What a request's handler says: the body of the answer.
type Body = Result<Vec<u8>, Errno>;

type PathNames = Vec<Vec<u8>>;

/// Bytes of an answer's head.
const HEAD: usize = 7;
const ERROR: u8 = 7;

struct Handle {
    /// What it leads to.
    file: OwnedFd,
    /// The names that led there from the root.
    path: PathNames,
    open: Option<OwnedFd>,
}

/// A server.
pub struct FakeServer {
    root: OwnedFd,
    handles: HashMap<u32, Handle>,
    /// Requests that were answered, by kind.
    asked: Vec<Kind>,
    /// Whether what is open is known by what it is, and not by its path.
    knows_open: bool,
}

impl FakeServer {
    /// One that lends a directory.
    ///
    /// # Panics
    /// If it is none.
    pub fn new(directory: &Path) -> FakeServer {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(directory, flags, Mode::empty()).expect("a directory");
        FakeServer { root, handles: HashMap::new(), asked: Vec::new(), knows_open: true }
    }

    /// What was asked so far.
    pub fn asked(&self) -> &[Kind] {
        &self.asked
    }

    /// Knows of what is open and has no name no more than what that holds from now on, as older QEMUs.
    pub fn forget_nameless(&mut self) {
        self.knows_open = false;
    }

    /// Handles that its client has.
    pub fn handles(&self) -> usize {
        self.handles.len()
    }
}

impl NinepChannel for FakeServer {
    fn exchange(&mut self, request: &[u8], answer: &mut [u8]) -> Result<usize, NoAnswer> {
        let mut reader = Reader::new(request);
        let head = (|| Ok::<_, nom_ninep::Error>((reader.u32()?, reader.u8()?, reader.u16()?)))();
        let (length, number, tag) = head.map_err(|_| NoAnswer)?;
        let kind = Kind::of(number).filter(|_| length as usize == request.len()).ok_or(NoAnswer)?;
        self.asked.push(kind);
        let room = answer.len() - HEAD;
        let mut bytes = Vec::new();
        match self.answer(kind, &mut reader, room) {
            Ok(body) => Writer::message(&mut bytes, number + 1, tag).raw(&body).finish(),
            Err(error) => {
                let number = (error.raw_os_error() as u32).to_le_bytes();
                Writer::message(&mut bytes, ERROR, tag).number(number).finish();
            }
        }
        answer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

/// Reads a request: one that is too short is the client's mistake.
macro_rules! read {
    ($reader:ident, $($what:ident),*) => { ($($reader.$what().expect("a whole request")),*) };
}

fn path_of(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn status(file: &OwnedFd) -> Result<Stat, Errno> {
    fs::statat(file, "", AtFlags::EMPTY_PATH)
}

fn qid(status: &Stat) -> Vec<u8> {
    let kind = match FileType::from_raw_mode(status.st_mode) {
        FileType::Directory => 0x80,
        FileType::Symlink => 2,
        _ => 0,
    };
    [&[kind, 0, 0, 0, 0][..], &status.st_ino.to_le_bytes()].concat()
}

impl FakeServer {
    fn file(&self, handle: u32) -> Result<&OwnedFd, Errno> {
        self.handles.get(&handle).map(|handle| &handle.file).ok_or(Errno::BADF)
    }

    fn opened(&self, handle: u32) -> Result<&OwnedFd, Errno> {
        self.handles.get(&handle).and_then(|handle| handle.open.as_ref()).ok_or(Errno::BADF)
    }

    /// A new handle of a file.
    fn put(&mut self, handle: u32, file: OwnedFd, path: PathNames) -> Body {
        let qid = qid(&status(&file)?);
        self.handles.insert(handle, Handle { file, path, open: None });
        Ok(qid)
    }

    /// The path of a name in a directory.
    fn path_in(&self, directory: u32, name: &[u8]) -> Result<PathNames, Errno> {
        let above = &self.handles.get(&directory).ok_or(Errno::BADF)?.path;
        Ok([above.as_slice(), &[name.to_vec()]].concat())
    }

    /// What has this path now.
    fn find(&self, path: &PathNames) -> Result<Stat, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = self.root.try_clone().map_err(|_| Errno::MFILE)?;
        let step = |at, name: &Vec<u8>| fs::openat(at, name.as_slice(), flags, Mode::empty());
        status(&path.iter().try_fold(root, step)?)
    }

    /// Handles of what is at one path, and below it, are of another.
    fn move_paths(&mut self, from: &PathNames, to: &PathNames) {
        for handle in self.handles.values_mut() {
            if let Some(below) = handle.path.strip_prefix(from.as_slice()) {
                handle.path = [to, below].concat();
            }
        }
    }

    fn answer(&mut self, kind: Kind, reader: &mut Reader<'_>, room: usize) -> Body {
        let nothing = |()| Vec::new();
        match kind {
            Kind::Version => {
                let (bytes, version) = read!(reader, u32, text);
                let length = (version.len() as u16).to_le_bytes();
                Ok([&bytes.to_le_bytes()[..], &length, version].concat())
            }
            Kind::Attach => {
                let root = self.root.try_clone().map_err(|_| Errno::MFILE)?;
                self.put(read!(reader, u32), root, Vec::new())
            }
            Kind::Walk => self.walk(reader),
            Kind::Clunk => {
                self.handles.remove(&read!(reader, u32)).ok_or(Errno::BADF)?;
                Ok(Vec::new())
            }
            Kind::GetAttributes => self.attributes(read!(reader, u32)),
            Kind::SetAttributes => self.change(reader).map(nothing),
            Kind::Open => {
                let (handle, flags) = read!(reader, u32, u32);
                let flags = OFlags::from_bits_retain(flags) | OFlags::CLOEXEC;
                let file = self.file(handle)?;
                let (opened, qid) = (fs::open(path_of(file.as_fd()), flags, Mode::empty())?, status(file)?);
                self.handles.get_mut(&handle).ok_or(Errno::BADF)?.open = Some(opened);
                Ok([qid_and_unit(&qid)].concat())
            }
            Kind::Create => self.create(reader),
            Kind::Read => {
                let (handle, offset, count) = read!(reader, u32, u64, u32);
                let mut bytes = vec![0; (count as usize).min(room - 4)];
                let count = rustix::io::pread(self.opened(handle)?, &mut bytes, offset)?;
                Ok([&(count as u32).to_le_bytes()[..], &bytes[..count]].concat())
            }
            Kind::Write => {
                let (handle, offset, count) = read!(reader, u32, u64, u32);
                let bytes = reader.bytes(count as usize).expect("a whole request");
                let count = rustix::io::pwrite(self.opened(handle)?, bytes, offset)?;
                Ok((count as u32).to_le_bytes().to_vec())
            }
            Kind::ReadDirectory => self.list(reader, room),
            Kind::Sync => {
                let (handle, data_only) = read!(reader, u32, u32);
                let file = self.opened(handle)?;
                if data_only == 0 { fs::fsync(file) } else { fs::fdatasync(file) }.map(nothing)
            }
            Kind::StatFs => {
                let found = fs::fstatfs(self.file(read!(reader, u32))?)?;
                let mut body = [found.f_type as u32, found.f_bsize as u32].map(u32::to_le_bytes).concat();
                let numbers =
                    [found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree, 0];
                numbers.iter().for_each(|number| body.extend(number.to_le_bytes()));
                body.extend(255_u32.to_le_bytes());
                Ok(body)
            }
            Kind::ReadLink => {
                let target = fs::readlinkat(self.file(read!(reader, u32))?, "", Vec::new())?;
                Ok([&(target.as_bytes().len() as u16).to_le_bytes()[..], target.as_bytes()].concat())
            }
            other => self.answer_of_names(other, reader),
        }
    }

    fn answer_of_names(&mut self, kind: Kind, reader: &mut Reader<'_>) -> Body {
        let (handle, nothing) = (read!(reader, u32), |()| Vec::new());
        let at = self.file(handle)?;
        match kind {
            Kind::MakeDirectory => {
                let (name, mode, group) = read!(reader, text, u32, u32);
                fs::mkdirat(at, name, Mode::from_raw_mode(mode))?;
                own(at, name, Some(mode), group)
            }
            Kind::MakeNode => {
                let (name, mode, _, _, group) = read!(reader, text, u32, u32, u32, u32);
                fs::mknodat(at, name, FileType::from_raw_mode(mode), Mode::from_raw_mode(mode), 0)?;
                own(at, name, Some(mode), group)
            }
            Kind::Symlink => {
                let (name, target, group) = read!(reader, text, text, u32);
                fs::symlinkat(target, at, name)?;
                own(at, name, None, group)
            }
            Kind::Link => {
                let (file, name) = read!(reader, u32, text);
                let file = path_of(self.file(file)?.as_fd());
                fs::linkat(fs::CWD, file, at, name, AtFlags::SYMLINK_FOLLOW).map(nothing)
            }
            Kind::RenameAt => {
                let (name, to, new) = read!(reader, text, u32, text);
                fs::renameat(at, name, self.file(to)?, new)?;
                self.move_paths(&self.path_in(handle, name)?, &self.path_in(to, new)?);
                Ok(Vec::new())
            }
            Kind::UnlinkAt => {
                let (name, flags) = read!(reader, text, u32);
                fs::unlinkat(at, name, AtFlags::from_bits_retain(flags)).map(nothing)
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn walk(&mut self, reader: &mut Reader<'_>) -> Body {
        let (from, to, names) = read!(reader, u32, u32, u16);
        let file = self.file(from)?;
        if names == 0 {
            let file = file.try_clone().map_err(|_| Errno::MFILE)?;
            let path = self.handles.get(&from).ok_or(Errno::BADF)?.path.clone();
            return self.put(to, file, path).map(|_| vec![0, 0]);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = read!(reader, text);
        let found = fs::openat(file, name, flags, Mode::empty())?;
        let path = self.path_in(from, name)?;
        self.put(to, found, path).map(|qid| [vec![1, 0], qid].concat())
    }

    fn attributes(&self, handle: u32) -> Body {
        let handle = self.handles.get(&handle).ok_or(Errno::BADF)?;
        let found = match &handle.open {
            Some(opened) if self.knows_open => fs::fstat(opened)?,
            _ => self.find(&handle.path)?,
        };
        let mut body = [&0x7ff_u64.to_le_bytes()[..], &qid(&found)].concat();
        for number in [found.st_mode, found.st_uid, found.st_gid] {
            body.extend(number.to_le_bytes());
        }
        let sizes = [found.st_nlink, found.st_rdev, found.st_size as u64];
        let blocks = [found.st_blksize as u64, found.st_blocks as u64];
        let times = [
            (found.st_atime, found.st_atime_nsec),
            (found.st_mtime, found.st_mtime_nsec),
            (found.st_ctime, found.st_ctime_nsec),
        ];
        let times = times.iter().flat_map(|(seconds, rest)| [*seconds as u64, *rest]);
        let numbers = sizes.into_iter().chain(blocks).chain(times).chain([0; 4]);
        numbers.for_each(|number| body.extend(number.to_le_bytes()));
        Ok(body)
    }

    fn change(&self, reader: &mut Reader<'_>) -> Result<(), Errno> {
        let (handle, valid, mode, user, group) = read!(reader, u32, u32, u32, u32, u32);
        let (size, _, _, modified, rest) = read!(reader, u64, u64, u64, u64, u64);
        let file = self.file(handle)?;
        let path = path_of(file.as_fd());
        let has = |bit: u32| valid & bit != 0;
        if has(1) {
            fs::chmodat(fs::CWD, &path, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        if has(2 | 4) {
            let (user, group) = (has(2).then(|| Uid::from_raw(user)), has(4).then(|| Gid::from_raw(group)));
            fs::chownat(file, "", user, group, AtFlags::EMPTY_PATH)?;
        }
        if has(8) {
            let file = fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            fs::ftruncate(file, size)?;
        }
        if has(0x20) {
            let time = fs::Timespec { tv_sec: modified as i64, tv_nsec: rest as i64 };
            let times = fs::Timestamps { last_access: time, last_modification: time };
            fs::utimensat(fs::CWD, &path, &times, AtFlags::empty())?;
        }
        Ok(())
    }

    fn create(&mut self, reader: &mut Reader<'_>) -> Body {
        let (handle, name, flags, mode, group) = read!(reader, u32, text, u32, u32, u32);
        let at = self.file(handle)?;
        let flags = OFlags::from_bits_retain(flags) | OFlags::CREATE | OFlags::CLOEXEC;
        let opened = fs::openat(at, name, flags, Mode::from_raw_mode(mode))?;
        own(at, name, Some(mode), group)?;
        let found = fs::fstat(&opened)?;
        self.handles.get_mut(&handle).ok_or(Errno::BADF)?.open = Some(opened);
        Ok(qid_and_unit(&found))
    }

    fn list(&self, reader: &mut Reader<'_>, room: usize) -> Body {
        let (handle, offset, count) = read!(reader, u32, u64, u32);
        let file = self.opened(handle)?;
        fs::seek(file, fs::SeekFrom::Start(offset))?;
        let most = (count as usize).min(room - 4);
        let mut space = vec![MaybeUninit::uninit(); 4096];
        let mut directory = RawDir::new(file, &mut space);
        let mut entries = Vec::new();
        while let Some(entry) = directory.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if entries.len() + 24 + name.len() > most {
                break;
            }
            entries.extend([0, 0, 0, 0, 0]);
            entries.extend(entry.ino().to_le_bytes());
            entries.extend(entry.next_entry_cookie().to_le_bytes());
            // As `d_type` has it: the mode's highest four bits.
            entries.push((entry.file_type().as_raw_mode() >> 12) as u8);
            entries.extend((name.len() as u16).to_le_bytes());
            entries.extend(name);
        }
        Ok([&(entries.len() as u32).to_le_bytes()[..], &entries].concat())
    }
}

fn qid_and_unit(found: &Stat) -> Vec<u8> {
    [&qid(found)[..], &[0; 4]].concat()
}

/// What was made belongs to root and to a group, and has the mode that was asked for.
fn own(at: &OwnedFd, name: &[u8], mode: Option<u32>, group: u32) -> Body {
    fs::chownat(at, name, None, Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW)?;
    if let Some(mode) = mode {
        fs::chmodat(at, name, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
    }
    fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW).map(|found| qid(&found))
}
