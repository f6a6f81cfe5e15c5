//! One run of one system: many clients at a low price, then a single one at a high price.

use super::client::{Client, Kind};
use super::money::Interval;
use super::place::Machine;
use super::progress::Progress;
use crate::serve::tools;
use anyhow::{Context, Result};
use std::process::Command;
use std::time::{Duration, Instant};

/// The two halves of the experiment (nom, VEE'16, section 6.1), in order.
pub const PHASES: [Phase; 2] = [
    Phase { name: "many", has_many: true, message_bytes: 16 << 10, price: 1.0 },
    Phase { name: "single", has_many: false, message_bytes: 1 << 10, price: 10.0 },
];

/// How many connections the first half has, unless somebody says otherwise: as many as slow Linux down about
/// as much as the paper's clients did (`nom demo --scan`).
pub const CONNECTIONS: u32 = 6;

/// How many of its keys each connection of memcaslap asks for again. With ten thousand, its own choice, all
/// together would not fit into a small cache, and the demo would show how caches forget.
const WINDOW: &str = "1k";

/// memcaslap's own mix: keys of 64 bytes, values of 1 KiB, a tenth sets and the rest gets. It would write it
/// to the user's home directory if it were not given, and fail where there is none.
const MIX: &str = "key\n64 64 1\nvalue\n1024 1024 1\ncmd\n0 0.1\n1 0.9\n";
/// From which size on NetPIPE's messages are measured, and each alone, without its neighbours; both sides
/// must be told. The paper's messages have 1024 bytes, and go both ways at once.
pub const NPTCP_SIZES: [&str; 5] = ["-2", "-l", "1024", "-p", "0"];
/// How often NetPIPE sends each size of message in a trial when there are several. By itself it would take
/// almost a second for each size, which is as long as it is to take where there is one.
const MESSAGES: u64 = 100;

/// A half of the experiment: who is served, and what data costs meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Its name in records.
    pub name: &'static str,
    /// Whether many are served, each with one request on its way; a single one otherwise.
    pub has_many: bool,
    /// The largest message of NetPIPE's, which has one connection whoever is served.
    pub message_bytes: u32,
    /// Price of outgoing data, in dollars for a Gbit.
    pub price: f64,
}

/// What was served in each phase.
pub type Halves = [Vec<Interval>; 2];

/// The load of a run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Who asks.
    pub kind: Kind,
    /// How many of them at a time in the first phase.
    pub connections: u32,
    /// Length of each phase.
    pub phase: Duration,
}

/// Has clients `load` `machine` in each phase. `set_price` is called as each phase begins: the price changes
/// at the provider when the load does.
///
/// # Errors
/// If somebody interrupts, a client fails or sees a wrong reply, the machine ends, or the price is refused.
pub fn run(
    machine: &mut Machine,
    load: Load,
    origin: Instant,
    progress: &mut Progress,
    what: &str,
    mut set_price: impl FnMut(f64) -> Result<()>,
) -> Result<Halves> {
    let mut clients = Vec::new();
    for half in PHASES {
        progress.step(&format!("{what}: {} at {} $/Gbit", half.name, half.price), load.phase)?;
        let command = command(machine, &load, &half)?;
        set_price(half.price)?;
        let mut client = start(machine, &load, command, origin)?;
        client.wait_for_load(progress)?;
        machine.check()?;
        clients.push((client, half.price));
    }
    // memcaslap needs a second to end after its load has: the first did so while the second ran.
    let finished = clients.into_iter().map(|(client, price)| client.finish(progress, price));
    let halves: Vec<Vec<Interval>> = finished.collect::<Result<_>>()?;
    Ok(<Halves>::try_from(halves).expect("there are two phases"))
}

fn start(machine: &Machine, load: &Load, command: Command, origin: Instant) -> Result<Client> {
    Client::start(load.kind, command, load.phase, origin, machine.meter())
}

/// Starts the clients of a half.
///
/// # Errors
/// If they cannot be started.
pub fn clients(machine: &Machine, load: &Load, half: &Phase, origin: Instant) -> Result<Client> {
    start(machine, load, command(machine, load, half)?, origin)
}

fn command(machine: &Machine, load: &Load, half: &Phase) -> Result<Command> {
    let (target, phase) = (machine.target(), load.phase);
    let connections = if half.has_many { load.connections as usize } else { 1 };
    Ok(match load.kind {
        Kind::Memcaslap => {
            // Into a pipe it would write a page at a time.
            let mut command = machine.command("stdbuf");
            command.args(["--output=L", "memcaslap", "--stat_freq", "1s", "--win_size", WINDOW, "--cfg_cmd"]);
            let mix = machine.scratch().join("memcaslap.cnf");
            std::fs::write(&mix, MIX).with_context(|| format!("cannot write {}", mix.display()))?;
            command.arg(mix);
            command.args(tools::memcaslap_arguments(target, connections, phase));
            command
        }
        Kind::Wrk => {
            let mut command = machine.command("wrk");
            command.args(tools::wrk_arguments(machine.scratch(), target, connections, phase)?);
            command
        }
        Kind::Nptcp => {
            let file = machine.scratch().join("np.out");
            let messages = half.has_many.then_some(MESSAGES);
            let mut command = machine.command("NPtcp");
            command.args(NPTCP_SIZES);
            command.args(tools::netpipe_arguments(&file, target, half.message_bytes, messages));
            command
        }
    })
}
