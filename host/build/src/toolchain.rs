//! The Rust toolchain that everything is built with, for this computer and for the guest.
//!
//! It is the one that the search path gives in the checkout. `nom` puts the pinned one there; rustup's
//! proxies find it by `rust-toolchain.toml`, which names it. Where that one has no library sources, as a link
//! to another toolchain may not, the one that `nom` has put beside it in the checkout takes its place.
//!
//! The guest's library is built from its sources, an unstable feature of cargo, hence `RUSTC_BOOTSTRAP=1`;
//! the language itself stays stable Rust. A prebuilt library would free the kernel of that, but not the
//! applications: no released target has vector registers and position-independent programs without an
//! operating system, and a description of one's own needs the switch, too. Sources are also what a stranger's
//! build depends on least, as rustup (`rust-src`) and Debian (`rust-web-src`) both have them, while Debian
//! builds no library for bare metal. And they make it small: with the library optimised for speed, as the
//! prebuilt ones are, memcached's image would not keep its limit. What a switch may change from release to
//! release does not matter where the release is pinned.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// What `rust-toolchain.toml` says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pin {
    toolchain: Channel,
    fallback: Fallback,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Channel {
    channel: String,
    components: Vec<String>,
    profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Fallback {
    debian: Vec<String>,
}

/// How one gets Miri, which is part of nightly toolchains only.
pub const MIRI_ADVICE: &str = "rustup toolchain install nightly --profile minimal --component miri,rust-src";

/// The pinned toolchain.
pub static PIN: LazyLock<Pin> = LazyLock::new(|| {
    toml::from_str(include_str!("../../../rust-toolchain.toml")).expect("a test reads it, too")
});

impl Pin {
    /// The release, such as `1.95.0`: no earlier one will do.
    pub fn release(&self) -> &str {
        &self.toolchain.channel
    }

    /// The components that are needed beside compiler and cargo.
    pub fn components(&self) -> &[String] {
        &self.toolchain.components
    }

    /// How to install it, or what takes its place.
    pub fn advice(&self) -> String {
        format!(
            "./nom installs it as root; or rustup toolchain install {} --profile {} --component {}; or on \
             Debian apt-get install {}",
            self.toolchain.channel,
            self.toolchain.profile,
            self.toolchain.components.join(","),
            self.fallback.debian.join(" ")
        )
    }

    /// Whether a compiler that says `version`, as in `rustc 1.95.0 (5980761 2026-04-14)`, is recent enough.
    pub fn admits(&self, version: &str) -> bool {
        let found = version.split(' ').nth(1).and_then(numbers);
        found.is_some_and(|found| Some(found) >= numbers(self.release()))
    }
}

/// Major, minor and patch; a nightly's have a word behind them.
fn numbers(release: &str) -> Option<[u32; 3]> {
    let mut parts = release.split(['.', '-']).map(str::parse);
    let mut next = || parts.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// A compiler and a cargo that can build for the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// Directory of `cargo` and `rustc`.
    pub bin: PathBuf,
    /// What `rustc --version` says.
    pub version: String,
}

/// Root directory of the pinned toolchain that `nom` has installed in the checkout, if it had to.
fn own(root: &Path) -> Option<PathBuf> {
    let installed = root.join("target/rustup/toolchains").read_dir().ok()?;
    let is_pinned = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(PIN.release()) && is_complete(path)
    };
    installed.flatten().map(|entry| entry.path()).find(is_pinned)
}

/// Where the sources of the standard library lie below a toolchain's root.
const LIBRARY: &str = "lib/rustlib/src/rust/library/core/src/lib.rs";

impl Toolchain {
    /// The toolchain of the checkout at `root`, whatever the present directory.
    ///
    /// # Errors
    /// If there is none, or it lacks library sources, or is too old; the message says what to install.
    pub fn find(root: &Path) -> Result<Toolchain> {
        // Nobody asked for a download here: `nom` does that, and says so.
        let mut rustc = Command::new("rustc");
        rustc.current_dir(root).args(["--print", "sysroot"]).env("RUSTUP_AUTO_INSTALL", "0");
        let output = rustc.output().with_context(|| format!("no rustc: {}", PIN.advice()))?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        ensure!(output.status.success(), "{}: {}", said(&output.stderr), PIN.advice());
        let found = PathBuf::from(said(&output.stdout));
        Toolchain::at(&if is_complete(&found) { found } else { own(root).unwrap_or(found) })
    }

    /// The toolchain with the root directory `sysroot`.
    fn at(sysroot: &Path) -> Result<Toolchain> {
        if !is_complete(sysroot) {
            bail!("the Rust toolchain {} has no library sources: {}", sysroot.display(), PIN.advice());
        }
        let bin = sysroot.join("bin");
        let version = version_of(&bin.join("rustc"))?;
        if !PIN.admits(&version) {
            bail!("{version}: expected {} or later: {}", PIN.release(), PIN.advice());
        }
        Ok(Toolchain { bin, version })
    }

    /// A cargo command that uses this toolchain alone, whatever the environment asks of other builds.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(self.bin.join("cargo"));
        // A cargo that runs a test has its own toolchain's libraries come first, and a compiler takes the
        // place of its library for its own.
        let library = self.bin.join("../lib");
        for (variable, first) in [("PATH", self.bin.clone()), ("LD_LIBRARY_PATH", library)] {
            let others = std::env::var_os(variable).unwrap_or_default();
            let others = std::env::split_paths(&others).filter(|path| !path.as_os_str().is_empty());
            if let Ok(paths) = std::env::join_paths(std::iter::once(first).chain(others)) {
                command.env(variable, paths);
            }
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
    fn a_toolchain_without_library_sources_is_refused_with_advice() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let root = root.path();
        std::fs::create_dir_all(root.join("bin")).expect("a temporary directory");
        for name in ["cargo", "rustc"] {
            std::fs::write(root.join("bin").join(name), "").expect("a file");
        }
        let error = Toolchain::at(root).expect_err("refused").to_string();
        assert!(error.contains("library sources") && error.contains(PIN.release()), "{error}");
        std::fs::create_dir_all(root.join("lib/rustlib/src/rust/library/core/src")).expect("a directory");
        std::fs::write(root.join(LIBRARY), "").expect("a file");
        assert!(is_complete(root));
    }

    #[test]
    fn a_checkout_has_a_toolchain_of_its_own_where_the_users_has_no_sources() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let root = root.path();
        assert_eq!(own(root), None);
        let toolchain = root.join(format!("target/rustup/toolchains/{}-x86_64", PIN.release()));
        for file in ["bin/cargo", "bin/rustc"] {
            std::fs::create_dir_all(toolchain.join("bin")).expect("a directory");
            std::fs::write(toolchain.join(file), "").expect("a file");
        }
        assert_eq!(own(root), None, "without library sources it is of no use");
        std::fs::create_dir_all(toolchain.join("lib/rustlib/src/rust/library/core/src"))
            .expect("a directory");
        std::fs::write(toolchain.join(LIBRARY), "").expect("a file");
        assert_eq!(own(root), Some(toolchain));
    }

    #[test]
    fn the_pinned_release_and_later_ones_are_admitted() {
        let pin = Pin {
            toolchain: Channel { channel: "1.95.0".into(), components: Vec::new(), profile: "x".into() },
            fallback: Fallback { debian: Vec::new() },
        };
        assert!(pin.admits("rustc 1.95.0 (59807616e 2026-04-14)"));
        assert!(pin.admits("rustc 1.96.0 (built from a source tarball)"));
        assert!(pin.admits("rustc 1.100.1-nightly (e50aa6fba 2026-05-19)"));
        assert!(!pin.admits("rustc 1.94.1 (e50aa6fba 2026-05-19)") && !pin.admits("rustc"));
        assert!(PIN.components().contains(&"rust-src".to_owned()));
    }

    /// The directory in which a tool is called decides nothing.
    #[test]
    fn the_toolchain_is_the_checkouts_from_everywhere() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let found = Toolchain::find(root).expect("what builds this test");
        assert!(PIN.admits(&found.version), "{}", found.version);
        let elsewhere = tempfile::tempdir().expect("a temporary directory");
        let named = "[toolchain]\nchannel = \"no-such-toolchain\"\n";
        std::fs::write(elsewhere.path().join("rust-toolchain.toml"), named).expect("a file");
        // In a process of its own, whose present directory may change.
        let mut again = Command::new(std::env::current_exe().expect("this test"));
        again.args(["--exact", "toolchain::tests::the_toolchain_is_found", "--nocapture"]);
        let again = again.current_dir(elsewhere.path()).output().expect("runs");
        let said = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(said.contains(&format!("found {}", found.key())), "{said}");
    }

    #[test]
    fn the_toolchain_is_found() {
        let found = Toolchain::find(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")));
        println!("found {}", found.expect("what builds this test").key());
    }
}
