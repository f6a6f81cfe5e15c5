//! `nom test linux`: test suites of others, which run on this Linux and in a machine, test by test.
//!
//! `tests/linux/suites/NAME.toml` describes a suite: where its sources come from, how it is built, and which
//! of its tests are quick. `NAME.differs` beside it names the tests that pass on Linux and not in a machine;
//! that list may only shrink. Nothing of the suites themselves is kept in the repository.

mod description;
mod differs;
mod run;
mod sources;
mod verdicts;

use crate::counts::Counts;
use anyhow::{Context, Result, bail};
use clap::Args;
use description::Description;
use differs::{Compared, Differs};
use nom_build::debian::{self, Tool};
use nom_build::{Project, World};
use run::{Place, Tests};
pub use sources::Unobtainable;
use std::path::PathBuf;

/// The package of the application that runs programs of Linux.
const APPLICATION: &str = "nom-linux-app";
/// How often a test runs in a machine that seems to differ: a busy computer makes tests late.
const TRIES: usize = 3;
/// What this needs beside what a suite names.
pub const TOOLS: [Tool; 4] = [
    Tool::new("gcc", &["cc"]),
    Tool::new("dpkg-dev", &["dpkg-source"]),
    Tool::new("iproute2", &["ip"]),
    Tool::new("util-linux", &["unshare"]),
];

/// Which suites, and how much of them.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Suites of tests/linux/suites, all of each; the quick part of all if none is named.
    #[arg(value_name = "SUITE")]
    suites: Vec<String>,
    /// All of all suites.
    #[arg(long)]
    all: bool,
    /// Only tests whose name holds this text.
    #[arg(long, value_name = "TEXT")]
    test: Option<String>,
    /// Only tests that are listed as different.
    #[arg(long)]
    listed: bool,
    /// Show what the machine printed of tests that differ.
    #[arg(long)]
    show: bool,
    /// Write what differs into the suite's list: for a suite that is new.
    #[arg(long, conflicts_with = "test")]
    write: bool,
}

/// A suite, and where everything of it is.
struct Suite<'a> {
    project: &'a Project,
    name: &'a str,
    description: Description,
    /// Where it is fetched to, built and run.
    home: PathBuf,
    /// The list of what differs.
    list: PathBuf,
}

/// Runs suites, here and in a machine, and compares.
///
/// # Errors
/// If a suite is unknown, or cannot be read, fetched, built or run.
pub fn run(project: &Project, options: &Options) -> Result<Counts> {
    let directory = project.root().join("tests/linux/suites");
    let known = description::names(&directory)?;
    if let Some(unknown) = options.suites.iter().find(|name| !known.contains(name)) {
        bail!("no suite `{unknown}` in tests/linux/suites: there are {}", known.join(", "));
    }
    debian::set_up(&TOOLS).context(Unobtainable)?;
    let is_quick = options.suites.is_empty() && !options.all;
    let chosen = if options.suites.is_empty() { &known } else { &options.suites };
    let mut counts = Counts::default();
    for name in chosen {
        let description = Description::read(&directory.join(format!("{name}.toml")))?;
        if is_quick && description.quick.is_empty() {
            continue;
        }
        let home = project.target().join("linux-suites").join(name);
        let list = directory.join(format!("{name}.differs"));
        let suite = Suite { project, name, description, home, list };
        counts += suite.run(is_quick, options).with_context(|| format!("suite {name}"))?;
    }
    Ok(counts)
}

impl Suite<'_> {
    fn run(&self, is_quick: bool, options: &Options) -> Result<Counts> {
        println!("-- {}: {}", self.name, self.description.title);
        sources::set_up(self)?;
        let listed = Differs::read(&self.list)?;
        let mut tests = self.chosen(is_quick, options)?;
        if options.listed {
            tests = tests.only(&listed.names());
        }
        // Before anybody waits for a machine.
        self.project.loader()?;
        self.project.kernel()?;
        self.project.build(World::Application, APPLICATION)?;
        let linux = run::run(self, Place::Linux, &tests)?;
        let nom = run::run(self, Place::Nom, &tests)?;
        let mut compared = Compared { linux, nom };
        for _ in 1..TRIES {
            let again = tests.only(&compared.doubtful(&listed));
            if again.is_empty() || options.write {
                break;
            }
            println!("{}: again {}", self.name, again.names().collect::<Vec<_>>().join(", "));
            compared.nom.take_better(run::run(self, Place::Nom, &again)?);
        }
        if options.write {
            let text = listed.text_with(&compared.differences());
            std::fs::write(&self.list, text)
                .with_context(|| format!("cannot write {}", self.list.display()))?;
        }
        let listed = Differs::read(&self.list)?;
        let counts = self.report(&compared, &listed, options.show);
        if !is_quick && options.test.is_none() && !options.listed {
            let (said, found) = (self.description.passes, compared.linux.passed().count());
            println!(
                "{}.toml says that {said} pass on Linux: {found}; {} are listed",
                self.name,
                listed.count()
            );
        }
        Ok(counts)
    }

    /// The tests that are to run.
    fn chosen(&self, is_quick: bool, options: &Options) -> Result<Tests> {
        let Description { left_out, quick, .. } = &self.description;
        let mut tests = Tests::read(&self.home.join("list"))?;
        tests.retain(|name| {
            !left_out.contains_key(name)
                && (!is_quick || quick.iter().any(|start| name.starts_with(start)))
                && options.test.as_ref().is_none_or(|text| name.contains(text.as_str()))
        });
        if tests.is_empty() {
            bail!("no test is left to run: expected a part of the name of one in {}", self.home.display());
        }
        Ok(tests)
    }

    /// Says what came of it.
    fn report(&self, compared: &Compared, listed: &Differs, show: bool) -> Counts {
        let found = compared.differences();
        let on_linux = compared.linux.passed().count();
        let passed = on_linux - found.len();
        let mut failed = 0;
        for (name, outcome) in &found {
            let is_new = !listed.has(name);
            failed += u64::from(is_new);
            println!("{name}: {outcome} in a machine{}", if is_new { ", which is new" } else { "" });
            if show || is_new {
                compared.nom.text(name).lines().for_each(|line| println!("    {line}"));
            }
        }
        for name in listed.sure().filter(|name| compared.passes_in_both(name)) {
            failed += 1;
            println!("{name}: passes now: take it from {}", self.list.display());
        }
        println!("{}: {on_linux} pass on Linux, {passed} of these in a machine", self.name);
        Counts { passed: passed as u64, failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row of a suite in docs/linux.md: title, tests that pass on Linux, and those in a machine.
    fn row(name: &str, description: &Description, differs: usize) -> String {
        let passes = description.passes;
        format!("| {name} | {} | {passes} | {} |", description.title, passes - differs)
    }

    #[test]
    fn documents_say_of_each_suite_what_its_lists_say() {
        let root = Project::find().expect("a checkout").root().to_owned();
        let directory = root.join("tests/linux/suites");
        let page = std::fs::read_to_string(root.join("docs/linux.md")).expect("docs/linux.md");
        let promises = std::fs::read_to_string(root.join("SPEC.md")).expect("SPEC.md");
        for name in description::names(&directory).expect("suites") {
            let description = Description::read(&directory.join(format!("{name}.toml"))).expect("read");
            let differs = Differs::read(&directory.join(format!("{name}.differs"))).expect("read");
            let row = row(&name, &description, differs.count());
            assert!(page.lines().any(|line| line.starts_with(&row)), "docs/linux.md lacks `{row}`");
            let (passes, there) = (description.passes, description.passes - differs.count());
            let promise = format!("of {name}'s tests that pass on Linux");
            let mut promises = promises.lines().filter(|line| line.contains(&promise));
            let said = format!("{there} of {passes}");
            assert!(promises.all(|line| line.contains(&said)), "SPEC.md lacks `{said}` for {name}");
        }
    }
}
