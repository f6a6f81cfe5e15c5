//! Builds a package with all its generated mutants at once, and runs its tests once for each.

use super::generated::Generated;
use super::schemata::{self, Schemata};
use super::{Lab, tree};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Memory that tests of one mutant may take, in KiB.
const MEMORY_KIB: u32 = 4 << 20;
/// Tests that take longer than all others together, by parts of their names: they are asked last.
const SLOW: [&str; 11] = [
    "frames::tests::any_life",
    "space::tests::any_life",
    "has_changed_nothing",
    "ten_thousand_lives",
    "the_corpus",
    "exactly_if_it_holds",
    "any_sequence_of",
    "nobody_starves",
    "any_shares",
    "every_message_whole",
    "is_always_woken",
];
/// Seconds of processor time that the others may take, and these; without mutants they take a sixth: who
/// loops is noticed.
const PATIENCE_S: [u32; 2] = [5, 20];
/// How often a package is built again without the mutants that the compiler refused.
const ATTEMPTS: usize = 40;

/// What came of mutants, by their names.
#[derive(Debug, Default)]
pub struct Found {
    pub caught: Vec<String>,
    pub missed: Vec<String>,
    /// Those that cannot be built.
    pub refused: Vec<String>,
}

impl Found {
    fn note(&mut self, mutant: &Generated, passed: bool) {
        if passed {
            println!("missed {}", mutant.name);
        }
        let list = if passed { &mut self.missed } else { &mut self.caught };
        list.push(mutant.name.clone());
    }

    /// How many of a file there are of each kind.
    fn summary(&self, file: &str) -> String {
        let count = |names: &[String]| names.iter().filter(|name| name.starts_with(file)).count();
        let (caught, missed, refused) = (count(&self.caught), count(&self.missed), count(&self.refused));
        format!("{caught} caught, {missed} missed, {refused} cannot be built")
    }
}

/// Where it happens: a copy of its own, of which every file is mutated.
struct Place {
    tree: PathBuf,
    build: PathBuf,
}

/// Tries mutants, package by package.
///
/// # Errors
/// If the copy cannot be written, or tests fail without a mutant.
pub fn run(lab: &Lab, mutants: &[Generated]) -> Result<Found> {
    let home = lab.tools.parent().context("it is in target/mutants")?;
    let place = Place { tree: home.join("together"), build: home.join("together-build") };
    let mut found = Found::default();
    let packages: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.package.as_str()).collect();
    for package in packages {
        tree::copy(&lab.root, &place.tree)?;
        let own: Vec<&Generated> = mutants.iter().filter(|mutant| mutant.package == package).collect();
        place.try_package(&lab.root, &own, &mut found)?;
    }
    Ok(found)
}

impl Place {
    fn try_package(&self, root: &Path, mutants: &[&Generated], found: &mut Found) -> Result<()> {
        let package = mutants.first().context("no mutants")?.package.as_str();
        // 0 is none of them.
        let mut left: BTreeMap<u32, &Generated> = (1..).zip(mutants.iter().copied()).collect();
        let tests = self.build(package, &mut left)?;
        // With the switch, and none of them on.
        ensure!(self.test(&tests, u32::MAX)?, "tests of {package} fail without any mutant");
        for (number, mutant) in (1..).zip(mutants).filter(|(number, _)| left.contains_key(number)) {
            let passed = self.test(&tests, number)?;
            found.note(mutant, passed);
        }
        tree::copy(root, &self.tree)?;
        for (_, mutant) in (1..).zip(mutants).filter(|(number, _)| !left.contains_key(number)) {
            match self.alone(mutant)? {
                Some(tests) => {
                    let passed = self.test(&tests, 0)?;
                    found.note(mutant, passed);
                }
                None => found.refused.push(mutant.name.clone()),
            }
        }
        mutants.iter().map(|mutant| &mutant.file).collect::<BTreeSet<_>>().into_iter().for_each(|file| {
            println!("{file}: {}", found.summary(file));
        });
        Ok(())
    }

    /// The package's tests as a program, with those mutants that the compiler accepts: all others are taken
    /// from the list.
    fn build(&self, package: &str, left: &mut BTreeMap<u32, &Generated>) -> Result<PathBuf> {
        let root = left.values().next().context("no mutants")?.file.split("/src/").next().unwrap_or_default();
        let library = format!("{root}/src/lib.rs");
        let files: BTreeSet<String> =
            left.values().map(|mutant| mutant.file.clone()).chain([library.clone()]).collect();
        let originals: BTreeMap<&String, String> = files
            .iter()
            .map(|file| Ok((file, std::fs::read_to_string(self.tree.join(file))?)))
            .collect::<Result<_>>()?;
        for _ in 0..ATTEMPTS {
            let mut woven = BTreeMap::new();
            for (file, text) in &originals {
                let own: Vec<(u32, &Generated)> = left
                    .iter()
                    .filter(|(_, mutant)| mutant.file == **file)
                    .map(|(number, mutant)| (*number, *mutant))
                    .collect();
                let (first, last) =
                    if **file == library { (schemata::FEATURES, schemata::SWITCH) } else { ("", "") };
                let one = schemata::weave(text, &own)?;
                std::fs::write(self.tree.join(file), [first, &one.text, last].concat())?;
                woven.insert((*file).clone(), (first.matches('\n').count(), one));
            }
            let present: BTreeSet<u32> = woven.values().flat_map(|(_, one)| one.present.clone()).collect();
            left.retain(|number, _| present.contains(number));
            let output = self.cargo(package)?;
            if output.status.success() {
                return executable(&output.stdout);
            }
            let refused = refused(&output.stdout, &woven);
            if refused.is_empty() {
                bail!("{package} with its mutants cannot be built:\n{}", rendered(&output.stdout));
            }
            left.retain(|number, _| !refused.contains(number));
        }
        bail!("{package} with its mutants cannot be built, however many are left out")
    }

    /// The same with one mutant and no switch, if the compiler accepts it: constants have none, and with some
    /// the types are not told any more.
    fn alone(&self, mutant: &Generated) -> Result<Option<PathBuf>> {
        let path = self.tree.join(&mutant.file);
        let text = std::fs::read_to_string(&path)?;
        std::fs::write(&path, mutant.apply(&text))?;
        let output = self.cargo(&mutant.package);
        std::fs::write(&path, text)?;
        let output = output?;
        output.status.success().then(|| executable(&output.stdout)).transpose()
    }

    fn cargo(&self, package: &str) -> Result<Output> {
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--lib", "--no-run", "--message-format=json", "--package", package]);
        cargo.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.build).env_remove("NOM_ROOT");
        // What mutants leave unused is no error. Their switch needs what compilers do not promise.
        cargo.env("RUSTFLAGS", "--cap-lints=allow").env("RUSTC_BOOTSTRAP", "1").env("CARGO_INCREMENTAL", "0");
        cargo.env("CARGO_PROFILE_TEST_OPT_LEVEL", "1").env("CARGO_PROFILE_TEST_DEBUG", "0");
        cargo.stdin(Stdio::null()).output().context("cannot run cargo")
    }

    /// Whether all tests pass with one mutant.
    fn test(&self, tests: &Path, number: u32) -> Result<bool> {
        let others: Vec<&str> = SLOW.iter().flat_map(|name| ["--skip", name]).collect();
        for (names, seconds) in [&others[..], &SLOW].into_iter().zip(PATIENCE_S) {
            let limits = format!("ulimit -t {seconds}; ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
            let mut shell = Command::new("sh");
            shell.args(["-c", &limits]).arg(tests).arg("--test-threads=1").args(names);
            // The switch ends the program at the first panic, those that tests expect among them.
            shell.args(["-Zunstable-options", "--exclude-should-panic"]).env("RUSTC_BOOTSTRAP", "1");
            shell.current_dir(&self.tree).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if number > 0 {
                shell.env("NOM_MUTANT", number.to_string());
            }
            if !shell.status().context("cannot run sh")?.success() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn messages(said: &[u8]) -> impl Iterator<Item = Value> {
    String::from_utf8_lossy(said)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect::<Vec<_>>()
        .into_iter()
}

fn executable(said: &[u8]) -> Result<PathBuf> {
    let path = messages(said).filter_map(|message| message["executable"].as_str().map(PathBuf::from)).last();
    path.context("cargo names no program")
}

fn rendered(said: &[u8]) -> String {
    messages(said).filter_map(|message| message["message"]["rendered"].as_str().map(str::to_owned)).collect()
}

/// Whose lines the compiler's errors are in.
fn refused(said: &[u8], woven: &BTreeMap<String, (usize, Schemata)>) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    for message in messages(said) {
        let diagnostic = &message["message"];
        if diagnostic["level"] != "error" {
            continue;
        }
        for span in diagnostic["spans"].as_array().into_iter().flatten() {
            let Some((ahead, one)) = span["file_name"].as_str().and_then(|name| woven.get(name)) else {
                continue;
            };
            let line = |key: &str| (span[key].as_u64().unwrap_or(0) as usize).saturating_sub(*ahead);
            numbers.extend(one.lines.range(line("line_start")..=line("line_end")).map(|(_, number)| *number));
        }
    }
    numbers
}
