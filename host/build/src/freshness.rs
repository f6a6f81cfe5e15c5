//! Whether a build can be skipped, decided from modification times in a few milliseconds.
//!
//! Cargo itself takes a few hundred milliseconds to find that nothing changed, which is most of what
//! starting a VM takes.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Remembers when something was last built, and with what.
#[derive(Debug)]
pub struct Stamp {
    path: PathBuf,
    key: String,
}

impl Stamp {
    /// The stamp kept at `path` for builds made with `key`.
    pub fn new(path: PathBuf, key: String) -> Stamp {
        Stamp { path, key }
    }

    /// Whether it was built before, in whatever state.
    pub fn exists(&self) -> bool {
        self.path.is_file()
    }

    /// Whether it was built with the same key after the last change of any of `sources`, files or whole
    /// directories.
    pub fn is_fresh(&self, sources: &[PathBuf]) -> bool {
        let built = std::fs::metadata(&self.path).and_then(|stamp| stamp.modified());
        let same_key = std::fs::read_to_string(&self.path).is_ok_and(|key| key == self.key);
        match built {
            Ok(built) if same_key => sources.iter().all(|source| newest(source) < Some(built)),
            _ => false,
        }
    }

    /// Notes a build that began at `started`: what changed while it ran counts as newer.
    ///
    /// # Errors
    /// If the stamp cannot be written.
    pub fn mark(&self, started: SystemTime) -> std::io::Result<()> {
        if let Some(parent) = self.path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&self.path, &self.key)?;
        std::fs::File::options().append(true).open(&self.path)?.set_modified(started)
    }
}

/// The latest change in `path`; directories count, so that removed files are noticed. `None` if it is absent.
fn newest(path: &Path) -> Option<SystemTime> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    let mut latest = metadata.modified().ok()?;
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).ok()?.flatten() {
            latest = latest.max(newest(&entry.path()).unwrap_or(latest));
        }
    }
    Some(latest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_stamp_is_fresh_until_a_source_or_the_key_changes() {
        let directory = std::env::temp_dir().join(format!("nom-stamp-{}", std::process::id()));
        let sources = directory.join("sources");
        std::fs::create_dir_all(&sources).expect("a temporary directory");
        std::fs::write(sources.join("a"), "1").expect("a file");
        let stamp = Stamp::new(directory.join("stamp"), "compiler 1".into());
        let watched = [sources.clone(), directory.join("absent")];
        assert!(!stamp.is_fresh(&watched), "never built");

        let later = SystemTime::now() + Duration::from_secs(5);
        stamp.mark(later).expect("the stamp is written");
        assert!(stamp.is_fresh(&watched));
        assert!(!Stamp::new(directory.join("stamp"), "compiler 2".into()).is_fresh(&watched));

        let source = std::fs::File::options().append(true).open(sources.join("a")).expect("the file");
        source.set_modified(later + Duration::from_secs(1)).expect("its time");
        assert!(!stamp.is_fresh(&watched));
        std::fs::remove_dir_all(directory).expect("cleaned up");
    }
}
