//! The project as tools see it, a checkout or an installed release: where its parts lie, and how they become
//! programs and boot images.
//!
//! Used by the command line, the benches, the system tests and xtask, so that there is one way to build a
//! guest.
#![forbid(unsafe_code)]

pub mod debian;
mod freshness;
mod guest;
mod image;
mod nearest;
mod own;
pub mod prices;
mod process;
mod programs;
pub mod release;
pub mod toolchain;
pub mod traces;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use guest::World;
pub use image::Built;
pub use prices::PriceFeed;
pub use process::Process;
pub use programs::{Catalogue, WorkspaceProgram};
pub use release::Release;
pub use toolchain::Toolchain;
use traces::Traces;

/// Where applications are found, and the programs that machines are made of: a checkout, which builds them,
/// or a release, which brings them.
#[derive(Clone, Debug)]
pub struct Project {
    root: PathBuf,
    source: Source,
    listener: Listener,
}

/// Where programs come from.
#[derive(Clone, Debug)]
enum Source {
    /// A checkout, with cargo's target directory.
    Checkout { target: PathBuf, traces: Traces },
    /// An installed release.
    Release(Release),
}

/// What is done with a line of cargo's.
type Hear = dyn Fn(&str) + Send + Sync;

/// Who hears what cargo says while it builds for the guest; the terminal if nobody does.
#[derive(Clone, Default)]
struct Listener(Option<Arc<Hear>>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Listener" } else { "terminal" })
    }
}

impl Project {
    /// The checkout that `./nom` was called in (`NOM_ROOT`), else the release that this program belongs to,
    /// else the checkout that this program or the current directory is in.
    ///
    /// # Errors
    /// If there is none.
    pub fn find() -> Result<Project> {
        if let Some(root) = std::env::var_os("NOM_ROOT") {
            return Project::at(Path::new(&root));
        }
        let command = std::env::current_exe().and_then(|command| command.canonicalize()).ok();
        if let Some(release) = command.as_deref().map(Release::of).transpose()?.flatten() {
            return Ok(Project::of_release(release));
        }
        // Cargo tells the programs that it runs where their package is.
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let starts = [package, command, std::env::current_dir().ok()];
        match starts.iter().flatten().flat_map(|start| start.ancestors()).find(|root| is_checkout(root)) {
            Some(root) => Project::at(root),
            None => bail!(
                "neither a release nor a checkout of nom: expected `lib/nom` beside this command's \
                 directory, or the path of a checkout in NOM_ROOT"
            ),
        }
    }

    /// The checkout at `root`.
    ///
    /// # Errors
    /// If there is none there.
    pub fn at(root: &Path) -> Result<Project> {
        let root = root.canonicalize().with_context(|| format!("no such directory: {}", root.display()))?;
        if !is_checkout(&root) {
            bail!("{} is not a checkout of nom: it has no kernel/Cargo.toml", root.display());
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let source = Source::Checkout { target: root.join(target), traces: Traces::Kept };
        Ok(Project { source, root, listener: Listener::default() })
    }

    /// The same checkout, where each line that cargo says while it builds for the guest goes to `listener`,
    /// for those who have a display of their own. What cargo complained about is in the error of a build that
    /// fails.
    pub fn with_listener(&self, listener: impl Fn(&str) + Send + Sync + 'static) -> Project {
        Project { listener: Listener(Some(Arc::new(listener))), ..self.clone() }
    }

    /// An installed release.
    pub fn of_release(release: Release) -> Project {
        Project {
            root: release.root().to_owned(),
            source: Source::Release(release),
            listener: Listener::default(),
        }
    }

    /// A checkout, for what a release cannot do.
    ///
    /// # Errors
    /// If this is a release; `purpose` is what the error says was wanted.
    pub fn find_checkout(purpose: &str) -> Result<Project> {
        let project = Project::find()?;
        project.require_checkout(purpose)?;
        Ok(project)
    }

    /// Cargo's target directory, if this is a checkout.
    ///
    /// # Errors
    /// If this is a release; `purpose` is what the error says was wanted.
    fn require_checkout(&self, purpose: &str) -> Result<&Path> {
        match &self.source {
            Source::Checkout { target, .. } => Ok(target),
            Source::Release(_) => bail!(
                "{purpose} needs a checkout of nom, with its sources and a compiler: {} is a release, whose \
                 programs are ready-made",
                self.root.display()
            ),
        }
    }

    /// The same checkout with programs for a release, in a directory of their own: they tell nothing of where
    /// they were built.
    ///
    /// # Errors
    /// If this is a release.
    pub fn for_release(&self) -> Result<Project> {
        let target = self.require_checkout("making a release")?.join("release-parts");
        let source = Source::Checkout { target, traces: Traces::Removed };
        Ok(Project { root: self.root.clone(), source, listener: self.listener.clone() })
    }

    pub(crate) fn traces(&self) -> Traces {
        match &self.source {
            Source::Checkout { traces, .. } => *traces,
            Source::Release(_) => Traces::Removed,
        }
    }

    /// The release that this is, if it is one.
    pub fn release(&self) -> Option<&Release> {
        match &self.source {
            Source::Checkout { .. } => None,
            Source::Release(release) => Some(release),
        }
    }

    /// The root directory, with `apps` in it.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target directory for host programs; a release has none, and nothing may be written to what is
    /// returned for it.
    pub fn target(&self) -> &Path {
        match &self.source {
            Source::Checkout { target, .. } => target,
            Source::Release(_) => &self.root,
        }
    }

    /// The checkout's packages of applications.
    pub(crate) fn catalogue(&self) -> Result<Catalogue> {
        Catalogue::read(&self.root)
    }

    /// Where what was fetched or made once is kept: in the checkout, or, if that is somebody else's, beside
    /// the programs.
    pub fn cache(&self) -> PathBuf {
        let own = self.root.join(".nom");
        let is_writable = std::fs::create_dir_all(&own).is_ok() && tempfile::tempfile_in(&own).is_ok();
        if is_writable { own } else { self.target().join("nom") }
    }

    /// Target directory of everything that runs in a VM.
    pub fn guest_target(&self) -> PathBuf {
        self.target().join("guest")
    }

    /// Builds the kernel if need be; returns its ELF file, with symbols.
    ///
    /// # Errors
    /// See [`Project::build`]; a release's may be damaged.
    pub fn kernel(&self) -> Result<PathBuf> {
        if let Some(release) = self.release() {
            return release.file(release::KERNEL);
        }
        Ok(self.build(World::Kernel, "nom-kernel")?.join("nom-kernel"))
    }

    /// Builds the loader if need be; returns the file of its bytes.
    ///
    /// # Errors
    /// See [`Project::build`]; a release's may be damaged.
    pub fn loader(&self) -> Result<PathBuf> {
        if let Some(release) = self.release() {
            return release.file(release::LOADER);
        }
        Ok(self.build(World::Loader, "nom-loader")?.join("nom-loader"))
    }

    /// Whether a package was built for the guest before, in whatever state.
    pub fn is_built(&self, package: &str) -> bool {
        guest::stamp_path(self, package).is_file()
    }

    /// Builds a package of one world unless nothing that it is made of changed; returns the directory of
    /// its programs, ELF files with symbols.
    ///
    /// # Errors
    /// If this is a release, there is no toolchain, or cargo fails; what cargo said is on standard error.
    pub fn build(&self, world: World, package: &str) -> Result<PathBuf> {
        self.require_checkout(&format!("building `{package}`"))?;
        guest::build(self, world, package)
    }
}

fn is_checkout(root: &Path) -> bool {
    root.join("kernel/Cargo.toml").is_file()
}
