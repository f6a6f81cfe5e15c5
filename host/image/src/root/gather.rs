//! Filling a root: with what one program needs, or with a whole tree of directories.

use super::needs::{Runnable, Search, Tree, push};
use super::{Body, DIRECTORY, FILE, LINK, Root, TYPE_MASK, error, text, unreadable};
use crate::error::Result;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// Scripts whose interpreters are scripts, at most, as on Linux.
const SCRIPTS_MAX: usize = 4;
const SCRIPTS_OF_SCRIPTS: &str = "its interpreter is a script, whose is a script, and so on";
/// Where commands are looked for that are named without a slash.
const SEARCH_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Who is who, and how names are found: what C libraries read.
const NAMES: [&str; 7] = [
    "etc/passwd",
    "etc/group",
    "etc/nsswitch.conf",
    "etc/services",
    "etc/protocols",
    "etc/localtime",
    "etc/host.conf",
];
/// The locale that programs are told to use unless somebody says otherwise (`LANG=C.UTF-8`), as the GNU C
/// library looks for it.
const LOCALE: &str = "/usr/lib/locale/C.utf8";
/// What Python's library has to build extensions with.
const BUILD_ONLY: &str = "config-";
/// Whom to ask for addresses of names.
const RESOLVER: &str = "etc/resolv.conf";
/// Where programs keep what they write, as in every distribution (FHS 3.0, chapter 5), and links of old.
const STATE: [(&str, u32); 5] = [
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/spool", 0o755),
    ("run/lock", 0o1777),
];
const STATE_LINKS: [(&str, &str); 2] = [("var/run", "/run"), ("var/lock", "/run/lock")];
/// What people look at devices and processes by is not copied from the host's own.
pub(super) const MADE: [&str; 3] = ["dev", "proc", "sys"];

/// What a file of the tree holds, if it is there.
fn contents_of(search: &Search<'_>, name: &str) -> Result<Option<Vec<u8>>> {
    let file = search.follow(name).filter(|file| file.is_file());
    let read = |file: PathBuf| std::fs::read(&file).map_err(|reason| unreadable(&file, &reason));
    file.map(read).transpose()
}

impl Root {
    /// What the program at `path` of the tree at `host` needs: interpreter, libraries, who is who.
    ///
    /// # Errors
    /// A file that is no program for this processor; something that it needs and that is missing.
    pub fn of_program(host: &Path, path: &str, include: &[PathBuf]) -> Result<Root> {
        let mut root = Root::new();
        let search = Search::new(Tree::Host(host), Vec::new());
        root.add_program(&search, host, path, 0)?;
        for name in NAMES {
            if let Some(contents) = contents_of(&search, name)? {
                root.write(name, &contents);
            }
        }
        root.add_resolver(&search)?;
        let mut included = Vec::new();
        for path in include {
            included.extend(root.include(&search, host, path)?);
        }
        // After all of them, since one may need another that it does not say where to find.
        root.add_needs(&search, host, &included)?;
        root.add_state();
        Ok(root)
    }

    /// Whom this computer asks for addresses, but for itself, whom a machine does not reach: without others a
    /// machine asks whom its network names.
    fn add_resolver(&mut self, search: &Search<'_>) -> Result<()> {
        let Some(contents) = contents_of(search, RESOLVER)? else { return Ok(()) };
        let contents = String::from_utf8_lossy(&contents);
        let server = |line: &str| line.strip_prefix("nameserver").map(|server| server.trim().to_owned());
        let is_own = |server: &String| server.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let lines = || contents.lines().filter(|line| !server(line).as_ref().is_some_and(is_own));
        if lines().any(|line| server(line).is_some()) {
            let text: String = lines().map(|line| format!("{line}\n")).collect();
            self.write(RESOLVER, text.as_bytes());
        }
        Ok(())
    }

    /// Directories for what programs write, as far as nothing of their names is there.
    fn add_state(&mut self) {
        let directories = STATE.map(|(path, mode)| (path, DIRECTORY | mode, Body::Nothing));
        let links = STATE_LINKS.map(|(path, to)| (path, LINK | 0o777, Body::bytes(to.as_bytes())));
        for (path, mode, body) in directories.into_iter().chain(links) {
            if !self.contains(path) {
                self.insert(path, mode, body);
            }
        }
    }

    /// Looks whether a program of the root has what it needs: its interpreter, and libraries, which are
    /// looked for in `places` first.
    ///
    /// # Errors
    /// As [`Root::of_program`].
    pub(crate) fn check_program(&self, path: &str, places: Vec<String>) -> Result<()> {
        loaded(&Search::new(Tree::Gathered(self), places), path).map(drop)
    }

    /// Files with code: a program with its interpreter and the libraries that it names, in the order in which
    /// they are loaded, and the other programs and libraries of the root. A script's program is its
    /// interpreter.
    ///
    /// # Errors
    /// As [`Root::of_program`].
    pub(crate) fn code_files(&self, program: &str) -> Result<(Vec<String>, Vec<String>)> {
        let search = Search::new(Tree::Gathered(self), Vec::new());
        let place = |path: &String| search.follow(path).map(|file| file.display().to_string());
        let mut known = Vec::new();
        loaded(&search, program)?.iter().filter_map(place).for_each(|path| push(&mut known, path));
        let is_code = |path: &str| search.runnable(path).is_ok_and(|kind| kind == Runnable::Program);
        let others = self.files().map(|(path, _)| path.to_owned());
        let others = others.filter(|path| !known.contains(path) && is_code(path)).collect();
        Ok((known, others))
    }

    fn add_program(&mut self, search: &Search<'_>, host: &Path, path: &str, depth: usize) -> Result<()> {
        if depth > SCRIPTS_MAX {
            return Err(error(Path::new(path), SCRIPTS_OF_SCRIPTS));
        }
        match search.runnable(path)? {
            Runnable::Program => {
                let mut files = search.closure(path, &|_| false)?;
                files.extend(search.needed_late(&files));
                for file in &files {
                    self.add_path(host, file)?;
                }
                if search.follow(LOCALE).is_some() && search.asks_for_a_locale(&files) {
                    self.add_tree(search, host, LOCALE, &|_| true)?;
                }
                if let Some(library) = search.library_of_python(path) {
                    let files =
                        self.add_tree(search, host, &library, &|name| !name.starts_with(BUILD_ONLY))?;
                    self.add_needs(search, host, &files)?;
                }
            }
            Runnable::Script { interpreter, argument } => {
                self.add_path(host, path)?;
                let missing = || error(Path::new(path), format!("its interpreter {interpreter} is missing"));
                search.follow(&interpreter).ok_or_else(missing)?;
                self.add_program(search, host, &interpreter, depth + 1)?;
                let is_env = Path::new(&interpreter).file_name().is_some_and(|name| name == "env");
                if let Some(command) = argument.as_deref().and_then(command).filter(|_| is_env) {
                    let found = SEARCH_PATH.iter().map(|place| format!("{place}/{command}"));
                    let found = found.into_iter().find(|path| search.follow(path).is_some());
                    let missing = || error(Path::new(path), format!("its interpreter {command} is missing"));
                    self.add_program(search, host, &found.ok_or_else(missing)?, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// A file or a directory with all that is in it: their paths.
    fn include(&mut self, search: &Search<'_>, host: &Path, path: &Path) -> Result<Vec<String>> {
        let name = text(path)?;
        if !path.is_absolute() {
            return Err(error(path, "expected an absolute path"));
        }
        let there = search.follow(&name).ok_or_else(|| error(path, "no such file or directory"))?;
        if !there.is_dir() {
            self.add_path(host, &name)?;
            return Ok(vec![name]);
        }
        self.add_tree(search, host, &name, &|_| true)
    }

    /// A directory of the tree at `host` with all that is in it, but for names that are not wanted: their
    /// paths.
    fn add_tree(
        &mut self,
        search: &Search<'_>,
        host: &Path,
        path: &str,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<String>> {
        let problem = |what: String| error(Path::new(path), what);
        let there = search.follow(path).ok_or_else(|| problem("no such file or directory".to_owned()))?;
        self.add_path(host, path)?;
        let mut paths = Vec::new();
        let walk = WalkDir::new(&there).sort_by_file_name().into_iter();
        for entry in walk.filter_entry(|entry| entry.file_name().to_str().is_none_or(is_wanted)) {
            let entry = entry.map_err(|reason| problem(reason.to_string()))?;
            let below = entry.path().strip_prefix(&there).expect("the walk began there");
            let inside = format!("{}/{}", path.trim_end_matches('/'), text(below)?);
            if !is_kept(entry.path())? {
                continue;
            }
            let inside = inside.trim_end_matches('/').to_owned();
            match search.follow(&inside) {
                Some(_) => self.add_path(host, &inside)?,
                // A link to nothing, which packages leave, is one here, too.
                None => {
                    let place = entry.path().strip_prefix(host).expect("the walk began there");
                    self.copy(&text(place)?, entry.path())?;
                }
            }
            paths.push(inside);
        }
        Ok(paths)
    }

    /// What those of these files need that are programs or libraries.
    fn add_needs(&mut self, search: &Search<'_>, host: &Path, files: &[String]) -> Result<()> {
        let name_of = |path: &str| path.rsplit('/').next().map(str::to_owned);
        let names: BTreeSet<String> = self.entries.keys().filter_map(|path| name_of(path)).collect();
        for path in files {
            let file = search.follow(path).filter(|file| file.is_file());
            if file.is_some() && search.runnable(path).is_ok_and(|kind| kind == Runnable::Program) {
                for needed in search.closure(path, &|library| names.contains(library))? {
                    self.add_path(host, &needed)?;
                }
            }
        }
        Ok(())
    }

    /// Every name on the way to a path of the tree at `host`, links and what they lead to.
    fn add_path(&mut self, host: &Path, path: &str) -> Result<()> {
        let mut at = String::new();
        let mut names: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut links = 0;
        while let Some(name) = names.pop() {
            match name.as_str() {
                "" | "." => continue,
                ".." => {
                    at.truncate(at.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let next = if at.is_empty() { name } else { format!("{at}/{name}") };
            let there = host.join(&next);
            self.copy(&next, &there)?;
            let metadata = there.symlink_metadata().map_err(|reason| unreadable(&there, &reason))?;
            if metadata.mode() & TYPE_MASK == LINK {
                links += 1;
                if links > 40 {
                    return Err(error(Path::new(path), "links lead to links without end"));
                }
                let target = std::fs::read_link(&there).map_err(|reason| unreadable(&there, &reason))?;
                let target = text(&target)?;
                if target.starts_with('/') {
                    at = String::new();
                }
                names.extend(target.split('/').rev().map(str::to_owned));
            } else {
                at = next;
            }
        }
        Ok(())
    }

    /// A whole tree: all but devices, sockets and what is in `/dev`, `/proc` and `/sys`.
    ///
    /// # Errors
    /// A tree that is no directory; a file that cannot be read.
    pub fn of_directory(directory: &Path) -> Result<Root> {
        let mut root = Root::new();
        root.add_directory(directory, "")?;
        Ok(root)
    }

    /// A file, as it is there, at a path of the root.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn add_file(&mut self, file: &Path, at: &str) -> Result<()> {
        let there = file.canonicalize().map_err(|reason| unreadable(file, &reason))?;
        self.copy(at.trim_matches('/'), &there)
    }

    /// All that is in a directory, as it is there, at a path of the root.
    ///
    /// # Errors
    /// As [`Root::of_directory`].
    pub fn add_directory(&mut self, directory: &Path, at: &str) -> Result<()> {
        if !directory.is_dir() {
            let problem =
                if directory.exists() { "expected a directory" } else { "no such file or directory" };
            return Err(error(directory, problem));
        }
        let at = at.trim_matches('/');
        let is_made = |path: &Path| at.is_empty() && MADE.iter().any(|name| path == directory.join(name));
        let walk = WalkDir::new(directory).min_depth(1).sort_by_file_name().into_iter();
        for entry in walk.filter_entry(|entry| !is_made(entry.path())) {
            let entry = entry.map_err(|reason| error(directory, reason.to_string()))?;
            let below = entry.path().strip_prefix(directory).expect("the walk began there");
            if is_kept(entry.path())? {
                self.copy(&format!("{at}/{}", text(below)?), entry.path())?;
            }
        }
        Ok(())
    }
}

/// Paths of all that is loaded if a file is run, the program first: for a script, what its interpreter is.
fn loaded(search: &Search<'_>, path: &str) -> Result<Vec<String>> {
    let mut path = path.to_owned();
    for _ in 0..=SCRIPTS_MAX {
        match search.runnable(&path)? {
            Runnable::Program => return search.closure(&path, &|_| false),
            Runnable::Script { interpreter, .. } => {
                let missing = || error(Path::new(&path), format!("its interpreter {interpreter} is missing"));
                search.follow(&interpreter).ok_or_else(missing)?;
                path = interpreter;
            }
        }
    }
    Err(error(Path::new(&path), SCRIPTS_OF_SCRIPTS))
}

/// The command that `env` is told to run.
fn command(argument: &str) -> Option<&str> {
    argument.split_whitespace().find(|word| !word.starts_with('-') && !word.contains('='))
}

fn is_kept(path: &Path) -> Result<bool> {
    let metadata = path.symlink_metadata().map_err(|reason| unreadable(path, &reason))?;
    Ok(matches!(metadata.mode() & TYPE_MASK, DIRECTORY | FILE | LINK))
}

impl Root {
    /// The user of a name or number, and its group, by the root's `/etc/passwd` and `/etc/group`:
    /// `USER[:GROUP]`.
    ///
    /// # Errors
    /// A name that is in none of them.
    pub fn user(&self, name: &str) -> Result<(u32, u32)> {
        let (user, group) = match name.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (name, None),
        };
        let users = self.text("etc/passwd");
        let row = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let row = row.into_iter().find(|row| row.len() > 3 && (row[0] == user || row[2] == user));
        let numbers = |row: &Vec<&str>| Some((row[2].parse().ok()?, row[3].parse().ok()?));
        let known: Option<(u32, u32)> = row.as_ref().and_then(numbers);
        let unknown = |what: &str, name: &str| {
            error(Path::new("/etc/passwd"), format!("no {what} `{name}`, expected one of the root's"))
        };
        let (user, own) = match (known, user.parse()) {
            (Some(known), _) => known,
            (None, Ok(number)) => (number, 0),
            (None, Err(_)) => return Err(unknown("user", user)),
        };
        let Some(group) = group else { return Ok((user, own)) };
        let groups = self.text("etc/group");
        let row = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let row = row.into_iter().find(|row| row.len() > 2 && row[0] == group);
        let number = row.and_then(|row| row[2].parse().ok()).or(group.parse().ok());
        Ok((user, number.ok_or_else(|| unknown("group", group))?))
    }
}
