//! `nom strace --missing`: which files a program looked for in vain that this computer has, so that whoever
//! runs it knows what to include.

use super::lines::WholeLines;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// What is a machine's own, or of this computer alone: no file of a program's.
const OF_A_MACHINE: &[&str] = &["/dev", "/proc", "/run", "/sys", "/tmp", "/etc/ld.so.cache"];

/// Paths that were not there.
#[derive(Debug, Default)]
pub struct Missing {
    paths: BTreeSet<String>,
    lines: WholeLines,
}

impl Missing {
    /// Takes lines of a trace, as strace has them.
    pub fn take(&mut self, bytes: &[u8]) {
        let lines = self.lines.take(bytes);
        self.paths.extend(lines.lines().filter_map(not_found).map(str::to_owned));
    }

    /// What is there, as options of `nom run`, and whether it is any.
    pub fn report(&self, is_here: impl Fn(&Path) -> bool) -> String {
        let is_files = |path: &str| !OF_A_MACHINE.iter().any(|own| Path::new(path).starts_with(own));
        let here = self.paths.iter().filter(|path| is_files(path) && is_here(Path::new(path)));
        let mut text = String::new();
        for path in here {
            let quoted = shlex::try_quote(path).unwrap_or(path.into());
            let _ = writeln!(text, "  --include {quoted}");
        }
        match text.is_empty() {
            true => "It looked for no file in vain that this computer has.\n".to_owned(),
            false => {
                format!(
                    "It looked in vain for files that this computer has; with them it may want more:\n{text}"
                )
            }
        }
    }
}

/// The path that a call's line says is not there: the first absolute one, written without escapes.
fn not_found(line: &str) -> Option<&str> {
    let (call, result) = line.rsplit_once(" = ")?;
    if !result.starts_with("-1 ENOENT") {
        return None;
    }
    let (_, from) = call.split_once("\"/")?;
    let end = from.find('"')?;
    let path = &call[call.len() - from.len() - 1..][..end + 1];
    (!path.contains('\\')).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_here_are_told_once_whatever_pieces_lines_come_in() {
        let lines = "1 access(\"/usr/bin/which\", X_OK) = -1 ENOENT\n\
            2 execve(\"/usr/bin/which\", [\"which\", \"/usr/bin/ls\"], 0x7 /* 1 vars */) = -1 ENOENT\n\
            1 openat(AT_FDCWD, \"/nowhere\", O_RDONLY) = -1 ENOENT\n\
            1 openat(AT_FDCWD, \"/usr/share/a b\", O_RDONLY) = -1 ENOENT\n\
            1 openat(AT_FDCWD, \"/usr/share/found\", O_RDONLY) = 3\n\
            1 openat(AT_FDCWD, \"relative\", O_RDONLY) = -1 ENOENT\n\
            1 openat(AT_FDCWD, \"/usr/share/\\303\", O_RDONLY) = -1 ENOENT\n\
            1 openat(AT_FDCWD, \"/proc/1/maps\", O_RDONLY) = -1 ENOENT\n\
            1 openat(AT_FDCWD, \"/processes\", O_RDONLY) = -1 ENOENT\n\
            1 openat(AT_FDCWD, \"/etc/ld.so.cache\", O_RDONLY|O_CLOEXEC) = -1 ENOENT\n\
            1 openat(AT_FDCWD, \"/etc/shadow\", O_RDONLY) = -1 EACCES\n\
            1 half(\"/usr/half\"";
        let mut missing = Missing::default();
        lines.as_bytes().chunks(7).for_each(|piece| missing.take(piece));
        let text = missing.report(|path| !path.starts_with("/nowhere"));
        let told: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
        let expected = ["--include /processes", "--include /usr/bin/which", "--include '/usr/share/a b'"];
        assert_eq!(told, expected, "{text}");
        assert!(missing.report(|_| false).starts_with("It looked for no file in vain"));
    }
}
