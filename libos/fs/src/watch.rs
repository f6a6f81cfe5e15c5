//! Telling who watches of changes: inotify(7). Of what is stored in memory alone; what happens to a directory
//! of the host is not known here.

use crate::errno::Errno;
use crate::node::{Body, InodeId, NodeId};
use crate::vfs::Vfs;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::fmt;
use linux_raw_sys::general as abi;

/// Flags of a watch that say no event.
const KEPT_FLAGS: u32 = abi::IN_ONESHOT | abi::IN_EXCL_UNLINK;
/// The events that a file is told of, and the directories that it is in.
const OF_BOTH: u32 = abi::IN_ACCESS | abi::IN_MODIFY | abi::IN_ATTRIB | abi::IN_OPEN | abi::IN_CLOSE;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEvent<'a> {
    /// The watch that it is told by.
    pub watch: i32,
    /// What happened, as `IN_CREATE` and its like.
    pub mask: u32,
    /// The same for both halves of a move, else 0.
    pub cookie: u32,
    /// In a watched directory, the name of what it happened to.
    pub name: &'a [u8],
}

/// Who is told. It is told while the tree changes, and only takes note.
pub trait Watcher {
    /// Something happened.
    fn tell(&self, event: &FileEvent<'_>);
}

/// That somebody watches a file.
struct Watch {
    id: InodeId,
    number: i32,
    mask: u32,
    watcher: Rc<dyn Watcher>,
}

/// All watches.
#[derive(Default)]
pub(crate) struct Watches {
    all: Vec<Watch>,
    last_cookie: u32,
}

impl fmt::Debug for Watches {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Watches({})", self.all.len())
    }
}

impl Watches {
    fn of<'a>(&'a self, watcher: &'a Rc<dyn Watcher>) -> impl Iterator<Item = &'a Watch> {
        self.all.iter().filter(move |watch| Rc::ptr_eq(&watch.watcher, watcher))
    }

    /// Tells those that watch `id` for any event of `mask`.
    fn tell(&mut self, id: InodeId, mask: u32, cookie: u32, name: &[u8]) {
        let mut used_up = Vec::new();
        for watch in self.all.iter().filter(|watch| watch.id == id && watch.mask & mask & !KEPT_FLAGS != 0) {
            let mask = mask & (watch.mask | abi::IN_ISDIR);
            watch.watcher.tell(&FileEvent { watch: watch.number, mask, cookie, name });
            if watch.mask & abi::IN_ONESHOT != 0 {
                used_up.push((watch.watcher.clone(), watch.number));
            }
        }
        for (watcher, number) in used_up {
            self.end(|watch| Rc::ptr_eq(&watch.watcher, &watcher) && watch.number == number);
        }
    }

    /// Ends watches, and says so to who had them.
    fn end(&mut self, is_over: impl Fn(&Watch) -> bool) {
        self.all.retain(|watch| {
            let is_over = is_over(watch);
            if is_over {
                let number = watch.number;
                let event = FileEvent { watch: number, mask: abi::IN_IGNORED, cookie: 0, name: &[] };
                watch.watcher.tell(&event);
            }
            !is_over
        });
    }
}

impl Vfs {
    /// Has a watcher told of what happens to a node, as `inotify_add_watch(2)`: the number of the watch,
    /// which is that of one that there is already, or else `next`.
    ///
    /// # Errors
    /// `EEXIST` with `IN_MASK_CREATE`; `EOPNOTSUPP` for what is not in memory.
    pub fn watch(
        &mut self,
        node: NodeId,
        mask: u32,
        watcher: &Rc<dyn Watcher>,
        next: i32,
    ) -> Result<i32, Errno> {
        let id = node.stored().ok_or(Errno::EOPNOTSUPP)?;
        let kept = mask & (abi::IN_ALL_EVENTS | KEPT_FLAGS);
        let known =
            self.watches.all.iter_mut().find(|watch| watch.id == id && Rc::ptr_eq(&watch.watcher, watcher));
        if let Some(watch) = known {
            if mask & abi::IN_MASK_CREATE != 0 {
                return Err(Errno::EEXIST);
            }
            watch.mask = if mask & abi::IN_MASK_ADD != 0 { watch.mask | kept } else { kept };
            return Ok(watch.number);
        }
        self.watches.all.push(Watch { id, number: next, mask: kept, watcher: watcher.clone() });
        Ok(next)
    }

    /// Ends a watch, of which its watcher is told.
    ///
    /// # Errors
    /// `EINVAL` if there is none of this number.
    pub fn end_watch(&mut self, watcher: &Rc<dyn Watcher>, number: i32) -> Result<(), Errno> {
        if !self.watches.of(watcher).any(|watch| watch.number == number) {
            return Err(Errno::EINVAL);
        }
        self.watches.end(|watch| watch.number == number && Rc::ptr_eq(&watch.watcher, watcher));
        Ok(())
    }

    /// Forgets a watcher.
    pub fn end_watches(&mut self, watcher: &Rc<dyn Watcher>) {
        self.watches.all.retain(|watch| !Rc::ptr_eq(&watch.watcher, watcher));
    }

    /// Tells of something that happened to what is open or was touched by its name.
    pub fn tell_of(&mut self, node: NodeId, mask: u32) {
        if self.watches.all.is_empty() {
            return;
        }
        let Some(id) = node.stored() else { return };
        let kind = self.kind_flag(id);
        if mask & OF_BOTH != 0 {
            for (directory, name) in self.watched_places(id) {
                self.watches.tell(directory, mask | kind, 0, &name);
            }
        }
        self.watches.tell(id, mask | kind, 0, &[]);
    }

    /// What an event says besides of a directory.
    fn kind_flag(&self, id: InodeId) -> u32 {
        if self.inode(id).is_directory() { abi::IN_ISDIR } else { 0 }
    }

    /// Tells of a name more or less those who watch the file, but none of its directories.
    pub(crate) fn tell_of_links(&mut self, id: InodeId) {
        self.watches.tell(id, abi::IN_ATTRIB, 0, &[]);
    }

    /// The watched directories that something is in, with its names there.
    fn watched_places(&self, id: InodeId) -> Vec<(InodeId, Vec<u8>)> {
        let mut places: Vec<(InodeId, Vec<u8>)> = Vec::new();
        for watch in &self.watches.all {
            let Body::Directory(entries) = &self.inode(watch.id).body else { continue };
            let is_known = places.iter().any(|(directory, _)| *directory == watch.id);
            if let Some(name) = entries.name_of(id).filter(|_| !is_known) {
                places.push((watch.id, name.to_vec()));
            }
        }
        places
    }

    /// Tells of a name that came or went.
    pub(crate) fn tell_of_name(&mut self, directory: InodeId, name: &[u8], id: InodeId, mask: u32) {
        if self.watches.all.is_empty() {
            return;
        }
        let kind = self.kind_flag(id);
        self.watches.tell(directory, mask | kind, 0, name);
    }

    /// Tells of a move, from and to a directory and a name.
    pub(crate) fn tell_of_move(&mut self, from: (InodeId, &[u8]), to: (InodeId, &[u8]), id: InodeId) {
        if self.watches.all.is_empty() {
            return;
        }
        let kind = self.kind_flag(id);
        self.watches.last_cookie += 1;
        let cookie = self.watches.last_cookie;
        self.watches.tell(from.0, abi::IN_MOVED_FROM | kind, cookie, from.1);
        self.watches.tell(to.0, abi::IN_MOVED_TO | kind, cookie, to.1);
        self.watches.tell(id, abi::IN_MOVE_SELF, 0, &[]);
    }

    /// Tells that something is gone for good, and ends its watches.
    pub(crate) fn tell_of_end(&mut self, id: InodeId) {
        self.watches.tell(id, abi::IN_DELETE_SELF, 0, &[]);
        self.watches.end(|watch| watch.id == id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, Credentials, FileTime, Replace};
    use core::cell::RefCell;
    use std::string::String;

    #[derive(Default)]
    struct Notes(RefCell<Vec<(i32, u32, String)>>);

    impl Watcher for Notes {
        fn tell(&self, event: &FileEvent<'_>) {
            let name = String::from_utf8_lossy(event.name).into_owned();
            self.0.borrow_mut().push((event.watch, event.mask, name));
        }
    }

    #[test]
    fn a_directory_and_a_file_tell_what_happens() {
        let mut vfs = Vfs::new(FileTime::default(), 64);
        let (credentials, root) = (Credentials::default(), vfs.root());
        let caller = Caller::first(&credentials, root, FileTime::default());
        let notes = Rc::new(Notes::default());
        let watcher: Rc<dyn Watcher> = notes.clone();
        assert_eq!(vfs.watch(root, abi::IN_ALL_EVENTS, &watcher, 1), Ok(1));
        let file = vfs.open(&caller, root, b"a", abi::O_CREAT | abi::O_RDWR, 0o600).expect("made");
        assert_eq!(vfs.watch(file, abi::IN_MODIFY | abi::IN_DELETE_SELF, &watcher, 2), Ok(2));
        assert_eq!(vfs.watch(file, abi::IN_MODIFY | abi::IN_DELETE_SELF, &watcher, 3), Ok(2));
        vfs.write(file, 0, b"x", &caller).expect("written");
        vfs.rename(&caller, (root, b"a"), (root, b"b"), Replace::Yes).expect("moved");
        vfs.unlink(&caller, root, b"b").expect("removed");
        vfs.release(file);
        vfs.make_directory(&caller, root, b"d", 0o700).expect("made");
        let told = notes.0.take();
        let expected: &[(i32, u32, &str)] = &[
            (1, abi::IN_CREATE, "a"),
            (1, abi::IN_OPEN, "a"),
            (1, abi::IN_MODIFY, "a"),
            (2, abi::IN_MODIFY, ""),
            (1, abi::IN_MOVED_FROM, "a"),
            (1, abi::IN_MOVED_TO, "b"),
            (1, abi::IN_DELETE, "b"),
            (2, abi::IN_DELETE_SELF, ""),
            (2, abi::IN_IGNORED, ""),
            (1, abi::IN_CREATE | abi::IN_ISDIR, "d"),
        ];
        let expected = expected.iter().map(|(watch, mask, name)| (*watch, *mask, (*name).into()));
        assert_eq!(told, expected.collect::<Vec<_>>());
        assert_eq!(vfs.end_watch(&watcher, 2), Err(Errno::EINVAL));
        assert_eq!(vfs.end_watch(&watcher, 1), Ok(()));
        assert_eq!(notes.0.take(), [(1, abi::IN_IGNORED, String::new())]);
    }
}
