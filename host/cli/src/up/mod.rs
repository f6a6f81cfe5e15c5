//! `nom up` and `nom down`: several machines that one file describes.
//!
//! Each machine is started by `nom run -d` and remembers the file, its name there, and a digest of all that
//! it is made from. That is the whole state: a call that was interrupted is mended by the next.

mod file;
mod follow;
mod plan;

use crate::arguments::{Arguments, Command};
use crate::attend::{self, SIGNAL_POLL};
use crate::background;
use crate::numbers::whole;
use crate::store::{Group, Machine, Store};
use anyhow::{Context, Result, bail};
use clap::{Args, Parser};
use file::{Definition, Project};
use follow::Followed;
use plan::{Present, Step, Wanted};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// `nom up`.
#[derive(Debug, Args)]
#[command(
    after_help = "In the foreground it shows what the machines write, until all have ended; Ctrl-C ends them.
A second call changes only what has changed: in the file, the applications or nom. docs/machines.md
describes the file.

Examples:
  nom up -d                  the machines of nom.toml, in the background
  nom up -f shop/nom.toml
  nom down -f shop/nom.toml  ends and forgets them"
)]
pub struct Up {
    /// File that describes the machines.
    #[arg(short, long, value_name = "FILE", default_value = file::DEFAULT)]
    pub file: PathBuf,
    /// Return when all are started.
    #[arg(short, long)]
    pub detach: bool,
    /// Seconds to wait before a machine that is to end is killed.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10, value_parser = whole::<u64>(0..=86_400))]
    pub time: u64,
}

/// `nom down`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  nom down\n  nom down -f shop/nom.toml --time 1")]
pub struct Down {
    /// File that describes the machines; what `nom up` started from it counts, not what it says now.
    #[arg(short, long, value_name = "FILE", default_value = file::DEFAULT)]
    pub file: PathBuf,
    /// Seconds to wait before a machine is killed.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10, value_parser = whole::<u64>(0..=86_400))]
    pub time: u64,
}

/// A machine of the file, ready to be started.
struct Ready {
    member: String,
    /// Words behind `nom run`.
    words: Vec<String>,
    digest: String,
}

/// Where a call works.
struct Site {
    store: Store,
    file: PathBuf,
    project: String,
    patience: Duration,
}

/// `nom up`.
///
/// # Errors
/// If the file is wrong or something in it does not build, before anything is changed; or a machine cannot be
/// started or ended.
pub fn up(options: &Up) -> Result<u8> {
    let path = absolute(&options.file)?;
    let project = Project::read(&path)?;
    let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
    let site = Site {
        store: Store::open()?,
        file: path,
        project: project.name.clone(),
        patience: Duration::from_secs(options.time),
    };
    let ready: Vec<Ready> = project
        .machines
        .iter()
        .map(|(member, definition)| make_ready(member, definition, &directory))
        .collect::<Result<_>>()?;
    if options.detach {
        return site.apply(&ready, || false).map(|_| 0);
    }
    let signal = attend::watch_signals()?;
    let is_over = || signal.load(Ordering::Relaxed) != 0;
    let begun = site.apply(&ready, is_over);
    let status = begun.and_then(|followed| follow_all(followed, &signal));
    match signal.load(Ordering::Relaxed) {
        0 => status,
        number => {
            site.end_all(false)?;
            Ok(128 + number as u8)
        }
    }
}

/// `nom down`.
///
/// # Errors
/// If a machine cannot be ended.
pub fn down(options: &Down) -> Result<u8> {
    let file = absolute(&options.file)?;
    let site = Site {
        store: Store::open()?,
        file,
        project: String::new(),
        patience: Duration::from_secs(options.time),
    };
    if site.present()?.is_empty() {
        eprintln!("nom: no machines of {}", site.file.display());
    }
    site.end_all(true)?;
    nom_vmm::namespace::remove_stale()?;
    nom_vmm::bridge::remove_stale()?;
    Ok(0)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))
}

/// Checks a machine's options and builds what it runs.
fn make_ready(member: &str, definition: &Definition, directory: &Path) -> Result<Ready> {
    let named = || format!("machines.{member}");
    let words = definition.words(directory);
    let line = ["nom", "run"].into_iter().chain(words.iter().map(String::as_str));
    let arguments =
        Arguments::try_parse_from(line).map_err(|error| anyhow::anyhow!("{error}")).with_context(named)?;
    let Command::Run(options) = arguments.command else { bail!("{}: no `nom run`", named()) };
    let mut digest = Sha256::new();
    digest.update(words.join("\0"));
    // What it is made from, as its image has it.
    digest.update(crate::run::image(&options).with_context(named)?);
    let digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Ready { member: member.to_owned(), words, digest })
}

impl Site {
    fn name(&self, member: &str) -> String {
        format!("{}-{member}", self.project)
    }

    /// Machines that were started from this file, each behind those that it depends on.
    fn present(&self) -> Result<Vec<(Group, Machine)>> {
        let machines = self.store.list()?.into_iter();
        let group = |machine: Machine| Some((machine.record.group.clone()?, machine));
        let mut present: Vec<(Group, Machine)> =
            machines.filter_map(group).filter(|(group, _)| group.file == self.file).collect();
        present.sort_by_key(|(group, _)| group.position);
        Ok(present)
    }

    /// Does what is to be done, unless `is_over`; returns the machines that run then.
    fn apply(&self, ready: &[Ready], is_over: impl Fn() -> bool) -> Result<Vec<Followed>> {
        let wanted: Vec<Wanted> = ready
            .iter()
            .map(|one| Wanted { member: one.member.clone(), digest: one.digest.clone() })
            .collect();
        let machines = self.present()?;
        // A machine under another name than the project gives it now is another machine.
        let present: Vec<Present> = machines
            .iter()
            .map(|(group, machine)| Present {
                member: group.member.clone(),
                digest: if machine.record.name == self.name(&group.member) {
                    group.digest.clone()
                } else {
                    String::new()
                },
                running: machine.is_running(),
            })
            .collect();
        let mut followed = Vec::new();
        for step in plan::plan(&wanted, &present) {
            if is_over() {
                break;
            }
            followed.extend(self.take(&step, ready, &machines)?);
        }
        Ok(followed)
    }

    fn take(&self, step: &Step, ready: &[Ready], machines: &[(Group, Machine)]) -> Result<Option<Followed>> {
        let of = |member: &str| {
            machines.iter().find(|(group, _)| group.member == member).map(|(_, machine)| machine)
        };
        let follow = |member: &str, begin| -> Result<Option<Followed>> {
            Ok(Some(Followed::new(member, self.store.find(&self.name(member))?, begin)))
        };
        let length = |machine: &Machine| machine.serial_log().metadata().map_or(0, |log| log.len());
        match step {
            Step::Remove(member) => {
                if let Some(machine) = of(member) {
                    end(machine, self.patience, true)?;
                    println!("removed {}", machine.record.name);
                }
                Ok(None)
            }
            Step::Keep(member) => {
                println!("runs    {}", self.name(member));
                follow(member, of(member).map_or(0, length))
            }
            Step::Start(member) => {
                started(background::spawn("start", [self.name(member).into()])?, &self.name(member))?;
                follow(member, of(member).map_or(0, length))
            }
            Step::Make(member) => {
                self.make(member, ready)?;
                follow(member, 0)
            }
        }
    }

    fn make(&self, member: &str, ready: &[Ready]) -> Result<()> {
        let position = ready.iter().position(|one| one.member == member).context("a step of the plan")?;
        let Ready { words, digest, .. } = &ready[position];
        let group =
            Group { file: self.file.clone(), member: member.to_owned(), position, digest: digest.clone() };
        let own =
            [format!("--name={}", self.name(member)), format!("--group={}", serde_json::to_string(&group)?)];
        started(background::spawn("run", own.iter().chain(words).map(OsString::from))?, &self.name(member))
    }

    /// Ends all machines of the file, each before those that it depends on, and forgets them if they are to
    /// be `removed`.
    fn end_all(&self, removed: bool) -> Result<()> {
        for (_, machine) in self.present()?.iter().rev() {
            end(machine, self.patience, removed)?;
            println!("{} {}", if removed { "removed" } else { "stopped" }, machine.record.name);
        }
        Ok(())
    }
}

fn end(machine: &Machine, patience: Duration, removed: bool) -> Result<()> {
    if machine.is_running() {
        crate::stop::end(machine, patience)?;
    }
    if removed { machine.remove() } else { Ok(()) }
}

/// Says that a machine was started; the supervisor has said why it was not.
fn started<T>(outcome: Result<T, u8>, name: &str) -> Result<()> {
    match outcome {
        Ok(_) => println!("started {name}"),
        Err(status) => bail!("{name} was not started (status {status})"),
    }
    Ok(())
}

/// Shows what machines write until all have ended or a signal comes; the first status that is not 0.
fn follow_all(mut machines: Vec<Followed>, signal: &AtomicUsize) -> Result<u8> {
    let width = machines.iter().map(Followed::width).max().unwrap_or(0);
    loop {
        let goes_on = signal.load(Ordering::Relaxed) == 0 && machines.iter().any(Followed::is_running);
        let mut out = std::io::stdout().lock();
        for machine in &mut machines {
            machine.pass_on(width, !goes_on, &mut out).context("cannot show what machines write")?;
        }
        drop(out);
        if !goes_on {
            let statuses = machines.iter().filter_map(Followed::ending).map(|ending| ending.status());
            return Ok(statuses.into_iter().find(|status| *status != 0).unwrap_or(0));
        }
        std::thread::sleep(SIGNAL_POLL);
    }
}
