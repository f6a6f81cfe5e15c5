//! A DHCP client (RFC 2131) that only reads and writes messages; the stack carries them, and tests the
//! address before it is used.

use crate::chance::Chance;
use crate::config::Cidr;
use crate::frame::Mac;
use crate::time::Instant;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use smoltcp::wire::{DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress};

/// Where clients listen.
pub const CLIENT_PORT: u16 = 68;
/// Where servers listen.
pub const SERVER_PORT: u16 = 67;

/// First and longest wait for an answer, each up to a second longer or shorter (section 4.1).
const WAIT: Duration = Duration::from_secs(4);
const WAIT_MAX: Duration = Duration::from_secs(64);
const JITTER: Duration = Duration::from_secs(1);
/// Requests for one offer before looking for another.
const REQUESTS_MAX: u32 = 4;
/// The least time between requests to keep a lease (section 4.4.5).
const RENEW_MIN: Duration = Duration::from_secs(60);
/// The least wait after an address that somebody else has (section 3.1.5).
const DECLINED: Duration = Duration::from_secs(10);
/// A lease of so many seconds has no end (section 3.3).
const FOR_EVER: u32 = u32::MAX;
const NEVER: Instant = Instant::from_nanos(u64::MAX);
/// Subnet mask, router, name servers, lease time, and the times to renew and to rebind.
const WANTED: [u8; 6] = [1, ROUTERS, 6, 51, 58, 59];
const ROUTERS: u8 = 3;

/// What a server lends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Our address.
    pub address: Cidr,
    /// The router.
    pub router: Option<Ipv4Addr>,
    /// Name servers.
    pub nameservers: Vec<Ipv4Addr>,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// An address that is lent if nobody else has it: to be tested, and then [`Client::accept`]ed or
    /// [`Client::decline`]d.
    Lent(Cidr),
    /// A lease, new or as before.
    Bound(Lease),
    /// The lease is over.
    Lost,
}

/// A message, and whom it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What is sent from [`CLIENT_PORT`] to [`SERVER_PORT`].
    pub bytes: Vec<u8>,
    /// From which address to which server; from none to everybody if `None`.
    pub to: Option<(Ipv4Addr, Ipv4Addr)>,
}

/// A lease with the times of its life.
#[derive(Clone, Debug)]
struct Held {
    lease: Lease,
    address: Ipv4Addr,
    server: Ipv4Addr,
    /// From then on the server is asked, and everybody.
    renew: Instant,
    rebind: Instant,
    end: Instant,
}

#[derive(Clone, Debug)]
enum State {
    Selecting,
    Requesting { address: Ipv4Addr, server: Ipv4Addr },
    Testing(Held),
    Declining { address: Ipv4Addr, server: Ipv4Addr },
    Bound(Held),
}

/// The client.
#[derive(Clone, Debug)]
pub struct Client {
    mac: Mac,
    chance: Chance,
    transaction: u32,
    state: State,
    began: Instant,
    due: Instant,
    tries: u32,
}

impl Client {
    /// Begins at once.
    pub fn new(mac: Mac, mut chance: Chance) -> Client {
        let transaction = chance.next() as u32;
        let (began, due) = (Instant::default(), Instant::default());
        Client { mac, chance, transaction, state: State::Selecting, began, due, tries: 0 }
    }

    /// When [`Client::poll`] has something to do.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// The message to send now, if there is one, and what time has changed.
    pub fn poll(&mut self, now: Instant) -> (Option<Message>, Option<News>) {
        if now < self.due {
            return (None, None);
        }
        let mut news = None;
        match &self.state {
            State::Requesting { .. } if self.tries >= REQUESTS_MAX => self.begin_again(),
            State::Bound(held) if now >= held.end => {
                self.begin_again();
                news = Some(News::Lost);
            }
            State::Bound(_) if self.tries == 0 => self.transaction = self.chance.next() as u32,
            // Who tests says what comes of it.
            State::Testing(_) => {
                self.due = NEVER;
                return (None, None);
            }
            _ => {}
        }
        if self.tries == 0 {
            self.began = now;
        }
        let message = self.message(now);
        self.tries += 1;
        self.due = now + self.wait(now);
        if let State::Declining { .. } = self.state {
            self.begin_again();
        }
        (Some(message), news)
    }

    /// Doubling, and for a lease half of the time that is left to this kind of question.
    fn wait(&mut self, now: Instant) -> Duration {
        match &self.state {
            State::Bound(held) => {
                let until = if now < held.rebind { held.rebind } else { held.end };
                ((until - now) / 2).max(RENEW_MIN).min(until - now)
            }
            State::Declining { .. } => DECLINED + self.chance.below(JITTER),
            _ => {
                let wait = (WAIT * (1 << (self.tries - 1).min(8))).min(WAIT_MAX);
                wait - JITTER + self.chance.below(2 * JITTER)
            }
        }
    }

    fn begin_again(&mut self) {
        self.transaction = self.chance.next() as u32;
        self.state = State::Selecting;
        self.tries = 0;
    }

    fn message(&self, now: Instant) -> Message {
        let mut repr = DhcpRepr {
            message_type: DhcpMessageType::Request,
            transaction_id: self.transaction,
            secs: (now - self.began).as_secs().min(u16::MAX.into()) as u16,
            client_hardware_address: EthernetAddress(self.mac),
            client_ip: Ipv4Addr::UNSPECIFIED,
            your_ip: Ipv4Addr::UNSPECIFIED,
            server_ip: Ipv4Addr::UNSPECIFIED,
            router: None,
            subnet_mask: None,
            relay_agent_ip: Ipv4Addr::UNSPECIFIED,
            // Without an address we cannot be told ours by unicast.
            broadcast: !matches!(self.state, State::Bound(_)),
            requested_ip: None,
            client_identifier: Some(EthernetAddress(self.mac)),
            server_identifier: None,
            parameter_request_list: Some(&WANTED),
            dns_servers: None,
            max_size: Some(1500),
            lease_duration: None,
            renew_duration: None,
            rebind_duration: None,
            additional_options: &[],
        };
        let mut to = None;
        match &self.state {
            State::Requesting { address, server } => {
                (repr.requested_ip, repr.server_identifier) = (Some(*address), Some(*server));
            }
            State::Declining { address, server } => {
                (repr.requested_ip, repr.server_identifier) = (Some(*address), Some(*server));
                (repr.message_type, repr.parameter_request_list) = (DhcpMessageType::Decline, None);
                (repr.max_size, repr.broadcast) = (None, false);
            }
            State::Bound(held) => {
                repr.client_ip = held.address;
                to = (now < held.rebind).then_some((held.address, held.server));
            }
            State::Selecting | State::Testing(_) => repr.message_type = DhcpMessageType::Discover,
        }
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..]))
            .expect("the buffer is as long as asked for");
        Message { bytes, to }
    }

    /// Takes a message; what it changed. Only the server whose offer was taken may grant or refuse it; when
    /// everybody was asked to keep a lease, anybody may.
    pub fn take(&mut self, now: Instant, bytes: &[u8]) -> Option<News> {
        let packet = DhcpPacket::new_checked(bytes).ok()?;
        let repr = DhcpRepr::parse(&packet).ok()?;
        let is_ours = repr.transaction_id == self.transaction && repr.client_hardware_address.0 == self.mac;
        let server = repr.server_identifier.filter(|server| is_ours && is_usable(*server))?;
        let is_expected = match &self.state {
            State::Selecting => self.tries > 0,
            State::Requesting { server: chosen, .. } => self.tries > 0 && *chosen == server,
            State::Bound(held) => self.tries > 0 && (now >= held.rebind || held.server == server),
            State::Testing(_) | State::Declining { .. } => false,
        };
        match (repr.message_type, &self.state) {
            _ if !is_expected => None,
            (DhcpMessageType::Offer, State::Selecting) => {
                let address = self.held(now, &packet, &repr, server)?.address;
                self.state = State::Requesting { address, server };
                self.tries = 0;
                self.due = now;
                None
            }
            (DhcpMessageType::Ack, State::Requesting { address, .. }) => {
                let asked = *address;
                let held = self.held(now, &packet, &repr, server).filter(|held| held.address == asked)?;
                let address = held.lease.address;
                self.state = State::Testing(held);
                self.due = NEVER;
                Some(News::Lent(address))
            }
            (DhcpMessageType::Ack, State::Bound(held)) => {
                let address = held.address;
                let held = self.held(now, &packet, &repr, server).filter(|held| held.address == address)?;
                Some(self.bind(held))
            }
            (DhcpMessageType::Nak, State::Requesting { .. } | State::Bound(_)) => {
                let was_bound = matches!(self.state, State::Bound(_));
                self.begin_again();
                // Not at once: a server that refuses whatever is asked is not asked without end.
                self.due = now + JITTER + self.chance.below(JITTER);
                was_bound.then_some(News::Lost)
            }
            _ => None,
        }
    }

    /// Whether an address was lent and is under test.
    pub fn tests(&self, address: IpAddr) -> bool {
        matches!(&self.state, State::Testing(held) if held.lease.address.address == address)
    }

    /// Nobody else has the address that was lent.
    pub fn accept(&mut self) -> Option<News> {
        let State::Testing(held) = &self.state else { return None };
        Some(self.bind(held.clone()))
    }

    /// Somebody else has the address that was lent: the server is told, and asked for another after a while.
    pub fn decline(&mut self, now: Instant) {
        if let State::Testing(Held { address, server, .. }) = self.state {
            self.state = State::Declining { address, server };
            self.due = now;
        }
    }

    fn bind(&mut self, held: Held) -> News {
        self.tries = 0;
        self.due = held.renew;
        let lease = held.lease.clone();
        self.state = State::Bound(held);
        News::Bound(lease)
    }

    /// What a server lends; nothing if it makes no sense.
    fn held(
        &mut self,
        now: Instant,
        packet: &DhcpPacket<&[u8]>,
        repr: &DhcpRepr<'_>,
        server: Ipv4Addr,
    ) -> Option<Held> {
        let mask = repr.subnet_mask.map_or(u32::MAX << 8, Ipv4Addr::to_bits);
        let prefix = mask.leading_ones();
        let address = repr.your_ip;
        // The first and the last address of a network are nobody's, if there are others (RFC 3021).
        let is_host = prefix >= 31 || ![0, !mask].contains(&(address.to_bits() & !mask));
        let is_mask = prefix > 0 && prefix + mask.trailing_zeros() == 32 || mask == u32::MAX;
        let seconds = repr.lease_duration.filter(|seconds| *seconds > 0)?;
        if !is_usable(address) || !is_mask || !is_host {
            return None;
        }
        let routers = packet.options().find(|option| option.kind == ROUTERS).map(|option| option.data);
        let router = routers.and_then(|bytes| bytes.first_chunk::<4>()).map(|bytes| Ipv4Addr::from(*bytes));
        let lease = Lease {
            address: Cidr { address: address.into(), prefix: prefix as u8 },
            router: router.filter(|router| is_usable(*router) && *router != address),
            nameservers: repr.dns_servers.iter().flatten().copied().filter(|one| is_usable(*one)).collect(),
        };
        let whole = Duration::from_secs(seconds.into());
        let within = |secs: Option<u32>, most: Duration, usual: Duration| {
            let time = secs.map(|secs| Duration::from_secs(secs.into()));
            time.filter(|time| !time.is_zero() && *time <= most).unwrap_or(usual.min(most))
        };
        let rebind = within(repr.rebind_duration, whole, whole / 8 * 7);
        let renew = within(repr.renew_duration, rebind, whole / 2);
        // So that machines that were started together do not renew together (section 4.4.5).
        let renew = renew - self.chance.below(renew / 32);
        let at = |time| if seconds == FOR_EVER { NEVER } else { now + time };
        Some(Held { lease, address, server, renew: at(renew), rebind: at(rebind), end: at(whole) })
    }
}

fn is_usable(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast() && !address.is_loopback()
}

#[cfg(test)]
mod tests;
