//! Puts the files of a directory into the program: `site`, or the one that `NOM_SITE` names.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

fn main() {
    println!("cargo::rerun-if-env-changed=NOM_SITE");
    let site = std::env::var_os("NOM_SITE").map_or_else(|| PathBuf::from("site"), PathBuf::from);
    let mut table = String::from("static FILES: &[(&str, u64, &[u8])] = &[\n");
    add(&site, "", &mut table);
    table.push_str("];\n");
    let output = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("files.rs");
    std::fs::write(&output, table).unwrap_or_else(|error| panic!("{}: {error}", output.display()));
}

/// Adds the files below a directory, in the order of their names: the same files make the same program.
fn add(directory: &Path, path: &str, table: &mut String) {
    println!("cargo::rerun-if-changed={}", directory.display());
    let fail = |error: std::io::Error| -> ! { panic!("NOM_SITE: {}: {error}", directory.display()) };
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| fail(error));
    let mut entries: Vec<_> = entries.map(|entry| entry.unwrap_or_else(|error| fail(error))).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let shown = entry.path();
        let name = name.to_str().unwrap_or_else(|| panic!("NOM_SITE: {}: no UTF-8", shown.display()));
        let path = format!("{path}/{name}");
        let metadata = std::fs::metadata(entry.path()).unwrap_or_else(|error| fail(error));
        if metadata.is_dir() {
            add(&entry.path(), &path, table);
            continue;
        }
        let file = entry.path().canonicalize().unwrap_or_else(|error| fail(error));
        println!("cargo::rerun-if-changed={}", file.display());
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let seconds = modified.map_or(0, |time| time.as_secs());
        writeln!(table, "    ({path:?}, {seconds}, include_bytes!({file:?})),").expect("memory");
    }
}
