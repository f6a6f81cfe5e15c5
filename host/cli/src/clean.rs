//! `nom clean`: removes what no build needs any more.
//!
//! Cargo keeps what each compiler built for ever, and nobody removes the programs of a checkout that is gone.

use crate::store;
use anyhow::{Context, Result, bail};
use clap::Args;
use nom_build::Project;
use serde::Deserialize;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// `nom clean`.
#[derive(Debug, Args)]
#[command(
    after_help = "It removes what another compiler built, incremental compilations, what the suites newest
and fresh left, and the programs of checkouts that are gone. `rm -r target` removes all.

Examples:
  nom clean
  nom clean --dry-run"
)]
pub struct Options {
    /// Say what would be removed.
    #[arg(long)]
    dry_run: bool,
}

/// Directories of the target that suites make anew when they run, from time to time.
const REMADE: [&str; 2] = ["newest", "fresh"];
/// How deep below the target cargo's directories of a profile may lie: `guest/x86_64-nom/guest`.
const DEPTH: usize = 3;
/// Where cargo notes what each unit was built from.
const FINGERPRINTS: &str = ".fingerprint";

/// `nom clean`.
///
/// # Errors
/// If a build is under way, or something cannot be removed.
pub fn clean(options: &Options) -> Result<u8> {
    let project = Project::find()?;
    let target = project.target();
    // Held until the end, as cargo holds it.
    let _locks = lock(&profiles(target, DEPTH))?;
    let mut stale: Vec<PathBuf> = REMADE.iter().map(|name| target.join(name)).collect();
    for profile in profiles(target, DEPTH) {
        stale.push(profile.join("incremental"));
        stale.extend(stale_units(&profile));
    }
    stale.extend(caches().iter().flat_map(|caches| orphans(caches)));
    stale.retain(|path| path.exists());
    let freed = stale.iter().map(|path| size(path)).sum();
    if !options.dry_run {
        stale.iter().try_for_each(|path| remove(path))?;
    }
    let verb = if options.dry_run { "would free" } else { "freed" };
    println!("{verb} {}; {} has {}", megabytes(freed), target.display(), megabytes(size(target)));
    Ok(0)
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

/// Cargo's directories of profiles below `directory`.
fn profiles(directory: &Path, depth: usize) -> Vec<PathBuf> {
    if directory.join(FINGERPRINTS).is_dir() {
        return vec![directory.to_owned()];
    }
    let below = if depth == 0 { Vec::new() } else { entries(directory) };
    let directories = below.into_iter().filter(|path| path.is_dir() && !path.is_symlink());
    directories.flat_map(|path| profiles(&path, depth - 1)).collect()
}

/// Takes cargo's lock of each profile, so that nothing is built meanwhile.
fn lock(profiles: &[PathBuf]) -> Result<Vec<File>> {
    let files = profiles.iter().filter_map(|profile| File::open(profile.join(".cargo-lock")).ok());
    let locked = files.map(|file| match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!("something is being built: try again when it is done"),
        Err(TryLockError::Error(error)) => Err(error).context("cannot lock the target directory"),
    });
    locked.collect()
}

/// What cargo writes about a unit; of that a number for the compiler.
#[derive(Deserialize)]
struct Fingerprint {
    rustc: u64,
}

/// Files and directories of the units of a profile that another compiler built than the last one.
fn stale_units(profile: &Path) -> Vec<PathBuf> {
    let units = entries(&profile.join(FINGERPRINTS)).into_iter();
    let built: Vec<(PathBuf, u64, SystemTime)> = units.filter_map(|unit| unit_of(&unit)).collect();
    let Some(&(_, last, _)) = built.iter().max_by_key(|(_, _, time)| *time) else { return Vec::new() };
    let stale = built.into_iter().filter(|(_, rustc, _)| *rustc != last).map(|(unit, ..)| unit);
    let files = entries(&profile.join("deps"));
    let of = |unit: PathBuf| {
        let name = unit.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hash = name.rsplit_once('-').map(|(_, hash)| format!("-{hash}")).unwrap_or_default();
        let deps = files.iter().filter(|file| is_named(file, &hash)).cloned();
        let mut paths: Vec<PathBuf> = deps.collect();
        paths.extend([profile.join("build").join(&name), unit]);
        paths
    };
    stale.flat_map(of).collect()
}

/// Whether a file's name, without its ending, ends with `hash`.
fn is_named(file: &Path, hash: &str) -> bool {
    !hash.is_empty() && file.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with(hash))
}

/// A unit's compiler, and when it was built.
fn unit_of(unit: &Path) -> Option<(PathBuf, u64, SystemTime)> {
    let json = entries(unit).into_iter().find(|file| file.extension().is_some_and(|end| end == "json"))?;
    let Fingerprint { rustc } = serde_json::from_slice(&std::fs::read(&json).ok()?).ok()?;
    Some((unit.to_owned(), rustc, json.metadata().ok()?.modified().ok()?))
}

/// Where the programs of other people's checkouts are, as the script `nom` chooses it.
fn caches() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    Some(cache.or_else(|| Some(std::env::home_dir()?.join(".cache")))?.join("nom"))
}

/// Those of them whose checkout is gone.
fn orphans(caches: &Path) -> Vec<PathBuf> {
    let is_gone = |cache: &PathBuf| {
        let checkout = std::fs::read_to_string(cache.join("checkout"));
        checkout.is_ok_and(|checkout| !Path::new(checkout.trim_end()).exists())
    };
    entries(caches).into_iter().filter(is_gone).collect()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Bytes of a file, or of all files in a directory.
fn size(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    if metadata.is_dir() { entries(path).iter().map(|entry| size(entry)).sum() } else { metadata.len() }
}

fn remove(path: &Path) -> Result<()> {
    if path.is_dir() {
        return store::remove(path);
    }
    std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A unit that the compiler `rustc` built so many seconds ago.
    fn build(profile: &Path, name: &str, rustc: u64, ago_s: u64) {
        let unit = profile.join(FINGERPRINTS).join(name);
        std::fs::create_dir_all(&unit).expect("a directory");
        let json = unit.join("lib-x.json");
        std::fs::write(&json, format!("{{\"rustc\":{rustc},\"features\":\"[]\"}}")).expect("written");
        let file = File::options().append(true).open(&json).expect("the file");
        file.set_modified(SystemTime::now() - Duration::from_secs(ago_s)).expect("its time");
        let (package, hash) = name.rsplit_once('-').expect("a hash");
        std::fs::create_dir_all(profile.join("deps")).expect("a directory");
        for file in [format!("lib{package}-{hash}.rlib"), format!("{package}-{hash}.d")] {
            std::fs::write(profile.join("deps").join(file), "built").expect("written");
        }
    }

    #[test]
    fn what_another_compiler_built_is_stale() {
        let target = tempfile::tempdir().expect("a temporary directory");
        let profile = target.path().join("guest/x86_64-nom/guest");
        build(&profile, "abi-11", 1, 9);
        build(&profile, "net-12", 1, 5);
        build(&profile, "abi-21", 2, 1);
        assert_eq!(profiles(target.path(), DEPTH), std::slice::from_ref(&profile));
        let mut stale = stale_units(&profile);
        stale.retain(|path| path.exists());
        stale.sort();
        let names = [".fingerprint/abi-11", ".fingerprint/net-12", "deps/abi-11.d", "deps/libabi-11.rlib"];
        let names = names.iter().chain(&["deps/libnet-12.rlib", "deps/net-12.d"]);
        assert_eq!(stale, names.map(|name| profile.join(name)).collect::<Vec<_>>());
        stale.iter().try_for_each(|path| remove(path)).expect("removed");
        assert!(stale_units(&profile).is_empty() && profile.join("deps/libabi-21.rlib").is_file());
    }

    #[test]
    fn programs_of_a_checkout_that_is_gone_are_stale() {
        let caches = tempfile::tempdir().expect("a temporary directory");
        for (name, checkout) in [("a", caches.path().to_owned()), ("b", caches.path().join("gone"))] {
            let cache = caches.path().join(name);
            std::fs::create_dir(&cache).expect("a directory");
            std::fs::write(cache.join("checkout"), format!("{}\n", checkout.display())).expect("written");
        }
        assert_eq!(orphans(caches.path()), [caches.path().join("b")]);
    }

    #[test]
    fn nothing_is_removed_while_something_is_built() {
        let target = tempfile::tempdir().expect("a temporary directory");
        build(target.path(), "abi-11", 1, 9);
        let cargo = File::create(target.path().join(".cargo-lock")).expect("a file");
        let profiles = profiles(target.path(), DEPTH);
        cargo.lock().expect("locked");
        assert!(lock(&profiles).expect_err("refused").to_string().contains("being built"));
        cargo.unlock().expect("unlocked");
        assert_eq!(lock(&profiles).expect("nothing is built").len(), 1);
    }
}
