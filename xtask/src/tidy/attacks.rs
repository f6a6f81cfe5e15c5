//! The list of attacks names tests, guests and mutants that there are.

use super::Violation;
use super::tree::{File, Tree};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The list.
const PAGE: &str = "docs/safety/attacks.md";
/// The mutants that it names.
const MUTANTS: &str = "tests/mutants/by-hand.toml";
/// Where guests are: some try several attacks, each by a name of its own.
const GUESTS: &str = "tests/guest/";

#[derive(Default, Deserialize)]
struct Mutants {
    mutant: Vec<Mutant>,
}

#[derive(Deserialize)]
struct Mutant {
    name: String,
}

/// Whoever is said to try an attack is a test, a guest, what a guest is told to do, or a file of tests; what
/// is said to stop it stands in the sources; and each mutant is one of those made by hand.
pub fn attacks_name_what_is_there(tree: &Tree) -> Vec<Violation> {
    let Some(page) = tree.find(PAGE) else { return vec![] };
    let listed: Option<Mutants> = tree.find(MUTANTS).and_then(|file| toml::from_str(&file.text).ok());
    let mutants: Vec<String> = listed.unwrap_or_default().mutant.into_iter().map(|it| it.name).collect();
    let words = words(tree);
    let mut violations = Vec::new();
    for (index, line) in page.text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let mut tell = |wrong: String| violations.push(Violation::new(PAGE, index + 1, "attacks", wrong));
        for name in cells.get(1).into_iter().flat_map(|cell| quoted(cell)) {
            if !is_tried(tree, &words, name) {
                tell(format!("`{name}` is no test, no guest and no file of tests"));
            }
        }
        let stops = cells.get(2).into_iter().flat_map(|cell| quoted(cell));
        for name in stops.filter(|name| !name.starts_with('-')) {
            if !name.split(is_apart).all(|part| words.contains(part)) && !is_file(tree, name) {
                tell(format!("`{name}` stands nowhere in the sources"));
            }
        }
        for name in cells.get(3).filter(|cell| **cell != "mutant").into_iter().flat_map(|cell| named(cell)) {
            if !is_mutant(&mutants, name) {
                tell(format!("no mutant of {MUTANTS} is called `{name}`"));
            }
        }
    }
    violations
}

/// What stands in backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The mutants of a cell, without what is said in brackets, or of how many more there are.
fn named(cell: &str) -> impl Iterator<Item = &str> {
    let names = cell.split(';').map(|name| match name.trim().rsplit_once(", and ") {
        Some((first, rest)) if rest.ends_with(" more") => first,
        _ => name.trim(),
    });
    names.filter(|name| !name.is_empty() && !name.starts_with('(') && *name != "as above" && *name != "---")
}

/// Every word of the sources.
fn words(tree: &Tree) -> BTreeSet<&str> {
    let is_source = |file: &&File| [".rs", ".S"].iter().any(|ending| file.path.ends_with(ending));
    tree.files.iter().filter(is_source).flat_map(|file| file.text.split(is_apart)).collect()
}

/// Whether a letter is between two words.
fn is_apart(letter: char) -> bool {
    !(letter.is_alphanumeric() || letter == '_')
}

/// Whether somebody of that name tries an attack. A name that ends in dots is the beginning of one.
fn is_tried(tree: &Tree, words: &BTreeSet<&str>, name: &str) -> bool {
    let begins = |beginning: &str| words.iter().any(|word| word.starts_with(beginning));
    let guest = format!("{GUESTS}src/bin/{}.rs", name.replace('-', "_"));
    let told = format!("\"{name}\"");
    let mut guests = tree.files.iter().filter(|file| file.path.starts_with(GUESTS));
    name.strip_suffix("...").is_some_and(begins)
        || is_function(tree, name)
        || is_file(tree, name)
        || tree.find(&guest).is_some()
        || guests.any(|file| file.text.contains(&told))
}

fn is_function(tree: &Tree, name: &str) -> bool {
    let defined = format!("fn {name}(");
    tree.rust().any(|file| file.text.contains(&defined))
}

/// Whether the name is that of a file of Rust, a module, or a directory.
fn is_file(tree: &Tree, name: &str) -> bool {
    let endings = [format!("/{name}"), format!("/{name}.rs")];
    let (inside, directory) = (format!("/{name}/"), format!("{name}/"));
    tree.files.iter().any(|file| {
        endings.iter().any(|ending| file.path.ends_with(ending))
            || file.path.contains(&inside)
            || file.path.starts_with(&directory)
    })
}

/// Whether a mutant is called so; dots stand for what is left out at an end.
fn is_mutant(mutants: &[String], name: &str) -> bool {
    mutants.iter().any(|mutant| match (name.strip_prefix('…'), name.strip_suffix('…')) {
        (Some(end), _) => mutant.ends_with(end.trim()),
        (None, Some(beginning)) => mutant.starts_with(beginning.trim()),
        (None, None) => mutant == name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::judge;

    fn told(row: &str) -> Vec<String> {
        let page = format!("| attack | who tries it | what stops it | mutant |\n|---|---|---|---|\n{row}\n");
        judge(
            attacks_name_what_is_there,
            &[
                (PAGE, &page),
                (MUTANTS, "[[mutant]]\nname = \"no lock at all\"\n[[mutant]]\nname = \"no key\"\n"),
                ("tests/guest/src/bin/break_in.rs", "fn main() { by(\"the-window\"); }"),
                ("kernel/pure/src/lock/tests.rs", "fn nobody_comes_in() {}"),
                ("kernel/pure/src/lock.rs", "struct Bolt;"),
            ],
        )
    }

    #[test]
    fn attacks_that_somebody_tries_are_fine() {
        let tried = [
            "| a | guests `break-in`, `the-window` | `Bolt` | no lock at all; (the door) |",
            "| b | `nobody_comes_in`, `nobody_...` | `lock.rs`, `-v` | no lock …; … key, and two more |",
            "| c | tests in `lock/tests.rs`, `kernel/pure/src/lock` | x | as above |",
        ];
        tried.iter().for_each(|row| assert_eq!(told(row), [""; 0], "{row}"));
    }

    #[test]
    fn a_test_or_a_mutant_that_is_gone_is_told() {
        let gone = [
            ("| a | guest `burglar` | x | no key |", "`burglar` is no test, no guest and no file of tests"),
            (
                "| b | `everybody_...` | x | no key |",
                "`everybody_...` is no test, no guest and no file of tests",
            ),
            (
                "| c | `nobody_comes` | x | no key |",
                "`nobody_comes` is no test, no guest and no file of tests",
            ),
            ("| d | x | `Chain` | no key |", "`Chain` stands nowhere in the sources"),
            ("| e | x | x | no keys |", "no mutant of tests/mutants/by-hand.toml is called `no keys`"),
            ("| f | x | x | no …; … keys |", "no mutant of tests/mutants/by-hand.toml is called `… keys`"),
        ];
        for (row, wrong) in gone {
            assert_eq!(told(row), [format!("{PAGE}:3: attacks: {wrong}")]);
        }
    }
}
