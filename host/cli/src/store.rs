//! What is known of machines, running and ended: one directory for each.

use anyhow::{Context, Result, bail};
use nom_vmm::command::file;
use nom_vmm::control::parse_log;
use nom_vmm::qemu::{DetachedMachine, ProcessIdentity};
use nom_vmm::{ControlLine, Ending};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Ended machines whose logs are kept; the oldest go first.
const ENDED_KEPT: usize = 20;
/// How long it may take from a machine's directory to its being held. An older directory that is not held and
/// has no record is what a crash left.
const SETUP_MAX: Duration = Duration::from_secs(60);
const RECORD: &str = "machine.json";
/// Present if the machine was ended by `nom stop`.
const STOPPED: &str = "stopped";

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
    /// Its monitor.
    pub process: ProcessIdentity,
    /// When it was started, in milliseconds since 1970.
    pub created_ms: u64,
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
            Some(name) => {
                check_name(name)?;
                self.vacate(name)?;
                let made = self.try_create(name)?;
                Ok((
                    name.to_owned(),
                    made.with_context(|| format!("a machine `{name}` is just being started"))?,
                ))
            }
            None => self.create_numbered(&base_name(app)),
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

    /// Forgets an ended machine so that its name can be used again.
    fn vacate(&self, name: &str) -> Result<()> {
        match self.load(name) {
            Some(machine) if machine.is_running() => {
                bail!("a machine `{name}` runs already: stop it with `nom stop {name}`, or take another name")
            }
            Some(machine) => std::fs::remove_dir_all(&machine.directory)
                .with_context(|| format!("cannot remove {}", machine.directory.display())),
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
        bail!("no machine `{name}`: there are {}", names.join(", "))
    }

    fn load(&self, name: &str) -> Option<Machine> {
        let directory = self.machines().join(name);
        let record = std::fs::read(directory.join(RECORD)).ok()?;
        Some(Machine { record: serde_json::from_slice(&record).ok()?, directory })
    }

    /// Forgets the oldest ended machines, and what crashes left.
    fn prune(&self) -> Result<()> {
        let ended: Vec<Machine> = self.list()?.into_iter().filter(|machine| !machine.is_running()).collect();
        let superfluous = ended.len().saturating_sub(ENDED_KEPT);
        let mut directories: Vec<PathBuf> =
            ended.into_iter().take(superfluous).map(|machine| machine.directory).collect();
        let abandoned = self.names()?.into_iter().map(|name| self.machines().join(name));
        directories.extend(abandoned.filter(|directory| is_abandoned(directory)));
        for directory in directories {
            std::fs::remove_dir_all(&directory)
                .with_context(|| format!("cannot remove {}", directory.display()))?;
        }
        Ok(())
    }
}

fn is_abandoned(directory: &Path) -> bool {
    let age = || directory.metadata().ok()?.modified().ok()?.elapsed().ok();
    let is_held = || File::open(directory).is_ok_and(|directory| directory.try_lock().is_err());
    !directory.join(RECORD).exists() && age().is_some_and(|age| age > SETUP_MAX) && !is_held()
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
    let path = Path::new(app);
    let is_manifest = path.extension().is_some_and(|e| e == "toml")
        && path.file_stem().is_some_and(|stem| stem == "app" || stem == "bundle");
    let named_after = if is_manifest { path.parent().unwrap_or(path) } else { path };
    let stem = named_after.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let legal: String =
        stem.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(48).collect();
    if check_name(&legal).is_ok() { legal } else { "machine".to_owned() }
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
    /// Whether its monitor still runs.
    pub fn is_running(&self) -> bool {
        self.record.process.is_running()
    }

    /// How it ended; `None` while it runs.
    pub fn ending(&self) -> Option<Ending> {
        if self.is_running() {
            return None;
        }
        let unreported = if self.was_stopped() {
            Ending::Stopped
        } else {
            Ending::Failed("its monitor ended without a report".to_owned())
        };
        Some(Ending::reported(&self.control()).unwrap_or(unreported))
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

    /// Whether it was ended by `nom stop`.
    pub fn was_stopped(&self) -> bool {
        was_stopped(&self.directory)
    }

    /// Ends it; `false` if it had to be killed.
    ///
    /// # Errors
    /// If it cannot even be killed.
    pub fn stop(&self, patience: Duration) -> Result<bool> {
        std::fs::write(self.directory.join(STOPPED), "")
            .with_context(|| format!("cannot write to {}", self.directory.display()))?;
        DetachedMachine::new(self.directory.clone(), self.record.process).stop(patience)
    }
}

/// Whether the machine of this directory was ended by `nom stop`.
pub fn was_stopped(directory: &Path) -> bool {
    directory.join(STOPPED).exists()
}

#[cfg(test)]
mod tests;
