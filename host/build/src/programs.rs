//! Which cargo package an application's program is in.

use crate::nearest;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A program of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceProgram {
    /// The package to build.
    pub package: String,
    /// The binary of that package.
    pub binary: String,
}

/// Packages of applications, each with the binaries that it makes.
#[derive(Clone, Debug)]
pub struct Catalogue(Vec<Package>);

/// A cargo package.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub name: String,
    /// Names of its binaries.
    pub binaries: Vec<String>,
}

#[derive(Deserialize)]
struct CargoManifest {
    package: Named,
    #[serde(default)]
    bin: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

impl Catalogue {
    /// Reads the manifests of all packages of applications: those in `apps/`, and the guest tests.
    ///
    /// # Errors
    /// If a manifest cannot be read.
    pub fn read(root: &Path) -> Result<Catalogue> {
        let mut directories = vec![root.join("tests/guest")];
        let apps = std::fs::read_dir(root.join("apps")).context("no directory `apps`")?;
        directories.extend(apps.flatten().map(|entry| entry.path()));
        directories.sort();
        let packages = directories.iter().filter(|directory| directory.join("Cargo.toml").is_file());
        packages.map(|directory| Package::read(directory)).collect::<Result<_>>().map(Catalogue)
    }

    /// The program that a manifest calls `name`: a package with its one binary, or a binary.
    ///
    /// # Errors
    /// If there is no such program; the error lists those that there are.
    pub fn find(&self, name: &str) -> Result<WorkspaceProgram> {
        let found = self.0.iter().find_map(|package| Some((package, package.binary(name)?)));
        if let Some((package, binary)) = found {
            return Ok(WorkspaceProgram { package: package.name.clone(), binary: binary.to_owned() });
        }
        let all: Vec<&str> =
            self.0.iter().flat_map(|package| &package.binaries).map(String::as_str).collect();
        bail!("{}", nearest::unknown("there is no", name, &all))
    }

    /// Names of all packages that make programs.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        let makers = self.0.iter().filter(|package| !package.binaries.is_empty());
        makers.map(|package| package.name.as_str())
    }
}

impl Package {
    /// The package in a directory.
    pub fn read(directory: &Path) -> Result<Package> {
        let file = directory.join("Cargo.toml");
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let manifest: CargoManifest =
            toml::from_str(&text).with_context(|| format!("{} is no package", file.display()))?;
        let name = manifest.package.name;
        let mut binaries: Vec<String> = manifest.bin.into_iter().map(|bin| bin.name).collect();
        binaries.extend(binary_files(&directory.join("src/bin")));
        if binaries.is_empty() && directory.join("src/main.rs").is_file() {
            binaries.push(name.clone());
        }
        binaries.sort();
        binaries.dedup();
        Ok(Package { name, binaries })
    }

    /// The binary that a manifest calls `name`: the package's only one, by the package's name, or one by its
    /// own.
    pub fn binary(&self, name: &str) -> Option<&str> {
        match self.binaries.as_slice() {
            [only] if self.name == name => Some(only),
            binaries => binaries.iter().find(|binary| *binary == name).map(String::as_str),
        }
    }
}

/// Names of the binaries that cargo finds in `src/bin`.
fn binary_files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_binary =
        |path: &PathBuf| path.extension().is_some_and(|e| e == "rs") || path.join("main.rs").is_file();
    let paths = entries.map(|entry| entry.path()).filter(is_binary);
    paths.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_package_and_by_binary() {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (file, text) in [
            ("apps/hello/Cargo.toml", "[package]\nname = \"nom-hello\""),
            ("apps/hello/src/main.rs", ""),
            ("apps/other/Cargo.toml", "[package]\nname = \"nom-other\"\n[[bin]]\nname = \"other\""),
            ("tests/guest/Cargo.toml", "[package]\nname = \"nom-guest-tests\""),
            ("tests/guest/src/bin/fault.rs", ""),
            ("tests/guest/src/bin/paging/main.rs", ""),
        ] {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let catalogue = Catalogue::read(root.path()).expect("read");
        for (name, package, binary) in [
            ("nom-hello", "nom-hello", "nom-hello"),
            ("nom-other", "nom-other", "other"),
            ("other", "nom-other", "other"),
            ("fault", "nom-guest-tests", "fault"),
            ("paging", "nom-guest-tests", "paging"),
        ] {
            let program = catalogue.find(name).expect(name);
            assert_eq!((program.package.as_str(), program.binary.as_str()), (package, binary));
        }
        let error = catalogue.find("nom-guest-tests").expect_err("it has two binaries").to_string();
        assert!(error.contains("`fault`, `paging`"), "{error}");
        let error = catalogue.find("nom-helo").expect_err("it is misspelt").to_string();
        assert!(error.ends_with("did you mean `nom-hello`?"), "{error}");
    }
}
