//! The workload file: which applications a machine runs, and what each may have.

mod fields;
mod graph;
mod grid;
mod layers;
mod linux;
mod page;
mod resolve;
mod source;
mod utility;
mod values;

pub use graph::graph;
pub use page::page;
pub(crate) use resolve::FILES;
pub use values::parse_size;

use crate::error::{Place, Result};
use crate::root::Root;
use nom_abi::image::DeviceSelector;
use nom_economy::utility::Utility;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The applications of one machine, checked and complete; its order is their order on the board.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleManifest {
    /// At least one; names differ.
    pub applications: Vec<Application>,
}

/// One application, all defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// Name, at most 31 bytes.
    pub name: String,
    /// What it runs.
    pub program: Program,
    /// Most cores that it may hold.
    pub cores: u32,
    /// Most memory that it may hold, in bytes.
    pub memory: u64,
    /// Bytes of the first stack.
    pub stack: u64,
    /// Share weight on a contended core.
    pub weight: u32,
    /// Started at boot.
    pub autostart: bool,
    /// When it ends the machine ends.
    pub essential: bool,
    /// Puts prices on the board; no other of the bundle does.
    pub publishes_prices: bool,
    /// May map its memory executable.
    pub makes_code: bool,
    /// Sees what every application uses.
    pub monitors: bool,
    /// System calls that it may make, one bit each; none given: those that its program contains.
    pub calls: Option<u32>,
    /// Arguments; the name is not one of them.
    pub arguments: Vec<String>,
    /// Environment; variable `utility` is the utility function, if there is one.
    pub environment: BTreeMap<String, String>,
    /// What its owner is paid.
    pub utility: Option<Utility>,
    /// Files that go along with it.
    pub files: Option<Files>,
    /// Devices that it may acquire.
    pub devices: Vec<DeviceSelector>,
    /// Channels of which it is the first end.
    pub peers: Vec<Peer>,
    /// Applications that it may start and end, by index.
    pub manages: Vec<usize>,
    /// Ports of the host that `nom run` forwards to it.
    pub ports: Vec<Port>,
    /// Where the manifest gives what later steps can still find wrong.
    pub places: Places,
}

/// Where a manifest gives the fields that are checked against the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Places {
    /// Of `program`.
    pub program: Place,
    /// Of `memory`.
    pub memory: Place,
    /// Of `arguments`.
    pub arguments: Place,
}

/// Directories whose files go along with an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Each takes the place of what those before it put there.
    pub mounts: Vec<Mount>,
    /// A file that was changed later is said to be changed then, in seconds since 1970: so that equal files
    /// make equal images.
    pub newest: Option<u64>,
    /// The root of a Linux program, to which the directories are added.
    pub root: Option<Root>,
    /// Whether they are not in the image: the machine has them on a disk.
    pub on_disk: bool,
}

/// A directory of the host and where the application finds its files: `DIRECTORY:/PATH[:ro]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Directory of the host.
    pub directory: PathBuf,
    /// Directory of the application; it begins with a slash.
    pub at: String,
}

/// What an application runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Program {
    /// A cargo package or binary, which the caller builds.
    Package(String),
    /// An ELF file.
    File(PathBuf),
}

/// A channel to another application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The other end, by index.
    pub application: usize,
    /// Bytes of shared memory.
    pub bytes: u64,
}

/// A port of the host that is forwarded into the machine: `[ADDRESS:]HOST:GUEST[/udp]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Address of the host to listen at; `None` is every address.
    pub address: Option<IpAddr>,
    /// Port of the host.
    pub host: u16,
    /// Port of the machine.
    pub guest: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
}

/// Protocol of a [`Port`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The default.
    Tcp,
    /// `/udp`.
    Udp,
}

/// Reads `app.toml` or `bundle.toml`, or a directory that has one of them, with all that it refers to.
///
/// # Errors
/// Whatever is wrong in any of the files, with file, line and what was expected.
pub fn load(path: &Path) -> Result<BundleManifest> {
    resolve::bundle(&layers::read(path)?)
}

/// The same, where the (first) application has the fields of the file `above` in place of its own, as if that
/// were a manifest that inherits from `path`.
///
/// # Errors
/// As [`load`].
pub fn load_under(path: &Path, above: &Path) -> Result<BundleManifest> {
    // What is wrong by itself is not that file's fault.
    load(path)?;
    resolve::bundle(&layers::read_under(path, above)?)
}

impl BundleManifest {
    /// Every program that must be there to lower the bundle, each once.
    pub fn programs(&self) -> Vec<&Program> {
        let programs: BTreeSet<_> =
            self.applications.iter().map(|application| &application.program).collect();
        programs.into_iter().collect()
    }

    /// Sizes of the channels that an application is an end of.
    pub(crate) fn channels_of(&self, application: &Application) -> impl Iterator<Item = u64> {
        let own = self.applications.iter().position(|other| other.name == application.name);
        self.applications.iter().enumerate().flat_map(move |(number, other)| {
            let ours =
                other.peers.iter().filter(move |peer| [Some(number), Some(peer.application)].contains(&own));
            ours.map(|peer| peer.bytes)
        })
    }

    /// The same bundle with these directories beside those of its manifest, for the first application that
    /// has `files`.
    ///
    /// # Errors
    /// The first directory, if there is no such application.
    pub fn with_files(mut self, mounts: &[Mount]) -> std::result::Result<BundleManifest, Mount> {
        let Some(first) = mounts.first() else { return Ok(self) };
        match self.applications.iter_mut().find_map(|application| application.files.as_mut()) {
            Some(files) => files.mounts.extend_from_slice(mounts),
            None => return Err(first.clone()),
        }
        Ok(self)
    }

    /// The same bundle with these arguments for its first application.
    pub fn with_arguments(mut self, arguments: &[String]) -> BundleManifest {
        self.applications[0].arguments = arguments.to_vec();
        self
    }
}

impl Application {
    /// The arguments as NUL-terminated strings.
    pub(crate) fn argument_bytes(&self) -> Vec<u8> {
        self.arguments.iter().flat_map(|argument| argument.bytes().chain([0])).collect()
    }

    /// The environment as NUL-terminated strings `NAME=value`.
    pub(crate) fn environment_bytes(&self) -> Vec<u8> {
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={value}\0"));
        variables.flat_map(String::into_bytes).collect()
    }
}

impl fmt::Display for Program {
    /// As the manifest names it; a file by its path.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Program::Package(name) => out.write_str(name),
            Program::File(path) => path.display().fmt(out),
        }
    }
}
