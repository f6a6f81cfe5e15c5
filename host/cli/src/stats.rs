//! `nom stats`: what running machines use at present.

mod sample;

use crate::earnings::{Earned, Earnings};
use crate::launch::Launch;
use crate::machines::table;
use crate::store::{Machine, Store};
use anyhow::{Context, Result};
use clap::Args;
use nom_vmm::{Network, namespace};
use ratatui::crossterm::{cursor, execute, terminal};
use sample::{Bytes, Sample};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two lists, and between the two looks that a processor's share takes.
const PERIOD: Duration = Duration::from_secs(1);

/// `nom stats`.
#[derive(Debug, Args)]
#[command(
    after_help = "CPU is the time that QEMU takes, as a share of one processor of this computer, over the last
second; MEMORY what it holds of this computer's, and what the machine may touch; NETWORK the bytes that the
machine's network device has received and sent, which Linux counts with --network tap and bridge only;
PROFIT what the machine's provider has heard of it.

Examples:
  nom stats                       the list, once a second, until Ctrl-C
  nom stats --no-stream web-1
  nom stats --no-stream --json"
)]
pub struct Stats {
    /// Machines; all that run if none is named.
    pub names: Vec<String>,
    /// Print one list.
    #[arg(long)]
    pub no_stream: bool,
    /// Print JSON, a list in each line.
    #[arg(long)]
    pub json: bool,
}

/// What a machine uses.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Usage {
    name: String,
    /// Of one processor of this computer, in percent.
    cpu_percent: f64,
    memory_bytes: u64,
    memory_max_bytes: u64,
    network: Option<Bytes>,
    earned: Option<Earned>,
    restarts: u32,
}

/// `nom stats`.
///
/// # Errors
/// If there is no such machine, or nobody reads the list.
pub fn stats(options: &Stats) -> Result<u8> {
    let store = Store::open()?;
    let mut before = look(&machines(&store, &options.names)?);
    loop {
        std::thread::sleep(PERIOD);
        let machines = machines(&store, &options.names)?;
        let now = look(&machines);
        let earnings = Earnings::of(&machines);
        let usages: Vec<Usage> =
            machines.iter().filter_map(|machine| usage(machine, &before, &now, &earnings)).collect();
        // Whoever reads it has gone if it cannot be written.
        if show(options, &usages).is_err() || options.no_stream {
            return Ok(0);
        }
        before = now;
    }
}

/// The machines that are named, or all that run.
fn machines(store: &Store, names: &[String]) -> Result<Vec<Machine>> {
    if names.is_empty() {
        return Ok(store.list()?.into_iter().filter(Machine::is_running).collect());
    }
    store.find_all(names)
}

/// What was seen of each machine, and when.
type Looks = BTreeMap<String, (Instant, Sample)>;

fn look(machines: &[Machine]) -> Looks {
    let sampled = machines.iter().filter_map(|machine| {
        let sample = Sample::take(machine.record.process, device(machine).as_deref())?;
        Some((machine.record.name.clone(), (Instant::now(), sample)))
    });
    sampled.collect()
}

/// The device of this computer that a machine's network device is connected to, if there is one.
fn device(machine: &Machine) -> Option<String> {
    let networks = Launch::load(&machine.directory).ok()?.config.networks;
    networks.into_iter().find_map(|network| match network {
        Network::User { .. } => None,
        Network::Tap { .. } => Some(namespace::DEVICE.to_owned()),
        Network::Bridge { device, .. } => Some(device),
    })
}

/// What a machine used between two looks; nothing if it was not seen in the second.
fn usage(machine: &Machine, before: &Looks, now: &Looks, earnings: &Earnings) -> Option<Usage> {
    let record = &machine.record;
    let (then, sample) = now.get(&record.name)?;
    let share = before.get(&record.name).map(|(earlier, old)| {
        sample.processor_time.saturating_sub(old.processor_time).as_secs_f64()
            / (*then - *earlier).as_secs_f64()
    });
    Some(Usage {
        name: record.name.clone(),
        cpu_percent: 100.0 * share.unwrap_or_default(),
        memory_bytes: sample.memory_bytes,
        memory_max_bytes: record.memory.bytes(),
        network: sample.network,
        earned: earnings.of_machine(&record.name),
        restarts: record.restarts,
    })
}

fn show(options: &Stats, usages: &[Usage]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string(usages)?).context("nobody reads it")?;
        return Ok(());
    }
    if !options.no_stream && out.is_terminal() {
        execute!(out, cursor::MoveTo(0, 0), terminal::Clear(terminal::ClearType::FromCursorDown))?;
    }
    let rows: Vec<_> = usages.iter().map(row).collect();
    write!(out, "{}", table(HEADINGS, &rows)).and_then(|()| out.flush()).context("nobody reads it")
}

const HEADINGS: [&str; 6] = ["NAME", "CPU", "MEMORY", "NETWORK IN / OUT", "PROFIT", "RESTARTS"];

fn row(usage: &Usage) -> [String; 6] {
    let network = |Bytes { received, sent }: Bytes| format!("{} / {}", size(received), size(sent));
    [
        usage.name.clone(),
        format!("{:.1} %", usage.cpu_percent),
        format!("{} / {}", size(usage.memory_bytes), size(usage.memory_max_bytes)),
        usage.network.map_or_else(|| "-".to_owned(), network),
        usage.earned.map_or_else(|| "-".to_owned(), |earned| earned.to_string()),
        usage.restarts.to_string(),
    ]
}

/// Bytes as people read them, in powers of 1024.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || amount >= 100.0 { 0 } else { 1 };
    format!("{amount:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let sizes = [0, 1023, 1536, 200 << 10, 64 << 20, 5 << 40].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.5 KiB", "200 KiB", "64.0 MiB", "5.0 TiB"]);
    }

    #[test]
    fn a_share_is_the_time_taken_of_the_time_between_two_looks() {
        let (_directory, machine) = crate::store::tests::ended(crate::restart::Policy::No);
        let (begin, name) = (Instant::now(), machine.record.name.clone());
        let at = |seconds: u64, milliseconds: u64| {
            let sample = Sample {
                processor_time: Duration::from_millis(milliseconds),
                memory_bytes: 7,
                network: None,
            };
            Looks::from([(name.clone(), (begin + Duration::from_secs(seconds), sample))])
        };
        let share = |before: &Looks, now: &Looks| {
            usage(&machine, before, now, &Earnings::default()).map(|usage| usage.cpu_percent)
        };
        assert_eq!(share(&at(0, 1000), &at(2, 4000)), Some(150.0));
        assert_eq!(share(&Looks::new(), &at(2, 4000)), Some(0.0), "it has just been started");
        assert_eq!(share(&at(0, 5000), &at(2, 4000)), Some(0.0), "it was started again");
        assert_eq!(share(&at(0, 0), &Looks::new()), None, "it has ended");
    }
}
