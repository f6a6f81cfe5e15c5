//! The licences of everything that a release holds, from `cargo metadata`: each must be permissive.

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use nom_build::Project;
use spdx::{Expression, LicenseReq, ParseMode};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write;
use std::path::Path;

/// Licences that demand no more than their own text (SPDX's names).
const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// nom's own licence, and that of Rust's standard library, which is linked into every program.
const OWN: &str = "MIT OR Apache-2.0";
/// What the workspace's programs are built for; dependencies of other systems are left out.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "x86_64-unknown-none"];
/// How files with a licence's text are called, in upper case.
const FILES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The page of licences: nom's own, and each text with the packages that it holds for.
///
/// # Errors
/// If cargo cannot tell, a package names no licence, one that is not permissive, or its text cannot be had.
pub fn page(project: &Project, compiler: &str) -> Result<String> {
    let platforms = PLATFORMS.map(|platform| ["--filter-platform".to_owned(), platform.to_owned()]);
    let metadata = MetadataCommand::new()
        .current_dir(project.root())
        .other_options([platforms.concat(), vec!["--locked".to_owned()]].concat())
        .exec()
        .context("cargo metadata")?;
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in linked(&metadata)? {
        let expression = expression(package)?;
        let name = format!("{} {}", package.name, package.version);
        writeln!(list, "{name}: {expression}").expect("a String takes everything");
        for text in texts_of(package, &expression)? {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    Ok(write_page(compiler, &list, &texts))
}

fn write_page(compiler: &str, list: &str, texts: &BTreeMap<String, BTreeSet<String>>) -> String {
    let own = ["MIT", "Apache-2.0"].map(standard_text);
    let mut page = format!(
        "nom is licensed under {OWN}, as you like; both texts are at the end.\n\n\
         Its programs contain the standard library of Rust ({compiler}), which is licensed under {OWN},\n\
         too, and the packages of this list, whose texts follow.\n\n{list}"
    );
    for (text, packages) in texts {
        let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
        write!(page, "\n{}\nFor {}:\n\n{}\n", "=".repeat(78), packages.join(", "), text.trim_end())
            .expect("a String takes everything");
    }
    for text in own.into_iter().flatten() {
        write!(page, "\n{}\nFor nom and Rust's standard library:\n\n{}\n", "=".repeat(78), text.trim_end())
            .expect("a String takes everything");
    }
    page
}

/// The foreign packages that are linked into the workspace's programs, sorted by name and version.
fn linked(metadata: &Metadata) -> Result<Vec<&Package>> {
    let graph = metadata.resolve.as_ref().context("cargo metadata tells no dependencies")?;
    let nodes: HashMap<&PackageId, _> = graph.nodes.iter().map(|node| (&node.id, node)).collect();
    let is_shipped = |package: &&Package| SHIPPED.iter().any(|part| is_below(package, metadata, part));
    let mut reached: HashSet<&PackageId> = HashSet::new();
    let mut open: Vec<&PackageId> =
        metadata.workspace_packages().into_iter().filter(is_shipped).map(|package| &package.id).collect();
    while let Some(id) = open.pop() {
        if !reached.insert(id) {
            continue;
        }
        let node = nodes.get(id).with_context(|| format!("cargo metadata does not know {id}"))?;
        let linked = |kind: &DependencyKind| *kind == DependencyKind::Normal;
        let further = node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| linked(&kind.kind)));
        open.extend(further.map(|dep| &dep.pkg));
    }
    let mut packages: Vec<&Package> = metadata
        .packages
        .iter()
        .filter(|package| reached.contains(&package.id) && package.source.is_some())
        .collect();
    packages.sort_by(|a, b| (a.name.as_str(), &a.version).cmp(&(b.name.as_str(), &b.version)));
    Ok(packages)
}

/// Directories of the workspace whose packages are in a release, with all that they link.
const SHIPPED: &[&str] = &["host/cli", "apps", "kernel", "loader"];

fn is_below(package: &Package, metadata: &Metadata, directory: &str) -> bool {
    package.manifest_path.starts_with(metadata.workspace_root.join(directory))
}

/// What a package says of its licence.
fn expression(package: &Package) -> Result<Expression> {
    let name = &package.name;
    let Some(text) = &package.license else {
        bail!("{name} names no licence: expected one of {}", PERMISSIVE.join(", "));
    };
    // Old packages write `MIT/Apache-2.0`.
    let expression = Expression::parse_mode(text, ParseMode::LAX)
        .with_context(|| format!("{name}: `{text}` is no licence that SPDX knows"))?;
    if !expression.evaluate(is_permissive) {
        bail!("{name} is licensed under {text}: expected one of {}", PERMISSIVE.join(", "));
    }
    Ok(expression)
}

fn is_permissive(licence: &LicenseReq) -> bool {
    licence.license.id().is_some_and(|id| PERMISSIVE.contains(&id.name))
}

/// The texts that come with a package, or else the standard ones of what it is licensed under.
fn texts_of(package: &Package, expression: &Expression) -> Result<Vec<String>> {
    let directory = package.manifest_path.parent().context("a manifest is in a directory")?;
    let own = texts_in(directory.as_std_path())?;
    if !own.is_empty() {
        return Ok(own);
    }
    let required = expression.requirements().filter(|required| is_permissive(&required.req));
    Ok(required.filter_map(|required| standard_text(required.req.license.id()?.name)).collect())
}

fn texts_in(directory: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read {}: run `cargo fetch`", directory.display()))?;
    let mut files: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| has_text(path)).collect();
    files.sort();
    let text = |path: &Path| -> Result<String> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))
    };
    files.iter().map(|path| text(path)).collect()
}

fn has_text(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_uppercase()).unwrap_or_default();
    path.is_file() && FILES.iter().any(|start| name.starts_with(start)) && !name.ends_with(".RS")
}

/// The text of a licence as SPDX has it.
fn standard_text(id: &str) -> Option<String> {
    spdx::license_id(id).map(|id| id.text().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(text: &str) -> bool {
        Expression::parse_mode(text, ParseMode::LAX).expect(text).evaluate(is_permissive)
    }

    #[test]
    fn a_licence_that_demands_more_is_refused() {
        for text in ["MIT", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0", "GPL-2.0-only OR ISC"] {
            assert!(permits(text), "{text}");
        }
        for text in ["GPL-3.0-only", "MIT AND LGPL-2.1-only", "MPL-2.0", "LicenseRef-own"] {
            assert!(!permits(text), "{text}");
        }
    }

    #[test]
    fn every_licence_that_may_be_has_a_text() {
        for id in PERMISSIVE {
            assert!(standard_text(id).is_some_and(|text| text.len() > 100), "{id}");
        }
    }

    #[test]
    fn the_page_names_every_package_and_its_text_once() {
        let project = Project::find().expect("a checkout");
        let page = page(&project, "rustc 1").expect("all is permissive");
        for package in ["\nclap 4.", "\nrusqlite 0.", "\nhashbrown 0.", "\nminiz_oxide 0."] {
            assert_eq!(page.matches(package).count().min(1), 1, "{package:?} is missing");
        }
        assert!(!page.contains("\nproptest "), "tests alone use it");
        let home = std::env::home_dir().expect("a home").display().to_string();
        assert!(!page.contains(&format!("{home}/")), "no directory of this computer");
    }
}
