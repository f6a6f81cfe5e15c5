//! Finding neighbours: ARP (RFC 826) and neighbour discovery (RFC 4861), over [`crate::neighbour`].

use super::{Application, Stack};
use crate::frame::{self, BROADCAST, Drop, ETHERNET, Mac, Packet, Path, protocol};
use crate::neighbour::{Hop, Said, State};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nom_port::buffer::Chain;
use nom_port::nic::{Nic, Outgoing};
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetProtocol, Icmpv6Packet, Icmpv6Repr,
    NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
};

impl<N: Nic> Stack<N> {
    /// Takes an ARP packet.
    pub(super) fn arp(
        &mut self,
        application: &mut impl Application<N>,
        frame: &Chain<N::Buffer>,
    ) -> Result<(), Drop> {
        let bytes = frame.first().and_then(|first| first.get(ETHERNET..)).unwrap_or_default();
        let packet = ArpPacket::new_checked(bytes)
            .map_err(|_| (|counters| &mut counters.dropped_malformed) as Drop)?;
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        }) = ArpRepr::parse(&packet)
        else {
            return Err(|counters| &mut counters.dropped_malformed);
        };
        let is_for_us = self.config.is_ours(target_protocol_addr.into());
        let is_request = operation == ArpOperation::Request;
        // Who asks from 0.0.0.0 wants the address for itself, unless somebody answers (RFC 5227, 2.1.1).
        let is_probe = is_request && source_protocol_addr.is_unspecified();
        let is_nobody = source_protocol_addr.is_unspecified() || source_protocol_addr.is_multicast();
        let claimed = if is_probe { target_protocol_addr } else { source_protocol_addr };
        self.hear_claim(application, claimed.into(), source_hardware_addr.0, is_probe);
        if !is_for_us || is_nobody && !is_probe {
            return Err(|counters| &mut counters.dropped_arp);
        }
        if !is_probe {
            let asker = source_protocol_addr.into();
            // A reply that nobody asked for is a gratuitous one.
            let is_solicited =
                matches!(self.neighbours.state(asker), Some(State::Incomplete | State::Delay | State::Probe));
            let answer = Said::Told { is_solicited, is_override: true };
            self.learn(asker, Some(source_hardware_addr.0), if is_request { Said::Asked } else { answer });
        }
        if is_request {
            let asking = (source_hardware_addr.0, source_protocol_addr);
            self.send_arp(ArpOperation::Reply, target_protocol_addr, asking, source_hardware_addr.0);
        }
        Ok(())
    }

    pub(super) fn send_arp(
        &mut self,
        operation: ArpOperation,
        from: Ipv4Addr,
        target: (Mac, Ipv4Addr),
        to: Mac,
    ) {
        let mac = self.link.properties.mac;
        let repr = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(mac),
            source_protocol_addr: from,
            target_hardware_addr: EthernetAddress(target.0),
            target_protocol_addr: target.1,
        };
        let mut head = frame::ethernet(mac, to, EthernetProtocol::Arp, repr.buffer_len());
        repr.emit(&mut ArpPacket::new_unchecked(&mut head[ETHERNET..]));
        self.transmit(bare(head));
    }

    /// Takes a neighbour's question or answer that came by ICMPv6.
    pub(super) fn neighbour(
        &mut self,
        application: &mut impl Application<N>,
        (packet, by): (&Packet, Mac),
        message: NdiscRepr<'_>,
    ) -> Result<(), Drop> {
        const NOT_FOR_US: Drop = |counters| &mut counters.dropped_arp;
        // Section 7.1: what has passed a router is a forgery.
        if packet.hops != 255 || !is_sound(packet, &message) {
            return Err(NOT_FOR_US);
        }
        match message {
            NdiscRepr::NeighborSolicit { target_addr, lladdr } => {
                if packet.from.is_unspecified() {
                    self.hear_claim(application, target_addr.into(), by, true);
                }
                if !self.config.is_ours(target_addr.into()) {
                    return Err(NOT_FOR_US);
                }
                let mac = lladdr.and_then(as_mac);
                if mac.is_some() && !packet.from.is_unspecified() {
                    self.learn(packet.from, mac, Said::Asked);
                }
                self.advertise(packet.from, target_addr);
            }
            NdiscRepr::NeighborAdvert { flags, target_addr, lladdr } => {
                let is_solicited = flags.contains(NdiscNeighborFlags::SOLICITED);
                if is_solicited && packet.to.is_multicast() {
                    // Section 7.1.2: what tells everybody answers nobody.
                    return Err(NOT_FOR_US);
                }
                self.hear_claim(application, target_addr.into(), by, false);
                if !flags.contains(NdiscNeighborFlags::ROUTER) {
                    self.note_resigned(application, target_addr);
                }
                let is_override = flags.contains(NdiscNeighborFlags::OVERRIDE);
                let said = Said::Told { is_solicited, is_override };
                self.learn(target_addr.into(), lladdr.and_then(as_mac), said);
            }
            _ => return Err(|counters| &mut counters.dropped_icmp),
        }
        Ok(())
    }

    fn advertise(&mut self, asking: IpAddr, target: Ipv6Addr) {
        let is_nobody = asking.is_unspecified();
        let to = if is_nobody { IpAddr::V6(ALL_NODES) } else { asking };
        let mut flags = NdiscNeighborFlags::OVERRIDE;
        flags.set(NdiscNeighborFlags::SOLICITED, !is_nobody);
        let lladdr = Some(self.hardware_address());
        let advert = NdiscRepr::NeighborAdvert { flags, target_addr: target, lladdr };
        let hop = if is_nobody { Some(multicast_mac(ALL_NODES)) } else { self.mac_to(to) };
        self.send_discovery(target, to, hop, advert);
    }

    fn hardware_address(&self) -> RawHardwareAddress {
        EthernetAddress(self.link.properties.mac).into()
    }

    pub(super) fn send_discovery(
        &mut self,
        from: Ipv6Addr,
        to: IpAddr,
        hop: Option<Mac>,
        message: NdiscRepr<'_>,
    ) {
        let IpAddr::V6(to6) = to else { return };
        let repr = Icmpv6Repr::Ndisc(message);
        let mac = self.link.properties.mac;
        let path = Path { mac, hop: hop.unwrap_or_default(), from: from.into(), to };
        let (mut head, start) = frame::ip(&path, protocol::ICMPV6, repr.buffer_len(), 0);
        let mut packet = Icmpv6Packet::new_unchecked(&mut head[start..]);
        repr.emit(&from, &to6, &mut packet, &smoltcp::phy::ChecksumCapabilities::default());
        match hop {
            Some(_) => self.transmit(bare(head)),
            None => self.transmit_to(to, None, bare(head)),
        }
    }

    pub(super) fn learn(&mut self, address: IpAddr, mac: Option<Mac>, said: Said) {
        for packet in self.neighbours.learn(self.now, address, mac, said) {
            let mac = self.neighbours.resolve(self.now, address);
            self.transmit_to(address, mac, packet);
        }
    }

    /// The Ethernet address of the neighbour through which `to` is reached, if it is known.
    pub(super) fn mac_to(&mut self, to: IpAddr) -> Option<Mac> {
        group_mac(to).or_else(|| self.neighbours.resolve(self.now, self.config.next_hop(to)?))
    }

    /// The same for a flow.
    pub(super) fn hop_to(&mut self, to: IpAddr) -> Option<Hop> {
        let version = self.neighbours.version();
        match group_mac(to) {
            Some(mac) => Some(Hop { mac, version }),
            None => self.neighbours.resolve_for_flow(self.now, self.config.next_hop(to)?),
        }
    }

    /// Sends a packet whose Ethernet header lacks only its destination, or keeps it until that is known.
    pub(super) fn transmit_to(&mut self, to: IpAddr, mac: Option<Mac>, mut packet: Outgoing<N::Buffer>) {
        if let Some(mac) = mac {
            packet.head[..6].copy_from_slice(&mac);
            return self.link.transmit(self.now, packet);
        }
        match self.config.next_hop(to) {
            None => self.link.counters.dropped_unreachable += 1,
            Some(next) if self.neighbours.hold(next, packet) => self.ask_for_neighbours(),
            Some(_) => self.link.counters.dropped_arp_queue += 1,
        }
    }

    /// Sends a whole frame.
    pub fn transmit(&mut self, frame: Outgoing<N::Buffer>) {
        self.link.transmit(self.now, frame);
    }

    /// Answers a datagram that [`super::Application::filter`] took.
    pub fn transmit_answer(&mut self, datagram: &crate::packet::Datagram, payload: Chain<N::Buffer>) {
        let answer = datagram.answer(payload, self.link.properties.offloads.checksum);
        self.link.transmit(self.now, answer);
    }

    /// Asks for the neighbours that are to be asked for now.
    pub(super) fn ask_for_neighbours(&mut self) {
        if self.neighbours.first().is_none_or(|first| first > self.now) {
            return;
        }
        let due = self.neighbours.due(self.now);
        if self.discovery.is_some() {
            self.gone.extend(due.gone);
        }
        self.link.counters.dropped_unreachable += due.dropped;
        for (address, mac) in due.ask {
            self.ask(address, mac);
        }
    }

    fn ask(&mut self, address: IpAddr, mac: Option<Mac>) {
        let Some(from) = self.config.source_for(address) else { return };
        match (from, address) {
            (IpAddr::V4(from), IpAddr::V4(target)) => {
                self.send_arp(ArpOperation::Request, from, ([0; 6], target), mac.unwrap_or(BROADCAST));
            }
            (IpAddr::V6(from), IpAddr::V6(target)) => {
                let group = solicited_node(target);
                let (to, hop) = mac.map_or((group, multicast_mac(group)), |mac| (target, mac));
                let lladdr = Some(self.hardware_address());
                let message = NdiscRepr::NeighborSolicit { target_addr: target, lladdr };
                self.send_discovery(from, to.into(), Some(hop), message);
            }
            _ => {}
        }
    }
}

/// Whether a question of somebody without an address is a probe: for the group alone, and without a place to
/// answer to (RFC 4861 section 7.1.1).
fn is_sound(packet: &Packet, message: &NdiscRepr<'_>) -> bool {
    match message {
        NdiscRepr::NeighborSolicit { target_addr, lladdr } if packet.from.is_unspecified() => {
            packet.to == solicited_node(*target_addr) && lladdr.is_none()
        }
        _ => true,
    }
}

pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The group in which the owner of `address` listens (RFC 4291 section 2.7.1).
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | address.to_bits() & 0xff_ffff)
}

/// The Ethernet address of an address that is not one neighbour's.
fn group_mac(to: IpAddr) -> Option<Mac> {
    match to {
        IpAddr::V4(address) if address.is_broadcast() => Some(BROADCAST),
        IpAddr::V6(address) if address.is_multicast() => Some(multicast_mac(address)),
        _ => None,
    }
}

/// The Ethernet address of an IPv6 group (RFC 2464 section 7).
pub(super) fn multicast_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

fn as_mac(address: RawHardwareAddress) -> Option<Mac> {
    address.as_bytes().try_into().ok()
}

/// A frame that is all header.
pub(super) fn bare<B>(head: nom_port::nic::Head) -> Outgoing<B> {
    Outgoing { head, payload: Chain::new(), checksum: None, segmentation: None, tag: None }
}
