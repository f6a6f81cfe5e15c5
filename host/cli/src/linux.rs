//! Unmodified programs of Linux: a path of this computer, of a tree of directories, or what an OCI image
//! starts.

use crate::contract::ContractOptions;
use crate::mounts::Volume;
use crate::registry;
use crate::run::is_elf;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use nom_abi::image::DeviceSelector;
use nom_build::Project;
use nom_image::manifest::BundleManifest;
use nom_image::{Command, OciImage, Root, StartOverrides, StopSignal, is_bootable};
use nom_vmm::LENT_FILE;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The application that runs them.
const APPLICATION: &str = "linux";
/// What lends a directory: a virtio device of type 9 (virtio 1.2, section 5), of any class.
pub const LENDER: DeviceSelector = DeviceSelector { vendor: 0x1af4, device: 0x1049, class: 0xff_ffff };
/// How many files are named one by one.
const NAMED_MAX: usize = 40;

/// Where a program's files come from.
#[derive(Clone, Debug, Default, Args)]
pub struct RootOptions {
    /// Run a Linux program of this tree of directories, and take all of the tree.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// With the path of a Linux program: take this file or directory, too, such as what it finds by itself
    /// while it runs (`nom strace --missing` says what that is).
    #[arg(long, value_name = "PATH")]
    pub include: Vec<PathBuf>,
    /// Run what a container image starts: one of this OCI image layout, a directory or a tar archive, as
    /// Docker, Podman, Skopeo and Buildah write them. A program takes the place of its entrypoint,
    /// arguments that of its command.
    #[arg(long, value_name = "LAYOUT[:TAG]", conflicts_with_all = ["root", "include"])]
    pub oci: Option<String>,
    /// Run this program of a container image, in place of its entrypoint and command.
    #[arg(long, value_name = "PROGRAM")]
    pub entrypoint: Option<String>,
    /// Run a Linux program as this user [default: the image's, or root].
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    /// Begin a Linux program in this directory [default: the image's, or /].
    #[arg(short, long, value_name = "/PATH")]
    pub workdir: Option<String>,
    /// Signal by which `nom stop` and Ctrl-C ask a Linux program to end [default: the image's, or SIGTERM].
    #[arg(long, value_name = "SIGNAL")]
    pub stop_signal: Option<StopSignal>,
}

impl RootOptions {
    /// What people call that which runs: the application, or the container image.
    pub fn label<'a>(&'a self, app: &'a Option<String>) -> &'a str {
        self.oci.as_deref().or(app.as_deref()).unwrap_or_default()
    }

    /// What is said here of how a program starts.
    fn overrides(&self) -> StartOverrides {
        StartOverrides {
            entrypoint: self.entrypoint.clone(),
            user: self.user.clone(),
            directory: self.workdir.clone(),
            stop_signal: self.stop_signal,
        }
    }
}

/// Whether `app` means a Linux program: then its files are gathered.
///
/// # Errors
/// What is wrong with the program, or is missing.
pub fn subject(
    project: &Project,
    app: Option<&str>,
    arguments: &[String],
    (options, contract): (&RootOptions, &ContractOptions),
) -> Result<Option<BundleManifest>> {
    let Some((root, command)) = gathered(app, arguments, options)? else { return Ok(None) };
    say_taken(&command.program, &root);
    let bundle = contract.bundle(&project.manifest_path(APPLICATION)?, None)?;
    Ok(Some(bundle.with_root(root, &command)))
}

/// The files of a Linux program and how it is started, if `app` means one.
///
/// # Errors
/// As [`subject`].
pub fn gathered(
    app: Option<&str>,
    arguments: &[String],
    options: &RootOptions,
) -> Result<Option<(Root, Command)>> {
    match (&options.oci, app) {
        (Some(layout), program) => {
            let entrypoint = program.map(str::to_owned);
            let overrides = options.overrides();
            ensure!(
                entrypoint.is_none() || overrides.entrypoint.is_none(),
                "--entrypoint: expected no program beside it: {} is one, too",
                program.unwrap_or_default()
            );
            let entrypoint = entrypoint.or(overrides.entrypoint);
            of_layout(layout, &StartOverrides { entrypoint, ..overrides }, arguments).map(Some)
        }
        (None, Some(app)) => of_name(app, arguments, options),
        (None, None) => Ok(None),
    }
}

/// A program of this computer, or of a tree of directories, or what an image of a registry starts, if `app`
/// is one.
fn of_name(app: &str, arguments: &[String], options: &RootOptions) -> Result<Option<(Root, Command)>> {
    if let Some(directory) = &options.root {
        if !app.starts_with('/') {
            bail!("{app}: expected the path of a program in {}", directory.display());
        }
        if !directory.is_dir() {
            bail!("--root {}: no such directory", directory.display());
        }
        Root::of_program(directory, app, &[])?;
        return started(Root::of_directory(directory)?, Command::plain(app, arguments), options);
    }
    if is_program(Path::new(app))? {
        let path = std::path::absolute(app).with_context(|| format!("cannot find {app}"))?;
        let Some(path) = path.to_str() else { bail!("{app}: its path is not UTF-8") };
        let root = Root::of_program(Path::new("/"), path, &options.include)?;
        return started(root, Command::plain(path, arguments), options);
    }
    if let Some(path) = options.include.first() {
        bail!("--include {}: {app} is no program of Linux", path.display());
    }
    let overrides = options.overrides();
    let Some(reference) = registry::reference(app)? else {
        ensure!(
            overrides == StartOverrides::default(),
            "--entrypoint, --user, --workdir and --stop-signal: {app} is neither a program of Linux nor a \
             container image"
        );
        return Ok(None);
    };
    let mut image = registry::pulled(&reference)?;
    let command = image.command(&overrides, arguments)?;
    Ok(Some((image.root, command)))
}

/// A program that no image describes, and how it starts.
fn started(mut root: Root, command: Command, options: &RootOptions) -> Result<Option<(Root, Command)>> {
    let command = options.overrides().apply(command, &mut root)?;
    Ok(Some((root, command)))
}

/// What a container image starts: one of `LAYOUT[:TAG]`.
fn of_layout(layout: &str, overrides: &StartOverrides, arguments: &[String]) -> Result<(Root, Command)> {
    // A path may have a colon in it.
    let (path, tag) = match layout.rsplit_once(':') {
        Some((path, tag)) if !Path::new(layout).exists() => (path, Some(tag)),
        _ => (layout, None),
    };
    let mut image = OciImage::read(Path::new(path), tag)?;
    let command = image.command(overrides, arguments)?;
    Ok((image.root, command))
}

/// Whether a word names a program of Linux by itself: the path of one, or an image of a registry.
pub fn is_named(app: &str) -> bool {
    is_program(Path::new(app)).unwrap_or(false) || matches!(registry::reference(app), Ok(Some(_)))
}

/// Whether a file is a program of Linux: an ELF file that nothing boots, or a script.
fn is_program(path: &Path) -> Result<bool> {
    if !path.is_file() {
        return Ok(false);
    }
    if is_elf(path)? {
        let data = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        return Ok(!is_bootable(path, &data));
    }
    let mut start = Vec::new();
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    file.take(2).read_to_end(&mut start)?;
    Ok(start == b"#!")
}

/// Says what goes along.
fn say_taken(program: &str, root: &Root) {
    let files: Vec<&str> = root.files().map(|(path, _)| path).collect();
    let mebibytes = root.bytes() as f64 / f64::from(1 << 20);
    eprintln!("nom: {program}: takes {} files along, {mebibytes:.1} MiB", files.len());
    if files.len() <= NAMED_MAX {
        files.iter().for_each(|file| eprintln!("  /{file}"));
    }
}

/// The program with directories and files of this computer, which its machine is to be lent in this order.
pub fn with_volumes(mut bundle: BundleManifest, volumes: &[Volume]) -> BundleManifest {
    let application = &mut bundle.applications[0];
    for (number, volume) in volumes.iter().enumerate() {
        application.environment.insert(format!("volume.{number}"), volume.place().to_owned());
        if volume.is_read_only() {
            application.environment.insert(format!("volume.{number}.access"), "ro".to_owned());
        }
        if volume.is_file() {
            application.environment.insert(format!("volume.{number}.file"), LENT_FILE.to_owned());
        }
    }
    if !volumes.is_empty() {
        application.devices.push(LENDER);
    }
    bundle
}
