//! Counting tests in what cargo prints, while it is passed on.

use anyhow::Result;
use std::io::{BufRead, Write};
use std::ops::AddAssign;

/// Tests that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.passed += more.passed;
        self.failed += more.failed;
    }
}

impl Counts {
    /// One check that is no cargo test.
    pub fn one(passed: bool) -> Counts {
        Counts { passed: u64::from(passed), failed: u64::from(!passed) }
    }

    /// Passes `input` on line by line and adds up its results.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn pass_on(input: impl BufRead, mut output: impl Write) -> Result<Counts> {
        let mut counts = Counts::default();
        for line in input.lines().map_while(Result::ok) {
            writeln!(output, "{line}")?;
            counts += Counts::of(&line).unwrap_or_default();
        }
        Ok(counts)
    }

    /// What a line such as `test result: ok. 4 passed; 0 failed; ..` says.
    fn of(line: &str) -> Option<Counts> {
        let (_, result) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut numbers = result.split("; ").map(|part| part.split_once(' '));
        let mut next = |label: &str| {
            let (number, word) = numbers.next()??;
            (word == label).then(|| number.parse().ok())?
        };
        Some(Counts { passed: next("passed")?, failed: next("failed")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_added_up_and_passed_on() {
        let input = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 0 ignored; in 0.1s\n\
                     test result: FAILED. 3 passed; 1 failed; 0 ignored\nx test result: ok. 9 passed\n";
        let mut output = Vec::new();
        let counts = Counts::pass_on(input.as_bytes(), &mut output).expect("written");
        assert_eq!(counts, Counts { passed: 5, failed: 1 });
        assert_eq!(output, input.as_bytes());
    }
}
