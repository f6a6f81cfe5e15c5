//! `nom strace`: what system calls a program of Linux makes in a machine, or which it can make.

mod check;
mod lines;
mod missing;
mod summary;
mod tail;

use crate::arguments::{Arguments, Command, Run};
use crate::linux::{LENDER, RootOptions};
use crate::run;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser};
use nom_image::manifest::BundleManifest;
use nom_linux::table;
use nom_vmm::{DirectoryAccess, Lent, LentDirectory, Owners};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use tempfile::TempDir;

pub use tail::Traced;

/// `nom strace`.
#[derive(Debug, Args)]
#[command(
    after_help = "What the program writes is standard output, the trace is standard error, or FILE. All its
processes and threads are followed. Names of errors and flags are Linux's. A call that waits has the beginning
of its line written, so that the last line says where a program hangs.

--check starts nothing: it reads the program, its interpreter and libraries, and says of each call that they
can make what there is of it in a machine.

Examples:
  nom strace /bin/ls /etc
  nom strace -e trace=openat,read -o ls.trace /bin/ls /etc
  nom strace -e trace=%network -p 11211:11211 /usr/bin/memcached -u nobody
  nom strace -c /bin/dash -c 'echo hello'    how many of each call, and how long they took
  nom strace --missing /usr/bin/python3 app.py    which files it would have found on this computer
  nom strace --check /usr/bin/memcached"
)]
pub struct Options {
    /// The path of a Linux program, or a container image of a registry, with its tag.
    #[arg(required_unless_present = "oci")]
    app: Option<String>,
    /// Where the program's files come from.
    #[command(flatten)]
    linux: RootOptions,
    /// Arguments of the program: all words behind it, with `--` or without.
    #[arg(last = true)]
    arguments: Vec<String>,
    /// Which calls: `trace=` and names with commas between them, or %file, %desc, %process, %signal,
    /// %network, %memory, %ipc; with `!` behind `trace=`, all but those. May be repeated.
    #[arg(short = 'e', value_name = "trace=LIST")]
    expressions: Vec<String>,
    /// Count calls, errors and time in place of writing each; the time is that between a call and its
    /// return, waits included.
    #[arg(short = 'c', long)]
    summary_only: bool,
    /// Write the trace to a file.
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How many bytes of a string are shown.
    #[arg(short = 's', long, value_name = "N", default_value_t = 32)]
    string_limit: u32,
    /// Follow children and threads: it always does.
    #[arg(short = 'f', long)]
    follow_forks: bool,
    /// In place of calls, say which files it looked for in vain that this computer has: what of them is to
    /// be included.
    #[arg(long, conflicts_with_all = ["expressions", "summary_only", "root", "oci"])]
    missing: bool,
    /// Start nothing: say what there is of each call that the program can make.
    #[arg(long, conflicts_with_all = [
        "expressions", "summary_only", "missing", "output", "follow_forks", "arguments", "publish", "volume",
        "env", "memory",
    ])]
    check: bool,
    /// Publish a port of the machine at a port of the host, as `nom run` does.
    #[arg(short = 'p', long, value_name = "[ADDR:]HOST:GUEST[/udp]")]
    publish: Vec<String>,
    /// Lend it a directory, as `nom run` does.
    #[arg(short = 'v', long, value_name = "DIR:/PATH[:ro]")]
    volume: Vec<String>,
    /// Set a variable of its environment.
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Memory of the machine.
    #[arg(short = 'm', long, value_name = "SIZE")]
    memory: Option<String>,
}

/// Runs a program and shows its calls, or says which it can make; returns the command's exit status.
///
/// # Errors
/// What is wrong with the program or with what is asked for.
pub fn strace(options: &Options) -> Result<u8> {
    if options.check {
        return check::check(options.app.as_deref(), &options.linux);
    }
    let trace = Rc::new(Trace::new(options)?);
    let mut run = options.run()?;
    run.trace = Some(trace);
    run::run(&run)
}

impl Options {
    /// The `nom run` that this is.
    fn run(&self) -> Result<Run> {
        let mut words = vec!["nom".to_owned(), "run".to_owned()];
        let mut add = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
        let paths = |path: &PathBuf| path.to_str().map(str::to_owned).context("a path is not UTF-8");
        self.publish.iter().for_each(|port| add("--publish", port));
        self.volume.iter().for_each(|volume| add("--volume", volume));
        self.env.iter().for_each(|variable| add("--env", variable));
        self.memory.iter().for_each(|memory| add("--memory", memory));
        self.linux.oci.iter().for_each(|layout| add("--oci", layout));
        if let Some(root) = &self.linux.root {
            add("--root", &paths(root)?);
        }
        for path in &self.linux.include {
            add("--include", &paths(path)?);
        }
        words.extend(self.app.clone());
        words.push("--".to_owned());
        words.extend(self.arguments.clone());
        match Arguments::try_parse_from(words)?.command {
            Command::Run(run) => Ok(*run),
            _ => bail!("expected a program"),
        }
    }
}

/// Bytes of the longest path (limits.h of Linux).
const PATH_MAX: u32 = 4096;

/// What is shown of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    /// Each call.
    Lines,
    /// How many of each there were.
    Counts,
    /// Files that were looked for in vain.
    Missing,
}

/// A trace on its way from a machine.
#[derive(Debug)]
pub struct Trace {
    /// The directory that the machine is lent, with the file that lines come in.
    directory: TempDir,
    /// Numbers of the calls that are noted; all if nobody chose.
    calls: Option<BTreeSet<u16>>,
    shows: Shows,
    string_limit: u32,
    output: Option<PathBuf>,
}

impl Trace {
    /// The name of the file in the directory.
    const FILE: &str = "trace";

    fn new(options: &Options) -> Result<Trace> {
        let directory = tempfile::Builder::new().prefix("nom-strace-").tempdir();
        let directory = directory.context("cannot make a directory for the trace")?;
        std::fs::write(directory.path().join(Trace::FILE), "").context("cannot make a file for the trace")?;
        let shows = match (options.summary_only, options.missing) {
            (true, _) => Shows::Counts,
            (_, true) => Shows::Missing,
            _ => Shows::Lines,
        };
        let calls = match options.expressions.as_slice() {
            [] if options.missing => Some(chosen(&["trace=%file".to_owned()])?),
            [] => None,
            expressions => Some(chosen(expressions)?),
        };
        let string_limit = if options.missing { PATH_MAX } else { options.string_limit };
        Ok(Trace { directory, calls, shows, string_limit, output: options.output.clone() })
    }

    /// The bundle, whose program is told to note its calls in the directory that it is lent behind `volumes`
    /// others.
    ///
    /// # Errors
    /// If it runs no program of Linux.
    pub fn tell(&self, bundle: &mut BundleManifest, volumes: usize) -> Result<()> {
        ensure!(bundle.root().is_some(), "expected the path of a Linux program, or a container image");
        let application = &mut bundle.applications[0];
        // Other directories bring the device with them.
        if volumes == 0 {
            application.devices.push(LENDER);
        }
        let environment = &mut application.environment;
        let mut set = |name: &str, value: String| drop(environment.insert(name.to_owned(), value));
        set("trace", volumes.to_string());
        set("trace.style", if self.shows == Shows::Counts { "counts" } else { "lines" }.to_owned());
        set("trace.string", self.string_limit.to_string());
        if let Some(calls) = &self.calls {
            let numbers: Vec<String> = calls.iter().map(u16::to_string).collect();
            set("trace.calls", numbers.join(","));
        }
        Ok(())
    }

    /// The directory that the machine is lent.
    pub fn lent(&self) -> LentDirectory {
        let (access, owners) = (DirectoryAccess::ReadWrite, Owners::of_this_process());
        LentDirectory { lent: Lent::Directory(self.directory.path().to_owned()), access, owners }
    }
}

/// The calls that expressions of strace's choose.
fn chosen(expressions: &[String]) -> Result<BTreeSet<u16>> {
    let mut chosen = BTreeSet::new();
    for expression in expressions {
        let list = match expression.split_once('=') {
            Some(("trace" | "t", list)) => list,
            Some(_) => bail!("-e {expression}: expected trace=LIST"),
            None => expression,
        };
        let (is_not, list) = list.strip_prefix('!').map_or((false, list), |list| (true, list));
        let mut named = BTreeSet::new();
        for name in list.split(',') {
            let rows = match name.strip_prefix('%') {
                Some(class) => table::class(class),
                None if name == "all" => Some(table::all().collect()),
                None => table::named(name).map(|row| vec![row]),
            };
            let rows = rows.with_context(|| {
                format!("-e {expression}: `{name}`: expected the name of a call of docs/linux.md, or a class")
            })?;
            named.extend(rows.into_iter().map(|row| row.number));
        }
        match is_not {
            true => {
                let numbers = table::all().map(|row| row.number);
                chosen.extend(numbers.filter(|number| !named.contains(number)));
            }
            false => chosen.extend(named),
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(expressions: &[&str]) -> Result<Vec<u16>, String> {
        let expressions: Vec<String> = expressions.iter().map(|text| (*text).to_owned()).collect();
        chosen(&expressions).map(|set| set.into_iter().collect()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn expressions_choose_calls_as_strace_does() {
        assert_eq!(numbers(&["trace=read,write"]), Ok(vec![0, 1]));
        assert_eq!(numbers(&["t=read", "close"]), Ok(vec![0, 3]));
        let network = numbers(&["trace=%network"]).expect("a class");
        assert!(network.contains(&41) && !network.contains(&0));
        let others = numbers(&["trace=!read"]).expect("all but one");
        assert!(!others.contains(&0) && others.contains(&1) && others.len() > 200);
        for (expression, said) in [
            ("trace=raed", "`raed`: expected the name of a call"),
            ("trace=%fiel", "`%fiel`: expected"),
            ("signal=none", "expected trace=LIST"),
        ] {
            let error = numbers(&[expression]).expect_err(expression);
            assert!(error.contains(said), "{error}");
        }
    }
}
