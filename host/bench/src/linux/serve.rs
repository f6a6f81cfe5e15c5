//! The Linux guest that serves: Debian's cloud kernel, its network driver, and one of the distribution's
//! servers.

use super::initramfs::Archive;
use super::package::{self, Kernel};
use super::{libraries, read, save};
use anyhow::{Context, Result, ensure};
use nom_vmm::namespace::{GUEST, HOST, PREFIX};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const INIT: &str = include_str!("../../guest/serve.sh");
/// The drivers of a virtio network device, in the order in which today's need each other. Debian builds
/// them as modules; one that a kernel has built in has no file.
const MODULES: [&str; 8] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
];
/// How Debian compresses modules in one release or another; busybox undoes it.
const COMPRESSIONS: [&str; 3] = ["", ".xz", ".zst"];
const BUSYBOX: &str = "bin/busybox";
/// Who is who in a guest.
pub(crate) const ACCOUNTS: [(&str, &str); 2] =
    [("etc/passwd", "root:x:0:0:root:/:/bin/sh\n"), ("etc/group", "root:x:0:\n")];
/// Becomes `/init` of a guest that runs one program to its end, and then ends; its console is the output.
const ONCE: &str = "#!/bin/busybox sh\n\
    /bin/busybox mkdir -p /proc /tmp\n\
    /bin/busybox mount -t proc proc /proc\n\
    /program\n\
    /bin/busybox poweroff -f\n";
/// Where Debian has the libraries that everything needs, and all others below `usr`.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";

/// A server of the distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its package.
    pub package: &'static str,
    /// Path of its program in the package.
    pub program: &'static str,
    /// Shell script that becomes the server, or repeats one that serves a single client.
    pub script: &'static str,
    /// Further files: path and content.
    pub files: &'static [(&'static str, &'static str)],
    /// Directories that it reads while it runs, of those that its packages have.
    pub reads: &'static [&'static str],
}

impl Server {
    /// Those of its directories that `tree` has.
    pub(crate) fn directories(&self, tree: &Path) -> Vec<PathBuf> {
        let all = self.reads.iter().map(PathBuf::from);
        all.filter(|directory| tree.join(directory).is_dir()).collect()
    }
}

/// The kernel and one unpacked tree with all servers.
#[derive(Clone, Debug)]
pub struct Servers {
    /// The kernel's package, which names its version.
    pub package: String,
    /// The kernel as Debian ships it.
    pub bzimage: PathBuf,
    tree: PathBuf,
}

impl Servers {
    /// Fetches or finds the kernel and the packages of `servers` in `cache`.
    ///
    /// # Errors
    /// If apt knows no such package or cannot fetch it.
    pub fn prepare(cache: &Path, servers: &[Server]) -> Result<Servers> {
        let Kernel { package, bzimage } = package::fetch(cache)?;
        let tree = cache.join("servers");
        let complete = |tree: &Path| {
            servers.iter().all(|server| tree.join(server.program).is_file())
                && tree.join(BUSYBOX).is_file()
                && modules_directory(tree, &package).is_dir()
        };
        if !complete(&tree) {
            let roots: Vec<&str> = servers.iter().map(|server| server.package).collect();
            package::renew_lists()?;
            fetch(cache, &tree, &[&roots[..], &["busybox-static", &package]].concat())?;
        }
        ensure!(complete(&tree), "{} lacks a program: remove it to fetch it anew", tree.display());
        Ok(Servers { package, bzimage, tree })
    }

    /// Writes the initramfs of `server` to `path`.
    ///
    /// # Errors
    /// If a file is missing or cannot be written.
    pub fn initramfs(&self, server: &Server, path: &Path) -> Result<()> {
        let mut archive = Archive::new()?;
        let network = format!("address={GUEST}/{PREFIX} gateway={HOST}\n");
        let (interpreter, body) = INIT.split_once('\n').context("a script has lines")?;
        archive.file("init", format!("{interpreter}\n{network}{body}").as_bytes())?;
        archive.file("serve", server.script.as_bytes())?;
        for (path, content) in ACCOUNTS {
            archive.file(path, content.as_bytes())?;
        }
        archive.file("etc/protocols", b"tcp 6 TCP\nudp 17 UDP\n")?;
        archive.file(BUSYBOX, &read(&self.tree.join(BUSYBOX))?)?;
        let program = read(&self.tree.join(server.program))?;
        for (path, content) in libraries::of(&program, &self.tree)? {
            archive.file(&path, &content)?;
        }
        archive.file(server.program, &program)?;
        for (index, module) in self.modules().enumerate() {
            archive.file(&format!("modules/{index}"), &read(&module)?)?;
        }
        for directory in server.directories(&self.tree) {
            self.add_directory(&mut archive, &directory)?;
        }
        for (path, content) in server.files {
            archive.file(path, content.as_bytes())?;
        }
        save(path, &archive.finish()?)
    }

    /// Adds a directory with all that is in it.
    fn add_directory(&self, archive: &mut Archive, directory: &Path) -> Result<()> {
        let entries = std::fs::read_dir(self.tree.join(directory))?.collect::<std::io::Result<Vec<_>>>()?;
        for entry in entries {
            let path = directory.join(entry.file_name());
            match self.tree.join(&path) {
                whole if whole.is_dir() => self.add_directory(archive, &path)?,
                whole if whole.is_file() => archive.file(&path.to_string_lossy(), &read(&whole)?)?,
                // A link to what another package would have.
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the initramfs of a guest that runs `program`, a file of this computer's, with this computer's
    /// libraries, and ends.
    ///
    /// # Errors
    /// If it is no program, a library is missing, or nothing can be written.
    pub fn once(&self, program: &Path, path: &Path) -> Result<()> {
        let mut archive = Archive::new()?;
        archive.file("init", ONCE.as_bytes())?;
        archive.file(BUSYBOX, &read(&self.tree.join(BUSYBOX))?)?;
        let program = read(program)?;
        for (path, content) in libraries::of(&program, Path::new("/"))? {
            archive.file(&path, &content)?;
        }
        archive.file("program", &program)?;
        save(path, &archive.finish()?)
    }

    /// Where the packages are unpacked.
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// The words that start `server` on this computer, with the libraries of its own release.
    pub fn loaded(&self, server: &Server) -> Vec<OsString> {
        let libraries = self.tree.join(LIBRARIES);
        let more = self.tree.join("usr").join(LIBRARIES);
        let path = format!("{}:{}", libraries.display(), more.display());
        let loader = libraries.join(LOADER);
        vec![loader.into(), "--library-path".into(), path.into(), self.tree.join(server.program).into()]
    }

    fn modules(&self) -> impl Iterator<Item = PathBuf> {
        let directory = modules_directory(&self.tree, &self.package);
        MODULES.into_iter().filter_map(move |module| {
            let mut files = COMPRESSIONS.iter().map(|ending| directory.join(format!("{module}{ending}")));
            files.find(|file| file.is_file())
        })
    }
}

fn modules_directory(tree: &Path, package: &str) -> PathBuf {
    tree.join("lib/modules").join(package.trim_start_matches("linux-image-")).join("kernel")
}

/// Unpacks `packages` and their libraries as the tree `tree`; an interrupted run leaves no half of one.
fn fetch(cache: &Path, tree: &Path, packages: &[&str]) -> Result<()> {
    let workplace = tempfile::tempdir_in(cache)?;
    let unpacked = workplace.path().join("tree");
    std::fs::create_dir(&unpacked)?;
    package::download(&package::with_libraries(packages)?, workplace.path())?;
    package::unpack(workplace.path(), &unpacked, &[])?;
    if tree.exists() {
        std::fs::remove_dir_all(tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    std::fs::rename(&unpacked, tree).with_context(|| format!("cannot make {}", tree.display()))
}
