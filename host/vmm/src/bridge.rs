//! The bridge: a network of this computer on which several machines are neighbours of each other and of it.
//!
//! ```text
//! programs of this computer ── nombr0 (.1) ──┬── nomtap0 ── machine (.2)
//!                                            └── nomtap1 ── machine (.3)
//! ```
//!
//! The bridge comes with its first port and goes with its last. Each port is a TAP device whose alias
//! (`ip link`, ifalias) says for which machine it is and who made it: no list can be lost, and what a killed
//! process left is removed by whoever looks next. Nothing leads out of the bridge: this computer forwards no
//! packets for it, so a machine is reached from elsewhere by what [`crate::relay`] passes on.

mod survey;

use crate::accelerator::find_program;
use crate::config::Network;
use crate::ip::ip;
use crate::qemu::ProcessIdentity;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::str::FromStr;
use survey::{Alias, Survey};

/// Name of the bridge.
pub const NAME: &str = "nombr0";
/// Length of its prefix.
pub const PREFIX: u8 = 24;

/// First part of the name of each port.
const PORT: &str = "nomtap";
/// Held while ports come and go.
const LOCK: &str = "/run/nom-bridge.lock";
/// Last byte of the addresses that machines can have; 1 is this computer's.
const MACHINES: std::ops::RangeInclusive<u8> = 2..=254;

/// The addresses of a bridge: 256 of them, of which the first that counts is this computer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet(Ipv4Addr);

impl Default for Subnet {
    /// 10.110.111.0/24: private addresses (RFC 1918) that hardly anybody else has chosen.
    fn default() -> Subnet {
        Subnet(Ipv4Addr::new(10, 110, 111, 0))
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Subnet, String> {
        let expected = || format!("`{text}`: expected 256 private addresses, such as 10.110.111.0/24");
        let base: Ipv4Addr =
            text.strip_suffix("/24").and_then(|base| base.parse().ok()).ok_or_else(expected)?;
        let legal = base.is_private() && base.octets()[3] == 0;
        legal.then_some(Subnet(base)).ok_or_else(expected)
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{PREFIX}", self.0)
    }
}

impl Subnet {
    fn with(self, last: u8) -> Ipv4Addr {
        let [a, b, c, _] = self.0.octets();
        Ipv4Addr::new(a, b, c, last)
    }

    /// This computer's address.
    pub fn host(self) -> Ipv4Addr {
        self.with(1)
    }

    /// Whether a machine can have this address.
    fn has(self, address: Ipv4Addr) -> bool {
        MACHINES.contains(&address.octets()[3]) && self.with(address.octets()[3]) == address
    }

    fn of(address: Ipv4Addr) -> Subnet {
        Subnet(Subnet(address).with(0))
    }
}

/// The Ethernet address of the machine with this address: a locally administered one (IEEE 802, second bit).
pub fn ethernet_address(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:6e:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// A port of the bridge, for one machine; it is removed when dropped.
#[derive(Debug)]
pub struct Port {
    device: String,
    address: Ipv4Addr,
    host: Ipv4Addr,
    queues: u32,
}

impl Port {
    /// Makes a port for the machine called `machine`, with `queues` pairs of queues, and the bridge if this
    /// is the first. The machine gets the address `wanted`, or else the lowest that is free.
    ///
    /// # Errors
    /// If this process may not administer the network, `ip` (package iproute2) refuses a step, the computer
    /// uses the bridge's addresses otherwise, or `wanted` is none of them or taken.
    pub fn create(machine: &str, queues: u32, wanted: Option<Ipv4Addr>, subnet: Subnet) -> Result<Port> {
        if !rustix::process::geteuid().is_root() {
            bail!("a bridge with TAP devices needs root");
        }
        let ours = ProcessIdentity::of(std::process::id()).context("this process is not in /proc")?;
        let _lock = lock()?;
        let survey = remove_stale_ports(survey::take()?)?;
        let subnet = survey.bridge_address(NAME).map_or(subnet, Subnet::of);
        let address = choose(&survey, wanted, subnet)?;
        survey.check_is_free(subnet)?;
        let device = free_device(&survey);
        // From here on a failure takes along what was made.
        let port = Port { device, address, host: subnet.host(), queues };
        let alias = Alias { machine: machine.to_owned(), address, maker: ours };
        let made = if survey.has(NAME) { Ok(()) } else { words(&format!("link add {NAME} type bridge")) };
        let made = made.and_then(|()| port.steps(&alias).iter().try_for_each(|step| ip(step).map(drop)));
        if let Err(error) = made {
            port.remove();
            std::mem::forget(port); // Its end would wait for the lock.
            return Err(error);
        }
        Ok(port)
    }

    /// Arguments of `ip`, step by step, that furnish the bridge and a new port of it.
    fn steps(&self, alias: &Alias) -> Vec<Vec<String>> {
        let device = &self.device;
        let several = if self.queues > 1 { " multi_queue" } else { "" };
        let mut steps: Vec<Vec<String>> = [
            format!("address replace {}/{PREFIX} dev {NAME}", self.host),
            format!("link set dev {NAME} up"),
            format!("tuntap add dev {device} mode tap{several}"),
            format!("link set dev {device} alias"),
            format!("link set dev {device} master {NAME} up"),
        ]
        .map(|step| step.split(' ').map(str::to_owned).collect())
        .into();
        steps[3].push(alias.to_string());
        steps
    }

    /// What connects a machine to it.
    pub fn network(&self) -> Network {
        Network::Bridge { device: self.device.clone(), address: self.address, queues: self.queues }
    }

    /// Name of the TAP device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The machine's address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// This computer's address on the bridge.
    pub fn host(&self) -> Ipv4Addr {
        self.host
    }

    /// Removes the device, and the bridge behind the last one. The lock is held.
    fn remove(&self) {
        // Whatever hinders this, the next `remove_stale` finds it.
        let _ = words(&format!("link delete dev {}", self.device));
        let _ = survey::take().and_then(|survey| remove_stale_ports(survey).map(drop));
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _lock = lock();
        self.remove();
    }
}

/// Removes the ports whose makers are gone, and the bridge if none is left.
///
/// # Errors
/// If the network devices of this computer cannot be listed.
pub fn remove_stale() -> Result<()> {
    // Whoever may not administer the network, cannot, or never has since the computer was started, left
    // nothing.
    let may = rustix::process::geteuid().is_root() && find_program("ip").is_some();
    if !may || !Path::new(LOCK).exists() || !survey::take()?.has(NAME) {
        return Ok(());
    }
    let _lock = lock()?;
    remove_stale_ports(survey::take()?).map(drop)
}

/// What is left of `survey`. The lock is held, so a port without an alias is not being made.
fn remove_stale_ports(mut survey: Survey) -> Result<Survey> {
    let is_stale = |alias: &Option<Alias>| alias.as_ref().is_none_or(|alias| !alias.maker.is_running());
    let stale: Vec<String> = survey
        .ports(PORT)
        .filter(|(_, alias)| is_stale(alias))
        .map(|(device, _)| device.to_owned())
        .collect();
    for device in stale {
        words(&format!("link delete dev {device}"))?;
        survey.forget(&device);
    }
    if survey.has(NAME) && survey.ports(PORT).next().is_none() {
        words(&format!("link delete dev {NAME}"))?;
        survey.forget(NAME);
    }
    Ok(survey)
}

/// The address that is wanted, or the lowest that no machine has.
fn choose(survey: &Survey, wanted: Option<Ipv4Addr>, subnet: Subnet) -> Result<Ipv4Addr> {
    let holder = |address| survey.aliases(PORT).find(|alias| alias.address == address);
    match wanted {
        None => {
            let free = MACHINES.map(|last| subnet.with(last)).find(|&address| holder(address).is_none());
            free.with_context(|| format!("all addresses of {subnet} are taken"))
        }
        Some(address) => {
            ensure!(
                subnet.has(address),
                "address {address}: expected {} to {}",
                subnet.with(2),
                subnet.with(254)
            );
            match holder(address) {
                Some(alias) => bail!("address {address} is taken by machine `{}`", alias.machine),
                None => Ok(address),
            }
        }
    }
}

fn free_device(survey: &Survey) -> String {
    let taken: BTreeSet<&str> = survey.ports(PORT).map(|(device, _)| device).collect();
    let numbers = 0..=u32::from(u8::MAX);
    let mut free =
        numbers.map(|number| format!("{PORT}{number}")).filter(|name| !taken.contains(name.as_str()));
    free.next().expect("there are fewer machines than addresses, 253")
}

fn lock() -> Result<File> {
    let file = File::create(LOCK).and_then(|file| file.lock().map(|()| file));
    file.with_context(|| format!("cannot lock {LOCK}"))
}

fn words(line: &str) -> Result<()> {
    ip(&line.split(' ').collect::<Vec<_>>()).map(drop)
}

#[cfg(test)]
mod tests;
