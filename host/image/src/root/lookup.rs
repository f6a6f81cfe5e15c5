//! What is where in a root, as a program that has it for its `/` sees it.

use super::{Body, DIRECTORY, Entry, FILE, LINK, Root, TYPE_MASK, error};
use crate::error::Result;
use std::path::Path;

/// Most links on one way, as on Linux.
pub(super) const LINKS_MAX: usize = 40;

impl Root {
    /// The path of what a path leads to, with all links followed; nothing if that is absent.
    fn resolve(&self, path: &str) -> Option<(String, &Entry)> {
        let mut at = String::new();
        let mut found = None;
        let mut names: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut links = 0;
        while let Some(name) = names.pop() {
            match name.as_str() {
                "" | "." => continue,
                ".." => at.truncate(at.rfind('/').unwrap_or(0)),
                _ => {
                    let next = if at.is_empty() { name } else { format!("{at}/{name}") };
                    let entry = self.entries.get(&next)?;
                    if let (LINK, Body::Bytes(target)) = (entry.mode & TYPE_MASK, &entry.body) {
                        links += 1;
                        let target = std::str::from_utf8(target).ok().filter(|_| links <= LINKS_MAX)?;
                        if target.starts_with('/') {
                            at = String::new();
                        }
                        names.extend(target.split('/').rev().map(str::to_owned));
                    } else {
                        at = next;
                    }
                }
            }
            found = self.entries.get(&at);
        }
        found.map(|entry| (at, entry))
    }

    /// Whether a path leads to a file.
    pub(crate) fn leads_to_file(&self, path: &str) -> bool {
        self.resolve(path).is_some_and(|(_, entry)| entry.mode & TYPE_MASK == FILE)
    }

    /// What is at a path itself, by the type in its mode.
    pub(super) fn kind(&self, path: &str) -> Option<u32> {
        self.entries.get(path).map(|entry| entry.mode & TYPE_MASK)
    }

    /// Where the link at a path leads, if that is one.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let entry = self.entries.get(path).filter(|entry| entry.mode & TYPE_MASK == LINK)?;
        String::from_utf8(entry.body.contents().ok()?).ok()
    }

    /// What the file at a path holds.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn contents(&self, path: &str) -> Result<Vec<u8>> {
        let file = self.entries.get(path).filter(|entry| entry.mode & TYPE_MASK == FILE);
        let absent = || error(Path::new(&format!("/{path}")), "no such file");
        file.ok_or_else(absent)?.body.contents()
    }

    /// Names in the directory at a path.
    pub(super) fn names(&self, directory: &str) -> Vec<String> {
        let below = format!("{directory}/");
        let inside = self.entries.range(below.clone()..).map(|(path, _)| path);
        let inside = inside.map_while(|path| path.strip_prefix(&below)).filter(|name| !name.contains('/'));
        inside.map(str::to_owned).collect()
    }

    /// A directory at this path, which belongs to root, unless there is something.
    pub(crate) fn make_directory(&mut self, path: &str) {
        if self.resolve(path).is_none() {
            self.insert(path, DIRECTORY | 0o755, Body::Nothing);
        }
    }

    /// The home of a user, by the root's `/etc/passwd`; `/` if that is not known.
    pub(crate) fn home(&self, user: u32) -> String {
        let users = self.text("etc/passwd");
        let rows = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let row = rows.into_iter().find(|row| row.len() > 5 && row[2].parse() == Ok(user));
        row.map_or_else(|| "/".to_owned(), |row| row[5].to_owned())
    }

    /// The text of a file, empty if there is none.
    pub(super) fn text(&self, path: &str) -> String {
        let entry = self.resolve(path).filter(|(_, entry)| entry.mode & TYPE_MASK == FILE);
        let bytes = entry.and_then(|(_, entry)| entry.body.contents().ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
