//! Finds a Rust toolchain that can build for the guest.
//!
//! Guest targets have no prebuilt `core`, so the toolchain must come with the library's sources: rustup's
//! `rust-src` component, or Debian's `rust-web-src` beside `rustc-web`. Building the library is an unstable
//! feature of cargo, hence `RUSTC_BOOTSTRAP=1`; the language itself stays stable Rust.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A compiler and a cargo that can build for the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// Directory of `cargo` and `rustc`.
    pub bin: PathBuf,
    /// What `rustc --version` says.
    pub version: String,
}

/// Where the sources of the standard library lie below a toolchain's root.
const LIBRARY: &str = "lib/rustlib/src/rust/library/core/src/lib.rs";

impl Toolchain {
    /// The best toolchain with library sources: the one of the search path, another of rustup's, the
    /// system's, a nightly.
    ///
    /// # Errors
    /// If there is none; the message says what to install.
    pub fn find() -> Result<Toolchain> {
        let Some(root) = roots().into_iter().find(|root| is_complete(root)) else {
            bail!(
                "no Rust toolchain with library sources: run `./nom` as root to set one up, or do `rustup \
                 component add rust-src`, or on Debian `apt-get install rustc-web cargo-web rust-web-src`"
            );
        };
        let bin = root.join("bin");
        let version = version_of(&bin.join("rustc"))?;
        Ok(Toolchain { bin, version })
    }

    /// A cargo command that uses this toolchain alone, whatever the environment asks of other builds.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(self.bin.join("cargo"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut paths = vec![self.bin.clone()];
        paths.extend(std::env::split_paths(&path));
        if let Ok(path) = std::env::join_paths(paths) {
            command.env("PATH", path);
        }
        for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTUP_TOOLCHAIN", "RUSTC_WRAPPER", "CARGO"]
        {
            command.env_remove(variable);
        }
        command.env("RUSTC", self.bin.join("rustc")).env("RUSTC_BOOTSTRAP", "1");
        command
    }

    /// Changes whenever another compiler is used, so that stamps made with the old one lose their worth.
    pub fn key(&self) -> String {
        format!("{} {}", self.bin.display(), self.version)
    }
}

/// Roots of the toolchains to consider, best first: released compilers before nightly ones.
fn roots() -> Vec<PathBuf> {
    let mut roots = Vec::new();
    if let Ok(output) = Command::new("rustc").args(["--print", "sysroot"]).output() {
        roots.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    let home = || std::env::home_dir().map(|home| home.join(".rustup"));
    let rustup = std::env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(home);
    let entries = rustup.and_then(|rustup| std::fs::read_dir(rustup.join("toolchains")).ok());
    let mut installed: Vec<PathBuf> =
        entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    installed.sort();
    roots.extend(installed);
    roots.push(PathBuf::from("/usr"));
    // The sort is stable: among the released ones the order stays.
    roots.sort_by_key(|root| {
        root.file_name().is_some_and(|name| name.to_string_lossy().starts_with("nightly"))
    });
    roots
}

fn is_complete(root: &Path) -> bool {
    root.join(LIBRARY).is_file() && root.join("bin/cargo").is_file() && root.join("bin/rustc").is_file()
}

fn version_of(rustc: &Path) -> Result<String> {
    let output = Command::new(rustc).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_without_library_sources_is_passed_over() {
        let root = std::env::temp_dir().join(format!("nom-toolchain-{}", std::process::id()));
        std::fs::create_dir_all(root.join("bin")).expect("a temporary directory");
        for name in ["cargo", "rustc"] {
            std::fs::write(root.join("bin").join(name), "").expect("a file");
        }
        assert!(!is_complete(&root));
        std::fs::create_dir_all(root.join("lib/rustlib/src/rust/library/core/src")).expect("a directory");
        std::fs::write(root.join(LIBRARY), "").expect("a file");
        assert!(is_complete(&root));
        std::fs::remove_dir_all(root).expect("cleaned up");
    }
}
