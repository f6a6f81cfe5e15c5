//! Mutants made by hand: a piece of text replaced, and the test that must notice.

use super::survivors::Survivors;
use super::{Lab, Part};
use crate::counts::Counts;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The list, from the project's root.
const LIST: &str = "tests/mutants/by-hand.toml";
/// The package whose tests boot machines: it is taken from the checkout, what it boots from the copy.
const SYSTEM_TESTS: &str = "nom-system-tests";
/// How long one test may take, with what must be built for it: a mutant may well hang.
const PATIENCE_S: u32 = 1200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Mutant>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    /// What the kernel is without.
    name: String,
    file: String,
    find: String,
    replace: String,
    /// More texts with their replacements, where one is not enough.
    #[serde(default)]
    also: Vec<[String; 2]>,
    #[serde(flatten)]
    test: Test,
    /// Whether it takes seconds.
    #[serde(default)]
    cheap: bool,
}

/// A test that must fail.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    package: String,
    /// The file of tests, if it is not in the package's library.
    target: Option<String>,
    test: String,
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// It was not even tried, and why.
    Invalid(String),
}

impl Mutant {
    /// The file's text with the mutation.
    fn apply(&self, text: &str) -> Result<String> {
        let Mutant { name, file, .. } = self;
        let first = [self.find.clone(), self.replace.clone()];
        std::iter::once(&first).chain(&self.also).try_fold(text.to_owned(), |text, [find, replace]| {
            let count = text.matches(find.as_str()).count();
            ensure!(
                count == 1,
                "mutant `{name}`: {file} has its text {count} times, expected once: {find:?}"
            );
            Ok(text.replacen(find.as_str(), replace, 1))
        })
    }

    fn is_wanted(&self, part: Part<'_>) -> bool {
        match part {
            Part::Cheap => self.cheap,
            Part::Asked(options) => {
                let text = options.mutant.as_deref().unwrap_or_default();
                [&self.name, &self.file, &self.test.package].iter().any(|word| word.contains(text))
            }
        }
    }
}

impl Test {
    fn run(&self, lab: &Lab) -> Result<Outcome> {
        let target = lab.target.display().to_string();
        let mut words = vec!["cargo", "test", "--package", &self.package];
        let directory = if self.package == SYSTEM_TESTS {
            words.extend(["--target-dir", &target]);
            &lab.root
        } else {
            &lab.tree
        };
        match &self.target {
            Some(target) => words.extend(["--test", target]),
            None => words.push("--lib"),
        }
        words.push(&self.test);
        let output = lab.run(directory, PATIENCE_S, &words)?;
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(judge(&said.concat(), output.status.success()))
    }
}

/// What cargo's words and its success mean.
fn judge(said: &str, success: bool) -> Outcome {
    let refusals = ["could not compile", "does not build for the guest", "no test target named"];
    let refusal = said.lines().find(|line| refusals.iter().any(|refusal| line.contains(refusal)));
    let ran = Counts::pass_on(said.as_bytes(), std::io::sink()).unwrap_or_default();
    match (refusal, success) {
        (Some(line), _) => Outcome::Invalid(line.trim().to_owned()),
        (None, true) if ran.passed == 0 => Outcome::Invalid("no test of that name ran".to_owned()),
        (None, true) => Outcome::Passed,
        (None, false) => Outcome::Failed,
    }
}

fn read(root: &Path) -> Result<Vec<Mutant>> {
    let text = std::fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let list: List = toml::from_str(&text).context(LIST)?;
    Ok(list.mutant)
}

/// Tries them: each must make its test fail, which passes without it.
pub fn run(lab: &Lab, part: Part<'_>, survivors: &Survivors) -> Result<Counts> {
    let mutants: Vec<Mutant> = read(&lab.tree)?.into_iter().filter(|mutant| mutant.is_wanted(part)).collect();
    let (mut counts, mut healthy) = (Counts::default(), BTreeMap::new());
    for mutant in &mutants {
        if !healthy.contains_key(&mutant.test) {
            healthy.insert(mutant.test.clone(), mutant.test.run(lab)?);
        }
        let verdict = match &healthy[&mutant.test] {
            Outcome::Passed => try_one(lab, mutant, survivors),
            other => Err(anyhow::anyhow!("its test does not pass without it: {other:?}")),
        };
        match &verdict {
            Ok(word) => println!("{word} {}: {}", mutant.file, mutant.name),
            Err(error) => println!("WRONG {}: {}: {error:#}", mutant.file, mutant.name),
        }
        counts += Counts::one(verdict.is_ok());
    }
    Ok(counts)
}

fn try_one(lab: &Lab, mutant: &Mutant, survivors: &Survivors) -> Result<&'static str> {
    let path = lab.tree.join(&mutant.file);
    let text = std::fs::read_to_string(&path).with_context(|| format!("no file {}", mutant.file))?;
    std::fs::write(&path, mutant.apply(&text)?)?;
    let outcome = mutant.test.run(lab);
    std::fs::write(&path, text)?;
    match (outcome?, survivors.is_by_hand(&mutant.name)) {
        (Outcome::Failed, false) => Ok("died"),
        (Outcome::Failed, true) => bail!("it died: take it off the list of survivors"),
        (Outcome::Passed, true) => Ok("known to survive"),
        (Outcome::Passed, false) => bail!("it survived `{}`", mutant.test.test),
        (Outcome::Invalid(why), _) => bail!("{why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever changes what a mutant changes learns it here, not in the suite that runs for an hour.
    #[test]
    fn every_mutant_can_still_be_made() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mutants = read(&root).expect("the list");
        assert!(mutants.iter().filter(|mutant| mutant.cheap).count() >= 5);
        let errors = mutants.iter().filter_map(|mutant| {
            let text = std::fs::read_to_string(root.join(&mutant.file)).unwrap_or_default();
            mutant.apply(&text).err()
        });
        assert_eq!(errors.map(|error| error.to_string()).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn a_mutant_that_was_never_tried_is_not_one_that_died() {
        let passed = "test result: ok. 1 passed; 0 failed; 0 ignored";
        let failed = "test result: FAILED. 0 passed; 1 failed; 0 ignored";
        assert_eq!((judge(passed, true), judge(failed, false)), (Outcome::Passed, Outcome::Failed));
        assert_eq!(judge("it was killed", false), Outcome::Failed);
        for (said, success) in [
            ("test result: ok. 0 passed; 0 failed; 0 ignored", true),
            ("error: could not compile `nom-kernel-pure`", false),
            ("panicked: nom-kernel does not build for the guest", false),
        ] {
            assert!(matches!(judge(said, success), Outcome::Invalid(_)), "{said}");
        }
    }
}
