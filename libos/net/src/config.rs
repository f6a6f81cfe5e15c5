//! What a stack is told when it starts.

use crate::tcp::connection::Settings;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

/// An address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Bits of it that all addresses of its network share.
    pub prefix: u8,
}

impl Cidr {
    /// Whether `other` is in the same network.
    pub fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(mine), IpAddr::V4(other)) => {
                let differing = mine.to_bits() ^ other.to_bits();
                differing.checked_shr(32u32.saturating_sub(self.prefix.into())).unwrap_or(0) == 0
            }
            (IpAddr::V6(mine), IpAddr::V6(other)) => {
                let differing = mine.to_bits() ^ other.to_bits();
                differing.checked_shr(128u32.saturating_sub(self.prefix.into())).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Whether `other` means everybody in this IPv4 network.
    pub fn is_broadcast(&self, other: IpAddr) -> bool {
        let (IpAddr::V4(mine), IpAddr::V4(other)) = (self.address, other) else { return false };
        let hosts = u32::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
        hosts > 1 && mine.to_bits() | hosts == other.to_bits()
    }
}

/// What a stack is told when it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Our addresses. An IPv6 link-local address made from the device's Ethernet address is added.
    pub addresses: Vec<Cidr>,
    /// The IPv4 router for everything outside our networks.
    pub gateway4: Option<Ipv4Addr>,
    /// The IPv6 router.
    pub gateway6: Option<Ipv6Addr>,
    /// Whom to ask for the addresses of names, in this order.
    pub nameservers: Vec<IpAddr>,
    /// What all connections have in common.
    pub tcp: Settings,
    /// Most flows at a time, TIME-WAIT included.
    pub flows_max: usize,
    /// Most connections half open at a time. Beyond it SYN is answered by cookies, which cost no memory.
    pub half_open_max: usize,
    /// How long a connection that we closed first is remembered: twice the longest life of a segment.
    pub time_wait: Duration,
    /// Keys of hashes, sequence numbers and cookies; from [`nom_port::world::Entropy`].
    pub secret: [u64; 4],
}

/// Most flows of a stack that is told no other number.
pub const FLOWS_MAX: usize = 1 << 20;

impl Config {
    /// No address yet, and everything else as it usually is. There is no default for the keys: whoever knew
    /// them could foretell sequence numbers and forge cookies.
    pub fn new(secret: [u64; 4]) -> Config {
        Config {
            addresses: Vec::new(),
            gateway4: None,
            gateway6: None,
            nameservers: Vec::new(),
            tcp: Settings::default(),
            flows_max: FLOWS_MAX,
            half_open_max: 1024,
            time_wait: Duration::from_secs(60),
            secret,
        }
    }

    /// The address from which `remote` is reached.
    pub fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let same_family = || self.addresses.iter().filter(|cidr| cidr.address.is_ipv4() == remote.is_ipv4());
        let near = same_family().find(|cidr| cidr.contains(remote));
        near.or_else(|| same_family().find(|cidr| !is_link_local(cidr.address))).map(|cidr| cidr.address)
    }

    /// The neighbour through which `remote` is reached.
    pub fn next_hop(&self, remote: IpAddr) -> Option<IpAddr> {
        if is_link_local(remote) || self.addresses.iter().any(|cidr| cidr.contains(remote)) {
            return Some(remote);
        }
        match remote {
            IpAddr::V4(_) => self.gateway4.map(IpAddr::V4),
            IpAddr::V6(_) => self.gateway6.map(IpAddr::V6),
        }
    }

    /// Whether `address` is one of ours.
    pub fn is_ours(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|cidr| cidr.address == address)
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The IPv6 link-local address of a device (RFC 4291 appendix A).
pub fn link_local(mac: [u8; 6]) -> Cidr {
    let [a, b, c, d, e, f] = mac;
    let id = [a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    let address = Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(u64::from_be_bytes(id)));
    Cidr { address: address.into(), prefix: 64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let addresses = [(IpAddr::from([10, 0, 2, 15]), 24), ("fd00::1".parse().unwrap(), 64)]
            .map(|(address, prefix)| Cidr { address, prefix });
        let mut config = Config { addresses: addresses.to_vec(), ..Config::new([0; 4]) };
        config.addresses.push(link_local([0x52, 0x54, 0, 1, 2, 3]));
        config.gateway4 = Some(Ipv4Addr::new(10, 0, 2, 2));
        config
    }

    #[test]
    fn the_way_depends_on_the_network() {
        let config = config();
        let via = |text: &str| config.next_hop(text.parse().unwrap()).map(|hop| hop.to_string());
        assert_eq!(via("10.0.2.77").as_deref(), Some("10.0.2.77"));
        assert_eq!(via("8.8.8.8").as_deref(), Some("10.0.2.2"));
        assert_eq!(via("fd00::9").as_deref(), Some("fd00::9"));
        assert_eq!(via("fd01::9"), None, "there is no IPv6 router");
        assert_eq!(
            config.source_for("fe80::9".parse().unwrap()).unwrap().to_string(),
            "fe80::5054:ff:fe01:203"
        );
        assert_eq!(config.source_for("2001:db8::1".parse().unwrap()).unwrap().to_string(), "fd00::1");
    }

    #[test]
    fn prefixes_of_any_length_hold() {
        let cidr = |prefix| Cidr { address: [192, 168, 1, 1].into(), prefix };
        assert!(cidr(0).contains([8, 8, 8, 8].into()));
        assert!(cidr(32).contains([192, 168, 1, 1].into()) && !cidr(32).contains([192, 168, 1, 2].into()));
        assert!(
            cidr(24).is_broadcast([192, 168, 1, 255].into())
                && !cidr(32).is_broadcast([192, 168, 1, 1].into())
        );
        assert!(!cidr(255).contains([192, 168, 1, 2].into()), "nonsense is no panic");
    }
}
