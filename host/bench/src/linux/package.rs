//! Gets Debian's packages, above all its cloud kernel, without installing them.

use anyhow::{Context, Result, bail, ensure};
use nom_build::debian;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The package that depends on the newest kernel's package.
const META: &str = "linux-image-cloud-amd64";

/// A kernel out of its package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The package's name.
    pub package: String,
    /// The kernel's file.
    pub bzimage: PathBuf,
}

/// The kernel in `cache`, or the one that apt offers, which is then kept there.
///
/// # Errors
/// If apt knows no such package or cannot fetch it.
pub fn fetch(cache: &Path) -> Result<Kernel> {
    if let Some(kernel) = find(cache) {
        return Ok(kernel);
    }
    renew_lists()?;
    let package = kernel_package(&run(Command::new("apt-cache").args(["show", "--no-all-versions", META]))?)?;
    std::fs::create_dir_all(cache).with_context(|| format!("cannot create directory {}", cache.display()))?;
    // Made beside its final place and renamed, so that an interrupted run leaves no half of a kernel.
    let workplace = tempfile::tempdir_in(cache)?;
    download(std::slice::from_ref(&package), workplace.path())?;
    unpack(workplace.path(), workplace.path(), &["./boot"])?;
    let bzimage =
        workplace.path().join(format!("boot/vmlinuz-{}", package.trim_start_matches("linux-image-")));
    ensure!(bzimage.is_file(), "package {package} holds no {}", bzimage.display());
    let home = cache.join(&package);
    std::fs::create_dir(&home)?;
    std::fs::rename(&bzimage, home.join("bzImage"))?;
    find(cache).with_context(|| format!("{} vanished", home.display()))
}

/// Has apt read its lists anew, where it may: a fresh computer has none, and old ones name what is gone.
///
/// # Errors
/// If apt fails.
pub fn renew_lists() -> Result<()> {
    if debian::may_install() { debian::refresh() } else { Ok(()) }
}

/// The newest kernel that was fetched before.
fn find(cache: &Path) -> Option<Kernel> {
    let names = std::fs::read_dir(cache).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let package = names.filter(|name| cache.join(name).join("bzImage").is_file()).max()?;
    Some(Kernel { bzimage: cache.join(&package).join("bzImage"), package })
}

/// The first kernel package in the `Depends` field of what `apt-cache show` printed.
fn kernel_package(shown: &str) -> Result<String> {
    let depends = shown.lines().find_map(|line| line.strip_prefix("Depends:")).unwrap_or_default();
    let mut names = depends.split(',').filter_map(|dependency| dependency.split_whitespace().next());
    let package = names.find(|name| name.starts_with("linux-image-"));
    Ok(package.with_context(|| format!("package {META} depends on no kernel: {depends:?}"))?.into())
}

/// Has apt look at what its archives have, whatever is installed here, which may be of somewhere else.
const AS_IN_ARCHIVES: [&str; 2] = ["--option", "Dir::State::status=/dev/null"];

/// Has apt put the files of `packages` into `directory`.
///
/// # Errors
/// If apt knows no such package or cannot fetch it.
pub fn download(packages: &[String], directory: &Path) -> Result<()> {
    let mut fetch = Command::new("apt-get");
    fetch.args(AS_IN_ARCHIVES).args(["download", "--quiet"]).args(packages).current_dir(directory);
    run(&mut fetch).map(drop)
}

/// Unpacks every package file in `packages` into `directory`: all of it, or only `members`.
///
/// # Errors
/// If there is none, or one is broken or lacks a member.
pub fn unpack(packages: &Path, directory: &Path, members: &[&str]) -> Result<()> {
    let files = std::fs::read_dir(packages)?.filter_map(|entry| Some(entry.ok()?.path()));
    let files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "deb")).collect();
    ensure!(!files.is_empty(), "apt-get download left no package file");
    files.iter().try_for_each(|file| {
        unpack_one(file, directory, members).with_context(|| format!("cannot unpack {}", file.display()))
    })
}

fn unpack_one(package: &Path, directory: &Path, members: &[&str]) -> Result<()> {
    let mut unpacked =
        Command::new("dpkg-deb").arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()).spawn()?;
    let archive = unpacked.stdout.take().context("dpkg-deb has an output")?;
    let extracted =
        run(Command::new("tar").arg("-x").args(members).current_dir(directory).stdin(Stdio::from(archive)));
    let status = unpacked.wait()?;
    extracted?;
    ensure!(status.success(), "dpkg-deb failed with {status}");
    Ok(())
}

/// `roots` and the packages of libraries that they need, and those need; nothing else that packages depend
/// on.
///
/// # Errors
/// If apt knows one of them not.
pub fn with_libraries(roots: &[&str]) -> Result<Vec<String>> {
    let mut all: Vec<String> = roots.iter().map(|&root| root.to_owned()).collect();
    let mut new = all.clone();
    while !new.is_empty() {
        let shown = run(Command::new("apt-cache").args(AS_IN_ARCHIVES).arg("depends").args(&new))?;
        new = libraries(&shown).filter(|name| !all.contains(name)).collect();
        new.sort();
        new.dedup();
        all.extend(new.iter().cloned());
    }
    Ok(all)
}

/// The libraries among the dependencies that `apt-cache depends` printed. Debian's policy (section 8.1) has
/// their packages be called after them; zlib's is the exception. What node reads is called after it.
fn libraries(shown: &str) -> impl Iterator<Item = String> {
    let depended = shown.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let is_library = |name: &&str| name.starts_with("lib") || name.starts_with("node-") || *name == "zlib1g";
    depended.filter(is_library).map(str::to_owned)
}

/// Runs a command to its end and returns its output; what it said goes into the error.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } = command.output().with_context(|| format!("cannot run {name}"))?;
    if !status.success() {
        bail!("{name} failed with {status}: {}", String::from_utf8_lossy(&stderr).trim());
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_package_leads_to_the_kernels() {
        let shown =
            "Package: linux-image-cloud-amd64\nDepends: base, linux-image-6.1.0-56-cloud-amd64 (= 6.1.1-2)\n";
        assert_eq!(kernel_package(shown).unwrap(), "linux-image-6.1.0-56-cloud-amd64");
        assert!(kernel_package("Package: x\n").unwrap_err().to_string().contains(META));
    }

    #[test]
    fn only_libraries_are_followed() {
        let shown = "memcached\n  PreDepends: init-system-helpers\n  Depends: adduser\n  \
                     Depends: <perl:any>\n    perl\n  \
                     Depends: libevent-2.1-7\n  Suggests: libyaml-perl\nnginx\n  Depends: zlib1g\n";
        assert_eq!(libraries(shown).collect::<Vec<_>>(), ["libevent-2.1-7", "zlib1g"]);
    }

    #[test]
    fn broken_package_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let unpack = || format!("{:#}", unpack(directory.path(), directory.path(), &[]).unwrap_err());
        assert!(unpack().contains("no package file"));
        std::fs::write(directory.path().join("x.deb"), "no archive").unwrap();
        assert!(unpack().contains("x.deb"));
    }

    #[test]
    fn kernel_of_an_earlier_run_needs_no_network() {
        let cache = tempfile::tempdir().unwrap();
        assert_eq!(find(cache.path()), None);
        let home = cache.path().join("linux-image-1");
        std::fs::create_dir(&home).unwrap();
        assert_eq!(find(cache.path()), None, "an empty directory is no kernel");
        std::fs::write(home.join("bzImage"), "").unwrap();
        let kernel = fetch(cache.path()).unwrap();
        assert_eq!((kernel.package.as_str(), kernel.bzimage), ("linux-image-1", home.join("bzImage")));
    }

    #[test]
    fn failed_command_says_why() {
        let error = run(Command::new("tar").arg("--no-such-option")).unwrap_err().to_string();
        assert!(error.contains("tar failed") && error.contains("no-such-option"), "{error}");
    }
}
