//! The dependency rule, held against `cargo metadata`: which package may see which.

use super::Violation;
use super::tree::Tree;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the packages of each directory may be made of; the first row that fits a package counts. Their tests
/// may use what they like, but for [`FINAL`].
const LAYERS: &[(&str, &[&str])] = &[
    ("abi", &[]),
    ("loader", &["abi"]),
    ("kernel", &["abi", "kernel"]),
    ("libos/port", &["abi"]),
    ("libos/grid", &[]),
    ("libos/service", &["libos/port", "libos/grid"]),
    ("economy", &["abi", "libos/service"]),
    ("economy-sim", &["economy"]),
    ("libos/sys", &["abi", "libos/port"]),
    ("libos/linux-host", &["abi", "libos/port"]),
    ("libos/rt", &["libos/port", "libos/grid", "libos/service"]),
    ("libos/ninep", &[]),
    ("libos/ninep-fake", &["libos/ninep"]),
    ("libos/virtio", &["libos/port", "libos/ninep"]),
    ("libos/virtio-fake", &["libos/port"]),
    ("libos/net", &["libos/port"]),
    ("libos/fs", &["libos/port", "libos/ninep"]),
    ("libos/elastic", &["libos/port", "libos/rt", "libos/net"]),
    ("libos/serve", &["libos/port", "libos/grid", "libos/service", "libos/rt", "libos/net", "libos/elastic"]),
    ("libos/async", &["libos/port", "libos/service", "libos/rt"]),
    ("libos/earn", &["abi", "economy", "libos/service"]),
    ("libos/socket", &["abi", "libos/port", "libos/rt", "libos/net"]),
    ("libos/tls", &["libos/port", "libos/rt", "libos/net", "libos/socket", "libos/async"]),
    ("libos/wire", &["libos/port", "libos/net"]),
    ("libos/linux", &["abi", "economy", "libos"]),
    ("libos/app", &["abi", "economy", "libos"]),
    ("apps/memcached-core", &["libos/port", "libos/service"]),
    ("apps/nhttpd-core", &["libos/port", "libos/service"]),
    ("apps/netpipe-core", &["libos/port", "libos/service"]),
    ("apps/priced-core", &["abi", "economy", "host/proto", "libos/port"]),
    ("apps", &["libos/app", "libos/tls", "libos/linux", "apps"]),
    ("host/proto", &["abi", "economy"]),
    ("host", &["abi", "economy", "libos", "host"]),
    ("python", &["abi", "economy", "host"]),
    ("sim", &["abi", "economy", "libos", "apps"]),
    ("tests/guest", &["abi", "libos"]),
    ("tests", &["abi", "kernel", "economy", "libos", "apps", "host"]),
    ("xtask", &["abi", "economy", "host"]),
];

/// What nothing may depend on.
const FINAL: [&str; 3] = ["tests", "sim", "xtask"];

/// Foreign packages that the packages of a directory may be made of; any, if there is no row.
const FOREIGN: &[(&str, &[&str])] =
    &[("abi", &["zerocopy"]), ("kernel", &["zerocopy"]), ("loader", &["miniz_oxide"])];

/// A package of the workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its directory, from the project's root.
    pub directory: String,
    /// What it depends on.
    pub dependencies: Vec<Dependency>,
}

/// One dependency of a package.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// Where it comes from.
    pub origin: Origin,
    /// Whether only tests use it.
    pub only_for_tests: bool,
}

/// Where a dependency comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// This workspace: its directory.
    Own(String),
    /// Elsewhere: its name.
    Foreign(String),
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<RawPackage>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct RawPackage {
    manifest_path: PathBuf,
    dependencies: Vec<RawDependency>,
}

#[derive(Deserialize)]
struct RawDependency {
    name: String,
    kind: Option<String>,
    path: Option<PathBuf>,
}

/// The packages of the workspace at `root`.
///
/// # Errors
/// If cargo cannot read the workspace.
pub fn read(root: &Path) -> Result<Vec<Package>> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["metadata", "--no-deps", "--format-version", "1"]);
    let output = cargo.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let root = &metadata.workspace_root;
    Ok(metadata.packages.into_iter().map(|package| resolve(package, root)).collect())
}

fn resolve(package: RawPackage, root: &Path) -> Package {
    let directory = package.manifest_path.parent().map(|path| relative(path, root)).unwrap_or_default();
    let dependency = |raw: RawDependency| Dependency {
        origin: raw.path.map_or(Origin::Foreign(raw.name), |path| Origin::Own(relative(&path, root))),
        only_for_tests: raw.kind.as_deref() == Some("dev"),
    };
    Package { directory, dependencies: package.dependencies.into_iter().map(dependency).collect() }
}

fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

/// Each package depends only on what its layer may see.
pub fn arrows_point_down(tree: &Tree) -> Vec<Violation> {
    tree.workspace.iter().flat_map(judge_package).collect()
}

fn judge_package(package: &Package) -> Vec<Violation> {
    let manifest = format!("{}/Cargo.toml", package.directory);
    let violation = |message: String| Violation::new(&manifest, 1, "dependency-rule", message);
    let Some((_, visible)) = LAYERS.iter().find(|(layer, _)| is_in(&package.directory, layer)) else {
        return vec![violation("this directory has no place among the layers".to_owned())];
    };
    let foreign = FOREIGN.iter().find(|(layer, _)| is_in(&package.directory, layer)).map(|(_, names)| *names);
    let judge = |dependency: &Dependency| match &dependency.origin {
        Origin::Own(directory) => {
            let is_visible = visible.iter().any(|layer| is_in(directory, layer));
            let is_final = FINAL.iter().any(|layer| is_in(directory, layer));
            let legal = if dependency.only_for_tests { !is_final } else { is_visible };
            (!legal).then(|| violation(format!("must not depend on `{directory}`")))
        }
        Origin::Foreign(name) => {
            let legal =
                dependency.only_for_tests || foreign.is_none_or(|names| names.contains(&name.as_str()));
            (!legal).then(|| violation(format!("must not be made of the foreign package `{name}`")))
        }
    };
    package.dependencies.iter().filter_map(judge).collect()
}

fn is_in(directory: &str, layer: &str) -> bool {
    directory.strip_prefix(layer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legal(directory: &str, origin: Origin, only_for_tests: bool) -> bool {
        let dependencies = vec![Dependency { origin, only_for_tests }];
        judge_package(&Package { directory: directory.to_owned(), dependencies }).is_empty()
    }

    #[test]
    fn arrows_that_point_up_or_aside_are_found() {
        for (from, to, expected) in [
            ("kernel/x86", "kernel/pure", true),
            ("kernel", "abi", true),
            ("kernel/pure", "libos/sys", false),
            ("abi", "kernel/pure", false),
            ("apps/hello", "libos/app", true),
            ("apps/hello", "libos/sys", false),
            ("libos/net", "libos/port", true),
            ("libos/net", "libos/virtio", false),
            ("host/cli", "host/vmm", true),
            ("host/cli", "xtask", false),
            ("host/vmm", "tests/system", false),
            ("tests/system", "host/vmm", true),
            ("abisomething", "abi", false),
        ] {
            assert_eq!(legal(from, Origin::Own(to.to_owned()), false), expected, "{from} -> {to}");
        }
    }

    #[test]
    fn tests_may_look_aside_but_never_at_what_is_final() {
        assert!(legal("host/image", Origin::Own("kernel/pure".to_owned()), true));
        assert!(!legal("host/image", Origin::Own("kernel/pure".to_owned()), false));
        assert!(!legal("host/image", Origin::Own("xtask".to_owned()), true));
    }

    #[test]
    fn the_kernel_is_made_of_nothing_foreign() {
        let proptest = || Origin::Foreign("proptest".to_owned());
        assert!(legal("kernel/pure", proptest(), true));
        assert!(!legal("kernel/pure", proptest(), false));
        assert!(legal("host/cli", proptest(), false));
    }

    #[test]
    fn this_workspace_is_read() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let packages = read(root).expect("cargo reads it");
        let kernel = packages.iter().find(|package| package.directory == "kernel").expect("it has a kernel");
        let is_abi = |d: &Dependency| matches!(&d.origin, Origin::Own(path) if path == "abi");
        assert!(kernel.dependencies.iter().any(is_abi));
    }
}
