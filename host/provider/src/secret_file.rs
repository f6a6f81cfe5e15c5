//! Files that are made once, for their owner alone to read, and are whole or absent.

use anyhow::Result;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Makes the file at `path` with what `contents` gives, if it is absent. One that is there is never replaced,
/// also if somebody else makes it at the same time.
///
/// # Errors
/// If there are no contents, or the file cannot be made; it is absent then.
pub(crate) fn make(path: &Path, contents: impl FnOnce() -> Result<String>) -> Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    let contents = contents()?;
    // Beside it, since only there it can be given its name at once.
    let beside = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    // That is readable by its owner alone from the first byte on.
    let mut draft = tempfile::NamedTempFile::new_in(beside)?;
    draft.write_all(contents.as_bytes())?;
    draft.as_file().sync_all()?;
    match draft.persist_noclobber(path) {
        Err(error) if error.error.kind() != ErrorKind::AlreadyExists => Err(error.error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_whole_or_absent_and_never_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("secret");
        let files = || directory.path().read_dir().expect("read").count();
        let error = make(&path, || anyhow::bail!("nothing to write")).expect_err("no contents");
        assert_eq!((error.to_string().as_str(), files()), ("nothing to write", 0));
        let text = || std::fs::read_to_string(&path).expect("read");
        let overtaken = || {
            std::fs::write(&path, "another's").expect("written");
            Ok("mine".to_owned())
        };
        make(&path, overtaken).expect("there is one");
        assert_eq!(text(), "another's");
        make(&path, || Ok("mine".into())).expect("there is one");
        assert_eq!(text(), "another's");
        std::fs::remove_file(&path).expect("removed");
        make(&path, || Ok("mine".into())).expect("made");
        assert_eq!(text(), "mine");
        assert_eq!(path.metadata().expect("it exists").permissions().mode() & 0o777, 0o600);
        assert_eq!(files(), 1, "no draft is left");
    }
}
