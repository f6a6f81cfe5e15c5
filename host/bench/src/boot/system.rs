//! The systems that are compared, as QEMU starts them.

use crate::linux::{ARGUMENTS, Linux, probe, read, save};
use crate::machine::Guest;
use anyhow::{Context, Result};
use nom_build::Project;
use nom_image::Packing;
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
    /// Guests that print `figure` lines and end: on one processor, and on two.
    pub costs: [Guest; 2],
    /// Reads the counter where the kernel would begin, and ends.
    pub probe: Guest,
    /// Bytes of the files that `hello` is booted from.
    pub image_bytes: u64,
    /// Step in which its smallest memory is searched.
    pub memory_step_bytes: u64,
}

impl System {
    /// nom, built from `project`; its images and its probe are written to `directory`.
    ///
    /// # Errors
    /// If something does not build.
    pub fn nom(project: &Project, directory: &Path) -> Result<System> {
        let image = |name: &str, manifest: &Path, cores| {
            let (built, kernel) = (project.image(manifest, None, Packing::SMALL)?, directory.join(name));
            save(&kernel, &built.image.elf)?;
            Ok::<_, anyhow::Error>(Guest { kernel, initramfs: None, arguments: String::new(), cores })
        };
        let bundles = project.root().join("tests/guest/bundles");
        let crossings = image("nom-crossings", &bundles.join("measure-switch.toml"), 1)?;
        let messages = image("nom-messages", &bundles.join("measure.toml"), 2)?;
        let hello = image("nom-hello", &project.manifest_path("hello")?, 1)?;
        System::new(NOM, hello, [crossings, messages], 64 << 10, directory)
    }

    /// Linux as Debian ships it, and the same kernel decompressed beforehand, which starts as nom does;
    /// their probes are written to `directory`.
    ///
    /// # Errors
    /// If a kernel cannot be read or has no entry where a probe could begin.
    pub fn linux(linux: &Linux, directory: &Path) -> Result<[System; 2]> {
        let system = |name, kernel: &Path| {
            let guest = |mode, cores| Guest {
                kernel: kernel.to_owned(),
                initramfs: Some(linux.initramfs.clone()),
                arguments: format!("{ARGUMENTS} -- {mode}"),
                cores,
            };
            System::new(
                name,
                guest("boot", 1),
                [guest("crossings", 1), guest("messages", 2)],
                1 << 20,
                directory,
            )
        };
        Ok([system(LINUX, &linux.bzimage)?, system(LINUX_DECOMPRESSED, &linux.vmlinux)?])
    }

    fn new(
        name: &'static str,
        hello: Guest,
        costs: [Guest; 2],
        step: u64,
        directory: &Path,
    ) -> Result<System> {
        let kernel = read(&hello.kernel)?;
        let probe = probe::from_kernel(&kernel).with_context(|| hello.kernel.display().to_string())?;
        let path = directory.join(format!("{name}-probe"));
        save(&path, &probe)?;
        let initramfs = hello.initramfs.as_ref().map(|path| path.metadata()).transpose()?;
        Ok(System {
            name,
            probe: Guest { kernel: path, ..hello.clone() },
            image_bytes: kernel.len() as u64 + initramfs.map_or(0, |file| file.len()),
            hello,
            costs,
            memory_step_bytes: step,
        })
    }
}
