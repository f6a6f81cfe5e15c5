//! What several tests need: directories of files, ELF files. Not every test uses everything.
#![allow(dead_code)]

pub mod elf;
pub mod image;

use std::path::{Path, PathBuf};

/// Writes `text` into a new directory: the part before the first line `--- NAME` as `app.toml`, each part
/// behind such a line as file `NAME`.
pub fn directory(text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (first, rest) = text.split_once("--- ").unwrap_or((text, ""));
    if !first.trim().is_empty() {
        write(directory.path(), "app.toml", first);
    }
    for part in rest.split("--- ").filter(|part| !part.is_empty()) {
        let (name, text) = part.split_once('\n').expect("a line with the file's name");
        write(directory.path(), name.trim(), text);
    }
    directory
}

fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::create_dir_all(path.parent().expect("it is in the directory")).expect("a directory");
    std::fs::write(&path, text).expect("a file");
    path
}

/// A message with the test's directory taken out.
pub fn without(directory: &Path, message: impl ToString) -> String {
    message.to_string().replace(&format!("{}/", directory.display()), "")
}
