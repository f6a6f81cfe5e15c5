//! Files that are there wholly or not at all.

use anyhow::{Context, Result};
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Permissions of what is written, like those of most files.
const MODE: u32 = 0o644;

/// Puts `contents` in the place of the file at `path`: whatever fails leaves it as it was. What is no regular
/// file, such as `/dev/stdout`, is written to.
///
/// # Errors
/// If it cannot be written, because the disk is full for example.
pub fn replace(path: &Path, contents: &[u8]) -> Result<()> {
    write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

fn write(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => return File::options().write(true).open(path)?.write_all(contents),
        // A link stays, and what it leads to is replaced.
        Ok(_) => return write_beside(&path.canonicalize()?, contents),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    write_beside(path, contents)
}

fn write_beside(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let permissions =
        std::fs::metadata(path).map_or(Permissions::from_mode(MODE), |there| there.permissions());
    // Removed when dropped, unless it takes the place.
    let mut file =
        tempfile::Builder::new().prefix(".nom-").permissions(permissions).tempfile_in(directory)?;
    file.write_all(contents)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a.img");
        for contents in ["one", "another"] {
            replace(&path, contents.as_bytes()).expect("written");
            assert_eq!(std::fs::read_to_string(&path).expect("read"), contents);
        }
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("a.img", &link).expect("linked");
        replace(&link, b"third").expect("written");
        assert!(link.is_symlink() && std::fs::read(&path).expect("read") == b"third");
        assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 2);
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, MODE);
        replace(Path::new("/dev/null"), b"anything").expect("written to");
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("absent/a.img");
        let error = format!("{:#}", replace(&path, b"").expect_err("no directory"));
        assert!(error.contains("absent/a.img") && error.contains("No such file"), "{error}");
    }
}
