//! A copy of the checkout's sources, in which what did not change keeps its time of modification.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes `to` hold the files of the checkout at `root` as they are now, those that git ignores excepted, and
/// nothing else.
///
/// # Errors
/// If it is no git checkout, or a file cannot be copied.
pub fn copy(root: &Path, to: &Path) -> Result<()> {
    let files = sources(root)?;
    for file in &files {
        let (from, place) = (root.join(file), to.join(file));
        let bytes = std::fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        if std::fs::read(&place).ok().as_ref() != Some(&bytes) {
            std::fs::create_dir_all(place.parent().context("a file is in a directory")?)?;
            // With the file's permissions.
            std::fs::copy(&from, &place).with_context(|| format!("cannot write {}", place.display()))?;
        }
    }
    remove_others(to, to, &files)
}

/// Every file that is not ignored, and is there.
fn sources(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().context("cannot run git, which knows the checkout's files")?;
    ensure!(output.status.success(), "{} is no git checkout: mutants need one", root.display());
    let text = String::from_utf8(output.stdout).context("a path is not UTF-8")?;
    Ok(text.split_terminator('\0').map(PathBuf::from).filter(|path| root.join(path).is_file()).collect())
}

fn remove_others(root: &Path, directory: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(root, &path, files)?;
        } else if !files.contains(path.strip_prefix(root)?) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}
