//! What a program needs to run: its interpreter, and the libraries that the interpreter would find
//! (ld.so(8)).

use super::{DIRECTORY, Root, error, unreadable};
use crate::elf::{ENDIAN, Elf};
use crate::error::Result;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, elf as format};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where Debian's and others' `ld.so` look last, and musl's.
const USUAL: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
];

/// By what a program, or a library for it, says which locale is used.
const LOCALE_CALLS: [&[u8]; 3] = [b"setlocale", b"newlocale", b"__newlocale"];

/// What one ELF file says that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Needs {
    interpreter: Option<String>,
    libraries: Vec<String>,
    /// Where to look for them, as the file says: `RPATH`, and `RUNPATH`.
    paths: Vec<String>,
    run_paths: Vec<String>,
}

/// What a file that is to be run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Runnable {
    /// An ELF file for this processor.
    Program,
    /// A script, with its interpreter and what else stands on its first line.
    Script { interpreter: String, argument: Option<String> },
}

/// A tree that programs and libraries are looked for in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tree<'r> {
    /// Below a directory of this computer.
    Host(&'r Path),
    /// What was gathered already.
    Gathered(&'r Root),
}

impl Tree<'_> {
    /// What the paths of its files begin with.
    fn base(&self) -> &Path {
        match self {
            Tree::Host(root) => root,
            Tree::Gathered(_) => Path::new(""),
        }
    }

    fn link(&self, path: &Path) -> Option<String> {
        match self {
            Tree::Host(_) => std::fs::read_link(path).ok()?.to_str().map(str::to_owned),
            Tree::Gathered(root) => root.link(path.to_str()?),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        match self {
            Tree::Host(_) => path.exists(),
            Tree::Gathered(root) => path.to_str().is_some_and(|path| path.is_empty() || root.contains(path)),
        }
    }

    fn is_directory(&self, path: &Path) -> bool {
        match self {
            Tree::Host(_) => path.is_dir(),
            Tree::Gathered(root) => {
                path.to_str().and_then(|path| root.kind(path)).is_none_or(|kind| kind == DIRECTORY)
            }
        }
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        match self {
            Tree::Host(_) => std::fs::read(path).map_err(|reason| unreadable(path, &reason)),
            Tree::Gathered(root) => root.contents(&path.to_string_lossy()),
        }
    }

    /// Names in a directory.
    fn names(&self, directory: &Path) -> Vec<String> {
        match self {
            Tree::Host(_) => {
                let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
                entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
            Tree::Gathered(root) => root.names(&directory.to_string_lossy()),
        }
    }
}

/// Looks for programs and libraries in a tree.
#[derive(Clone, Debug)]
pub(super) struct Search<'r> {
    tree: Tree<'r>,
    configured: Vec<String>,
}

impl<'r> Search<'r> {
    /// A search in a tree, for libraries in `places` before all others that are usual.
    pub fn new(tree: Tree<'r>, places: Vec<String>) -> Search<'r> {
        let mut configured = places;
        read_configuration(tree, "etc/ld.so.conf", &mut configured, 0);
        Search { tree, configured }
    }

    /// The file that a path of the tree leads to, links followed as the tree has them; nothing if there is
    /// none.
    pub fn follow(&self, path: &str) -> Option<PathBuf> {
        let mut at = PathBuf::new();
        let mut names: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut links = 0;
        while let Some(name) = names.pop() {
            match name.as_str() {
                "" | "." => {}
                ".." => drop(at.pop()),
                _ => {
                    let next = at.join(&name);
                    match self.tree.link(&self.tree.base().join(&next)) {
                        Some(target) => {
                            links += 1;
                            let target = Some(target).filter(|_| links <= 40)?;
                            if target.starts_with('/') {
                                at = PathBuf::new();
                            }
                            names.extend(target.split('/').rev().map(str::to_owned));
                        }
                        None => at = next,
                    }
                }
            }
        }
        let found = self.tree.base().join(&at);
        self.tree.exists(&found).then_some(found)
    }

    /// The library of a program that is an interpreter of Python, which looks for it beside itself: that of
    /// `/usr/bin/python3.11` is `/usr/lib/python3.11`.
    pub fn library_of_python(&self, path: &str) -> Option<String> {
        let file = self.follow(path)?;
        let version = file.file_name()?.to_str()?.strip_prefix("python")?;
        if !version.contains('.') || !version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return None;
        }
        let home = file.parent()?.parent()?.strip_prefix(self.tree.base()).ok()?.to_str()?;
        let library = format!("/{}/lib/python{version}", home.trim_matches('/'));
        self.follow(&library).filter(|library| self.tree.is_directory(library)).map(|_| library)
    }

    /// What a file that is to be run is.
    ///
    /// # Errors
    /// If it is nothing that can be run here.
    pub fn runnable(&self, path: &str) -> Result<Runnable> {
        let host = self.follow(path).ok_or_else(|| error(Path::new(path), "no such file"))?;
        if self.tree.is_directory(&host) {
            return Err(error(Path::new(path), "a directory, expected a program"));
        }
        let data = self.tree.read(&host)?;
        if let Some(line) = data.strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let line = String::from_utf8_lossy(line).trim().to_owned();
            let (interpreter, argument) = match line.split_once([' ', '\t']) {
                Some((interpreter, argument)) => (interpreter.to_owned(), Some(argument.trim().to_owned())),
                None => (line, None),
            };
            if interpreter.is_empty() {
                return Err(error(Path::new(path), "a script whose first line names no interpreter"));
            }
            return Ok(Runnable::Script { interpreter, argument });
        }
        self.needs(Path::new(path), &data).map(|_| Runnable::Program)
    }

    /// Paths of all that a program or library needs, itself first. A library that is found nowhere may be
    /// among those that `is_loaded_before` names: a process that has one of that name takes it, wherever it
    /// lies (ld.so(8) looks for none that is there), as the JVM's find `libjvm.so`.
    ///
    /// # Errors
    /// If it is no ELF file of this processor, or something that it needs is missing.
    pub fn closure(&self, program: &str, is_loaded_before: &dyn Fn(&str) -> bool) -> Result<Vec<String>> {
        let mut found = vec![program.to_owned()];
        let mut names = BTreeSet::new();
        let mut inherited: Vec<String> = Vec::new();
        let mut next = 0;
        while next < found.len() {
            let path = found[next].clone();
            next += 1;
            let host = self.follow(&path).ok_or_else(|| error(Path::new(&path), "no such file"))?;
            let data = self.tree.read(&host)?;
            let needs = self.needs(Path::new(&path), &data)?;
            if let Some(interpreter) = &needs.interpreter {
                if self.follow(interpreter).is_none() {
                    let problem = format!("its interpreter {interpreter} is missing");
                    return Err(error(Path::new(&path), problem));
                }
                push(&mut found, interpreter.clone());
            }
            let places = self.places(&host, &needs, &mut inherited);
            for library in &needs.libraries {
                if !names.insert(library.clone()) {
                    continue;
                }
                match self.find(library, &places) {
                    Some(at) => push(&mut found, at),
                    None if is_loaded_before(library) => {}
                    None => {
                        let problem = format!("needs {library}, which is in none of {}", places.join(", "));
                        return Err(error(Path::new(&path), problem));
                    }
                }
            }
        }
        Ok(found)
    }

    /// What the GNU C library among these files loads by itself when a thread leaves (pthread_exit(3)) or is
    /// cancelled, if it is there: it ends the program without it.
    pub fn needed_late(&self, files: &[String]) -> Option<String> {
        let is_gnu = files.iter().any(|file| file.ends_with("/libc.so.6"));
        let usual = USUAL.iter().map(|place| (*place).to_owned());
        let places: Vec<String> = self.configured.iter().cloned().chain(usual).collect();
        self.find("libgcc_s.so.1", &places).filter(|_| is_gnu)
    }

    /// Whether one of these files has the C library use a locale (setlocale(3), newlocale(3)).
    pub fn asks_for_a_locale(&self, files: &[String]) -> bool {
        let is_asked = |path: &String| {
            let data = self.follow(path).and_then(|host| self.tree.read(&host).ok())?;
            let elf = ElfFile64::<Endianness>::parse(&*data).ok()?;
            let mut foreign = elf.dynamic_symbols().filter(|symbol| symbol.is_undefined());
            Some(foreign.any(|symbol| symbol.name_bytes().is_ok_and(|name| LOCALE_CALLS.contains(&name))))
        };
        files.iter().any(|path| is_asked(path).unwrap_or(false))
    }

    /// Where the libraries of a file are looked for, in order.
    fn places(&self, host: &Path, needs: &Needs, inherited: &mut Vec<String>) -> Vec<String> {
        let inside = host.strip_prefix(self.tree.base()).unwrap_or(host);
        let origin = format!("/{}", inside.parent().unwrap_or(Path::new("")).display());
        let expand = |path: &String| {
            let path = path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
            path.replace("$LIB", "lib/x86_64-linux-gnu").replace("$PLATFORM", "x86_64")
        };
        if needs.run_paths.is_empty() {
            inherited.extend(needs.paths.iter().map(expand));
        }
        let own = needs.run_paths.iter().map(expand);
        let usual = USUAL.iter().map(|place| (*place).to_owned());
        inherited.iter().cloned().chain(own).chain(self.configured.iter().cloned()).chain(usual).collect()
    }

    fn find(&self, library: &str, places: &[String]) -> Option<String> {
        if library.contains('/') {
            return self.follow(library).map(|_| library.to_owned());
        }
        let candidates = places.iter().map(|place| format!("{}/{library}", place.trim_end_matches('/')));
        candidates.into_iter().find(|path| self.is_library(path))
    }

    /// Whether it is there, and for this processor: others lie beside.
    fn is_library(&self, path: &str) -> bool {
        let data = self.follow(path).and_then(|host| self.tree.read(&host).ok());
        data.is_some_and(|data| self.needs(Path::new(path), &data).is_ok())
    }

    fn needs(&self, path: &Path, data: &[u8]) -> Result<Needs> {
        let elf = Elf::parse(path, data)?;
        let kind = elf.header.e_type(ENDIAN);
        if kind != format::ET_EXEC && kind != format::ET_DYN {
            return Err(elf.error("no program and no library, expected one of them"));
        }
        let mut needs = Needs::default();
        if let Some(segment) = elf.segments(format::PT_INTERP).next() {
            let bytes =
                segment.data(ENDIAN, data).map_err(|()| elf.error("damaged: PT_INTERP is outside"))?;
            let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            needs.interpreter = Some(String::from_utf8_lossy(bytes).into_owned());
        }
        let Some(segment) = elf.segments(format::PT_DYNAMIC).next() else { return Ok(needs) };
        let entries = segment
            .dynamic(ENDIAN, data)
            .map_err(|problem| elf.error(format!("damaged: {problem}")))?
            .unwrap_or_default();
        let value =
            |tag| entries.iter().find(|entry| entry.d_tag(ENDIAN) == tag).map(|entry| entry.d_val(ENDIAN));
        let strings = value(format::DT_STRTAB).and_then(|address| {
            let loads = elf.loads().ok()?;
            let load = loads.iter().find(|load| {
                address >= load.address && address - load.address < load.contents.len() as u64
            })?;
            load.contents.get((address - load.address) as usize..)
        });
        for entry in entries {
            let tag = entry.d_tag(ENDIAN);
            let list = match tag {
                format::DT_NEEDED => &mut needs.libraries,
                format::DT_RPATH => &mut needs.paths,
                format::DT_RUNPATH => &mut needs.run_paths,
                _ => continue,
            };
            let bytes = strings.and_then(|strings| strings.get(entry.d_val(ENDIAN) as usize..));
            let bytes = bytes.and_then(|bytes| bytes.split(|byte| *byte == 0).next());
            let text = bytes.ok_or_else(|| elf.error("damaged: a name is outside of its string table"))?;
            let text = String::from_utf8_lossy(text).into_owned();
            match tag == format::DT_NEEDED {
                true => list.push(text),
                false => list.extend(text.split(':').filter(|path| !path.is_empty()).map(str::to_owned)),
            }
        }
        Ok(needs)
    }
}

/// Adds a path that is not there yet.
pub(super) fn push(found: &mut Vec<String>, path: String) {
    if !found.contains(&path) {
        found.push(path);
    }
}

/// Directories that a configuration of `ld.so` names, and those that it includes.
fn read_configuration(tree: Tree<'_>, path: &str, places: &mut Vec<String>, depth: usize) {
    const DEPTH_MAX: usize = 4;
    let Ok(bytes) = tree.read(&tree.base().join(path)) else { return };
    let text = String::from_utf8_lossy(&bytes);
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match line.strip_prefix("include ") {
            Some(pattern) if depth < DEPTH_MAX => {
                for file in matching(tree, pattern.trim()) {
                    read_configuration(tree, &file, places, depth + 1);
                }
            }
            Some(_) => {}
            None if line.starts_with('/') => places.push(line.to_owned()),
            None => {}
        }
    }
}

/// Files that `DIRECTORY/*.conf` means, or the one that is named.
fn matching(tree: Tree<'_>, pattern: &str) -> Vec<String> {
    let pattern = match pattern.strip_prefix('/') {
        Some(absolute) => absolute.to_owned(),
        None => format!("etc/{pattern}"),
    };
    let Some((directory, name)) = pattern.rsplit_once('/') else { return vec![pattern] };
    let Some((front, back)) = name.split_once('*') else { return vec![pattern] };
    let names = tree.names(&tree.base().join(directory));
    let mut files: Vec<String> = names
        .iter()
        .filter(|name| name.starts_with(front) && name.ends_with(back))
        .map(|name| format!("{directory}/{name}"))
        .collect();
    files.sort();
    files
}
