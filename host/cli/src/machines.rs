//! `nom ps`, `nom inspect`.

use crate::arguments::Ps;
use crate::earnings::Earnings;
use crate::launch::Launch;
use crate::logs;
use crate::store::{Machine, Store, now_ms};
use anyhow::Result;
use clap::Args;
use nom_vmm::{Network, namespace};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// `nom inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  nom inspect web-1
  nom inspect web-1 | jq '.[0].launch.config.networks'")]
pub struct Inspect {
    /// Machines, running or ended.
    #[arg(required = true)]
    pub names: Vec<String>,
}

/// `nom ps`.
///
/// # Errors
/// If the store cannot be read.
pub fn ps(options: &Ps) -> Result<u8> {
    // What a killed process left; to list machines takes no rights.
    let _ = nom_vmm::namespace::remove_stale();
    let machines = Store::open()?.list()?;
    let shown: Vec<Machine> =
        machines.into_iter().filter(|machine| options.all || machine.is_running()).collect();
    let earnings = Earnings::of(&shown);
    if options.json {
        let all: Vec<Value> = shown.iter().map(|machine| describe(machine, &earnings)).collect();
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        let rows: Vec<_> = shown.iter().map(|machine| row(machine, &earnings, now_ms())).collect();
        print!("{}", table(HEADINGS, &rows));
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
    let place = Place::of(machine);
    value["address"] = json!(place.as_ref().map(|place| place.address));
    value["namespace"] = json!(place.and_then(|place| place.namespace));
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
        status(machine),
        age(now_ms.saturating_sub(record.created_ms) / 1000),
        record.cpus.to_string(),
        record.memory.to_string(),
        earnings.of_machine(&record.name).map_or_else(|| "-".to_owned(), |earned| earned.to_string()),
        reach(machine),
    ]
}

fn status(machine: &Machine) -> String {
    match machine.ending() {
        Some(ending) => ending.to_string(),
        None if machine.is_restarting() => "restarting".to_owned(),
        None => "running".to_owned(),
    }
}

/// `nom inspect`: all that is known, as a list in JSON.
///
/// # Errors
/// If there is no such machine.
pub fn inspect(options: &Inspect) -> Result<u8> {
    let machines = Store::open()?.find_all(&options.names)?;
    let earnings = Earnings::of(&machines);
    let all: Vec<Value> = machines.iter().map(|machine| details(machine, &earnings)).collect();
    println!("{}", serde_json::to_string_pretty(&all)?);
    Ok(0)
}

fn details(machine: &Machine, earnings: &Earnings) -> Value {
    let Machine { record, directory } = machine;
    let mut value = describe(machine, earnings);
    value["state"] = json!(status(machine));
    value["stopped"] = json!(machine.was_stopped());
    let times = [
        ("created", Some(record.created_ms)),
        ("started", Some(record.started_ms)),
        ("finished", record.finished_ms),
    ];
    for (name, time) in times {
        value[name] = json!(time.map(logs::stamp));
    }
    value["logs"] = json!({ "console": machine.serial_log(), "control": machine.control_log() });
    value["image"] = json!(directory.join("image"));
    // None of a machine that an older nom started.
    value["launch"] = json!(Launch::load(directory).ok());
    value["reports"] = json!(machine.control().iter().map(ToString::to_string).collect::<Vec<_>>());
    value
}

/// Where a machine is reached that is not on QEMU's own network.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// Its address there.
    address: Ipv4Addr,
    /// The network namespace; none if it is this computer's.
    namespace: Option<String>,
}

impl Place {
    fn of(machine: &Machine) -> Option<Place> {
        // None of a machine that an older nom started.
        Place::among(&Launch::load(&machine.directory).ok()?.config.networks)
    }

    fn among(networks: &[Network]) -> Option<Place> {
        networks.iter().find_map(|network| match network {
            Network::User { .. } => None,
            Network::Tap { namespace, .. } => {
                Some(Place { address: namespace::GUEST, namespace: Some(namespace.clone()) })
            }
            Network::Bridge { address, .. } => Some(Place { address: *address, namespace: None }),
        })
    }

    fn text(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} in {namespace}", self.address),
            None => self.address.to_string(),
        }
    }
}

/// Where its ports are found.
fn reach(machine: &Machine) -> String {
    let place = Place::of(machine).map(|place| place.text());
    place.into_iter().chain(machine.record.ports.iter().cloned()).collect::<Vec<_>>().join(", ")
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
pub fn table<const COLUMNS: usize>(headings: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let headings = headings.map(str::to_owned);
    let lines = || std::iter::once(&headings).chain(rows);
    let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    let mut text = String::new();
    for line in lines() {
        let cells = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}   "));
        text.push_str(cells.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = ["a-long-name", "hello", "running", "3 s ago", "1", "64M", "-", ""].map(str::to_owned);
        assert_eq!(
            table(HEADINGS, &[row]),
            "NAME          APP     STATUS    CREATED   CPUS   MEMORY   PROFIT   PORTS\n\
             a-long-name   hello   running   3 s ago   1      64M      -\n"
        );
        assert_eq!(table(HEADINGS, &[]).lines().count(), 1);
    }

    #[test]
    fn a_machine_with_an_address_of_its_own_tells_where_it_is() {
        let tap = Network::Tap { namespace: "nom-web-1".into(), queues: 1 };
        let place = Place::among(&[tap]).expect("it has one");
        assert_eq!(place.text(), "10.0.2.15 in nom-web-1");
        assert_eq!(Place::among(&[Network::default()]), None);
    }

    #[test]
    fn ages_are_short() {
        assert_eq!([5, 600, 10_000, 1_000_000].map(age), ["5 s ago", "10 min ago", "2 h ago", "11 days ago"]);
    }
}
