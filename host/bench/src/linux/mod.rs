//! The Linux guest that nom is compared with: Debian's cloud kernel and one static program.

pub mod initramfs;
pub mod kernel;
pub mod libraries;
pub mod package;
pub mod probe;
pub mod program;
pub mod serve;

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Everything that is needed to start Linux.
#[derive(Clone, Debug)]
pub struct Linux {
    /// The kernel's package, which names its version.
    pub package: String,
    /// The kernel as Debian ships it, with its boot-time decompressor.
    pub bzimage: PathBuf,
    /// The same kernel decompressed beforehand, which starts through PVH like nom's.
    pub vmlinux: PathBuf,
    /// Initramfs with `/init` and `/dev/console` only.
    pub initramfs: PathBuf,
}

/// Kernel arguments in front of `--`; what stands behind goes to `/init`. A panic ends QEMU (`-no-reboot`).
pub const ARGUMENTS: &str = "console=ttyS0 quiet panic=-1";

/// How a Linux that serves is set up: one system of a comparison each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuning {
    /// As Debian ships it, but for the clock: QEMU's translator does not say that the time-stamp counter
    /// can be relied upon, so that Linux would read an emulated HPET whenever a server asks for the time.
    Shipped,
    /// By one who knows that the machine serves and does nothing else: idle processors poll instead of
    /// halting, readers of sockets poll the network device for 50 us, and nothing mitigates transient
    /// execution.
    Tuned,
}

impl Tuning {
    /// All of them.
    pub const ALL: [Tuning; 2] = [Tuning::Shipped, Tuning::Tuned];

    /// The system's name in records.
    pub fn name(self) -> &'static str {
        match self {
            Tuning::Shipped => "linux",
            Tuning::Tuned => "linux-tuned",
        }
    }

    /// Kernel arguments (Linux, Documentation/admin-guide/kernel-parameters.txt).
    pub fn arguments(self) -> String {
        let more = match self {
            Tuning::Shipped => "",
            Tuning::Tuned => {
                " idle=poll mitigations=off sysctl.net.core.busy_poll=50 sysctl.net.core.busy_read=50"
            }
        };
        format!("{ARGUMENTS} tsc=reliable{more}")
    }
}

impl Linux {
    /// Fetches or finds the kernel in `cache`, and makes what goes with it.
    ///
    /// # Errors
    /// If the package cannot be fetched, its kernel is of an unknown form, or the program does not compile.
    pub fn prepare(cache: &Path) -> Result<Linux> {
        let kernel = package::fetch(cache)?;
        let directory = kernel.bzimage.parent().context("the kernel lies in a directory")?.to_owned();
        let linux = Linux {
            package: kernel.package,
            vmlinux: directory.join("vmlinux"),
            initramfs: directory.join("initramfs"),
            bzimage: kernel.bzimage,
        };
        if !linux.vmlinux.exists() {
            let bzimage = read(&linux.bzimage)?;
            save(&linux.vmlinux, &kernel::decompress(&bzimage)?)?;
        }
        let program = program::compile(&directory)?;
        save(&linux.initramfs, &initramfs::archive(&program)?)?;
        Ok(linux)
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(crate) fn save(path: &Path, content: &[u8]) -> Result<()> {
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}
