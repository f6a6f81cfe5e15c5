//! `-v DIRECTORY:/PATH`: files of the host that go along with an application.

use anyhow::{Result, bail, ensure};
use nom_image::manifest::{BundleManifest, Mount};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A directory of the host and where the application finds its files, as people type it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume(Mount);

impl FromStr for Volume {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Volume> {
        let expected = "expected DIRECTORY:/PATH, such as /srv/www:/";
        ensure!(!text.ends_with(":rw"), "files are read-only: {expected}");
        let pair = text.strip_suffix(":ro").unwrap_or(text).rsplit_once(':');
        match pair.filter(|(directory, at)| !directory.is_empty() && at.starts_with('/')) {
            Some((directory, at)) => {
                ensure!(!at.split('/').any(|part| part == ".."), "`..` in a path: {expected}");
                Ok(Volume(Mount { directory: PathBuf::from(directory), at: at.to_owned() }))
            }
            None => bail!("{expected}"),
        }
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.0.directory.display(), self.0.at)
    }
}

/// The bundle with these files.
///
/// # Errors
/// If no application of it reads files.
pub fn given_files(bundle: BundleManifest, volumes: &[Volume]) -> Result<BundleManifest> {
    let mounts: Vec<Mount> = volumes.iter().map(|volume| volume.0.clone()).collect();
    bundle.with_files(&mounts).map_err(|mount| {
        let volume = Volume(mount);
        anyhow::anyhow!("-v {volume}: nothing here reads files: expected a manifest with the field `files`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_read_as_docker_reads_it() {
        for (text, directory, at) in
            [("www:/", "www", "/"), ("/srv/a:b:/docs:ro", "/srv/a:b", "/docs"), (".:/x/y", ".", "/x/y")]
        {
            let Volume(mount) = text.parse().expect(text);
            assert_eq!((mount.directory.to_str(), mount.at.as_str()), (Some(directory), at));
        }
        for text in ["www", "www:", ":/", "www:docs", "www:/:rw", "www:/a/../b", ""] {
            let error = text.parse::<Volume>().expect_err(text).to_string();
            assert!(error.contains("DIRECTORY:/PATH"), "{text}: {error}");
        }
    }
}
