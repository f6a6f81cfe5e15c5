//! Layers of a container image: archives in tar's format, each laid over what those before it made
//! (OCI image specification, "Image Layer Filesystem Changeset").
//!
//! Nothing is unpacked on this computer: names are looked up in the root alone, as if it were `/`.

use super::gather::MADE;
use super::lookup::LINKS_MAX;
use super::{Body, DIRECTORY, Entry, FILE, LINK, Root, TYPE_MASK, error};
use crate::error::Result;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use tar::EntryType;

/// Before the name of what a layer takes away.
const WHITEOUT: &str = ".wh.";
/// In a directory of which a layer takes all away that was in it.
const OPAQUE: &str = ".wh..wh..opq";
/// Before names of what a union file system keeps for itself.
const RESERVED: &str = ".wh..wh.";

/// A root that layers are laid over.
pub(crate) struct Layers<'r> {
    root: &'r mut Root,
    /// What the layer that is being laid has put there: its own whiteouts leave that.
    own: BTreeSet<String>,
}

impl<'r> Layers<'r> {
    pub fn new(root: &'r mut Root) -> Layers<'r> {
        Layers { root, own: BTreeSet::new() }
    }

    /// Lays a layer, which is read to its end, over what is there; `file` is what complaints name. Devices,
    /// sockets and what is in `/dev`, `/proc` and `/sys` is left out, as with [`Root::of_directory`].
    ///
    /// # Errors
    /// What is no archive; an entry that would be outside of the root, or cannot be where it says.
    pub fn add(&mut self, file: &Path, layer: &mut dyn Read) -> Result<()> {
        self.own.clear();
        let damaged = |reason: std::io::Error| error(file, format!("no tar archive: {reason}"));
        let mut archive = tar::Archive::new(&mut *layer);
        for entry in archive.entries().map_err(damaged)? {
            let mut entry = entry.map_err(damaged)?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let problem = |problem: String| error(file, format!("entry {path}: {problem}"));
            self.add_entry(&path, &mut entry).map_err(problem)?;
        }
        // What is behind the archive counts for its digest.
        std::io::copy(layer, &mut std::io::sink()).map_err(damaged)?;
        Ok(())
    }

    fn add_entry(&mut self, path: &str, entry: &mut tar::Entry<'_, impl Read>) -> Result<(), String> {
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            return Ok(());
        }
        let names = names(path)?;
        let Some((name, parents)) = names.split_last() else { return Ok(()) };
        // What is there is made when the machine starts.
        if MADE.contains(&names[0]) && (!parents.is_empty() || !kind.is_dir()) {
            return Ok(());
        }
        let directory = self.directory(parents)?;
        if name.starts_with(WHITEOUT) {
            return self.take_away(&directory, name);
        }
        let at = join(&directory, name);
        let Some(made) = self.made(entry)? else { return Ok(()) };
        let is_directory = |entry: &Entry| entry.mode & TYPE_MASK == DIRECTORY;
        if !(is_directory(&made) && self.root.entries.get(&at).is_some_and(is_directory)) {
            self.remove(&at);
        }
        self.root.place(&at, made);
        self.own.insert(at);
        Ok(())
    }

    /// What an entry is to be in the root; nothing if it is left out.
    fn made(&self, entry: &mut tar::Entry<'_, impl Read>) -> Result<Option<Entry>, String> {
        let kind = entry.header().entry_type();
        let (kind, body) = match kind {
            EntryType::Directory => (DIRECTORY, Body::Nothing),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => (FILE, contents(entry)?),
            EntryType::Symlink => (LINK, Body::bytes(link_name(entry)?.as_bytes())),
            EntryType::Link => return self.linked(&link_name(entry)?).map(Some),
            EntryType::Block | EntryType::Char | EntryType::Fifo => return Ok(None),
            _ => return Err(format!("of the unknown type {:?}", kind.as_byte() as char)),
        };
        let field = |value: std::io::Result<u64>, what: &str| {
            let value = value.map_err(|reason| format!("its {what}: {reason}"))?;
            u32::try_from(value).map_err(|_| format!("its {what} {value}, expected 32 bits"))
        };
        let header = entry.header();
        let mode = header.mode().map_err(|reason| format!("its mode: {reason}"))?;
        Ok(Some(Entry {
            mode: kind | mode & 0o7777,
            user: field(header.uid(), "user")?,
            group: field(header.gid(), "group")?,
            modified: header.mtime().unwrap_or(0),
            body,
        }))
    }

    /// Another name of a file that is there.
    fn linked(&self, target: &str) -> Result<Entry, String> {
        let problem = |problem: &str| format!("a hard link to {target}: {problem}");
        let names = names(target).map_err(|reason| problem(&reason))?;
        let (name, parents) = names.split_last().ok_or_else(|| problem("expected a file"))?;
        let directory = self.follow(parents).map_err(|reason| problem(&reason))?;
        match self.root.entries.get(&join(&directory, name)) {
            Some(entry) if entry.mode & TYPE_MASK != DIRECTORY => Ok(entry.clone()),
            Some(_) => Err(problem("a directory, expected a file")),
            None => Err(problem("no such file in the image")),
        }
    }

    /// The path of the directory that these names lead to, which is made where it is absent.
    fn directory(&mut self, names: &[&str]) -> Result<String, String> {
        let directory = self.follow(names)?;
        if !directory.is_empty() && !self.root.entries.contains_key(&directory) {
            for (end, _) in directory.match_indices('/').chain([(directory.len(), "")]) {
                self.own.insert(directory[..end].to_owned());
            }
            self.root.insert(&directory, DIRECTORY | 0o755, Body::Nothing);
        }
        Ok(directory)
    }

    /// The path that these names lead to as directories, with links followed within the root. What a link
    /// leads to must be there; other names need not.
    fn follow(&self, names: &[&str]) -> Result<String, String> {
        let mut at = String::new();
        let mut rest: Vec<(String, Option<String>)> =
            names.iter().rev().map(|name| ((*name).to_owned(), None)).collect();
        let mut links = 0;
        while let Some((name, link)) = rest.pop() {
            let through = |problem: &str| match &link {
                Some(link) => format!("it goes through the link {link}, {problem}"),
                None => problem.to_owned(),
            };
            if name == ".." {
                let end = at.rfind('/').unwrap_or(0);
                if at.is_empty() {
                    return Err(through("which leads out of the root"));
                }
                at.truncate(end);
                continue;
            }
            let next = join(&at, &name);
            match self.root.entries.get(&next) {
                Some(entry) if entry.mode & TYPE_MASK == LINK => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(through("links lead to links without end"));
                    }
                    let Body::Bytes(target) = &entry.body else { return Err(through("which is damaged")) };
                    let target = String::from_utf8_lossy(target).into_owned();
                    if target.starts_with('/') {
                        at = String::new();
                    }
                    let link = link.unwrap_or_else(|| format!("/{next} to {target}"));
                    let steps = target.split('/').filter(|name| !name.is_empty() && *name != ".");
                    let steps: Vec<_> = steps.map(|name| (name.to_owned(), Some(link.clone()))).collect();
                    rest.extend(steps.into_iter().rev());
                }
                Some(entry) if entry.mode & TYPE_MASK == DIRECTORY => at = next,
                Some(_) => return Err(through(&format!("/{next} is there and is no directory"))),
                None if link.is_some() => {
                    return Err(through("which leads to no directory of the image"));
                }
                None => at = next,
            }
        }
        Ok(at)
    }

    /// What a whiteout says.
    fn take_away(&mut self, directory: &str, name: &str) -> Result<(), String> {
        if name == OPAQUE {
            let below = if directory.is_empty() { String::new() } else { format!("{directory}/") };
            self.retain(|path| !path.starts_with(&below));
            return Ok(());
        }
        if name.starts_with(RESERVED) {
            return Ok(());
        }
        match &name[WHITEOUT.len()..] {
            "" | "." | ".." => Err("a whiteout of no name, expected a file's behind `.wh.`".to_owned()),
            gone => {
                let (gone, below) = (join(directory, gone), format!("{}/", join(directory, gone)));
                self.retain(|path| path != gone && !path.starts_with(&below));
                Ok(())
            }
        }
    }

    /// Keeps what is wanted, and what this layer itself has put there.
    fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        let own = &self.own;
        let is_above_own = |path: &str| {
            let below = format!("{path}/");
            own.range(below.clone()..).next().is_some_and(|next| next.starts_with(&below))
        };
        self.root.entries.retain(|path, _| is_wanted(path) || own.contains(path) || is_above_own(path));
    }

    /// Takes away what has a path, and what is in it.
    fn remove(&mut self, path: &str) {
        self.root.entries.remove(path);
        let below = format!("{path}/");
        let inside = self.root.entries.range(below.clone()..).map(|(path, _)| path);
        let inside: Vec<String> = inside.take_while(|path| path.starts_with(&below)).cloned().collect();
        for path in inside {
            self.root.entries.remove(&path);
            self.own.remove(&path);
        }
    }
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// The names of a path of an archive, which begins at the root whether or not a slash says so.
fn names(path: &str) -> Result<Vec<&str>, String> {
    if path.contains(['\0', char::REPLACEMENT_CHARACTER]) {
        return Err("its name is not UTF-8".to_owned());
    }
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if names.contains(&"..") {
        return Err("`..` in a name leads out of the root".to_owned());
    }
    Ok(names)
}

fn link_name(entry: &tar::Entry<'_, impl Read>) -> Result<String, String> {
    let bytes = entry.link_name_bytes().ok_or("a link to nothing")?;
    let name = String::from_utf8(bytes.into_owned()).ok().filter(|name| !name.contains('\0'));
    name.filter(|name| !name.is_empty()).ok_or_else(|| "a link whose target is not UTF-8".to_owned())
}

fn contents(entry: &mut tar::Entry<'_, impl Read>) -> Result<Body, String> {
    let bytes = entry.size();
    let mut contents = Vec::new();
    entry.read_to_end(&mut contents).map_err(|reason| reason.to_string())?;
    if contents.len() as u64 != bytes {
        return Err(format!("the archive ends after {} of its {bytes} bytes", contents.len()));
    }
    Ok(Body::Bytes(contents.into()))
}
