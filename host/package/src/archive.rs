//! A tree as a compressed tar archive whose bytes depend on nothing but the tree and one time.

use crate::tree::Tree;
use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

const DIRECTORY_MODE: u32 = 0o755;
const PROGRAM_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// The archive (POSIX ustar, RFC 1952), in which every path begins with `prefix`, which is empty or ends with
/// a slash.
///
/// # Errors
/// If a path is too long for the format.
pub fn tar_gz(tree: &Tree, prefix: &str, time: u64) -> Result<Vec<u8>> {
    let compressed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    let mut archive = Builder::new(compressed);
    let prefixes: Vec<&str> = prefix.match_indices('/').map(|(at, _)| &prefix[..=at]).collect();
    let own = tree.directories().into_iter().map(|directory| format!("{prefix}{directory}/"));
    for path in prefixes.into_iter().map(str::to_owned).chain(own) {
        append(&mut archive, &path, EntryType::Directory, DIRECTORY_MODE, time, &[])?;
    }
    for (path, entry) in tree.files() {
        let mode = if entry.executable { PROGRAM_MODE } else { FILE_MODE };
        let path = format!("{prefix}{path}");
        append(&mut archive, &path, EntryType::Regular, mode, time, &entry.contents)?;
    }
    Ok(archive.into_inner()?.finish()?)
}

fn append<W: std::io::Write>(
    archive: &mut Builder<W>,
    path: &str,
    kind: EntryType,
    mode: u32,
    time: u64,
    contents: &[u8],
) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_path(path).with_context(|| format!("{path}: too long for a tar archive"))?;
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    header.set_size(contents.len() as u64);
    header.set_cksum();
    Ok(archive.append(&header, contents)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;

    #[test]
    fn an_archive_holds_the_tree_and_nothing_of_this_computer() {
        let mut tree = Tree::default();
        tree.add_program("bin/nom", "program");
        tree.add("lib/nom/kernel", "kernel");
        let archive = tar_gz(&tree, "nom-1/", 7).expect("packed");
        assert_eq!(archive, tar_gz(&tree.clone(), "nom-1/", 7).expect("packed"));
        let mut read = tar::Archive::new(GzDecoder::new(archive.as_slice()));
        let mut found = Vec::new();
        for entry in read.entries().expect("entries") {
            let mut entry = entry.expect("an entry");
            let mut contents = String::new();
            entry.read_to_string(&mut contents).expect("contents");
            let header = entry.header();
            assert_eq!((header.mtime().expect("a time"), header.uid().expect("an owner")), (7, 0));
            let path = entry.path().expect("a path").display().to_string();
            found.push((path, entry.header().mode().expect("a mode"), contents));
        }
        let found: Vec<_> =
            found.iter().map(|(path, mode, text)| (path.as_str(), *mode, text.as_str())).collect();
        let directories =
            ["nom-1/", "nom-1/bin/", "nom-1/lib/", "nom-1/lib/nom/"].map(|path| (path, 0o755, ""));
        let files = [("nom-1/bin/nom", 0o755, "program"), ("nom-1/lib/nom/kernel", 0o644, "kernel")];
        assert_eq!(found, [&directories[..], &files].concat());
    }
}
