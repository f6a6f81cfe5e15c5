//! `nom start` and `nom restart`: a machine that has ended, once more.

use crate::attend::{self, Audience, Console};
use crate::background;
use crate::launch::Launch;
use crate::network::Attachment;
use crate::numbers::whole;
use crate::restart::Policy;
use crate::stop;
use crate::store::{self, Machine, Store};
use crate::supervise::{Supervised, Supervision};
use crate::times::Timed;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use nom_vmm::STATUS_SHUT_DOWN;
use std::ffi::OsString;
use std::time::Duration;

/// `nom start`.
#[derive(Debug, Args)]
#[command(
    after_help = "A machine is started from the image that it had, with the options that it had; its log
goes on.

Examples:
  nom start web-1
  nom start --attach web-1   in the foreground"
)]
pub struct Start {
    /// Machines that have ended.
    #[arg(required = true)]
    pub names: Vec<String>,
    /// Stay in the foreground, with one machine, and do not start it again: for systemd.
    #[arg(short, long)]
    pub attach: bool,
    /// This is the process that attends to a machine in the background.
    #[arg(long, hide = true)]
    pub supervisor: bool,
}

/// `nom restart`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  nom restart web-1\n  nom restart --time 1 web-1 web-2")]
pub struct Restart {
    /// Machines, running or ended.
    #[arg(required = true)]
    pub names: Vec<String>,
    /// Seconds to wait before a machine is killed.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10, value_parser = whole::<u64>(0..=86_400))]
    pub time: u64,
}

/// `nom start`.
///
/// # Errors
/// If there is no such machine, or it runs, or it cannot be started.
pub fn start(options: &Start) -> Result<u8> {
    let machines = Store::open()?.find_all(&options.names)?;
    if let Some(machine) = machines.iter().find(|machine| machine.is_running()) {
        bail!("machine `{}` runs already", machine.record.name);
    }
    machines.iter().try_for_each(is_free)?;
    match machines.as_slice() {
        [machine] if options.attach || options.supervisor => attend(machine, options.supervisor),
        _ if options.attach || options.supervisor => bail!("--attach: expected one machine"),
        _ => in_background(&machines),
    }
}

/// `nom restart`.
///
/// # Errors
/// If there is no such machine, or it cannot be ended, or not started again.
pub fn restart(options: &Restart) -> Result<u8> {
    let machines = Store::open()?.find_all(&options.names)?;
    machines.iter().try_for_each(is_free)?;
    for machine in machines.iter().filter(|machine| machine.is_running()) {
        ensure!(
            machine.record.detached,
            "machine `{0}` runs in the foreground of another command: `nom stop {0}` ends it",
            machine.record.name
        );
        stop::end(machine, Duration::from_secs(options.time))?;
    }
    in_background(&machines)
}

/// Refuses a machine that somebody has to be charged for: its keys ended with it, and its image knows no
/// others.
///
/// # Errors
/// Says what starts it with new keys.
pub fn is_free(machine: &Machine) -> Result<()> {
    if let Some(provider) = &machine.record.provider {
        bail!(
            "machine `{name}` is charged for by {provider}, and its keys there end with it: expected \
             `nom rm {name}` and the `nom run` that made it, which gets new ones",
            name = machine.record.name
        );
    }
    Ok(())
}

fn in_background(machines: &[Machine]) -> Result<u8> {
    for machine in machines {
        let started = background::spawn("start", [OsString::from(&machine.record.name)])?;
        let status = background::announce(started, false)?;
        if status != 0 {
            return Ok(status);
        }
    }
    Ok(0)
}

/// Starts a machine and attends to it until it ends.
fn attend(machine: &Machine, supervisor: bool) -> Result<u8> {
    let Machine { record, directory } = machine;
    let mut launch = Launch::load(directory).with_context(|| format!("{} cannot be started", record.name))?;
    let _held = store::hold(directory)?;
    // A signal must not leave a network behind.
    let signal = attend::watch_signals()?;
    let attachment = Attachment::again(&record.name, &mut launch.config.networks)?;
    attachment.publish(&launch.published)?;
    machine.allow_start()?;
    let mut record = record.clone();
    (record.restarts, record.detached) = (0, supervisor);
    // Whoever started it in the foreground decides what follows.
    let policy = if supervisor { record.restart } else { Policy::No };
    let supervision =
        Supervision { launch: &launch, directory, record, policy, background: supervisor, begun: &|_| {} };
    let console: Box<dyn Audience> = Box::new(Console);
    let Supervised { status, .. } = supervision.run(&mut Timed::new(console, directory)?, &signal)?;
    // However well it ended: systemd is to know that it was stopped, and not to start it again.
    Ok(if machine.was_stopped() { STATUS_SHUT_DOWN } else { status })
}
