//! Rules about the text of files.

use super::Violation;
use super::tree::{File, Tree};

const LINES_MAX: usize = 1000;
const COLUMNS_MAX: usize = 110;

/// Words that say that something is not done. Written in two halves, for this file is checked too.
const LEFTOVERS: [&str; 7] = [
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
    concat!("db", "g!("),
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X"),
    concat!("#[ig", "nore"),
];

/// Whether people write the file, as programs.
fn is_program(file: &File) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    name == "nom" || [".rs", ".S", ".ld", ".sh", ".py"].iter().any(|ending| name.ends_with(ending))
}

fn programs(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| is_program(file))
}

/// No file of a program has more than 1,000 lines.
pub fn files_are_short(tree: &Tree) -> Vec<Violation> {
    let long = programs(tree).filter(|file| file.text.lines().count() > LINES_MAX);
    let violation = |file: &File| {
        let message = format!("{} lines, at most {LINES_MAX}: split it by idea", file.text.lines().count());
        Violation::new(&file.path, LINES_MAX + 1, "file-length", message)
    };
    long.map(violation).collect()
}

/// No line of a program has more than 110 characters.
pub fn lines_are_short(tree: &Tree) -> Vec<Violation> {
    each_line(programs(tree), |line| {
        let columns = line.chars().count();
        (columns > COLUMNS_MAX)
            .then(|| ("line-length", format!("{columns} characters, at most {COLUMNS_MAX}")))
    })
}

/// Nothing is marked as unfinished, and no test is switched off.
pub fn no_leftovers(tree: &Tree) -> Vec<Violation> {
    let files = tree.files.iter().filter(|file| is_program(file) || file.path.ends_with(".toml"));
    each_line(files, |line| {
        let word = LEFTOVERS.iter().find(|word| contains_word(line, word))?;
        Some(("leftover", format!("`{word}`: finish it, or open an issue")))
    })
}

/// Whether `line` has `word` where no longer word contains it.
fn contains_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next().filter(|_| !word.ends_with('('));
        !part_of_word(before) && !part_of_word(after)
    })
}

/// No tabs, no spaces at a line's end, and a line feed at the file's.
pub fn whitespace_is_plain(tree: &Tree) -> Vec<Violation> {
    let mut violations = each_line(programs(tree), |line| {
        if line.contains('\t') {
            return Some(("whitespace", "a tab: use spaces".to_owned()));
        }
        line.ends_with([' ', '\r']).then(|| ("whitespace", "space at the end of the line".to_owned()))
    });
    let unended = programs(tree).filter(|file| !file.text.is_empty() && !file.text.ends_with('\n'));
    violations.extend(unended.map(|file| {
        Violation::new(
            &file.path,
            file.text.lines().count(),
            "whitespace",
            "no line feed at the end of the file",
        )
    }));
    violations
}

fn each_line<'t>(
    files: impl Iterator<Item = &'t File>,
    judge: impl Fn(&str) -> Option<(&'static str, String)>,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files {
        for (index, line) in file.text.split_terminator('\n').enumerate() {
            if let Some((rule, message)) = judge(line) {
                violations.push(Violation::new(&file.path, index + 1, rule, message));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::judge;

    #[test]
    fn long_files_are_found() {
        let (long, short) = ("\n".repeat(1001), "\n".repeat(1000));
        let found = judge(files_are_short, &[("a.rs", &long), ("b.rs", &short), ("data.txt", &long)]);
        assert_eq!(found, ["a.rs:1001: file-length: 1001 lines, at most 1000: split it by idea"]);
    }

    #[test]
    fn long_lines_are_counted_in_characters() {
        let (long, short) = (format!("\n{}", "ä".repeat(111)), "ä".repeat(110));
        let found = judge(lines_are_short, &[("a.rs", &long), ("b.rs", &short), ("c.md", &long)]);
        assert_eq!(found, ["a.rs:2: line-length: 111 characters, at most 110"]);
    }

    #[test]
    fn leftovers_are_found_as_whole_words() {
        let text = LEFTOVERS.join("\n");
        assert_eq!(judge(no_leftovers, &[("a.rs", &text)]).len(), LEFTOVERS.len());
        let innocent = format!("{}S a{} {}tle", LEFTOVERS[4], LEFTOVERS[5], "ignore");
        assert_eq!(judge(no_leftovers, &[("a.rs", &innocent)]), [""; 0]);
    }

    #[test]
    fn odd_whitespace_is_found() {
        let found =
            judge(whitespace_is_plain, &[("a.rs", "a\tb\nc \nd\n"), ("b.rs", "a"), ("c.rs", "a\r\n")]);
        assert_eq!(found.len(), 4);
        assert_eq!(found[0], "a.rs:1: whitespace: a tab: use spaces");
    }
}
