//! A machine of somebody else's, beside nom and Linux in the same run: whatever a command starts.

use super::place::Place;
use crate::serve::service::Service;
use anyhow::{Context, Result, bail, ensure};
use nom_vmm::namespace::{DEVICE, GUEST, HOST, PREFIX};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// File of what the command writes.
const LOG: &str = "peer.log";
/// Names that systems of the demo's own begin with.
const TAKEN: [&str; 3] = ["nom", "linux", "computer"];

/// A system that takes part because somebody said so: `NAME=COMMAND`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name in records. There are few, and all that a run says names them to its end: they are never
    /// freed.
    pub name: &'static str,
    /// A line for `sh`, which starts its machine and does not return while that serves.
    pub command: String,
}

impl Peer {
    /// Reads `NAME=COMMAND`.
    ///
    /// # Errors
    /// If it is none, or the name is one of the demo's own systems'.
    pub fn parse(text: &str) -> Result<Peer> {
        let expected = || format!("`{text}` is no peer: expected NAME=COMMAND");
        let (name, command) = text.split_once('=').with_context(expected)?;
        let is_part = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        ensure!(
            !name.is_empty() && name.chars().all(is_part),
            "`{name}` names no peer: expected lower-case letters, digits and hyphens"
        );
        if let Some(taken) = TAKEN.iter().find(|taken| name.starts_with(**taken)) {
            bail!("`{name}` names no peer: what begins with {taken} is one of the demo's own systems");
        }
        ensure!(!command.trim().is_empty(), "peer {name} has no command: expected NAME=COMMAND");
        Ok(Peer { name: name.to_owned().leak(), command: command.into() })
    }
}

/// The machine of a peer while it is there: its command and all that this starts, killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts the machine of `peer` at `place`, to serve `service` with `memory_bytes`. `directory` is its
    /// working directory. What it must know it is told by its environment.
    ///
    /// # Errors
    /// If `place` is no network namespace, or there is no shell.
    pub fn start(
        peer: &Peer,
        place: &Place,
        service: &Service,
        memory_bytes: u64,
        directory: &Path,
    ) -> Result<Running> {
        let Place::Tap(namespace) = place else { bail!("peers need a network namespace, which needs root") };
        let mut command = namespace.command("sh");
        command
            .args(["-c", &peer.command])
            .env("NOM_PEER_SERVICE", service.name)
            .env("NOM_PEER_PORT", service.port.to_string())
            .env("NOM_PEER_TAP", DEVICE)
            .env("NOM_PEER_ADDRESS", format!("{GUEST}/{PREFIX}"))
            .env("NOM_PEER_GATEWAY", HOST.to_string())
            .env("NOM_PEER_MEMORY_BYTES", memory_bytes.to_string());
        Running::spawn(command, directory).with_context(|| format!("cannot start peer {}", peer.name))
    }

    /// Starts `command` in `directory`, where what it writes is kept.
    ///
    /// # Errors
    /// If it cannot be started, or nothing be written there.
    pub fn spawn(mut command: Command, directory: &Path) -> Result<Running> {
        let log = directory.join(LOG);
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()?;
        Ok(Running { child, log })
    }

    /// The process id of its command.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn ending(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// The last line that it wrote.
    pub fn last_words(&self) -> String {
        let written = std::fs::read(&self.log).unwrap_or_default();
        let written = String::from_utf8_lossy(&written);
        written.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").trim().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already is as good.
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_name_and_a_command() {
        let peer = Peer::parse("osv=run --tap $NOM_PEER_TAP x=y").unwrap();
        assert_eq!((peer.name, &*peer.command), ("osv", "run --tap $NOM_PEER_TAP x=y"));
        let error = |text| Peer::parse(text).unwrap_err().to_string();
        assert_eq!(error("osv"), "`osv` is no peer: expected NAME=COMMAND");
        assert!(error("OSv=run").contains("expected lower-case letters"));
        assert!(error("=run").contains("expected lower-case letters"));
        assert!(error("nom-2=run").contains("one of the demo's own systems"));
        assert_eq!(error("osv= "), "peer osv has no command: expected NAME=COMMAND");
    }
}
