//! The shared libraries that a program needs, out of a tree of unpacked packages.

use anyhow::{Context, Result, bail};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use std::path::Path;

/// Where Debian keeps libraries, and where the guest's loader looks for them without being told.
const DIRECTORIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// A file for the guest: its path without the first `/`, and its content.
pub type GuestFile = (String, Vec<u8>);

/// What `program` asks for: its loader, if it has one, and libraries by name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    loader: Option<String>,
    libraries: Vec<String>,
}

/// Every library that `program` needs, and its loader, from the tree at `root`.
///
/// # Errors
/// If the program is no ELF file, or the tree lacks a library.
pub fn of(program: &[u8], root: &Path) -> Result<Vec<GuestFile>> {
    let first = needs(program)?;
    let mut found: Vec<GuestFile> = Vec::new();
    if let Some(loader) = &first.loader {
        let path = loader.trim_start_matches('/');
        found.push((path.to_owned(), super::read(&root.join(path))?));
    }
    let mut wanted = first.libraries;
    while let Some(name) = wanted.pop() {
        if found.iter().any(|(path, _)| path.ends_with(&format!("/{name}"))) {
            continue;
        }
        let library = find(&name, root)?;
        wanted.extend(needs(&library).with_context(|| name.clone())?.libraries);
        found.push((format!("{}/{name}", DIRECTORIES[0]), library));
    }
    Ok(found)
}

fn find(name: &str, root: &Path) -> Result<Vec<u8>> {
    let paths = DIRECTORIES.map(|directory| root.join(directory).join(name));
    match paths.iter().find(|path| path.exists()) {
        Some(path) => super::read(path),
        None => bail!("no {name} in the libraries of {}", root.display()),
    }
}

fn needs(file: &[u8]) -> Result<Needs> {
    let header = FileHeader64::<LittleEndian>::parse(file).context("not a 64-bit ELF file")?;
    let endian = header.endian()?;
    let mut needs = Needs::default();
    for segment in header.program_headers(endian, file)? {
        if let Some(loader) = segment.interpreter(endian, file)? {
            needs.loader = Some(String::from_utf8_lossy(loader).into_owned());
        }
    }
    let sections = header.sections(endian, file)?;
    let Some((entries, strings)) = sections.dynamic(endian, file)? else {
        return Ok(needs);
    };
    let strings = sections.strings(endian, file, strings)?;
    for entry in entries.iter().filter(|entry| entry.tag(endian) == elf::DT_NEEDED) {
        let offset = u32::try_from(entry.val(endian)).context("a library's name lies beyond 4 GiB")?;
        let name = strings.get(offset).ok().context("a library's name lies outside its table")?;
        needs.libraries.push(String::from_utf8_lossy(name).into_owned());
    }
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test's own program: linked against the C library by everybody's compiler.
    fn ourselves() -> Vec<u8> {
        std::fs::read("/proc/self/exe").expect("a running program has a file")
    }

    #[test]
    fn a_program_names_its_loader_and_libraries() {
        let needs = needs(&ourselves()).unwrap();
        assert!(needs.loader.is_some_and(|loader| loader.starts_with("/lib")));
        assert!(needs.libraries.iter().any(|name| name == "libc.so.6"), "{:?}", needs.libraries);
    }

    #[test]
    fn what_is_no_program_or_lacks_a_library_is_said() {
        assert!(of(b"#!/bin/sh", Path::new("/")).unwrap_err().to_string().contains("ELF"));
        let empty = tempfile::tempdir().unwrap();
        let error = of(&ourselves(), empty.path()).unwrap_err().to_string();
        assert!(error.contains(empty.path().to_str().unwrap()), "{error}");
    }
}
