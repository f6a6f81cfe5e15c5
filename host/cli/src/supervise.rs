//! A machine from its first start to its last end: started again as its policy says.

use crate::attend::{self, Audience, SIGNAL_POLL};
use crate::background;
use crate::launch::Launch;
use crate::restart::{Backoff, Policy};
use crate::store::{self, Record, Request};
use anyhow::{Context, Result};
use nom_vmm::command::file;
use nom_vmm::qemu::ProcessIdentity;
use nom_vmm::qmp::Monitor;
use nom_vmm::{Machine, Qemu, Vmm};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// How often a machine is asked whether it is set up.
const SETUP_POLL: Duration = Duration::from_millis(5);

/// A machine's lives, one after the other.
pub struct Supervision<'s> {
    /// What is started.
    pub launch: &'s Launch,
    /// Where it is written down.
    pub directory: &'s Path,
    /// What is known of it; its processes are filled in here.
    pub record: Record,
    /// When it is started again.
    pub policy: Policy,
    /// Is told of each process that runs it.
    pub begun: &'s dyn Fn(ProcessIdentity),
    /// Whether somebody waits to be told that it is set up ([`background`]).
    pub background: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supervised {
    /// Exit status of the command.
    pub status: u8,
    /// Whether the machine ever was set up; if not, QEMU has refused it.
    pub was_set_up: bool,
}

impl Supervision<'_> {
    /// Runs the machine until it ends for good, or somebody or a `signal` ends it.
    ///
    /// # Errors
    /// If it cannot be started, watched or written down.
    pub fn run(mut self, audience: &mut dyn Audience, signal: &AtomicUsize) -> Result<Supervised> {
        self.record.supervisor = ProcessIdentity::of(std::process::id());
        let mut backoff = Backoff::new();
        let mut was_set_up = false;
        loop {
            let begun = Instant::now();
            let machine = self.start()?;
            if !was_set_up && is_set_up(machine.as_ref(), self.directory) {
                was_set_up = true;
                self.tell()?;
            }
            let status = attend::attend(machine, &self.record.name, self.directory, signal, audience)?;
            self.record.finished_ms = Some(store::now_ms());
            store::save(self.directory, &self.record)?;
            if !was_set_up && store::has_reported(self.directory) {
                // It was quicker than the question.
                was_set_up = true;
                self.tell()?;
            }
            let wait = backoff.next(begun.elapsed());
            let wants_more = was_set_up && self.policy.starts_again(status, self.record.restarts);
            if !wants_more || !self.passes(wait, signal) {
                return Ok(Supervised { status, was_set_up });
            }
            self.record.restarts += 1;
        }
    }

    fn start(&mut self) -> Result<Box<dyn Machine>> {
        let log = self.directory.join(file::SERIAL_LOG);
        // Whoever asks for the log before QEMU has made it is to find an empty one.
        let made = File::options().create(true).append(true).open(&log);
        made.with_context(|| format!("cannot write {}", log.display()))?;
        let machine = Qemu.start(&self.launch.config, self.directory)?;
        if let Some(process) = ProcessIdentity::of(machine.process_id()) {
            self.record.process = process;
            self.record.started_ms = store::now_ms();
            self.record.finished_ms = None;
            store::save(self.directory, &self.record)?;
            (self.begun)(process);
        }
        Ok(machine)
    }

    fn tell(&self) -> Result<()> {
        if self.background { background::leave_terminal(&self.record, self.directory) } else { Ok(()) }
    }

    /// Waits so long; `false` as soon as the machine is to stay ended.
    fn passes(&self, wait: Duration, signal: &AtomicUsize) -> bool {
        let end = Instant::now() + wait;
        loop {
            if attend::take_signal(signal).is_some() || Request::of(self.directory).is_some() {
                return false;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(SIGNAL_POLL));
        }
    }
}

/// Waits until QEMU's monitor answers, which it does once the machine is complete; `false` if QEMU ends
/// before.
fn is_set_up(machine: &dyn Machine, directory: &Path) -> bool {
    while ProcessIdentity::of(machine.process_id()).is_some() {
        if Monitor::connect(directory, file::MONITOR).is_ok() {
            return true;
        }
        std::thread::sleep(SETUP_POLL);
    }
    false
}
