//! The sources, read once.

use super::dependencies::{self, Package};
use anyhow::{Context, Result};
use std::path::Path;

/// Directories that hold no sources.
const SKIPPED: [&str; 4] = ["target", ".git", ".nom", "corpus"];

/// Every source file of the project.
#[derive(Default)]
pub struct Tree {
    /// Sorted by path.
    pub files: Vec<File>,
    /// The packages of the workspace.
    pub workspace: Vec<Package>,
}

/// One file.
pub struct File {
    /// From the project's root, with `/`.
    pub path: String,
    /// Its contents.
    pub text: String,
    /// Its syntax, if it is a Rust file without syntax errors.
    pub syntax: Option<syn::File>,
}

impl Tree {
    /// Reads every file below `root` that is text.
    ///
    /// # Errors
    /// If a directory, or the workspace, cannot be read.
    pub fn read(root: &Path) -> Result<Tree> {
        let mut files = Vec::new();
        collect(root, "", &mut files)?;
        Ok(Tree { workspace: dependencies::read(root)?, ..Tree::of(files.into_iter()) })
    }

    /// A tree of these paths and contents.
    pub fn of(files: impl Iterator<Item = (String, String)>) -> Tree {
        let file = |(path, text): (String, String)| {
            let syntax = path.ends_with(".rs").then(|| syn::parse_file(&text).ok()).flatten();
            File { path, text, syntax }
        };
        let mut files: Vec<File> = files.map(file).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Tree { files, workspace: Vec::new() }
    }

    /// The file at `path`.
    pub fn find(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Every Rust file.
    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// Directories of all packages.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        let manifests = self.files.iter().filter(|file| file.text.contains("[package]"));
        manifests.filter_map(|file| file.path.strip_suffix("/Cargo.toml"))
    }

    /// Root files of a package's library and programs.
    pub fn crate_roots(&self, package: &str) -> impl Iterator<Item = &File> {
        let source = format!("{package}/src/");
        self.rust().filter(move |file| {
            let Some(rest) = file.path.strip_prefix(&source) else { return false };
            let program = rest.strip_prefix("bin/");
            let program = program.is_some_and(|name| !name.contains('/') || name.ends_with("/main.rs"));
            rest == "lib.rs" || rest == "main.rs" || program
        })
    }
}

fn collect(directory: &Path, prefix: &str, files: &mut Vec<(String, String)>) -> Result<()> {
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                collect(&entry.path(), &format!("{path}/"), files)?;
            }
        } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
            files.push((path, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_their_roots_are_found() {
        let files = [
            "Cargo.toml",
            "a/Cargo.toml",
            "a/src/lib.rs",
            "a/src/x.rs",
            "a/src/bin/y.rs",
            "a/src/bin/z/main.rs",
            "a/src/bin/z/w.rs",
            "ab/src/lib.rs",
        ];
        let text = |path: &str| if path == "a/Cargo.toml" { "[package]" } else { "" };
        let tree = Tree::of(files.iter().map(|path| ((*path).to_owned(), text(path).to_owned())));
        assert_eq!(tree.packages().collect::<Vec<_>>(), ["a"]);
        let roots: Vec<&str> = tree.crate_roots("a").map(|file| file.path.as_str()).collect();
        assert_eq!(roots, ["a/src/bin/y.rs", "a/src/bin/z/main.rs", "a/src/lib.rs"]);
    }
}
