//! What routers advertise, and what a host makes of it: default routers, prefixes of the link, addresses of
//! its own (RFC 4861 section 6.3, RFC 4862 section 5.5, RFC 7217, RFC 8106). The stack carries the
//! messages.
//!
//! Every list is bounded: what comes when it is full is ignored, so that nobody who floods replaces what was
//! there.

mod advertisement;

use crate::chance::Chance;
use crate::config::{Cidr, Config};
use crate::frame::Mac;
use crate::table::keyed;
use crate::time::Instant;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

pub use advertisement::{Advertisement, Prefix};

/// Type of a router's advertisement.
pub const ADVERTISEMENT: u8 = 134;
/// Who hears solicitations.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

const ROUTERS_MAX: usize = 8;
const PREFIXES_MAX: usize = 16;
const ADDRESSES_MAX: usize = 8;
const NAMESERVERS_MAX: usize = 4;
/// The first solicitation comes after a random delay; the gaps double (RFC 4861 section 10, RFC 7559).
const SOLICIT_DELAY: Duration = Duration::from_secs(1);
const SOLICIT_GAP: Duration = Duration::from_secs(4);
const SOLICIT_GAP_MAX: Duration = Duration::from_secs(3600);
/// An advertisement cannot end an address sooner, for anybody can send one (RFC 4862 section 5.5.3 (e)).
const TWO_HOURS: Duration = Duration::from_secs(7200);
/// Names tried for one prefix before giving up (RFC 7217 section 7: IDGEN_RETRIES).
const TRIES_MAX: u8 = 3;
/// Bits of an Ethernet's interface identifiers, and so of its prefixes (RFC 2464 section 4).
const PREFIX_LEN: u8 = 64;
const FOR_EVER: u32 = u32::MAX;
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// An address that we made.
#[derive(Clone, Debug)]
struct Automatic {
    prefix: Cidr,
    address: Ipv6Addr,
    /// Nobody else has it.
    is_free: bool,
    /// Its preferred time is over: it is used only where there is no other.
    is_deprecated: bool,
    tries: u8,
    preferred: Instant,
    valid: Instant,
}

/// What is known of routers, and of what they say.
#[derive(Clone, Debug)]
pub struct Routers {
    key: [u64; 2],
    mac: Mac,
    /// The one in front is used.
    routers: Vec<(Ipv6Addr, Instant)>,
    on_link: Vec<(Cidr, Instant)>,
    addresses: Vec<Automatic>,
    nameservers: Vec<(Ipv6Addr, Instant)>,
    mtu: Option<u16>,
    hop_limit: Option<u8>,
    solicit: Option<Instant>,
    gap: Duration,
}

impl Routers {
    /// None yet. Interface identifiers are made from `key` and the device's address: the same for the same
    /// prefix (RFC 7217), and others for another machine that was given the same key.
    pub fn new(now: Instant, key: [u64; 2], mac: Mac, chance: &mut Chance) -> Routers {
        Routers {
            key,
            mac,
            routers: Vec::new(),
            on_link: Vec::new(),
            addresses: Vec::new(),
            nameservers: Vec::new(),
            mtu: None,
            hop_limit: None,
            solicit: Some(now + chance.below(SOLICIT_DELAY)),
            gap: SOLICIT_GAP,
        }
    }

    /// When there is something to do.
    pub fn due(&self) -> Option<Instant> {
        let ends = self.routers.iter().map(|(_, end)| *end);
        let ends = ends.chain(self.on_link.iter().map(|(_, end)| *end));
        let ends = ends.chain(self.nameservers.iter().map(|(_, end)| *end));
        let lives =
            self.addresses.iter().map(|one| if one.is_deprecated { one.valid } else { one.preferred });
        let ends = ends.chain(lives).filter(|end| *end != NEVER);
        ends.chain(self.solicit).min()
    }

    /// Whether a router is to be asked for now.
    pub fn solicits(&mut self, now: Instant, chance: &mut Chance) -> bool {
        if self.solicit.is_none_or(|due| due > now) {
            return false;
        }
        // A tenth more or less, so that machines that were started together do not ask together.
        let gap = self.gap / 10 * 9 + chance.below(self.gap / 5);
        self.solicit = Some(now + gap);
        self.gap = (self.gap * 2).min(SOLICIT_GAP_MAX);
        true
    }

    /// Forgets what is over; whether anything is.
    pub fn expire(&mut self, now: Instant) -> bool {
        let count = |all: &Routers| {
            all.routers.len() + all.on_link.len() + all.addresses.len() + all.nameservers.len()
        };
        let before = count(self);
        self.routers.retain(|(_, end)| *end > now);
        self.on_link.retain(|(_, end)| *end > now);
        self.nameservers.retain(|(_, end)| *end > now);
        self.addresses.retain(|one| one.valid > now);
        let mut has_changed = before != count(self);
        for one in &mut self.addresses {
            let is_over = one.preferred <= now;
            has_changed |= core::mem::replace(&mut one.is_deprecated, is_over) != is_over;
        }
        has_changed
    }

    /// Takes an advertisement of the router `from`; the addresses that are to be tested.
    pub fn hear(&mut self, now: Instant, from: Ipv6Addr, said: &Advertisement) -> Vec<Cidr> {
        let end = now + Duration::from_secs(said.lifetime_s.into());
        renew(&mut self.routers, from, (said.lifetime_s > 0).then_some(end), ROUTERS_MAX);
        if said.lifetime_s > 0 {
            self.solicit = None;
        }
        if said.hop_limit > 0 {
            self.hop_limit = Some(said.hop_limit);
        }
        if let Some(mtu) = said.mtu {
            self.mtu = Some(mtu);
        }
        for (address, seconds) in &said.nameservers {
            renew(
                &mut self.nameservers,
                *address,
                (*seconds > 0).then(|| end_of(now, *seconds)),
                NAMESERVERS_MAX,
            );
        }
        let mut fresh = Vec::new();
        for prefix in &said.prefixes {
            if prefix.is_on_link {
                let end = (prefix.valid_s > 0).then(|| end_of(now, prefix.valid_s));
                renew(&mut self.on_link, prefix.cidr, end, PREFIXES_MAX);
            }
            if prefix.is_autonomous
                && prefix.cidr.prefix == PREFIX_LEN
                && prefix.preferred_s <= prefix.valid_s
            {
                fresh.extend(self.address_of(now, prefix));
            }
        }
        fresh
    }

    /// Makes an address for a prefix, or renews the one that there is (RFC 4862 section 5.5.3 (d), (e)).
    fn address_of(&mut self, now: Instant, prefix: &Prefix) -> Option<Cidr> {
        let (preferred, valid) = (end_of(now, prefix.preferred_s), end_of(now, prefix.valid_s));
        if let Some(known) = self.addresses.iter_mut().find(|one| one.prefix == prefix.cidr) {
            known.preferred = preferred;
            let least = known.valid.min(now + TWO_HOURS);
            known.valid = valid.max(least);
            return None;
        }
        if prefix.valid_s == 0 || self.addresses.len() >= ADDRESSES_MAX {
            return None;
        }
        let mut one = Automatic {
            prefix: prefix.cidr,
            address: Ipv6Addr::UNSPECIFIED,
            is_free: false,
            is_deprecated: false,
            tries: 0,
            preferred,
            valid,
        };
        name(&mut one, self.key, self.mac);
        let address = host(one.address);
        self.addresses.push(one);
        Some(address)
    }

    /// Nobody else has an address of ours.
    pub fn accept(&mut self, address: Ipv6Addr) {
        self.addresses.iter_mut().filter(|one| one.address == address).for_each(|one| one.is_free = true);
    }

    /// Whether we made an address.
    pub fn has(&self, address: Ipv6Addr) -> bool {
        self.addresses.iter().any(|one| one.address == address)
    }

    /// Somebody else has an address that we made: another to be tested, unless too many were taken.
    pub fn decline(&mut self, address: Ipv6Addr) -> Option<Cidr> {
        let index = self.addresses.iter().position(|one| one.address == address)?;
        let one = &mut self.addresses[index];
        one.tries += 1;
        if one.tries > TRIES_MAX {
            self.addresses.swap_remove(index);
            return None;
        }
        name(one, self.key, self.mac);
        Some(host(one.address))
    }

    /// A router does not answer, so another comes first; whether there is one.
    pub fn doubt(&mut self, router: Ipv6Addr) -> bool {
        let is_first = self.routers.first().is_some_and(|(first, _)| *first == router);
        if is_first {
            self.routers.rotate_left(1);
        }
        is_first && self.routers.len() > 1
    }

    /// A neighbour says that it is no router (RFC 4861 section 7.2.5); whether it counted as one.
    pub fn resign(&mut self, address: Ipv6Addr) -> bool {
        let before = self.routers.len();
        self.routers.retain(|(router, _)| *router != address);
        before != self.routers.len()
    }

    /// The router to use.
    pub fn first(&self) -> Option<Ipv6Addr> {
        self.routers.first().map(|(router, _)| *router)
    }

    /// Adds what routers said to what a stack was told, which goes first.
    pub fn apply(&self, config: &mut Config) {
        let (preferred, others): (Vec<&Automatic>, Vec<&Automatic>) =
            self.addresses.iter().filter(|one| one.is_free).partition(|one| !one.is_deprecated);
        config.addresses.extend(preferred.into_iter().chain(others).map(|one| host(one.address)));
        config.on_link = self.on_link.iter().map(|(prefix, _)| *prefix).collect();
        config.gateway6 = config.gateway6.or(self.first());
        config.nameservers.extend(self.nameservers.iter().map(|(address, _)| IpAddr::V6(*address)));
        (config.mtu6, config.hop_limit6) = (self.mtu, self.hop_limit);
    }
}

/// When something ends that holds for so many seconds.
fn end_of(now: Instant, seconds: u32) -> Instant {
    if seconds == FOR_EVER { NEVER } else { now + Duration::from_secs(seconds.into()) }
}

/// Sets when something in a list ends; adds it if there is room, takes it out if it is over.
fn renew<T: PartialEq>(list: &mut Vec<(T, Instant)>, key: T, end: Option<Instant>, most: usize) {
    let known = list.iter().position(|(other, _)| *other == key);
    match (known, end) {
        (Some(at), Some(end)) => list[at].1 = end,
        (Some(at), None) => drop(list.remove(at)),
        (None, Some(end)) if list.len() < most => list.push((key, end)),
        _ => {}
    }
}

/// An address by itself: what else is on the link only routers say (RFC 5942).
fn host(address: Ipv6Addr) -> Cidr {
    Cidr { address: address.into(), prefix: 128 }
}

/// The interface identifier of RFC 7217 section 5: a keyed hash of the prefix, the device and how many were
/// taken.
fn name(one: &mut Automatic, key: [u64; 2], mac: Mac) {
    let IpAddr::V6(prefix) = one.prefix.address else { return };
    let network = prefix.to_bits() & (u128::MAX << 64);
    loop {
        let id = keyed(key, &(network, mac, one.tries));
        // Of all routers of a subnet (RFC 4291 section 2.6.1), and of anycast (RFC 5453).
        let is_reserved = id == 0 || id >> 7 == 0xfdff_ffff_ffff_ff80 >> 7;
        one.address = Ipv6Addr::from_bits(network | u128::from(id));
        if !is_reserved {
            return;
        }
        one.tries = one.tries.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests;
