//! A directory's entries, by name, and in the order in which they are listed.

use crate::node::InodeId;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// Where the listing of what was made begins; before are `.` and `..`.
pub(crate) const FIRST_COOKIE: u64 = 3;

#[derive(Clone, Copy, Debug)]
struct Entry {
    node: InodeId,
    cookie: u64,
}

/// Names and what they lead to. A listing goes on behind the last entry it saw, whatever was made or removed
/// meanwhile: each entry has a number that grows.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The directory that it is in; a root is in itself.
    pub parent: InodeId,
    /// The file system that covers it, if one is mounted there.
    pub covered: Option<usize>,
    entries: BTreeMap<Box<[u8]>, Entry>,
    order: BTreeMap<u64, Box<[u8]>>,
    next_cookie: u64,
}

impl Directory {
    pub fn new(parent: InodeId) -> Directory {
        let (entries, order) = (BTreeMap::new(), BTreeMap::new());
        Directory { parent, covered: None, entries, order, next_cookie: FIRST_COOKIE }
    }

    pub fn get(&self, name: &[u8]) -> Option<InodeId> {
        self.entries.get(name).map(|entry| entry.node)
    }

    /// The name of what is in here.
    pub fn name_of(&self, node: InodeId) -> Option<&[u8]> {
        self.entries.iter().find(|(_, entry)| entry.node == node).map(|(name, _)| &**name)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// As tmpfs counts it.
    pub fn size(&self) -> u64 {
        (self.entries.len() as u64 + 2) * 20
    }

    /// Puts a name there; what it led to before is returned.
    pub fn insert(&mut self, name: &[u8], node: InodeId) -> Option<InodeId> {
        if let Some(entry) = self.entries.get_mut(name) {
            return Some(core::mem::replace(&mut entry.node, node));
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.entries.insert(name.into(), Entry { node, cookie });
        self.order.insert(cookie, name.into());
        None
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<InodeId> {
        let entry = self.entries.remove(name)?;
        self.order.remove(&entry.cookie);
        Some(entry.node)
    }

    /// Entries from a number on, each with the number behind it.
    pub fn from(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], InodeId)> {
        self.order.range(cookie..).map(|(cookie, name)| (cookie + 1, &**name, self.entries[name].node))
    }
}
