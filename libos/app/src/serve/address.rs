//! Where a program is to be found: what its environment says of that, and what it says on the console.

use super::settings::BadSetting;
use crate::sync::Mutex;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nom_net::{Cidr, Config, Ear, Finding, Setup};
use nom_serve::Ports;

/// The address in QEMU's user-mode network, and in the namespaces that `nom run` makes.
const DEFAULT: &str = "10.0.2.15/24,10.0.2.2";
const EXPECTED: &str = "`dhcp`, `auto` or ADDRESS/PREFIX with the router's address behind it, and commas \
                        between them, such as 10.0.2.15/24,10.0.2.2 or 10.0.2.15/24,fd00::15/64,fd00::2 or \
                        dhcp,auto";
/// Addresses that are given at most.
const MOST: usize = 8;

/// Status of a program whose only address another machine has: as sysexits.h calls what is not available.
const NO_ADDRESS_STATUS: u8 = 69;

/// What the environment says of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Those that are given.
    pub given: Vec<Cidr>,
    pub gateway4: Option<Ipv4Addr>,
    pub gateway6: Option<Ipv6Addr>,
    /// What others are asked for.
    pub setup: Setup,
}

impl Addresses {
    /// `ip`, and `address_key`.
    pub fn from_environment() -> Result<Addresses, BadSetting> {
        let text = crate::var("ip").unwrap_or(DEFAULT);
        let mut addresses = parse(text).ok_or_else(|| BadSetting::new("ip", text, EXPECTED))?;
        if let Some(text) = crate::var("address_key") {
            let key =
                key(text).ok_or_else(|| BadSetting::new("address_key", text, "32 hexadecimal digits"))?;
            addresses.setup.stable_key = Some(key);
        }
        Ok(addresses)
    }
}

fn parse(text: &str) -> Option<Addresses> {
    let mut all = Addresses::default();
    for item in text.split(',').map(str::trim) {
        match item {
            "dhcp" if !all.setup.dhcp && all.given.iter().all(|cidr| cidr.address.is_ipv6()) => {
                all.setup.dhcp = true;
            }
            "auto" if !all.setup.routers => all.setup.routers = true,
            _ => match item.split_once('/') {
                Some((address, prefix)) => all.give(address.parse().ok()?, prefix.parse().ok()?)?,
                None => all.route(item.parse().ok()?)?,
            },
        }
    }
    Some(all)
}

impl Addresses {
    fn give(&mut self, address: IpAddr, prefix: u8) -> Option<()> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let is_host = !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
        let is_new = self.given.iter().all(|cidr| cidr.address != address) && self.given.len() < MOST;
        let is_lent = self.setup.dhcp && address.is_ipv4();
        self.given.push(Cidr { address, prefix });
        (is_host && is_new && !is_lent && prefix <= bits && address != Ipv4Addr::BROADCAST).then_some(())
    }

    /// A router stands behind an address of its family, or behind the wish for one.
    fn route(&mut self, router: IpAddr) -> Option<()> {
        let has_address = self.given.iter().any(|cidr| cidr.address.is_ipv4() == router.is_ipv4());
        let is_host = !router.is_unspecified() && !router.is_multicast();
        match router {
            IpAddr::V4(router) if has_address && is_host => {
                self.gateway4.replace(router).is_none().then_some(())
            }
            IpAddr::V6(router) if (has_address || self.setup.routers) && is_host => {
                self.gateway6.replace(router).is_none().then_some(())
            }
            _ => None,
        }
    }
}

fn key(text: &str) -> Option<[u64; 2]> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let half = |range| u64::from_str_radix(text.get(range)?, 16).ok();
    is_hex.then_some([half(0..16)?, half(16..32)?])
}

/// What is known of our address while the program runs.
struct Watch {
    setup: Setup,
    address: Option<IpAddr>,
    /// Addresses that were given and not lost.
    given: Vec<IpAddr>,
}

impl Watch {
    fn new(config: &Config, setup: Setup) -> Watch {
        let given: Vec<IpAddr> = config.addresses.iter().map(|cidr| cidr.address).collect();
        // One of IPv6 is tested first.
        Watch { setup, address: given.iter().copied().find(IpAddr::is_ipv4), given }
    }

    /// Something was found out; whether the address is another now. Claims are said, and a program that has
    /// no address left ends: it would be silent for ever, and who started it may know another.
    fn hear(&mut self, finding: Finding<'_>) -> bool {
        let dispute = match finding {
            Finding::Configured(config) => {
                let address = place(config);
                return core::mem::replace(&mut self.address, address) != address;
            }
            Finding::Disputed(dispute) => dispute,
        };
        crate::println!("error: {dispute}");
        self.given.retain(|address| !dispute.is_lost || *address != dispute.address);
        if self.given.is_empty() && !self.setup.dhcp && !self.setup.routers {
            crate::println!("error: no address is left");
            crate::exit(NO_ADDRESS_STATUS);
        }
        false
    }

    fn is_asking(&self) -> bool {
        self.setup.dhcp || self.setup.routers
    }
}

/// Says what becomes of the addresses of a program that says by itself what it does there.
pub(crate) fn ear(config: &Config, setup: Setup) -> Ear {
    let mut watch = Watch::new(config, setup);
    Ear::new(move |finding| {
        if watch.hear(finding) && watch.is_asking() {
            match watch.address {
                Some(address) => crate::println!("has the address {address}"),
                None => crate::println!("has no address any more"),
            }
        }
    })
}

/// Says where a service is to be found, when that is known and all of its cores have begun.
pub(super) struct Announcement {
    ports: Ports,
    cores: usize,
    /// What is known, and cores that have not begun.
    state: Mutex<(Watch, usize)>,
}

impl Announcement {
    /// Of a service on `cores` cores.
    pub fn new(ports: &Ports, config: &Config, setup: Setup, cores: usize) -> Arc<Announcement> {
        let state = Mutex::new((Watch::new(config, setup), cores));
        Arc::new(Announcement { ports: ports.clone(), cores, state })
    }

    /// Cores of the service.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// A core has begun.
    pub fn begin(&self) {
        let (watch, left) = &mut *self.state.lock();
        *left -= 1;
        if *left == 0 {
            self.say(watch);
        }
    }

    /// Something was found out.
    pub fn hear(&self, finding: Finding<'_>) {
        let (watch, left) = &mut *self.state.lock();
        if watch.hear(finding) && *left == 0 {
            self.say(watch);
        }
    }

    fn say(&self, watch: &Watch) {
        let (Ports { tcp, udp }, cores) = (&self.ports, self.cores);
        match watch.address {
            Some(address) => crate::print!("serves at {address}, TCP {tcp:?}, UDP {udp:?}"),
            None if watch.is_asking() => crate::print!("waits for an address"),
            None => crate::print!("tests its address"),
        }
        crate::println!("{}", if cores == 1 { "".into() } else { alloc::format!(", on {cores} cores") });
    }
}

/// Where others find us: not at an address of the link alone if there is another.
fn place(config: &Config) -> Option<IpAddr> {
    let all = || config.addresses.iter().map(|cidr| cidr.address);
    all().find(|address| !matches!(address, IpAddr::V6(six) if six.is_unicast_link_local()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(addresses: &Addresses) -> alloc::string::String {
        let given: Vec<_> =
            addresses.given.iter().map(|cidr| alloc::format!("{}/{}", cidr.address, cidr.prefix)).collect();
        alloc::format!("{given:?} {:?} {:?}", addresses.gateway4, addresses.gateway6)
    }

    #[test]
    fn addresses_of_both_families_have_routers() {
        let read = |words| text(&parse(words).expect(words));
        assert_eq!(read(DEFAULT), r#"["10.0.2.15/24"] Some(10.0.2.2) None"#);
        assert_eq!(read("10.0.2.15/24"), r#"["10.0.2.15/24"] None None"#);
        assert_eq!(read("fd00::15/64, fd00::2"), r#"["fd00::15/64"] None Some(fd00::2)"#);
        assert_eq!(
            read("10.0.2.15/24,10.0.2.2,fd00::15/64,fe80::2"),
            r#"["10.0.2.15/24", "fd00::15/64"] Some(10.0.2.2) Some(fe80::2)"#
        );
        let asked = |words| parse(words).map(|all| (all.setup.dhcp, all.setup.routers));
        assert_eq!(
            (asked("dhcp"), asked("auto"), asked("dhcp,auto")),
            (Some((true, false)), Some((false, true)), Some((true, true)))
        );
        assert_eq!(read("dhcp,fd00::15/64,fd00::2"), r#"["fd00::15/64"] None Some(fd00::2)"#);
        assert_eq!(read("auto,fe80::1"), "[] None Some(fe80::1)");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for wrong in [
            "",
            ",",
            "dhcp,",
            "10.0.2.15",
            "10.0.2.15/33",
            "fd00::1/129",
            "10.0.2.2,10.0.2.15/24",
            "0.0.0.0/0",
            "224.0.0.1/24",
            "127.0.0.1/8",
            "255.255.255.255/32",
            "10.0.2.15/24,fd00::2",
            "fd00::1/64,10.0.2.2",
            "dhcp,10.0.2.15/24",
            "10.0.2.15/24,dhcp",
            "dhcp,dhcp",
            "auto,auto",
            "dhcp,10.0.2.2",
            "DHCP",
            "10.0.2.15/24,10.0.2.2,10.0.2.3",
            "10.0.2.15/24,10.0.2.15/24",
            "10.0.2.15/24,0.0.0.0",
            "10.0.2.15/-1",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let nine: Vec<_> = (1..10).map(|number| alloc::format!("10.0.2.{number}/24")).collect();
        assert_eq!((parse(&nine[..8].join(",")).is_some(), parse(&nine.join(","))), (true, None));
    }

    #[test]
    fn a_key_is_of_32_digits() {
        assert_eq!(key("0000000000000001000000000000000f"), Some([1, 15]));
        for wrong in ["", "1", "+000000000000001000000000000000f", "000000000000000100000000000000010"] {
            assert_eq!(key(wrong), None, "{wrong}");
        }
    }
}
