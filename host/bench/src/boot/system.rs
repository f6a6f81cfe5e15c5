//! The systems that are compared, as QEMU starts them.

use super::Options;
use crate::linux::{ARGUMENTS, Linux, probe, read, save};
use crate::machine::Guest;
use anyhow::{Context, Result};
use std::path::Path;

/// Names of the systems in records.
pub const NOM: &str = "nom";
const LINUX: &str = "linux";
const LINUX_DECOMPRESSED: &str = "linux-vmlinux";

/// One system that boots.
#[derive(Clone, Debug)]
pub struct System {
    /// Its name in records.
    pub name: &'static str,
    /// Says hello and ends.
    pub hello: Guest,
    /// Prints `figure` lines and ends.
    pub measure: Guest,
    /// Reads the counter where the kernel would begin, and ends.
    pub probe: Guest,
    /// Bytes of the files that `hello` is booted from.
    pub image_bytes: u64,
    /// Step in which its smallest memory is searched.
    pub memory_step_bytes: u64,
}

impl System {
    /// nom, from the images in `options`; its probe is written to `probes`.
    pub fn nom(options: &Options, probes: &Path) -> Result<System> {
        let guest =
            |kernel: &Path| Guest { kernel: kernel.to_owned(), initramfs: None, arguments: String::new() };
        System::new(NOM, guest(&options.hello), guest(&options.measure), 64 << 10, probes)
    }

    /// Linux as Debian ships it, and the same kernel decompressed beforehand, which starts as nom does;
    /// their probes are written to `probes`.
    pub fn linux(linux: &Linux, probes: &Path) -> Result<[System; 2]> {
        let system = |name, kernel: &Path| {
            let guest = |mode| Guest {
                kernel: kernel.to_owned(),
                initramfs: Some(linux.initramfs.clone()),
                arguments: format!("{ARGUMENTS} -- {mode}"),
            };
            System::new(name, guest("boot"), guest("measure"), 1 << 20, probes)
        };
        Ok([system(LINUX, &linux.bzimage)?, system(LINUX_DECOMPRESSED, &linux.vmlinux)?])
    }

    fn new(
        name: &'static str,
        hello: Guest,
        measure: Guest,
        memory_step_bytes: u64,
        probes: &Path,
    ) -> Result<System> {
        let kernel = read(&hello.kernel)?;
        let probe = probe::from_kernel(&kernel).with_context(|| format!("{}", hello.kernel.display()))?;
        let path = probes.join(name);
        save(&path, &probe)?;
        let initramfs = hello.initramfs.as_ref().map(|path| path.metadata()).transpose()?;
        Ok(System {
            name,
            probe: Guest { kernel: path, ..hello.clone() },
            image_bytes: kernel.len() as u64 + initramfs.map_or(0, |file| file.len()),
            hello,
            measure,
            memory_step_bytes,
        })
    }
}
