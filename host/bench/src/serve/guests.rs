//! The guests that serve, as QEMU starts them.

use super::parts::Programs;
use super::service::Service;
use crate::linux::serve::{ACCOUNTS, Servers};
use crate::linux::{Tuning, save};
use crate::machine::Guest;
use anyhow::{Context, Result};
use nom_build::Project;
use nom_image::manifest::BundleManifest;
use nom_image::{Command, Packing, Root};
use std::path::{Path, PathBuf};

/// Name of nom in records.
pub const NOM: &str = "nom";

/// The application that runs programs of Linux.
pub(crate) const LINUX_APPLICATION: &str = "linux";

/// The environment variable by which an application of nom takes its batching delay, in microseconds.
const DELAY_VARIABLE: &str = "batching_delay";

/// One system that provides one service.
#[derive(Clone, Debug)]
pub struct Provider {
    /// The system's name in records.
    pub system: &'static str,
    /// The service.
    pub service: &'static Service,
    /// What is started.
    pub guest: Guest,
    /// Bytes of its files.
    pub image_bytes: u64,
    /// Step in which its smallest memory is searched.
    pub memory_step_bytes: u64,
    /// Its programs with symbols, of a system that shows them.
    pub programs: Option<Programs>,
}

impl Provider {
    /// nom's application for `service`, built from `project`; its image is written to `directory`.
    ///
    /// # Errors
    /// If there is no such application, or it does not build.
    pub fn nom(project: &Project, service: &'static Service, directory: &Path) -> Result<Provider> {
        let (guest, programs) = nom_image(project, service, directory, "", "")?;
        Ok(Provider { programs: Some(programs), ..Provider::new(NOM, service, guest, 64 << 10)? })
    }

    /// nom's application with a batching delay of `delay_us`.
    ///
    /// # Errors
    /// See [`Provider::nom`].
    pub fn nom_with_delay(
        project: &Project,
        service: &'static Service,
        directory: &Path,
        delay_us: u32,
    ) -> Result<Provider> {
        let manifest = format!("environment = {{ {DELAY_VARIABLE} = \"{delay_us}\" }}\n");
        let (guest, _) = nom_image(project, service, directory, &format!("-{delay_us}"), &manifest)?;
        Provider::new(NOM, service, guest, 64 << 10)
    }

    /// nom's application with more in its `manifest`, by the name of `system`.
    ///
    /// # Errors
    /// See [`Provider::nom`].
    pub fn nom_that(
        project: &Project,
        service: &'static Service,
        directory: &Path,
        system: &'static str,
        manifest: &str,
    ) -> Result<Provider> {
        let (guest, programs) = nom_image(project, service, directory, &format!("-{system}"), manifest)?;
        Ok(Provider { programs: Some(programs), ..Provider::new(system, service, guest, 64 << 10)? })
    }

    /// Debian's server for `service` on a Linux of this `tuning`; its initramfs is written to `directory`.
    ///
    /// # Errors
    /// If a file is missing.
    pub fn linux(
        servers: &Servers,
        service: &'static Service,
        tuning: Tuning,
        directory: &Path,
    ) -> Result<Provider> {
        let initramfs = directory.join(format!("linux-{}", service.name));
        servers.initramfs(&service.linux, &initramfs)?;
        let kernel = servers.bzimage.clone();
        let guest = Guest { kernel, initramfs: Some(initramfs), arguments: tuning.arguments(), cores: 1 };
        Provider::new(tuning.name(), service, guest, 1 << 20)
    }

    /// The distribution's own server for `service` on nom, with the service's arguments: the files that
    /// [`Provider::linux`] has, out of the same tree.
    ///
    /// # Errors
    /// If a file is missing, or nom does not build.
    pub fn unmodified(
        project: &Project,
        servers: &Servers,
        service: &'static Service,
        directory: &Path,
    ) -> Result<Provider> {
        let (root, command) = unmodified(servers.tree(), service)?;
        let bundle = running(project, root, &command)?;
        let (guest, programs) =
            nom_bundle(project, bundle, &directory.join(format!("nom-{}", service.name)))?;
        Ok(Provider { programs: Some(programs), ..Provider::new(NOM, service, guest, 1 << 20)? })
    }

    /// The same in a machine of `cores` processors.
    pub fn on(&self, cores: u32) -> Provider {
        Provider { guest: Guest { cores, ..self.guest.clone() }, ..self.clone() }
    }

    fn new(system: &'static str, service: &'static Service, guest: Guest, step: u64) -> Result<Provider> {
        let files = [Some(&guest.kernel), guest.initramfs.as_ref()].into_iter().flatten();
        let sizes = files.map(|file| {
            file.metadata().map(|file| file.len()).with_context(|| format!("cannot read {}", file.display()))
        });
        Ok(Provider {
            image_bytes: sizes.sum::<Result<u64>>()?,
            system,
            service,
            guest,
            memory_step_bytes: step,
            programs: None,
        })
    }
}

/// The files of the distribution's own server for `service`, out of `tree`, and what starts it.
///
/// # Errors
/// If a file is missing.
pub(crate) fn unmodified(tree: &Path, service: &Service) -> Result<(Root, Command)> {
    let path = format!("/{}", service.linux.program);
    let reads: Vec<PathBuf> =
        service.linux.directories(tree).iter().map(|directory| Path::new("/").join(directory)).collect();
    let mut root = Root::of_program(tree, &path, &reads)?;
    for (path, content) in ACCOUNTS.iter().chain(service.linux.files) {
        root.write(path, content.as_bytes());
    }
    let arguments: Vec<String> = service.arguments.iter().map(|&word| word.to_owned()).collect();
    Ok((root, Command::plain(&path, &arguments)))
}

/// nom's application that runs programs of Linux, with this one.
pub(crate) fn running(project: &Project, root: Root, command: &Command) -> Result<BundleManifest> {
    Ok(project.bundle(&project.manifest_path(LINUX_APPLICATION)?, None)?.with_root(root, command))
}

/// Builds the image of a bundle as the file `kernel`: quickly, since its files are many.
pub(crate) fn nom_bundle(
    project: &Project,
    bundle: BundleManifest,
    kernel: &Path,
) -> Result<(Guest, Programs)> {
    let built = project.pack(bundle, Packing::default())?;
    save(kernel, &built.image.elf)?;
    let (_, application) = built.programs.into_iter().next().context("a bundle has an application")?;
    let programs = Programs { application, kernel: built.kernel };
    let guest = Guest { kernel: kernel.to_owned(), initramfs: None, arguments: String::new(), cores: 1 };
    Ok((guest, programs))
}

/// Builds an image through a manifest of the bench's own, which inherits the application's.
fn nom_image(
    project: &Project,
    service: &Service,
    directory: &Path,
    variant: &str,
    more: &str,
) -> Result<(Guest, Programs)> {
    let inherited = project.manifest_path(service.application)?;
    let inherited = std::path::absolute(inherited.join("app.toml"))?;
    let name = format!("nom-{}{variant}", service.name);
    let manifest = directory.join(format!("{name}.toml"));
    save(&manifest, manifest_text(&inherited, service.arguments, more)?.as_bytes())?;
    let built = project.image(&manifest, None, Packing::SMALL)?;
    let kernel = directory.join(name);
    save(&kernel, &built.image.elf)?;
    let (_, application) = built.programs.into_iter().next().context("a bundle has an application")?;
    let programs = Programs { application, kernel: built.kernel };
    Ok((Guest { kernel, initramfs: None, arguments: String::new(), cores: 1 }, programs))
}

fn manifest_text(inherited: &Path, arguments: &[&str], more: &str) -> Result<String> {
    // A string of JSON is one of TOML too.
    let mut text = format!("inherit = [{}]\n", serde_json::to_string(&inherited)?);
    if !arguments.is_empty() {
        text += &format!("arguments = {}\n", serde_json::to_string(arguments)?);
    }
    Ok(text + more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_inherits_and_adds() {
        let text = |arguments: &[&str], more| {
            manifest_text(Path::new("/a \"b\"/app.toml"), arguments, more).unwrap()
        };
        assert_eq!(text(&[], ""), "inherit = [\"/a \\\"b\\\"/app.toml\"]\n");
        assert_eq!(
            text(&["-U", "1"], "environment = { batching_delay = \"20\" }\n"),
            "inherit = [\"/a \\\"b\\\"/app.toml\"]\narguments = [\"-U\",\"1\"]\n\
             environment = { batching_delay = \"20\" }\n"
        );
    }
}
