//! `nom ps`, `nom logs`, `nom stop`.

use crate::arguments::{Logs, Ps, Stop};
use crate::earnings::Earnings;
use crate::store::{Machine, Store, now_ms};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

/// How often a followed log is looked at.
const FOLLOW_POLL: Duration = Duration::from_millis(50);

/// `nom ps`.
///
/// # Errors
/// If the store cannot be read.
pub fn ps(options: &Ps) -> Result<u8> {
    let machines = Store::open()?.list()?;
    let shown: Vec<Machine> =
        machines.into_iter().filter(|machine| options.all || machine.is_running()).collect();
    let earnings = Earnings::of(&shown);
    if options.json {
        let all: Vec<Value> = shown.iter().map(|machine| describe(machine, &earnings)).collect();
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        let rows: Vec<_> = shown.iter().map(|machine| row(machine, &earnings, now_ms())).collect();
        print!("{}", table(&rows));
    }
    Ok(0)
}

fn describe(machine: &Machine, earnings: &Earnings) -> Value {
    let mut value = json!(machine.record);
    let ending = machine.ending();
    value["running"] = json!(ending.is_none());
    value["status"] = json!(match &ending {
        Some(nom_vmm::Ending::Halted(status)) => Some(status),
        _ => None,
    });
    value["ending"] = json!(ending.map(|ending| ending.to_string()));
    value["directory"] = json!(machine.directory);
    value["earned"] = json!(earnings.of_machine(&machine.record.name));
    value
}

const HEADINGS: [&str; 8] = ["NAME", "APP", "STATUS", "CREATED", "CPUS", "MEMORY", "PROFIT", "PORTS"];

fn row(machine: &Machine, earnings: &Earnings, now_ms: u64) -> [String; 8] {
    let record = &machine.record;
    [
        record.name.clone(),
        record.app.clone(),
        machine.ending().map_or_else(|| "running".to_owned(), |ending| ending.to_string()),
        age(now_ms.saturating_sub(record.created_ms) / 1000),
        record.cpus.to_string(),
        record.memory.to_string(),
        earnings.of_machine(&record.name).map_or_else(|| "-".to_owned(), |earned| earned.to_string()),
        record.ports.join(", "),
    ]
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// Columns under their headings, as wide as they must be.
fn table(rows: &[[String; 8]]) -> String {
    let headings = HEADINGS.map(str::to_owned);
    let lines = || std::iter::once(&headings).chain(rows);
    let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let mut text = String::new();
    for line in lines() {
        let cells = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}   "));
        text.push_str(cells.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

/// `nom logs`.
///
/// # Errors
/// If there is no such machine, or its log cannot be read.
pub fn logs(options: &Logs) -> Result<u8> {
    let machine = Store::open()?.find(&options.name)?;
    let path = if options.control { machine.control_log() } else { machine.serial_log() };
    let mut log = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    loop {
        // Asked before the log is read, so that nothing written before the end is missed.
        let goes_on = options.follow && machine.is_running();
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
        let mut out = std::io::stdout().lock();
        if out.write_all(&bytes).and_then(|()| out.flush()).is_err() || !goes_on {
            return Ok(0);
        }
        std::thread::sleep(FOLLOW_POLL);
    }
}

/// `nom stop`.
///
/// # Errors
/// If there is no such machine, or it cannot be ended.
pub fn stop(options: &Stop) -> Result<u8> {
    let store = Store::open()?;
    let machines: Vec<Machine> = options.names.iter().map(|name| store.find(name)).collect::<Result<_>>()?;
    for machine in machines {
        let name = &machine.record.name;
        if !machine.is_running() {
            eprintln!("nom: {name} has ended already");
        } else if !machine.stop(Duration::from_secs(options.time))? {
            eprintln!("nom: {name} did not end within {} s and was killed", options.time);
        }
        println!("{name}");
    }
    // That of a machine in the background ends with it.
    nom_vmm::namespace::remove_stale()?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = ["a-long-name", "hello", "running", "3 s ago", "1", "64M", "-", ""].map(str::to_owned);
        assert_eq!(
            table(&[row]),
            "NAME          APP     STATUS    CREATED   CPUS   MEMORY   PROFIT   PORTS\n\
             a-long-name   hello   running   3 s ago   1      64M      -\n"
        );
        assert_eq!(table(&[]).lines().count(), 1);
    }

    #[test]
    fn ages_are_short() {
        assert_eq!([5, 600, 10_000, 1_000_000].map(age), ["5 s ago", "10 min ago", "2 h ago", "11 days ago"]);
    }
}
