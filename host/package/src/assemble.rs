//! What is in a release, and where.

use crate::command::ask;
use crate::licences;
use crate::tree::Tree;
use anyhow::{Context, Result, ensure};
use nom_build::release::{CHECKSUMS, KERNEL, LOADER, PROCESSES, PROGRAMS, checksum};
use nom_build::{Project, Toolchain};
use nom_image::Packing;
use nom_image::manifest::{BundleManifest, Program};
use std::path::{Path, PathBuf};

/// Directory of what the command needs.
const PARTS: &str = "lib/nom";
/// Directory of documents.
const DOCUMENTS: &str = "share/doc/nom";
/// Shells with the files in which they look for completions.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/nom"),
    ("zsh", "share/zsh/site-functions/_nom"),
    ("fish", "share/fish/vendor_completions.d/nom.fish"),
];

/// Everything that a release of this checkout holds, with `command` as its command `nom`; `time` is that of
/// the newest file.
///
/// # Errors
/// If something does not build, a licence is not permissive, or a file cannot be read.
pub fn assemble(project: &Project, command: &Path, time: u64) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.add_program("bin/nom", read(command)?);
    tree.add(format!("{PARTS}/{LOADER}"), read(&project.loader()?)?);
    tree.add(format!("{PARTS}/{KERNEL}"), read(&project.kernel()?)?);
    for name in project.applications() {
        add_application(&mut tree, project, &name, time)?;
    }
    let sums: String =
        tree.below(PARTS).map(|(path, entry)| format!("{}  {path}\n", checksum(&entry.contents))).collect();
    tree.add(format!("{PARTS}/{CHECKSUMS}"), sums);
    for (shell, path) in COMPLETIONS {
        tree.add(*path, ask(command, &["completions", shell])?);
    }
    add_manual(&mut tree, command)?;
    add_documents(&mut tree, project)?;
    Ok(tree)
}

/// Adds an application of `apps/`: its manifests and files, its programs, and its image.
fn add_application(tree: &mut Tree, project: &Project, name: &str, time: u64) -> Result<()> {
    let directory = project.root().join("apps").join(name);
    let mut bundle = project.bundle(&directory, None)?;
    for file in manifests(&directory)? {
        let name = format!("{PARTS}/apps/{name}/{}", file.display());
        tree.add(name, read(&directory.join(file))?);
    }
    for application in &mut bundle.applications {
        if let Some(files) = &mut application.files {
            files.newest = Some(time);
        }
    }
    add_processes(tree, project, &bundle)?;
    let built = project.pack(bundle, Packing::SMALL)?;
    for (application, (_, path)) in built.manifest.applications.iter().zip(&built.programs) {
        if let Program::Package(program) = &application.program {
            tree.add(format!("{PARTS}/{PROGRAMS}/{program}"), read(path)?);
        }
    }
    tree.add(format!("{PARTS}/images/{name}.img"), built.image.elf);
    Ok(())
}

/// Adds the application as a program of this computer, if it is one that can be.
fn add_processes(tree: &mut Tree, project: &Project, bundle: &BundleManifest) -> Result<()> {
    let [application] = bundle.applications.as_slice() else { return Ok(()) };
    let Program::Package(program) = &application.program else { return Ok(()) };
    // It watches shared memory of the other applications of its machine: on Linux there are none.
    if application.name == nom_build::prices::PRICED {
        return Ok(());
    }
    let process = project.process(bundle.clone())?;
    tree.add_program(format!("{PARTS}/{PROCESSES}/{program}"), read(&process.program)?);
    Ok(())
}

/// What an application's manifests are made of, and the files that go along with it, by their paths from its
/// directory: all but its sources.
fn manifests(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let directory = directory.join(&below);
        let entries =
            std::fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = below.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true if path != Path::new("src") && path != Path::new("tests") => open.push(path),
                false if path != Path::new("Cargo.toml") && path != Path::new("build.rs") => found.push(path),
                _ => {}
            }
        }
    }
    Ok(found)
}

fn add_manual(tree: &mut Tree, command: &Path) -> Result<()> {
    const HEADER: &str = ".ie \\n(.g .ds Aq";
    let text = String::from_utf8(ask(command, &["manual"])?).context("`nom manual`: no text")?;
    let pages: Vec<&str> = text.split_inclusive(PAGE_END).collect();
    ensure!(pages.len() > 1, "`nom manual`: expected pages that end with a form feed");
    for page in pages {
        let page = page.trim_end_matches(PAGE_END);
        let title = page.lines().find_map(|line| line.strip_prefix(".TH ")).context("a page has a title")?;
        let name = title.split_whitespace().next().context("a title has a name")?;
        ensure!(page.starts_with(HEADER), "`nom manual`: {name}: expected a page of roff");
        tree.add(format!("share/man/man1/{name}.1"), page);
    }
    Ok(())
}

/// What ends each page of `nom manual`.
const PAGE_END: char = '\u{c}';

fn add_documents(tree: &mut Tree, project: &Project) -> Result<()> {
    let compiler = Toolchain::find(project.root())?.version;
    tree.add(format!("{DOCUMENTS}/copyright"), licences::page(project, &compiler)?);
    for name in ["README.md", "CHANGELOG.md"] {
        tree.add(format!("{DOCUMENTS}/{name}"), read(&project.root().join(name))?);
    }
    let docs = project.root().join("docs");
    for entry in std::fs::read_dir(&docs).with_context(|| format!("cannot read {}", docs.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_file() && (name.ends_with(".md") || name.ends_with(".svg")) {
            tree.add(format!("{DOCUMENTS}/docs/{name}"), read(&path)?);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
