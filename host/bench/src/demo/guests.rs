//! What is booted: the distribution's server, and nom's with one batching delay or another, or none.

use super::contract::{self, Function, Slowness};
use super::governing;
use crate::linux::serve::Servers;
use crate::linux::{Tuning, save};
use crate::machine::Guest;
use crate::serve::guests::{LINUX_APPLICATION, unmodified};
use crate::serve::service::Service;
use anyhow::{Context, Result};
use nom_build::{PriceFeed, Project};
use nom_image::Symbols;
use nom_image::manifest::BundleManifest;
use std::path::{Path, PathBuf};

/// How an application of nom is set up.
#[derive(Clone, Copy, Debug)]
pub enum Setup {
    /// With one batching delay, in microseconds; it reports what that brings to a provider.
    Fixed(u32),
    /// To earn most under a contract, at the prices that a provider names, with at most so many
    /// microseconds of batching delay.
    Adaptive(Function, Slowness, u32),
    /// Who pays for what is found, whatever its latency, with these arguments, and adapting by this knob if
    /// any: with a batching delay of 0.
    Knob {
        /// Further arguments.
        arguments: &'static [&'static str],
        /// Processors of its machine.
        cores: u32,
        /// The knob.
        knob: Option<&'static str>,
    },
}

impl Setup {
    fn cores(self) -> u32 {
        if let Setup::Knob { cores, .. } = self { cores } else { 1 }
    }
}

/// Makes the image of nom's application for `service` in `directory`, with its prices from `feed`. A program
/// of Linux is that of `servers`, or else this computer's.
///
/// # Errors
/// If there is no such application or program, or it does not build.
pub fn nom(
    project: &Project,
    servers: Option<&Servers>,
    (service, setup): (&Service, Setup),
    feed: &PriceFeed,
    directory: &Path,
) -> Result<Guest> {
    let manifest = manifest(project, service, setup, directory)?;
    let mut bundle = project.bundle(&manifest, None)?;
    if service.application == LINUX_APPLICATION {
        let tree = servers.map_or(Path::new("/"), Servers::tree);
        let (root, command) = unmodified(tree, service)
            .with_context(|| format!("expected Debian's package {}", service.linux.package))?;
        bundle = bundle.with_root(root, &command);
    }
    let kernel = packed(project, bundle, feed, directory)?;
    Ok(Guest { kernel, initramfs: None, arguments: String::new(), cores: setup.cores() })
}

/// Writes the image of a bundle with its prices from `feed` to `directory`; returns its path.
///
/// # Errors
/// If it does not build, or cannot be written.
pub fn packed(
    project: &Project,
    bundle: BundleManifest,
    feed: &PriceFeed,
    directory: &Path,
) -> Result<PathBuf> {
    let bundle = project.with_priced(bundle, feed)?;
    let built = project.pack(bundle, Symbols::Keep)?;
    let kernel = directory.join("image");
    save(&kernel, &built.image.elf)?;
    Ok(kernel)
}

/// Writes the manifest of nom's application for `service` to `directory`; returns its path.
///
/// # Errors
/// If there is no such application, or it cannot be written.
pub fn manifest(project: &Project, service: &Service, setup: Setup, directory: &Path) -> Result<PathBuf> {
    let inherited = project.manifest_path(service.application)?;
    let inherited = std::path::absolute(inherited.join("app.toml"))?;
    let manifest = directory.join("app.toml");
    save(&manifest, manifest_text(&inherited, service.arguments, setup)?.as_bytes())?;
    Ok(manifest)
}

/// The distribution's server for `service` on a Linux of this `tuning`; its initramfs is written to
/// `directory`.
///
/// # Errors
/// If a file is missing.
pub fn linux(servers: &Servers, service: &Service, tuning: Tuning, directory: &Path) -> Result<Guest> {
    let initramfs: PathBuf = directory.join(format!("linux-{}", service.name));
    servers.initramfs(&service.linux, &initramfs).context(service.name)?;
    let arguments = tuning.arguments();
    Ok(Guest { kernel: servers.bzimage.clone(), initramfs: Some(initramfs), arguments, cores: 1 })
}

/// In the environment: with W = 0 each packet goes by itself, as the paper has it.
const ALONE: &str = "unheld = \"alone\"";

/// A manifest of the demo's own, which inherits the application's.
fn manifest_text(inherited: &Path, arguments: &[&str], setup: Setup) -> Result<String> {
    // A string of JSON is one of TOML too.
    let mut text = format!("inherit = [{}]\n", serde_json::to_string(&inherited)?);
    let more = if let Setup::Knob { arguments, .. } = setup { arguments } else { &[] };
    let arguments = [arguments, more].concat();
    if !arguments.is_empty() {
        text += &format!("arguments = {}\n", serde_json::to_string(&arguments)?);
    }
    Ok(match setup {
        // Who reports has a contract; whichever, for nothing follows from it.
        Setup::Fixed(us) => {
            text += &format!("environment = {{ batching_delay = \"{us}\", {ALONE} }}\n\n");
            text + &contract::manifest(Function::Refund, Slowness::PAPER)
        }
        Setup::Knob { knob, .. } => {
            let own = match knob {
                Some(knob) => format!("knobs = \"{knob}\""),
                None => "batching_delay = \"0\"".into(),
            };
            text += &format!("environment = {{ control = \"{}\", {own}, {ALONE} }}\n\n", governing::PORT);
            text + &contract::value()
        }
        Setup::Adaptive(function, slowness, longest) => {
            let control = governing::PORT;
            text += &format!(
                "environment = {{ batching_delay_max = \"{longest}\", control = \"{control}\", {ALONE} }}\n\n"
            );
            text + &contract::manifest(function, slowness)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_say_how_the_application_is_set_up() {
        let slowness = Slowness::of(820e-6).unwrap();
        let text =
            |arguments: &[&str], setup| manifest_text(Path::new("/a/app.toml"), arguments, setup).unwrap();
        let fixed = text(&["-v"], Setup::Fixed(20));
        let begin = "inherit = [\"/a/app.toml\"]\narguments = [\"-v\"]\n\
                     environment = { batching_delay = \"20\", unheld = \"alone\" }\n";
        assert!(fixed.starts_with(begin) && fixed.contains("function = \"refund\""), "{fixed}");
        let adaptive = text(&[], Setup::Adaptive(Function::Bonus, slowness, 400));
        assert!(adaptive.contains("batching_delay_max = \"400\""), "{adaptive}");
        assert!(adaptive.contains("function = \"bonus\"") && adaptive.contains("extent = 0.1"), "{adaptive}");
        assert!(!adaptive.contains("arguments"));
        let knob = |knob| text(&["-v"], Setup::Knob { arguments: &["-m", "8"], cores: 2, knob });
        assert!(
            knob(None).contains("[\"-v\",\"-m\",\"8\"]") && knob(None).contains("batching_delay = \"0\"")
        );
        assert!(knob(Some("memory")).contains("knobs = \"memory\", unheld"), "{}", knob(Some("memory")));
    }
}
