//! Files of a release, before anybody has written them.

use std::collections::BTreeMap;

/// Files by their paths, as below `/usr`.
#[derive(Clone, Debug, Default)]
pub struct Tree(BTreeMap<String, Entry>);

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it holds.
    pub contents: Vec<u8>,
    /// Whether it is a program of this computer.
    pub executable: bool,
}

impl Tree {
    /// Adds a file, or replaces it.
    pub fn add(&mut self, path: impl Into<String>, contents: impl Into<Vec<u8>>) {
        self.0.insert(path.into(), Entry { contents: contents.into(), executable: false });
    }

    /// Adds a program of this computer.
    pub fn add_program(&mut self, path: impl Into<String>, contents: impl Into<Vec<u8>>) {
        self.0.insert(path.into(), Entry { contents: contents.into(), executable: true });
    }

    /// All files, sorted by their paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The files below a directory, by their paths from there.
    pub fn below<'t>(&'t self, directory: &'t str) -> impl Iterator<Item = (&'t str, &'t Entry)> {
        let name = move |path: &'t str| path.strip_prefix(directory)?.strip_prefix('/');
        self.files().filter_map(move |(path, entry)| Some((name(path)?, entry)))
    }

    /// Every directory that a file is in, each before those in it.
    pub fn directories(&self) -> Vec<String> {
        let parents = |path: &str| {
            let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
            slashes.into_iter().map(|at| path[..at].to_owned()).collect::<Vec<_>>()
        };
        let mut all: Vec<String> = self.0.keys().flat_map(|path| parents(path)).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> usize {
        self.0.values().map(|entry| entry.contents.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_what_is_in_them() {
        let mut tree = Tree::default();
        for path in ["lib/nom/apps/a", "bin/nom", "lib/nom/kernel"] {
            tree.add(path, "x");
        }
        assert_eq!(tree.directories(), ["bin", "lib", "lib/nom", "lib/nom/apps"]);
        let below: Vec<&str> = tree.below("lib/nom").map(|(path, _)| path).collect();
        assert_eq!(below, ["apps/a", "kernel"]);
        assert_eq!(tree.bytes(), 3);
    }
}
