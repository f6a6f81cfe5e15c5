//! `nom stop` and `nom rm`: machines that end, and those that are forgotten.

use crate::numbers::whole;
use crate::store::{Machine, Store};
use anyhow::{Result, bail};
use clap::Args;
use std::time::Duration;

/// `nom stop`.
#[derive(Debug, Args)]
#[command(
    after_help = "Presses the machine's power button: applications end in order, or at once if they do not
handle that. A Linux program is sent its stop signal: the image's, --stop-signal's, or SIGTERM.

Examples:
  nom stop web-1
  nom stop --time 1 web-1 web-2
  nom stop --all"
)]
pub struct Stop {
    /// Machines.
    #[arg(required_unless_present = "all")]
    pub names: Vec<String>,
    /// All that run.
    #[arg(short, long, conflicts_with = "names")]
    pub all: bool,
    /// Seconds that a machine has to end by itself before it is killed.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10, value_parser = whole::<u64>(0..=86_400))]
    pub time: u64,
}

/// `nom rm`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  nom rm web-1
  nom rm -f web-1 web-2      end them first, if they run
  nom rm --all               all that have ended")]
pub struct Remove {
    /// Machines.
    #[arg(required_unless_present = "all")]
    pub names: Vec<String>,
    /// All that have ended; with --force all.
    #[arg(short, long, conflicts_with = "names")]
    pub all: bool,
    /// End machines that run, at once.
    #[arg(short, long)]
    pub force: bool,
}

/// `nom stop`.
///
/// # Errors
/// If there is no such machine, or it cannot be ended.
pub fn stop(options: &Stop) -> Result<u8> {
    let store = Store::open()?;
    let machines = if options.all { running(&store)? } else { store.find_all(&options.names)? };
    for machine in machines {
        end(&machine, Duration::from_secs(options.time))?;
        println!("{}", machine.record.name);
    }
    remove_stale_networks()?;
    Ok(0)
}

/// `nom rm`.
///
/// # Errors
/// If there is no such machine, or it runs and is not to be ended, or it cannot be removed. Then none is.
pub fn remove(options: &Remove) -> Result<u8> {
    let store = Store::open()?;
    let machines = match options.all {
        false => store.find_all(&options.names)?,
        true => store.list()?.into_iter().filter(|one| options.force || !one.is_running()).collect(),
    };
    if let Some(machine) = machines.iter().find(|machine| machine.is_running() && !options.force) {
        let name = &machine.record.name;
        bail!("machine `{name}` runs: end it with `nom stop {name}`, or at once with `nom rm -f {name}`");
    }
    for machine in machines {
        if machine.is_running() {
            machine.stop(Duration::ZERO)?;
        }
        machine.remove()?;
        println!("{}", machine.record.name);
    }
    remove_stale_networks()?;
    Ok(0)
}

/// Ends a machine, and says so if that was not plain.
///
/// # Errors
/// If it cannot even be killed.
pub fn end(machine: &Machine, patience: Duration) -> Result<()> {
    let name = &machine.record.name;
    if !machine.is_running() {
        eprintln!("nom: {name} has ended already");
    } else if !machine.stop(patience)? {
        eprintln!("nom: {name} did not end within {} s and was killed", patience.as_secs());
    }
    Ok(())
}

fn running(store: &Store) -> Result<Vec<Machine>> {
    Ok(store.list()?.into_iter().filter(Machine::is_running).collect())
}

/// Removes what killed processes left of networks.
fn remove_stale_networks() -> Result<()> {
    nom_vmm::namespace::remove_stale()?;
    nom_vmm::bridge::remove_stale()
}
