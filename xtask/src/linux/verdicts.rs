//! What came of tests, from what was printed.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// How much of what a test prints is kept.
const TEXT_MAX: usize = 3000;

/// How what tests print is understood.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Results {
    /// A test is one that passes if its command's status is 0, and was skipped if its status is this, or it
    /// printed this text.
    Status {
        /// The status of who is skipped.
        skipped: Option<u8>,
        /// What is printed then.
        skipped_text: Option<String>,
    },
    /// A command runs several tests, and says of each how it ended in a line that begins so and goes on with
    /// the test's name, behind which may be how long it took, ` (5 ms)`.
    Lines {
        /// Of tests that passed.
        passed: String,
        /// Of tests that failed.
        failed: String,
        /// What a passed line has in it whose test was skipped.
        skipped: Option<String>,
    },
    /// Python's `unittest -v`: a command runs several tests, with a line each, `NAME ... ok`.
    Unittest,
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// It found out that it cannot run here.
    Skipped,
    /// It failed, and how.
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => write!(out, "passed"),
            Outcome::Skipped => write!(out, "skipped"),
            Outcome::Failed(how) => write!(out, "failed ({how})"),
        }
    }
}

/// What came of each test, and what was printed of it.
#[derive(Debug, Default)]
pub struct Verdicts {
    outcomes: BTreeMap<String, Outcome>,
    texts: BTreeMap<String, String>,
}

impl Verdicts {
    /// Notes what a line of the list came to: `end` is what was said at its end.
    pub fn note(&mut self, results: &Results, name: &str, text: &str, end: &str) {
        match results {
            Results::Status { skipped, skipped_text } => {
                let is_skipped = skipped.is_some_and(|status| end == format!("status {status}"))
                    || skipped_text.as_ref().is_some_and(|part| text.contains(part.as_str()));
                let outcome = match end {
                    _ if is_skipped => Outcome::Skipped,
                    "status 0" => Outcome::Passed,
                    _ => Outcome::Failed(end.to_owned()),
                };
                self.outcomes.insert(name.to_owned(), outcome);
            }
            Results::Lines { passed, failed, skipped } => {
                let marks = (passed.as_str(), failed.as_str(), skipped.as_deref());
                self.note_lines(name, text, end, marks);
            }
            Results::Unittest => self.note_unittest(name, text, end),
        }
        let skipped = text.len().saturating_sub(TEXT_MAX);
        let start = (skipped..text.len()).find(|place| text.is_char_boundary(*place)).unwrap_or(0);
        self.texts.insert(name.to_owned(), text[start..].to_owned());
    }

    /// The command itself is a test, too, which passes if its status is 0: it may end in the middle.
    fn note_lines(&mut self, name: &str, text: &str, end: &str, marks: (&str, &str, Option<&str>)) {
        let (passed, failed, skipped) = marks;
        for line in text.lines().map(str::trim_start) {
            let (test, outcome) = match (line.strip_prefix(failed), line.strip_prefix(passed)) {
                (Some(test), _) => (test, Outcome::Failed("failed".to_owned())),
                (None, Some(test)) if skipped.is_some_and(|mark| test.contains(mark)) => {
                    (test, Outcome::Skipped)
                }
                (None, Some(test)) => (test, Outcome::Passed),
                (None, None) => continue,
            };
            let timed = test.rsplit_once(" (").filter(|(_, time)| time.ends_with("ms)"));
            let test = timed.map_or(test, |(test, _)| test);
            // Names may be there twice: who fails once fails.
            let key = format!("{name}.{}", test.trim());
            let known = self.outcomes.entry(key).or_insert(Outcome::Passed);
            if *known == Outcome::Passed {
                *known = outcome;
            }
        }
        let whole = if end == "status 0" { Outcome::Passed } else { Outcome::Failed(end.to_owned()) };
        self.outcomes.insert(name.to_owned(), whole);
    }

    /// A test's line begins with its name and its class, and ends, maybe with lines of others between, with
    /// what came of it. Who is the last without an end is the one that the process ended in.
    fn note_unittest(&mut self, name: &str, text: &str, end: &str) {
        let mut current: Option<String> = None;
        for line in text.lines() {
            if let Some((test, rest)) = line.split_once(" (").filter(|(test, _)| test.starts_with("test")) {
                let class = rest.split(')').next().unwrap_or_default();
                let class = class.strip_suffix(&format!(".{test}")).unwrap_or(class);
                if line.contains(" ... ") || !line.contains(':') {
                    current = Some(format!("{name}.{}.{test}", class.rsplit('.').next().unwrap_or_default()));
                }
            }
            let outcome = match line.rsplit(" ... ").next().unwrap_or(line).trim() {
                "ok" | "expected failure" => Outcome::Passed,
                "FAIL" | "ERROR" | "unexpected success" => Outcome::Failed(line_end(line)),
                word if word.starts_with("skipped ") => Outcome::Skipped,
                _ => continue,
            };
            if let Some(test) = current.take() {
                self.outcomes.insert(test, outcome);
            }
        }
        if let Some(test) = current {
            self.outcomes.insert(test, Outcome::Failed(end.to_owned()));
        }
    }

    /// Takes what another run says of tests where it is better.
    pub fn take_better(&mut self, other: Verdicts) {
        for (name, outcome) in other.outcomes {
            if self.outcomes.get(&name) != Some(&Outcome::Passed) {
                self.outcomes.insert(name, outcome);
            }
        }
        self.texts.extend(other.texts);
    }

    /// The tests that passed.
    pub fn passed(&self) -> impl Iterator<Item = &String> {
        self.outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Passed).map(|(name, _)| name)
    }

    /// What came of a test; one of which nothing was heard failed.
    pub fn outcome(&self, name: &str) -> Outcome {
        self.outcomes.get(name).cloned().unwrap_or_else(|| Outcome::Failed("did not run".to_owned()))
    }

    /// The last of what was printed by the line of the list that a test is of.
    pub fn text(&self, name: &str) -> &str {
        let line = self.texts.iter().find(|(line, _)| is_of_line(name, line));
        line.map_or("", |(_, text)| text)
    }
}

/// Whether a test is of this line of the list.
pub fn is_of_line(test: &str, line: &str) -> bool {
    test == line || test.strip_prefix(line).is_some_and(|rest| rest.starts_with('.'))
}

fn line_end(line: &str) -> String {
    line.rsplit(" ... ").next().unwrap_or(line).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_verdict() {
        let results = Results::Status { skipped: Some(7), skipped_text: Some("--- SKIP".to_owned()) };
        let mut verdicts = Verdicts::default();
        let cases = [("a", "", "status 0"), ("b", "", "status 7"), ("c", "--- SKIP: x", "status 0")];
        cases.iter().for_each(|(name, text, end)| verdicts.note(&results, name, text, end));
        verdicts.note(&results, "d", "said this", "signal 6");
        assert_eq!(verdicts.passed().collect::<Vec<_>>(), ["a"]);
        assert_eq!(verdicts.outcome("b"), Outcome::Skipped);
        assert_eq!(verdicts.outcome("c"), Outcome::Skipped);
        assert_eq!(verdicts.outcome("d").to_string(), "failed (signal 6)");
        assert_eq!(verdicts.outcome("e").to_string(), "failed (did not run)");
        assert_eq!(verdicts.text("d"), "said this");
    }

    #[test]
    fn lines_are_verdicts_and_so_is_the_end() {
        let marks = |text: &str| text.to_owned();
        let (passed, failed) = (marks("[ok]: "), marks("[err]: "));
        let results = Results::Lines { passed, failed, skipped: Some(marks("# SKIP")) };
        let text = "[ok]: SET (12 ms)\nnoise\n[err]: GET (now) in x.tcl\n [ok]: DEL # SKIP\n[ok]: SET\n";
        let mut verdicts = Verdicts::default();
        verdicts.note(&results, "unit/a", text, "status 1");
        assert_eq!(verdicts.passed().collect::<Vec<_>>(), ["unit/a.SET"]);
        assert_eq!(verdicts.outcome("unit/a.GET (now) in x.tcl").to_string(), "failed (failed)");
        assert_eq!(verdicts.outcome("unit/a.DEL # SKIP"), Outcome::Skipped);
        assert_eq!(verdicts.outcome("unit/a").to_string(), "failed (status 1)");
    }

    #[test]
    fn tests_of_python_are_told_apart() {
        let text = "test_a (test.test_os.FileTests.test_a) ... ok\n\
            test_b (test.test_os.FileTests.test_b)\nWhat it is for. ... noise\nFAIL\n\
            test_c (test.test_os.FileTests.test_c) ... skipped 'no'\n\
            test_d (test.test_os.FileTests.test_d) ... ";
        let mut verdicts = Verdicts::default();
        verdicts.note(&Results::Unittest, "test_os", text, "late");
        assert_eq!(verdicts.passed().collect::<Vec<_>>(), ["test_os.FileTests.test_a"]);
        assert_eq!(verdicts.outcome("test_os.FileTests.test_b").to_string(), "failed (FAIL)");
        assert_eq!(verdicts.outcome("test_os.FileTests.test_c"), Outcome::Skipped);
        assert_eq!(verdicts.outcome("test_os.FileTests.test_d").to_string(), "failed (late)");
        assert!(verdicts.text("test_os.FileTests.test_d").ends_with("... "));
    }
}
