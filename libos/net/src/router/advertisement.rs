//! A router's advertisement, read (RFC 4861 section 4.2).

use crate::config::Cidr;
use crate::frame::Mac;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

/// Bytes in front of the options.
const HEADER: usize = 16;
/// What one message may name of each kind.
const EACH_MAX: usize = 16;
/// The smallest link that IPv6 runs over (RFC 8200 section 5).
const MTU_MIN: u32 = 1280;

/// A prefix as a router advertises it (section 4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The prefix; what is behind its bits is zero.
    pub cidr: Cidr,
    /// Its addresses are reached without a router.
    pub is_on_link: bool,
    /// Hosts make addresses of it.
    pub is_autonomous: bool,
    /// Seconds for which that holds.
    pub valid_s: u32,
    /// Seconds for which its addresses are used for what is new.
    pub preferred_s: u32,
}

/// What a router says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertisement {
    /// Hop limit to send with; 0 says nothing.
    pub hop_limit: u8,
    /// Seconds for which it is a default router; 0: it is none.
    pub lifetime_s: u16,
    /// Milliseconds for which an answer of a neighbour is believed; 0 says nothing.
    pub reachable_ms: u32,
    /// Milliseconds between questions to neighbours; 0 says nothing.
    pub retransmit_ms: u32,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
    /// The longest packets of the link.
    pub mtu: Option<u16>,
    /// Prefixes.
    pub prefixes: Vec<Prefix>,
    /// Name servers, and for how many seconds (RFC 8106 section 5.1).
    pub nameservers: Vec<(Ipv6Addr, u32)>,
}

impl Advertisement {
    /// Reads an ICMPv6 message of this type; `None` if it is malformed. Options that are not known, and
    /// values that make no sense, are skipped.
    pub fn parse(bytes: &[u8]) -> Option<Advertisement> {
        let (header, mut rest) = bytes.split_first_chunk::<HEADER>()?;
        if header[1] != 0 {
            return None;
        }
        let mut said = Advertisement {
            hop_limit: header[4],
            lifetime_s: u16::from_be_bytes([header[6], header[7]]),
            reachable_ms: word(header, 8)?,
            retransmit_ms: word(header, 12)?,
            ..Advertisement::default()
        };
        while let [_, len, ..] = *rest {
            // Section 6.1.2: an option without a length makes the whole message void.
            let len = 8 * usize::from(len);
            let option = rest.get(..len).filter(|_| len > 0)?;
            said.option(option);
            rest = &rest[len..];
        }
        rest.is_empty().then_some(said)
    }

    fn option(&mut self, option: &[u8]) {
        match option[0] {
            1 if option.len() == 8 => self.mac = option[2..].first_chunk().copied(),
            3 if option.len() == 32 && self.prefixes.len() < EACH_MAX => self.prefixes.extend(prefix(option)),
            5 if option.len() == 8 => {
                let mtu = word(option, 4).filter(|mtu| *mtu >= MTU_MIN);
                self.mtu = mtu.map(|mtu| mtu.min(u16::MAX.into()) as u16).or(self.mtu);
            }
            25 => {
                let seconds = word(option, 4).unwrap_or(0);
                let addresses = option[8..].chunks_exact(16).filter_map(address);
                let room = EACH_MAX - self.nameservers.len();
                self.nameservers.extend(addresses.map(|address| (address, seconds)).take(room));
            }
            _ => {}
        }
    }
}

/// Link-local ones are nobody's to advertise; nor are groups.
fn prefix(option: &[u8]) -> Option<Prefix> {
    let (prefix, flags) = (option[2], option[3]);
    let bits = address(option.get(16..)?)?;
    if prefix > 128 || bits.is_unicast_link_local() || bits.is_multicast() {
        return None;
    }
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    let cidr = Cidr { address: Ipv6Addr::from_bits(bits.to_bits() & mask).into(), prefix };
    Some(Prefix {
        cidr,
        is_on_link: flags & 0x80 != 0,
        is_autonomous: flags & 0x40 != 0,
        valid_s: word(option, 4)?,
        preferred_s: word(option, 8)?,
    })
}

fn address(bytes: &[u8]) -> Option<Ipv6Addr> {
    bytes.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
