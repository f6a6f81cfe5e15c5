//! The project as tools see it: where its parts lie, and how they become programs and boot images.
//!
//! Used by the command line, the benches, the system tests and xtask, so that there is one way to build a
//! guest.
#![forbid(unsafe_code)]

mod freshness;
mod guest;
mod image;
mod own;
pub mod prices;
mod process;
mod programs;
pub mod toolchain;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

pub use guest::World;
pub use image::Built;
pub use prices::PriceFeed;
pub use process::Process;
pub use programs::{Catalogue, WorkspaceProgram};
pub use toolchain::Toolchain;

/// A checkout of nom.
#[derive(Clone, Debug)]
pub struct Project {
    root: PathBuf,
    target: PathBuf,
}

impl Project {
    /// The checkout that `./nom` was called in (`NOM_ROOT`), else the one that this program was built from.
    ///
    /// # Errors
    /// If there is none there.
    pub fn find() -> Result<Project> {
        let root = std::env::var_os("NOM_ROOT")
            .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")), PathBuf::from);
        Project::at(&root)
    }

    /// The checkout at `root`.
    ///
    /// # Errors
    /// If there is none there.
    pub fn at(root: &Path) -> Result<Project> {
        let root = root.canonicalize().with_context(|| format!("no such directory: {}", root.display()))?;
        if !root.join("kernel/Cargo.toml").is_file() {
            bail!("{} is not a checkout of nom: it has no kernel/Cargo.toml", root.display());
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        Ok(Project { target: root.join(target), root })
    }

    /// The checkout's root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target directory for host programs.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The checkout's packages of applications.
    pub(crate) fn catalogue(&self) -> Result<Catalogue> {
        Catalogue::read(&self.root)
    }

    /// Target directory of everything that runs in a VM.
    pub fn guest_target(&self) -> PathBuf {
        self.target.join("guest")
    }

    /// Builds the kernel if need be; returns its ELF file, with symbols.
    ///
    /// # Errors
    /// See [`Project::build`].
    pub fn kernel(&self) -> Result<PathBuf> {
        Ok(self.build(World::Kernel, "nom-kernel")?.join("nom-kernel"))
    }

    /// Builds the loader if need be; returns the file of its bytes.
    ///
    /// # Errors
    /// See [`Project::build`].
    pub fn loader(&self) -> Result<PathBuf> {
        Ok(self.build(World::Loader, "nom-loader")?.join("nom-loader"))
    }

    /// Builds a package of one world unless nothing that it is made of changed; returns the directory of
    /// its programs, ELF files with symbols.
    ///
    /// # Errors
    /// If there is no toolchain for it, or cargo fails; what cargo said is on standard error.
    pub fn build(&self, world: World, package: &str) -> Result<PathBuf> {
        guest::build(&self.root, &self.guest_target(), world, package)
    }
}
