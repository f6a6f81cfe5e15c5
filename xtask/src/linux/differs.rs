//! The list of what differs, which is kept in the repository and may only shrink.

use super::verdicts::{Outcome, Verdicts};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;

/// What stands behind the name of a test that does not fail always.
const SOMETIMES: &str = "sometimes";

/// A list: a test a line, then a colon and how it fails or why; `#` begins a comment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differs {
    /// What is said of each test.
    entries: BTreeMap<String, String>,
}

impl Differs {
    /// Reads a list; one that is not there is empty.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> Result<Differs> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Differs::parse(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Differs::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn parse(text: &str) -> Differs {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let entry = |line: &str| {
            let (name, why) = line.split_once(": ").unwrap_or((line, ""));
            (name.to_owned(), why.to_owned())
        };
        Differs { entries: lines.map(entry).collect() }
    }

    /// Whether a test is listed.
    pub fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Tests that are listed, and not only as failing sometimes.
    pub fn sure(&self) -> impl Iterator<Item = &String> {
        self.entries.iter().filter(|(_, why)| !why.starts_with(SOMETIMES)).map(|(name, _)| name)
    }

    /// All that are listed.
    pub fn names(&self) -> BTreeSet<String> {
        self.entries.keys().cloned().collect()
    }

    /// How many tests are listed.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// A list of these, with what is said of those that are known, and of tests that fail sometimes.
    pub fn text_with(&self, found: &BTreeMap<String, Outcome>) -> String {
        let mut entries: BTreeMap<&String, String> = BTreeMap::new();
        for (name, why) in &self.entries {
            if why.starts_with(SOMETIMES) || found.contains_key(name) {
                entries.insert(name, why.clone());
            }
        }
        for (name, outcome) in found {
            entries.entry(name).or_insert_with(|| outcome.to_string());
        }
        entries.iter().map(|(name, why)| format!("{name}: {why}\n")).collect()
    }
}

/// What came of the same tests in both places.
pub struct Compared {
    /// Here.
    pub linux: Verdicts,
    /// In a machine.
    pub nom: Verdicts,
}

impl Compared {
    /// Tests that pass on Linux and not in a machine, and what came of them there.
    pub fn differences(&self) -> BTreeMap<String, Outcome> {
        let outcomes = self.linux.passed().map(|name| (name.clone(), self.nom.outcome(name)));
        outcomes.filter(|(_, outcome)| *outcome != Outcome::Passed).collect()
    }

    /// Those that are not listed.
    pub fn doubtful(&self, listed: &Differs) -> BTreeSet<String> {
        self.differences().into_keys().filter(|name| !listed.has(name)).collect()
    }

    /// Whether a test passes here and there.
    pub fn passes_in_both(&self, name: &str) -> bool {
        self.linux.outcome(name) == Outcome::Passed && self.nom.outcome(name) == Outcome::Passed
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdicts::Results;
    use super::*;

    fn verdicts(ends: &[(&str, &str)]) -> Verdicts {
        let mut verdicts = Verdicts::default();
        let results = Results::Status { skipped: Some(7), skipped_text: None };
        ends.iter().for_each(|(name, end)| verdicts.note(&results, name, "", end));
        verdicts
    }

    #[test]
    fn what_passes_on_linux_alone_differs() {
        let linux = verdicts(&[("a", "status 0"), ("b", "status 0"), ("c", "late"), ("d", "status 0")]);
        let nom = verdicts(&[("a", "status 0"), ("b", "status 1"), ("c", "late"), ("d", "status 7")]);
        let compared = Compared { linux, nom };
        assert_eq!(compared.differences().into_keys().collect::<Vec<_>>(), ["b", "d"]);
        let listed = Differs::parse("# why\nb: failed (status 1)\na: failed (late)\nx: sometimes late\n");
        assert_eq!(compared.doubtful(&listed).into_iter().collect::<Vec<_>>(), ["d"]);
        let stale: Vec<_> = listed.sure().filter(|name| compared.passes_in_both(name)).collect();
        assert_eq!(stale, ["a"]);
        let text = listed.text_with(&compared.differences());
        assert_eq!(text, "b: failed (status 1)\nd: skipped\nx: sometimes late\n");
        assert_eq!(Differs::parse(&text).count(), 3);
    }
}
