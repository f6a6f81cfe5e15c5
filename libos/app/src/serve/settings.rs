//! What a server is told by its environment.

use super::address::Addresses;
use crate::port::Entropy;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use nom_grid::{BadGrid, GridPlan};
use nom_net::Setup;
use nom_net::batch::{DELAY_MAX, Unheld};
use nom_net::config::{Config, FLOWS_MAX};
use nom_net::tcp::connection::{KeepAlive, Settings};
use nom_port::world::Entropy as _;
use nom_rt::rest::Thresholds;
use nom_service::{Activity, BadRules, Rules};

/// QEMU's user-mode network passes questions on from here.
const DEFAULT_NAMESERVER: &str = "10.0.2.3";

/// A variable of the environment that is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting {
    name: &'static str,
    value: String,
    expected: &'static str,
}

impl BadSetting {
    pub(super) fn new(name: &'static str, value: &str, expected: &'static str) -> BadSetting {
        BadSetting { name, value: value.into(), expected }
    }
}

impl fmt::Display for BadSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadSetting { name, value, expected } = self;
        write!(out, "the environment's {name}={value}: expected {expected}")
    }
}

impl core::error::Error for BadSetting {}

/// How the stack is set up: its addresses, what it asks others for, and keys that nobody knows.
pub(crate) fn network() -> Result<(Config, Setup), BadSetting> {
    let Addresses { given, gateway4, gateway6, setup } = Addresses::from_environment()?;
    let mut secret = [0; 32];
    Entropy::new().fill(&mut secret);
    let word = |index: usize| u64::from_le_bytes(core::array::from_fn(|byte| secret[8 * index + byte]));
    let secret = core::array::from_fn(word);
    let memory = crate::world::memory_max();
    let flows_max = flows_max(memory);
    let queues_max = (memory / QUEUES_PART) as usize;
    let keep_alive = keep_alive(crate::var("keep_alive"))?;
    let tcp = Settings { keep_alive, queued_max: queues_max, kept_max: queues_max, ..Settings::default() };
    let unheld = unheld(crate::var("unheld"))?;
    let config =
        Config { tcp, addresses: given, gateway4, gateway6, flows_max, unheld, ..Config::new(secret) };
    Ok((config, setup))
}

/// What becomes of packets with W = 0, `unheld`: those that are there at the same time go together, which
/// takes less, unless they are to go alone, as the paper has it.
fn unheld(text: Option<&str>) -> Result<Unheld, BadSetting> {
    match text {
        None | Some("together") => Ok(Unheld::Together),
        Some("alone") => Ok(Unheld::Alone),
        Some(text) => Err(BadSetting { name: "unheld", value: text.into(), expected: "together or alone" }),
    }
}

/// Who is asked for the addresses of names: `dns`, addresses with commas between them; or else whoever is at
/// QEMU's address, in its network alone.
pub(crate) fn nameservers(config: &Config) -> Result<Vec<IpAddr>, BadSetting> {
    let usual = DEFAULT_NAMESERVER.parse().expect("an address");
    let is_there = config.addresses.iter().any(|own| own.contains(usual));
    let text = crate::var("dns").unwrap_or(if is_there { DEFAULT_NAMESERVER } else { "" });
    let addresses = text.split(',').filter(|address| !address.is_empty());
    addresses.map(|address| address.trim().parse()).collect::<Result<_, _>>().map_err(|_| BadSetting {
        name: "dns",
        value: text.into(),
        expected: "addresses of name servers, such as 10.0.2.3 or 9.9.9.9,1.1.1.1",
    })
}

/// Whom a server asks whether he is still there: `keep_alive`, in seconds of silence before the first
/// question; between questions it is as patient, up to half a minute. Without it clients that vanished, as
/// those behind a router that was switched off, hold their connections for ever.
fn keep_alive(text: Option<&str>) -> Result<Option<KeepAlive>, BadSetting> {
    let seconds = match text {
        None => SILENCE_S,
        Some(text) => {
            let seconds = text.parse().ok().filter(|seconds| *seconds <= SILENCE_MAX_S);
            let expected = "seconds from 0 (never) to 86400";
            seconds.ok_or_else(|| BadSetting { name: "keep_alive", value: text.into(), expected })?
        }
    };
    let (idle, interval) = (Duration::from_secs(seconds), Duration::from_secs(seconds.min(INTERVAL_MAX_S)));
    Ok((seconds > 0).then_some(KeepAlive { idle, interval, probes: QUESTIONS }))
}

/// Silence before a server asks, if it was not told.
const SILENCE_S: u64 = 300;
/// Questions without an answer before a client is given up, and what lies between two at most.
const QUESTIONS: u32 = 6;
const INTERVAL_MAX_S: u64 = 30;
/// Whoever waits for longer than a day need not ask at all.
const SILENCE_MAX_S: u64 = 86_400;

/// Bytes that a flow costs while it is idle: its connection, its places in tables, and what a server knows
/// about its client.
const FLOW_BYTES: u64 = 1024;
/// Of the program's memory, the part that flows may take: a quarter.
const FLOWS_PART: u64 = 4;

/// Of the program's memory, the part that may be queued to be sent, and the part that may be received and not
/// yet taken: an eighth each.
const QUEUES_PART: u64 = 8;

/// Most flows of a stack of a program that may have `memory` bytes.
fn flows_max(memory: u64) -> usize {
    let most = FLOWS_MAX as u64;
    (memory / FLOWS_PART / FLOW_BYTES).clamp(64, most) as usize
}

/// Whose clients and requests are whose: `activity`, as the manifest's `[[activity]]` lists them; nothing if
/// it lists none.
pub(super) fn rules() -> Result<Option<Rules>, BadRules> {
    let rules: Rules = crate::var("activity").unwrap_or_default().parse()?;
    Ok((!rules.is_empty()).then_some(rules))
}

/// Who is served before whom: `grid`, as the manifest's table says; nobody if there is none.
pub(super) fn grid(
    rules: Option<&Rules>,
    contract: Option<&nom_earn::Settings>,
) -> Result<GridPlan, BadGrid> {
    let plan: GridPlan = crate::var("grid").unwrap_or_default().parse()?;
    let nobody = Rules::default();
    let rules = rules.unwrap_or(&nobody);
    plan.check_names(rules.names())?;
    let activities = (0..).map(Activity).zip(rules.names());
    let is_paid = |activity| contract.is_some_and(|contract| contract.is_paid(activity));
    plan.check_contracts(|name| activities.clone().any(|(own, named)| named == name && is_paid(own)))?;
    Ok(plan)
}

/// The batching delay W at the start: `batching_delay`, in microseconds.
pub(crate) fn batching_delay() -> Result<Duration, BadSetting> {
    let Some(text) = crate::var("batching_delay") else { return Ok(Duration::ZERO) };
    let expected = "microseconds from 0 to 10000";
    let delay = text.parse().ok().map(Duration::from_micros).filter(|delay| *delay <= DELAY_MAX);
    delay.ok_or_else(|| BadSetting { name: "batching_delay", value: text.into(), expected })
}

/// How long a core polls on without work: `patience`, in microseconds; as the loop sees fit without it.
pub(super) fn waiting() -> Result<Thresholds, BadSetting> {
    let Some(text) = crate::var("patience") else { return Ok(Thresholds::ADAPTIVE) };
    let patience = text.parse().ok().filter(|us| *us <= PATIENCE_MAX_US);
    patience.map(|us: u64| Thresholds::patient(us * 1000)).ok_or_else(|| BadSetting {
        name: "patience",
        value: text.into(),
        expected: "microseconds from 0 to 1000000",
    })
}

/// Whoever polls on for longer need not sleep at all.
const PATIENCE_MAX_US: u64 = 1_000_000;

/// The least important level that is heard: `log`.
pub(crate) fn log_level() -> Result<log::LevelFilter, BadSetting> {
    let text = crate::var("log").unwrap_or("info");
    text.parse().map_err(|_| BadSetting {
        name: "log",
        value: text.into(),
        expected: "off, error, warn, info, debug or trace",
    })
}

/// The TCP port of the control port: `control`; nothing if there is to be none.
pub(crate) fn control() -> Result<Option<u16>, BadSetting> {
    let Some(text) = crate::var("control") else { return Ok(None) };
    let port = text.parse().ok().filter(|port| *port != 0);
    port.map(Some).ok_or_else(|| BadSetting {
        name: "control",
        value: text.into(),
        expected: "a TCP port from 1 to 65535",
    })
}

#[cfg(test)]
mod tests {
    use super::{flows_max, keep_alive};
    use alloc::string::ToString;

    #[test]
    fn silent_clients_are_asked_unless_that_is_switched_off() {
        let idle = |text| keep_alive(text).map(|keep_alive| keep_alive.map(|asks| asks.idle.as_secs()));
        assert_eq!((idle(None), idle(Some("0")), idle(Some("20"))), (Ok(Some(300)), Ok(None), Ok(Some(20))));
        for wrong in ["", "-1", "1.5", "86401", "soon"] {
            let error = idle(Some(wrong)).expect_err(wrong).to_string();
            assert!(error.contains(wrong) && error.contains("0 (never) to 86400"), "{error}");
        }
    }

    #[test]
    fn flows_take_a_quarter_of_the_memory() {
        assert_eq!(flows_max(96 << 20), 24 << 10);
        assert_eq!((flows_max(0), flows_max(u64::MAX)), (64, 1 << 20));
    }
}
