//! Running tests: here, in name spaces of their own, and in a machine. A machine that ends in the middle, or
//! says nothing any more, is started again behind the test that it was at.

use super::Suite;
use super::verdicts::{Verdicts, is_of_line};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Beyond a test's limit, who says nothing for so long is taken to hang: a machine starts in that time.
const PATIENCE: Duration = Duration::from_secs(240);

/// Where tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Here.
    Linux,
    /// In a machine.
    Nom,
}

/// Tests, with their commands, in order.
#[derive(Clone, Debug)]
pub struct Tests(Vec<(String, String)>);

impl Tests {
    /// Reads a list.
    ///
    /// # Errors
    /// If it cannot be read, or a line has no command.
    pub fn read(path: &Path) -> Result<Tests> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let test = |line: &str| {
            let (name, command) = line.split_once('\t').with_context(|| {
                format!("{}: `{line}`: expected a name, a tab and a command", path.display())
            })?;
            Ok((name.to_owned(), command.to_owned()))
        };
        text.lines().map(test).collect::<Result<_>>().map(Tests)
    }

    /// Keeps those whose names are chosen.
    pub fn retain(&mut self, is_chosen: impl Fn(&String) -> bool) {
        self.0.retain(|(name, _)| is_chosen(name));
    }

    /// Lines that these tests are of.
    pub fn only(&self, tests: &BTreeSet<String>) -> Tests {
        let has = |line: &str| tests.iter().any(|test| is_of_line(test, line));
        Tests(self.0.iter().filter(|(line, _)| has(line)).cloned().collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    fn text(&self) -> String {
        self.0.iter().map(|(name, command)| format!("{name}\t{command}\n")).collect()
    }
}

/// Runs tests, and says what came of them.
///
/// # Errors
/// If they cannot be started.
pub fn run(suite: &Suite<'_>, place: Place, tests: &Tests) -> Result<Verdicts> {
    let mut verdicts = Verdicts::default();
    let mut left = tests.clone();
    while !left.is_empty() {
        let list = suite.home.join("chosen");
        fs::write(&list, left.text()).with_context(|| format!("cannot write {}", list.display()))?;
        let mut command = match place {
            Place::Linux => here(suite, &list),
            Place::Nom => machine(suite, &list),
        };
        let log = suite.home.join(if place == Place::Linux { "linux.log" } else { "nom.log" });
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let patience = Duration::from_secs(suite.description.limit_s) + PATIENCE;
        let done = Run::start(&mut command, patience, file)?.follow(suite, &mut verdicts)?;
        ensure!(done > 0, "no test began: {} says why", log.display());
        left.0.drain(..done.min(left.0.len()));
    }
    Ok(verdicts)
}

/// In name spaces, as the first process: no test sees or ends what is not its own.
fn here(suite: &Suite<'_>, list: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-c"]);
    command.arg("ip link set lo up && mount -t proc proc /proc && exec \"$@\"").arg("sh");
    command.envs(suite.environment());
    command.args(arguments(suite, list));
    command
}

fn machine(suite: &Suite<'_>, list: &Path) -> Command {
    let [each, rest @ ..] = &arguments(suite, list);
    let mut command = Command::new(suite.project.root().join("nom"));
    command.args(["run", "-m", &suite.description.memory, "--include"]).arg(list);
    for path in &suite.description.include {
        command.args(["--include", &suite.place(path)]);
    }
    for (name, value) in suite.environment() {
        command.args(["-e", &format!("{name}={value}")]);
    }
    command.arg(each).args(rest);
    command
}

/// What runs tests one by one, and its arguments.
fn arguments(suite: &Suite<'_>, list: &Path) -> [String; 4] {
    let each = suite.home.join("each").display().to_string();
    let directory = suite.place(&suite.description.directory);
    [each, list.display().to_string(), directory, suite.description.limit_s.to_string()]
}

/// A list of tests on its way.
struct Run {
    child: Child,
    lines: Receiver<String>,
    patience: Duration,
    log: File,
}

impl Run {
    fn start(command: &mut Command, patience: Duration, log: File) -> Result<Run> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot run tests")?;
        let (sender, lines) = mpsc::channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
            child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        ];
        for output in outputs.into_iter().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut output = BufReader::new(output);
                let mut line = Vec::new();
                while output.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    line.clear();
                    if sender.send(text).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Run { child, lines, patience, log })
    }

    /// Notes what comes of tests, until all are over, or whoever runs them is; says how many began.
    fn follow(&mut self, suite: &Suite<'_>, verdicts: &mut Verdicts) -> Result<usize> {
        let results = &suite.description.results;
        let mut current: Option<(String, String)> = None;
        let mut begun = 0;
        let mut is_over = false;
        while let Ok(line) = self.lines.recv_timeout(self.patience) {
            writeln!(self.log, "{line}").context("cannot write a log")?;
            if let Some(name) = line.strip_prefix("= begin ") {
                begun += 1;
                current = Some((name.to_owned(), String::new()));
            } else if line == "= over" {
                is_over = true;
            } else if let Some((name, text)) = &mut current {
                match line.strip_prefix(&format!("= end {name} ")) {
                    Some(end) => {
                        verdicts.note(results, name, text, end);
                        current = None;
                    }
                    None => text.extend([line.as_str(), "\n"]),
                }
            }
        }
        if let Some((name, text)) = current.filter(|_| !is_over) {
            verdicts.note(results, &name, &text, "the machine ended or hung");
        }
        Ok(begun)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It has ended, or hangs.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
