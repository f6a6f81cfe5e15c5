//! What a stack finds out about its network by itself: whether its addresses are free (over
//! [`crate::duplicate`]), which groups it listens to (over [`crate::multicast`]), and what routers say (over
//! [`crate::router`]). DHCP, in [`super::services`], has its addresses tested here.
//!
//! Of several stacks of a host one does it; the others are told ([`Stack::configure`]).

use super::neighbours::{ALL_NODES, bare, multicast_mac, solicited_node};
use super::{Application, Stack};
use crate::chance::Chance;
use crate::checksum;
use crate::config::{Cidr, Config};
use crate::duplicate::{Probes, Step};
use crate::frame::{self, Drop, ETHERNET, Mac, Packet, Path, protocol};
use crate::multicast::{self, Listener};
use crate::neighbour::Said;
use crate::router::{self, Advertisement, Routers};
use crate::time::{Instant, earliest};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use nom_port::buffer::Chain;
use nom_port::nic::Nic;
use smoltcp::wire::{ArpOperation, NdiscRepr};

/// The first message of an interface waits for up to so long, so that not all that were started together
/// speak at once (RFC 4862 section 5.4.2).
const FIRST_DELAY: Duration = Duration::from_secs(1);
const IGNORED: Drop = |counters| &mut counters.dropped_icmp;
const BAD: Drop = |counters| &mut counters.dropped_malformed;

/// Which of its network's services a stack asks for addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// An IPv4 address, a router and name servers by DHCP.
    pub dhcp: bool,
    /// IPv6 addresses made of routers' prefixes, and the routers.
    pub routers: bool,
    /// What those addresses are made from: the same key, the same address in a network (RFC 7217).
    pub stable_key: Option<[u64; 2]>,
}

/// Another machine claims an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispute {
    /// The address.
    pub address: IpAddr,
    /// Who claims it.
    pub by: Mac,
    /// Whether it was there first, so that we do not use the address.
    pub is_lost: bool,
}

impl core::fmt::Display for Dispute {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Dispute { address, by: [a, b, c, d, e, f], is_lost } = self;
        write!(
            out,
            "the machine at {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} has the address {address}, too: "
        )?;
        out.write_str(if *is_lost { "it was there first, and keeps it" } else { "we keep it" })
    }
}

/// What a stack has found out.
#[derive(Clone, Copy, Debug)]
pub enum Finding<'c> {
    /// Addresses, routers or name servers are these now.
    Configured(&'c Config),
    /// Somebody claims an address.
    Disputed(Dispute),
}

/// Somebody who hears of it, if anybody does: for applications that have it said.
#[derive(Default)]
pub struct Ear(Option<Box<Hear>>);

type Hear = dyn FnMut(Finding<'_>);

impl Ear {
    /// One that calls `hear`.
    pub fn new(hear: impl FnMut(Finding<'_>) + 'static) -> Ear {
        Ear(Some(Box::new(hear)))
    }

    /// Says it.
    pub fn hear(&mut self, finding: Finding<'_>) {
        if let Some(hear) = &mut self.0 {
            hear(finding);
        }
    }
}

impl core::fmt::Debug for Ear {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "Ear({})", if self.0.is_some() { "open" } else { "none" })
    }
}

/// The state of it.
pub(super) struct Discovery {
    chance: Chance,
    probes: Probes,
    listener: Listener,
    routers: Option<Routers>,
    /// What was there before routers said something.
    told: Config,
}

impl Discovery {
    /// When there is something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        earliest([self.probes.due(), self.listener.due(), self.routers.as_ref().and_then(Routers::due)])
    }

    /// Whether an address under test has this group.
    pub(super) fn listens(&self, group: Ipv6Addr) -> bool {
        self.probes.under_test().any(|address| group_of(address) == Some(group))
    }
}

/// The group of those who ask for an IPv6 address.
fn group_of(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(solicited_node(address)),
    }
}

impl<N: Nic> Stack<N> {
    /// Tests all addresses, and finds out others as `setup` says. IPv6 addresses are used when nobody else
    /// has them; IPv4 addresses that were given are used at once, and given up if somebody else has them.
    /// Each change is told by [`Application::configured`], each claim of others by
    /// [`Application::disputed`].
    pub fn discover(&mut self, now: Instant, setup: Setup) {
        self.advance(now);
        let mac = self.link.properties.mac;
        let key = setup.stable_key.unwrap_or_else(|| [self.chance(&"name"), self.chance(&"names")]);
        let given = self.take_v6();
        let discovery = self.discovery();
        let first = now + discovery.chance.below(FIRST_DELAY);
        if setup.routers {
            discovery.routers = Some(Routers::new(now, key, mac, &mut discovery.chance));
        }
        for cidr in given {
            self.test(first, cidr);
        }
        let given: Vec<Cidr> = self.config.addresses.clone();
        given.into_iter().for_each(|cidr| self.test(now, cidr));
        if setup.dhcp {
            self.start_dhcp();
        }
    }

    /// Leaves it to another stack of this host to find out addresses, and has none of IPv6 until it is told
    /// by [`Stack::configure`].
    pub fn follow(&mut self) {
        self.take_v6();
        self.services.is_following = true;
    }

    /// Takes over what another stack of this host has found out.
    pub fn configure(&mut self, found: &Config) {
        self.config.addresses.clone_from(&found.addresses);
        self.config.on_link.clone_from(&found.on_link);
        self.config.nameservers.clone_from(&found.nameservers);
        (self.config.gateway4, self.config.gateway6) = (found.gateway4, found.gateway6);
        (self.config.mtu6, self.config.hop_limit6) = (found.mtu6, found.hop_limit6);
        self.heed_config();
    }

    /// Sends by what the configuration says now.
    fn heed_config(&mut self) {
        let mtu = self.link.properties.mtu;
        self.link.mtu6 = self.config.mtu6.map_or(mtu, |mtu6| mtu6.min(mtu));
        self.link.hop_limit6 = self.config.hop_limit6.unwrap_or(frame::HOPS);
        self.neighbours.doubt();
    }

    fn take_v6(&mut self) -> Vec<Cidr> {
        let (v6, v4) = self.config.addresses.iter().partition(|cidr| cidr.address.is_ipv6());
        self.config.addresses = v4;
        v6
    }

    pub(super) fn discovery(&mut self) -> &mut Discovery {
        if self.discovery.is_none() {
            let key = [self.chance(&"when"), self.chance(&"how long")];
            self.discovery = Some(Box::new(Discovery {
                chance: Chance::new(key),
                probes: Probes::default(),
                listener: Listener::default(),
                routers: None,
                told: self.config.clone(),
            }));
        }
        self.discovery.as_mut().expect("it was made just now")
    }

    /// Tests an address from `at` on.
    pub(super) fn test(&mut self, at: Instant, cidr: Cidr) {
        let discovery = self.discovery();
        discovery.probes.begin(at, cidr);
        if let Some(group) = group_of(cidr.address) {
            discovery.listener.join(at, group);
        }
    }

    /// Tests or announces an address no further.
    pub(super) fn end_test(&mut self, address: IpAddr) {
        self.discovery().probes.end(address);
    }

    /// Does what is due.
    pub(super) fn set_up(&mut self, application: &mut impl Application<N>) {
        let gone = core::mem::take(&mut self.gone);
        self.note_gone(application, &gone);
        while let Some(discovery) =
            self.discovery.as_mut().filter(|one| one.due().is_some_and(|due| due <= self.now))
        {
            let Discovery { chance, probes, listener, routers, .. } = &mut **discovery;
            // Who listens says so first: a switch may hold back what is for the group.
            if let Some(report) = listener.poll(self.now, chance) {
                self.send_report(&report);
            } else if let Some(step) = probes.poll(self.now, chance) {
                self.step(application, step);
            } else if let Some(routers) = routers {
                if routers.solicits(self.now, chance) {
                    self.solicit();
                } else {
                    routers.expire(self.now);
                    self.reconfigure(application);
                }
            }
        }
    }

    fn step(&mut self, application: &mut impl Application<N>, step: Step) {
        match step {
            Step::Ask(IpAddr::V4(address)) => self.broadcast_arp(Ipv4Addr::UNSPECIFIED, address),
            Step::Announce(IpAddr::V4(address)) => self.broadcast_arp(address, address),
            Step::Ask(IpAddr::V6(address)) => {
                let message = NdiscRepr::NeighborSolicit { target_addr: address, lladdr: None };
                let group = solicited_node(address);
                self.send_discovery(Ipv6Addr::UNSPECIFIED, group.into(), Some(multicast_mac(group)), message);
            }
            Step::Announce(IpAddr::V6(_)) => {}
            Step::Free(cidr) => self.free(application, cidr),
        }
    }

    fn broadcast_arp(&mut self, from: Ipv4Addr, target: Ipv4Addr) {
        self.send_arp(ArpOperation::Request, from, ([0; 6], target), frame::BROADCAST);
    }

    /// Nobody else has an address.
    fn free(&mut self, application: &mut impl Application<N>, cidr: Cidr) {
        if self.accept_lease(application, cidr) || self.config.is_ours(cidr.address) {
            return;
        }
        let discovery = self.discovery();
        match (cidr.address, &mut discovery.routers) {
            (IpAddr::V6(address), Some(routers)) if routers.has(address) => routers.accept(address),
            (IpAddr::V6(_), _) => discovery.told.addresses.push(cidr),
            (IpAddr::V4(_), _) => return,
        }
        self.reconfigure(application);
    }

    /// Puts together what was told and what was found out.
    fn reconfigure(&mut self, application: &mut impl Application<N>) {
        let Some(discovery) = &mut self.discovery else { return };
        let Discovery { listener, routers, told, probes, .. } = &mut **discovery;
        let before = self.config.network();
        let config = &mut self.config;
        config.addresses.retain(|cidr| cidr.address.is_ipv4());
        config.nameservers.retain(|server| server.is_ipv4() || told.nameservers.contains(server));
        config.gateway6 = told.gateway6;
        let (link, wide): (Vec<Cidr>, Vec<Cidr>) = told
            .addresses
            .iter()
            .filter(|cidr| cidr.address.is_ipv6())
            .partition(|cidr| crate::config::is_of_link(cidr.address));
        config.addresses.extend(wide);
        if let Some(routers) = routers {
            routers.apply(config);
        }
        config.addresses.extend(link);
        let groups: Vec<Ipv6Addr> = probes
            .under_test()
            .chain(config.addresses.iter().map(|cidr| cidr.address))
            .filter_map(group_of)
            .collect();
        listener.retain(self.now, |group| groups.contains(&group));
        if self.config.network() != before {
            self.heed_config();
            application.configured(self);
        }
    }

    /// Somebody at `by` says that he has `address`, or is about to take it (`is_probe`).
    pub(super) fn hear_claim(
        &mut self,
        application: &mut impl Application<N>,
        address: IpAddr,
        by: Mac,
        is_probe: bool,
    ) {
        if by == self.link.properties.mac {
            return;
        }
        let Some(discovery) = &mut self.discovery else { return };
        if discovery.probes.tests(address) {
            discovery.probes.end(address);
            return self.lose(application, address, by);
        }
        let IpAddr::V4(ours) = address else { return };
        if !is_probe && self.config.is_ours(address) && discovery.probes.may_defend(self.now, address) {
            self.broadcast_arp(ours, ours);
            application.disputed(self, Dispute { address, by, is_lost: false });
        }
    }

    /// Somebody else has an address under test: it is not used.
    fn lose(&mut self, application: &mut impl Application<N>, address: IpAddr, by: Mac) {
        let (now, was_used) = (self.now, self.config.is_ours(address));
        self.config.addresses.retain(|cidr| cidr.address != address);
        self.decline_lease(address);
        let discovery = self.discovery();
        discovery.told.addresses.retain(|cidr| cidr.address != address);
        if let (IpAddr::V6(address), Some(routers)) = (address, &mut discovery.routers)
            && let Some(another) = routers.decline(address)
        {
            self.test(now, another);
        }
        if crate::config::is_of_link(address) {
            // It was made of the device's address, so whoever has it may have that, too: IPv6 is not spoken
            // (RFC 4862 section 5.4.5).
            let discovery = self.discovery();
            discovery.routers = None;
            discovery.told.addresses.retain(|cidr| cidr.address.is_ipv4());
            let others: Vec<IpAddr> = discovery.probes.under_test().filter(IpAddr::is_ipv6).collect();
            others.into_iter().for_each(|other| discovery.probes.end(other));
        }
        self.reconfigure(application);
        if was_used {
            application.configured(self);
        }
        application.disputed(self, Dispute { address, by, is_lost: true });
    }

    /// Takes a router's advertisement (RFC 4861 section 6.1.2).
    pub(super) fn advertisement(
        &mut self,
        application: &mut impl Application<N>,
        packet: &Packet,
        message: &[u8],
    ) -> Result<(), Drop> {
        let IpAddr::V6(from) = packet.from else { return Err(IGNORED) };
        let Some(routers) = self.discovery.as_mut().and_then(|discovery| discovery.routers.as_mut()) else {
            return Err(IGNORED);
        };
        if packet.hops != 255 || !from.is_unicast_link_local() {
            return Err(IGNORED);
        }
        let said = Advertisement::parse(message).ok_or(BAD)?;
        let fresh = routers.hear(self.now, from, &said);
        if said.mac.is_some() {
            self.learn(packet.from, said.mac, Said::Asked);
        }
        let millis = |ms| (ms > 0).then(|| Duration::from_millis(u64::from(ms)));
        if said.reachable_ms > 0 || said.retransmit_ms > 0 {
            let chance = self.chance(&"reachable");
            self.neighbours.set_times(millis(said.reachable_ms), millis(said.retransmit_ms), chance);
        }
        for address in fresh {
            // RFC 4862 section 5.4.2: all hosts of the link heard the same.
            let at = self.now + self.discovery().chance.below(FIRST_DELAY);
            self.test(at, address);
        }
        self.reconfigure(application);
        Ok(())
    }

    /// Takes a question about groups (RFC 3810 section 6.2): what does not come from this link, or not by
    /// way of its router, is a forgery.
    pub(super) fn group_query(&mut self, packet: &Packet, message: &[u8]) -> Result<(), Drop> {
        let is_near = matches!(packet.from, IpAddr::V6(from) if from.is_unicast_link_local());
        let Some(discovery) = self.discovery.as_mut().filter(|_| is_near && packet.hops == 1) else {
            return Err(IGNORED);
        };
        discovery.listener.query(self.now, message, &mut discovery.chance);
        Ok(())
    }

    /// Whether packets to a group are for us: to all, or to those who have an address of ours.
    pub(super) fn is_listening(&self, group: Ipv6Addr) -> bool {
        let has = |cidr: &Cidr| group_of(cidr.address) == Some(group);
        group == ALL_NODES
            || self.config.addresses.iter().any(has)
            || self.discovery.as_ref().is_some_and(|discovery| discovery.listens(group))
    }

    /// Neighbours that do not answer: another router takes the place of one.
    fn note_gone(&mut self, application: &mut impl Application<N>, gone: &[IpAddr]) {
        let routers = |one: &mut Discovery| -> bool {
            let Some(routers) = &mut one.routers else { return false };
            gone.iter().fold(false, |any, address| match address {
                IpAddr::V6(router) => routers.doubt(*router) || any,
                IpAddr::V4(_) => any,
            })
        };
        if self.discovery.as_deref_mut().is_some_and(routers) {
            self.reconfigure(application);
        }
    }

    /// A neighbour says that it is no router.
    pub(super) fn note_resigned(&mut self, application: &mut impl Application<N>, address: Ipv6Addr) {
        let routers = self.discovery.as_mut().and_then(|discovery| discovery.routers.as_mut());
        if routers.is_some_and(|routers| routers.resign(address)) {
            self.reconfigure(application);
        }
    }

    /// Asks for routers, by name if we have one.
    fn solicit(&mut self) {
        let [a, b, c, d, e, f] = self.link.properties.mac;
        let from = self.link_source();
        let whole = [133, 0, 0, 0, 0, 0, 0, 0, 1, 1, a, b, c, d, e, f];
        // Nobody can be answered by name (RFC 4861 section 4.1).
        let message = if from.is_unspecified() { &whole[..8] } else { &whole[..] };
        self.send_icmpv6(from, router::ALL_ROUTERS, message);
    }

    /// Our address of the link, or none.
    fn link_source(&self) -> Ipv6Addr {
        let link = self.config.addresses.iter().map(|cidr| cidr.address);
        let found = link.filter(|address| crate::config::is_of_link(*address));
        found
            .filter_map(|address| if let IpAddr::V6(six) = address { Some(six) } else { None })
            .next()
            .unwrap_or(Ipv6Addr::UNSPECIFIED)
    }

    /// Sends a short ICMPv6 message to a group.
    fn send_icmpv6(&mut self, from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) {
        let path = Path { mac: self.link.properties.mac, hop: [0; 6], from: from.into(), to: to.into() };
        let (mut head, start) = frame::ip(&path, protocol::ICMPV6, message.len(), 0);
        head[start..].copy_from_slice(message);
        let sum = checksum::pseudo_header(path.from, path.to, protocol::ICMPV6, message.len());
        let sum = !checksum::add(sum, checksum::sum(message));
        head[start + 2..start + 4].copy_from_slice(&sum.to_be_bytes());
        let mac = self.mac_to(path.to);
        self.transmit_to(path.to, mac, bare(head));
    }

    /// Sends a report about groups: with a router's alert, and no farther than the link (RFC 3810 section 5).
    fn send_report(&mut self, message: &[u8]) {
        const ALERT: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
        let (from, to) = (IpAddr::from(self.link_source()), IpAddr::from(multicast::ROUTERS));
        let path = Path { mac: self.link.properties.mac, hop: [0; 6], from, to };
        let (mut head, start) = frame::ip(&path, 0, ALERT.len(), message.len());
        head[ETHERNET + 7] = 1;
        head[start..].copy_from_slice(&ALERT);
        let mut message = message.to_vec();
        let sum = checksum::pseudo_header(from, to, protocol::ICMPV6, message.len());
        let sum = !checksum::add(sum, checksum::sum(&message));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        if let Some(bytes) = self.link.nic.buffer(&message) {
            let mac = self.mac_to(to);
            let mut packet = bare(head);
            packet.payload = Chain::from_iter([bytes]);
            self.transmit_to(to, mac, packet);
        }
    }
}
