//! What network devices this computer has, as `ip` lists them.

use super::Subnet;
use crate::ip::ip;
use crate::qemu::ProcessIdentity;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fmt;
use std::net::Ipv4Addr;

/// The devices of one moment.
#[derive(Debug)]
pub(super) struct Survey(Vec<Device>);

#[derive(Debug, Deserialize)]
struct Device {
    ifname: String,
    #[serde(default)]
    ifalias: String,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Debug, Deserialize)]
struct Address {
    #[serde(default)]
    family: String,
    #[serde(default)]
    local: String,
    #[serde(default)]
    prefixlen: u8,
}

/// Lists the devices of the network namespace of the calling thread.
pub(super) fn take() -> Result<Survey> {
    Survey::read(&ip(&["-details", "-json", "address", "show"])?)
}

impl Survey {
    pub fn read(json: &str) -> Result<Survey> {
        serde_json::from_str(json).map(Survey).context("`ip` lists network devices in another form")
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|device| device.ifname == name)
    }

    pub fn forget(&mut self, name: &str) {
        self.0.retain(|device| device.ifname != name);
    }

    /// Devices whose names are `first` and a number, each with what its alias says, if it says anything.
    pub fn ports(&self, first: &str) -> impl Iterator<Item = (&str, Option<Alias>)> {
        let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
        let ports =
            self.0.iter().filter(move |device| device.ifname.strip_prefix(first).is_some_and(is_number));
        ports.map(|device| (device.ifname.as_str(), Alias::read(&device.ifalias)))
    }

    pub fn aliases(&self, first: &str) -> impl Iterator<Item = Alias> {
        self.ports(first).filter_map(|(_, alias)| alias)
    }

    /// The first IPv4 address of a device.
    pub fn bridge_address(&self, name: &str) -> Option<Ipv4Addr> {
        let device = self.0.iter().find(|device| device.ifname == name)?;
        device.ipv4().next().map(|(address, _)| address)
    }

    /// Checks that no other device of the computer has addresses of `subnet`.
    pub fn check_is_free(&self, subnet: Subnet) -> Result<()> {
        for device in self.0.iter().filter(|device| device.ifname != super::NAME) {
            for (address, prefix) in device.ipv4() {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(super::PREFIX))).unwrap_or(0);
                if u32::from(address) & mask == u32::from(subnet.host()) & mask {
                    bail!(
                        "the bridge's addresses {subnet} are in use: {} has {address}/{prefix}; \
                         NOM_BRIDGE=A.B.C.0/24 chooses others",
                        device.ifname
                    );
                }
            }
        }
        Ok(())
    }
}

impl Device {
    fn ipv4(&self) -> impl Iterator<Item = (Ipv4Addr, u8)> {
        let ipv4 = self.addr_info.iter().filter(|address| address.family == "inet");
        ipv4.filter_map(|address| Some((address.local.parse().ok()?, address.prefixlen)))
    }
}

/// What a port's alias says: `nom MACHINE ADDRESS PROCESS STARTED`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alias {
    pub machine: String,
    pub address: Ipv4Addr,
    pub maker: ProcessIdentity,
}

impl Alias {
    fn read(text: &str) -> Option<Alias> {
        let [mark, machine, address, id, started] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let maker = ProcessIdentity { id: id.parse().ok()?, started: started.parse().ok()? };
        let alias = Alias { machine: machine.to_owned(), address: address.parse().ok()?, maker };
        (mark == "nom").then_some(alias)
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "nom {} {} {} {}", self.machine, self.address, self.maker.id, self.maker.started)
    }
}
