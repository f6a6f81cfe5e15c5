//! Machines in the background: a second process of this command attends to each.
//!
//! The command starts itself once more with the hidden option `--supervisor` and waits. That process does all
//! that a command in the foreground does; once its machine is set up it says so, leaves the terminal, and
//! attends to the machine until it ends for good. What fails before that is said on the terminal.

use crate::store::Record;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a supervisor complains about, in its machine's directory.
const LOG: &str = "supervisor.log";

/// Starts a supervisor by the command `verb` (such as `run`) with `arguments`, and waits until its machine
/// is set up, which it tells of; else returns its exit status.
///
/// # Errors
/// If it cannot be started.
pub fn spawn(verb: &str, arguments: impl IntoIterator<Item = OsString>) -> Result<Result<Record, u8>> {
    let program = std::env::current_exe().context("this command has no file any more")?;
    let mut child = Command::new(program)
        .args([verb, "--supervisor"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a supervisor")?;
    let mut said = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut said).context("cannot hear the supervisor")?;
    }
    if !said.is_empty() {
        return Ok(Ok(serde_json::from_str(&said).with_context(|| format!("the supervisor says `{said}`"))?));
    }
    let status = child.wait().context("cannot wait for the supervisor")?;
    match status.code() {
        Some(code @ 1..) => Ok(Err(code as u8)),
        _ => bail!("the supervisor ended with {status}"),
    }
}

/// Prints what became of a supervisor: its machine's name, or the whole record.
///
/// # Errors
/// If the record cannot be printed.
pub fn announce(started: Result<Record, u8>, json: bool) -> Result<u8> {
    match started {
        Err(status) => return Ok(status),
        Ok(record) if json => println!("{}", serde_json::to_string_pretty(&record)?),
        Ok(record) => println!("{}", record.name),
    }
    Ok(0)
}

/// The supervisor's own side: tells whoever waits for it that its machine is set up, and leaves the terminal.
///
/// # Errors
/// If nobody waits any more, or Linux refuses.
pub fn leave_terminal(record: &Record, directory: &Path) -> Result<()> {
    let log = File::options().create(true).append(true).open(directory.join(LOG));
    let log = log.with_context(|| format!("cannot write to {}", directory.display()))?;
    let nothing =
        File::options().read(true).write(true).open("/dev/null").context("cannot open /dev/null")?;
    let mut out = std::io::stdout().lock();
    out.write_all(&serde_json::to_vec(record)?)
        .and_then(|()| out.flush())
        .context("nobody waits any more")?;
    // So that neither Ctrl-C nor the terminal's end reaches it.
    rustix::process::setsid().context("cannot leave the terminal")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stderr(&log)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(())
}
