//! What is known of machines, running and ended: one directory for each.

use crate::restart::Policy;
use anyhow::{Context, Result, bail, ensure};
use nom_vmm::command::file;
use nom_vmm::control::parse_log;
use nom_vmm::qemu::{DetachedMachine, ProcessIdentity};
use nom_vmm::{ControlLine, Ending, STATUS_SHUT_DOWN};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Ended machines whose logs are kept; the oldest go first.
const ENDED_KEPT: usize = 20;
/// How long it may take from a machine's directory to its being held. An older directory that is not held and
/// has no record is what a crash left.
const SETUP_MAX: Duration = Duration::from_secs(60);
/// How long a supervisor may take to see that its machine has ended, and to tidy up.
const SUPERVISOR_PATIENCE: Duration = Duration::from_secs(10);
/// How long it takes from a directory to its being held, unless the computer hangs: enough to take a name
/// that somebody asks for.
const HOLD_MAX: Duration = Duration::from_secs(1);
/// How long one waits for a start of the same name to be done or given up.
const STARTED_PATIENCE: Duration = Duration::from_secs(5);
/// How often a directory is tried to be removed whose files go meanwhile.
const REMOVALS: usize = 100;
const RECORD: &str = "machine.json";
/// Present if somebody asked the machine to end: a [`Request`].
const REQUEST: &str = "request";
/// Present if the machine was ended by `nom stop`.
const STOPPED: &str = "stopped";

/// How somebody wanted a machine to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// By `nom stop`, or a signal that means as much.
    Stopped,
    /// By Ctrl-C.
    Interrupted,
    /// By either, and it had to be killed.
    Killed,
}

impl Request {
    const ALL: [Request; 3] = [Request::Stopped, Request::Interrupted, Request::Killed];

    /// The last one for the machine of a directory.
    pub fn of(directory: &Path) -> Option<Request> {
        let word = std::fs::read_to_string(directory.join(REQUEST)).ok()?;
        Request::ALL.into_iter().find(|request| request.ending().to_string() == word)
    }

    /// How a machine ended that had nothing else to say.
    fn ending(self) -> Ending {
        match self {
            Request::Stopped => Ending::Stopped,
            Request::Interrupted => Ending::Interrupted,
            Request::Killed => Ending::Killed,
        }
    }
}

/// Writes down how somebody wants the machine of a directory to end.
///
/// # Errors
/// If that cannot be written.
pub fn note(directory: &Path, request: Request) -> Result<()> {
    std::fs::write(directory.join(REQUEST), request.ending().to_string())
        .with_context(|| format!("cannot write to {}", directory.display()))
}

/// Directories of all machines of this user.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// What is written down when a machine starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// What it runs, as it was asked for.
    pub app: String,
    /// Its monitor, or the last that it had.
    pub process: ProcessIdentity,
    /// The process that attends to it, and starts it again.
    #[serde(default)]
    pub supervisor: Option<ProcessIdentity>,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// When its monitor was started.
    #[serde(default)]
    pub started_ms: u64,
    /// When its monitor ended.
    #[serde(default)]
    pub finished_ms: Option<u64>,
    /// What is done when it has ended.
    #[serde(default)]
    pub restart: Policy,
    /// How often it was started again.
    #[serde(default)]
    pub restarts: u32,
    /// The machines that it belongs to, if `nom up` started it.
    #[serde(default)]
    pub group: Option<Group>,
    /// Processors.
    pub cpus: u32,
    /// Bytes of memory.
    pub memory: nom_vmm::Memory,
    /// Chipset.
    pub machine: nom_vmm::MachineKind,
    /// Who executes its instructions.
    pub accelerator: nom_vmm::Accelerator,
    /// Published ports.
    pub ports: Vec<String>,
    /// Whether it runs in the background.
    pub detached: bool,
    /// The provider that it has its prices from and reports to.
    #[serde(default)]
    pub provider: Option<String>,
    /// ELF file of each application, for the debugger.
    pub programs: Vec<(String, PathBuf)>,
}

/// What `nom up` knows its machines by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The file that describes them.
    pub file: PathBuf,
    /// This machine's name in it.
    pub member: String,
    /// Its place among them: behind those that it depends on.
    pub position: usize,
    /// A digest of all that the machine is made from.
    pub digest: String,
}

impl FromStr for Group {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Group, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// A machine of the store.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What was written down.
    pub record: Record,
    /// Where its files are.
    pub directory: PathBuf,
}

/// Holds the directory of a machine that is being set up, which may take long: its image is built, and all
/// its memory is taken. As long as the result is there nobody takes it for what a crash left.
///
/// # Errors
/// If it is gone, or Linux cannot lock it.
pub fn hold(directory: &Path) -> Result<File> {
    let held = File::open(directory).and_then(|held| held.lock_shared().map(|()| held));
    held.with_context(|| format!("cannot lock {}", directory.display()))
}

/// Forgets a machine that was not written down: it never started.
pub fn abandon(directory: &Path) {
    if !directory.join(RECORD).exists() {
        // What is left is removed when it is older.
        let _ = std::fs::remove_dir_all(directory);
    }
}

impl Store {
    /// The store of this user: `$XDG_STATE_HOME/nom`, by default `~/.local/state/nom`.
    ///
    /// # Errors
    /// If neither `XDG_STATE_HOME` nor a home directory is known.
    pub fn open() -> Result<Store> {
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || std::env::home_dir().map(|home| home.join(".local/state"));
        let state = state.or_else(home).context("no home directory: set HOME or XDG_STATE_HOME")?;
        Ok(Store { root: state.join("nom") })
    }

    /// A store in some other directory.
    #[cfg(test)]
    pub fn at(root: &Path) -> Store {
        Store { root: root.to_owned() }
    }

    /// Directory for what is true of this computer rather than of one machine.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn machines(&self) -> PathBuf {
        self.root.join("machines")
    }

    /// Makes the directory of a new machine: called `name`, or after what it runs with the next free number.
    ///
    /// # Errors
    /// If `name` is no name or belongs to a running machine, or the directory cannot be made.
    pub fn create(&self, name: Option<&str>, app: &str) -> Result<(String, PathBuf)> {
        self.prune()?;
        std::fs::create_dir_all(self.machines())
            .with_context(|| format!("cannot make {}", self.machines().display()))?;
        match name {
            Some(name) => Ok((name.to_owned(), self.create_named(name)?)),
            None => self.create_numbered(&base_name(app)),
        }
    }

    /// Makes the directory of a name that was asked for; waits a little where one is just being started,
    /// which may have been interrupted.
    fn create_named(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        let end = Instant::now() + STARTED_PATIENCE;
        loop {
            self.vacate(name)?;
            self.clear(name)?;
            if let Some(directory) = self.try_create(name)? {
                return Ok(directory);
            }
            ensure!(Instant::now() < end, "a machine `{name}` is just being started");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn create_numbered(&self, base: &str) -> Result<(String, PathBuf)> {
        for number in 1u32.. {
            let name = format!("{base}-{number}");
            if let Some(directory) = self.try_create(&name)? {
                return Ok((name, directory));
            }
        }
        bail!("no free name for another `{base}`")
    }

    /// Makes a directory unless it is there.
    fn try_create(&self, name: &str) -> Result<Option<PathBuf>> {
        let directory = self.machines().join(name);
        match std::fs::create_dir(&directory) {
            Ok(()) => Ok(Some(directory)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot make {}", directory.display())),
        }
    }

    /// Removes what an interrupted start left under this name.
    fn clear(&self, name: &str) -> Result<()> {
        let directory = self.machines().join(name);
        if is_abandoned(&directory, HOLD_MAX) {
            remove(&directory)?;
        }
        Ok(())
    }

    /// Forgets an ended machine so that its name can be used again.
    fn vacate(&self, name: &str) -> Result<()> {
        match self.load(name) {
            Some(machine) if machine.is_running() => {
                bail!("a machine `{name}` runs already: stop it with `nom stop {name}`, or take another name")
            }
            Some(machine) => machine.remove(),
            None => Ok(()),
        }
    }

    /// Every machine, the oldest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn list(&self) -> Result<Vec<Machine>> {
        let mut machines: Vec<Machine> = self.names()?.iter().filter_map(|name| self.load(name)).collect();
        machines.sort_by_key(|machine| machine.record.created_ms);
        Ok(machines)
    }

    fn names(&self) -> Result<Vec<String>> {
        match std::fs::read_dir(self.machines()) {
            Ok(entries) => {
                Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", self.machines().display())),
        }
    }

    /// The machine called `name`.
    ///
    /// # Errors
    /// If there is none; the error lists those that there are.
    pub fn find(&self, name: &str) -> Result<Machine> {
        if let Some(machine) = check_name(name).ok().and_then(|()| self.load(name)) {
            return Ok(machine);
        }
        let names: Vec<String> = self.list()?.into_iter().map(|machine| machine.record.name).collect();
        if names.is_empty() {
            bail!("no machine `{name}`: there are none yet, `nom run` starts one");
        }
        bail!("no machine `{name}`: expected one of {}", names.join(", "))
    }

    /// The machines of these names, each once.
    ///
    /// # Errors
    /// See [`Store::find`].
    pub fn find_all(&self, names: &[String]) -> Result<Vec<Machine>> {
        let is_first = |(number, name): &(usize, &String)| !names[..*number].contains(name);
        names.iter().enumerate().filter(is_first).map(|(_, name)| self.find(name)).collect()
    }

    fn load(&self, name: &str) -> Option<Machine> {
        let directory = self.machines().join(name);
        Some(Machine { record: load(&directory)?, directory })
    }

    /// Forgets the oldest ended machines, and what crashes left.
    fn prune(&self) -> Result<()> {
        let ended: Vec<Machine> = self.list()?.into_iter().filter(|machine| !machine.is_running()).collect();
        let superfluous = ended.len().saturating_sub(ENDED_KEPT);
        let mut directories: Vec<PathBuf> =
            ended.into_iter().take(superfluous).map(|machine| machine.directory).collect();
        let abandoned = self.names()?.into_iter().map(|name| self.machines().join(name));
        directories.extend(abandoned.filter(|directory| is_abandoned(directory, SETUP_MAX)));
        for directory in directories {
            remove(&directory)?;
        }
        Ok(())
    }
}

/// Removes a directory with all that is in it. Another `nom` may just do the same.
///
/// # Errors
/// If it cannot be removed.
pub fn remove(directory: &Path) -> Result<()> {
    // Of what is in it each may be gone already, one by one: then the next try finds less.
    for _ in 0..REMOVALS {
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound && directory.exists() => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            done => return done.with_context(|| format!("cannot remove {}", directory.display())),
        }
    }
    bail!("cannot remove {}: somebody removes it meanwhile", directory.display())
}

/// Whether a directory that is older than `age_min` has no record, and nobody who is about to write it.
fn is_abandoned(directory: &Path, age_min: Duration) -> bool {
    let age = || directory.metadata().ok()?.modified().ok()?.elapsed().ok();
    let is_held = || File::open(directory).is_ok_and(|directory| directory.try_lock().is_err());
    !directory.join(RECORD).exists() && age().is_some_and(|age| age > age_min) && !is_held()
}

/// Checks that `name` can be the name of a machine, and of a directory.
fn check_name(name: &str) -> Result<()> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    if name.len() > 63 || !starts_well || !name.bytes().all(legal) {
        bail!("`{name}` is no name of a machine: expected up to 63 letters, digits, `-`, `_` or `.`");
    }
    Ok(())
}

/// The part of a machine's name that says what it runs.
fn base_name(app: &str) -> String {
    // Of a container image's name the last part counts, without tag and digest: a registry may have a port.
    let image = app.rsplit('/').next().and_then(|last| last.split_once([':', '@']));
    if let Some((name, _)) = image.filter(|_| !app.starts_with(['/', '.'])) {
        return if check_name(name).is_ok() { name.to_owned() } else { "machine".to_owned() };
    }
    let path = Path::new(app);
    let is_manifest = path.extension().is_some_and(|e| e == "toml")
        && path.file_stem().is_some_and(|stem| stem == "app" || stem == "bundle");
    let named_after = if is_manifest { path.parent().unwrap_or(path) } else { path };
    let stem = named_after.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let legal: String =
        stem.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(48).collect();
    if check_name(&legal).is_ok() { legal } else { "machine".to_owned() }
}

/// What was written down in a directory.
fn load(directory: &Path) -> Option<Record> {
    serde_json::from_slice(&std::fs::read(directory.join(RECORD)).ok()?).ok()
}

/// Writes down a machine that has been started.
///
/// # Errors
/// If its record cannot be written.
pub fn save(directory: &Path, record: &Record) -> Result<()> {
    // Renamed into place, so that nobody reads half a record.
    let draft = directory.join("machine.json.new");
    std::fs::write(&draft, serde_json::to_vec_pretty(record)?)
        .and_then(|()| std::fs::rename(&draft, directory.join(RECORD)))
        .with_context(|| format!("cannot write to {}", directory.display()))
}

/// Now, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

impl Machine {
    /// Whether its monitor runs, or will be started again.
    pub fn is_running(&self) -> bool {
        self.record.process.is_running() || self.is_restarting()
    }

    /// Whether it has ended and is about to be started again.
    pub fn is_restarting(&self) -> bool {
        let attended = || self.record.supervisor.is_some_and(|supervisor| supervisor.is_running());
        let ended = || !self.record.process.is_running() && Request::of(&self.directory).is_none();
        self.record.restart != Policy::No && ended() && attended()
    }

    /// How it ended; `None` while it runs.
    pub fn ending(&self) -> Option<Ending> {
        if self.is_running() {
            return None;
        }
        Some(match (Ending::reported(&self.control()), Request::of(&self.directory)) {
            // It obeyed.
            (Some(Ending::Halted(0 | STATUS_SHUT_DOWN)) | None, Some(request)) => request.ending(),
            (Some(ending), _) => ending,
            (None, None) => Ending::Failed("its monitor ended without a report".to_owned()),
        })
    }

    /// What the kernel reported so far.
    pub fn control(&self) -> Vec<ControlLine> {
        parse_log(&std::fs::read_to_string(self.control_log()).unwrap_or_default())
    }

    /// File of what it wrote to its console.
    pub fn serial_log(&self) -> PathBuf {
        self.directory.join(file::SERIAL_LOG)
    }

    /// File of what the kernel reported.
    pub fn control_log(&self) -> PathBuf {
        self.directory.join(file::CONTROL_LOG)
    }

    /// File that is there once it was ended by `nom stop`.
    pub fn stopped_file(&self) -> PathBuf {
        self.directory.join(STOPPED)
    }

    /// Whether it was ended by `nom stop`.
    pub fn was_stopped(&self) -> bool {
        self.stopped_file().exists()
    }

    /// Ends it; `false` if it had to be killed.
    ///
    /// # Errors
    /// If it cannot even be killed.
    pub fn stop(&self, patience: Duration) -> Result<bool> {
        note(&self.directory, Request::Stopped)?;
        std::fs::write(self.stopped_file(), "")
            .with_context(|| format!("cannot write to {}", self.directory.display()))?;
        let end = Instant::now() + patience + SUPERVISOR_PATIENCE;
        let mut orderly = true;
        loop {
            // It may just have been started again, by a supervisor that had not seen the request yet.
            let process = load(&self.directory).map_or(self.record.process, |record| record.process);
            if process.is_running() {
                orderly &= DetachedMachine::new(self.directory.clone(), process).stop(patience)?;
            }
            if !orderly {
                note(&self.directory, Request::Killed)?;
            }
            // Whoever attends to it tidies up after it.
            if !self.record.supervisor.is_some_and(|process| process.is_running()) || Instant::now() > end {
                return Ok(orderly);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Forgets it, with its logs.
    ///
    /// # Errors
    /// If its directory cannot be removed.
    pub fn remove(&self) -> Result<()> {
        remove(&self.directory)
    }

    /// Lets it be started once more: it is not stopped any longer.
    ///
    /// # Errors
    /// If its directory cannot be written to.
    pub fn allow_start(&self) -> Result<()> {
        for file in [self.stopped_file(), self.directory.join(REQUEST)] {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error)
                        .with_context(|| format!("cannot write to {}", self.directory.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether the kernel of the machine of this directory has reported anything in its last life.
pub fn has_reported(directory: &Path) -> bool {
    directory.join(file::CONTROL_LOG).metadata().is_ok_and(|log| log.len() > 0)
}

#[cfg(test)]
pub mod tests;
