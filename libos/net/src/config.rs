//! What a stack is told when it starts.

use crate::batch::Unheld;
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
    /// IPv6 networks that are reached without a router although we have no address there (RFC 5942).
    pub on_link: Vec<Cidr>,
    /// Longest IPv6 packets, if the link carries shorter ones than the device.
    pub mtu6: Option<u16>,
    /// Hop limit of IPv6 packets, if it is not the usual one.
    pub hop_limit6: Option<u8>,
    /// Whom to ask for the addresses of names, in this order.
    pub nameservers: Vec<IpAddr>,
    /// What all connections have in common.
    pub tcp: Settings,
    /// Most flows at a time, TIME-WAIT included.
    pub flows_max: usize,
    /// Most of them that are opened here, where other cores hand over theirs: the cores' shares together are
    /// `flows_max`, as long as that is one core's to have.
    pub flows_share: usize,
    /// Most connections half open at a time. Beyond it SYN is answered by cookies, which cost no memory.
    pub half_open_max: usize,
    /// How long a connection that we closed first is remembered: twice the longest life of a segment.
    pub time_wait: Duration,
    /// What becomes of packets with W = 0.
    pub unheld: Unheld,
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
            on_link: Vec::new(),
            mtu6: None,
            hop_limit6: None,
            nameservers: Vec::new(),
            tcp: Settings::default(),
            flows_max: FLOWS_MAX,
            flows_share: FLOWS_MAX,
            half_open_max: 1024,
            time_wait: Duration::from_secs(60),
            unheld: Unheld::default(),
            secret,
        }
    }

    /// The same for one of `cores` stacks that have the program's memory together: each opens its part of the
    /// flows, and may take over all.
    pub fn shared_by(mut self, cores: usize) -> Config {
        self.flows_share = self.flows_share.min(self.flows_max) / cores.max(1);
        self.tcp.queued_max /= cores.max(1);
        self.tcp.kept_max /= cores.max(1);
        self
    }

    /// The address from which `remote` is reached.
    pub fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let same_family = self.addresses.iter().filter(|cidr| cidr.address.is_ipv4() == remote.is_ipv4());
        // Of the same scope (RFC 6724 section 5, rule 2); one of the link goes nowhere else.
        let same_scope = same_family.filter(|cidr| is_of_link(cidr.address) == is_of_link(remote));
        // The first of those that have most in common with it (rule 8).
        same_scope.rev().max_by_key(|cidr| common_bits(cidr.address, remote)).map(|cidr| cidr.address)
    }

    /// The neighbour through which `remote` is reached.
    pub fn next_hop(&self, remote: IpAddr) -> Option<IpAddr> {
        if is_of_link(remote) || self.addresses.iter().chain(&self.on_link).any(|cidr| cidr.contains(remote))
        {
            return Some(remote);
        }
        match remote {
            IpAddr::V4(_) => self.gateway4.map(IpAddr::V4),
            IpAddr::V6(_) => self.gateway6.map(IpAddr::V6),
        }
    }

    /// What of it is found out by asking the network, to compare.
    pub(crate) fn network(&self) -> impl PartialEq + use<> {
        let (addresses, on_link) = (self.addresses.clone(), self.on_link.clone());
        let gateways = (self.gateway4, self.gateway6, self.nameservers.clone());
        (addresses, on_link, gateways, self.mtu6, self.hop_limit6)
    }

    /// Whether `address` is one of ours.
    #[inline]
    pub fn is_ours(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|cidr| cidr.address == address)
    }

    /// The same of an IPv4 address, which is looked for with each segment.
    #[inline]
    pub(crate) fn is_ours_v4(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|cidr| matches!(cidr.address, IpAddr::V4(ours) if ours == address))
    }
}

/// An IPv6 address that means something on this link alone.
pub(crate) fn is_of_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local() || address.is_multicast())
}

/// How many bits two addresses of a family begin with in common.
fn common_bits(one: IpAddr, other: IpAddr) -> u32 {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => 0,
    }
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
