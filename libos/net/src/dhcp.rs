//! A DHCP client (RFC 2131) that only reads and writes messages; the stack carries them.

use crate::config::Cidr;
use crate::frame::Mac;
use crate::time::Instant;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::time::Duration;
use smoltcp::wire::{DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress};

/// Where clients listen.
pub const CLIENT_PORT: u16 = 68;
/// Where servers listen.
pub const SERVER_PORT: u16 = 67;

/// First and longest wait for an answer (section 4.1).
const WAIT: Duration = Duration::from_secs(4);
const WAIT_MAX: Duration = Duration::from_secs(64);
/// Requests for one offer before looking for another.
const REQUESTS_MAX: u32 = 4;
/// The least time between requests to keep a lease (section 4.4.5).
const RENEW_MIN: Duration = Duration::from_secs(60);
/// Subnet mask, router, name servers, lease time, and the times to renew and to rebind.
const WANTED: [u8; 6] = [1, 3, 6, 51, 58, 59];

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
    /// A lease, new or as before.
    Bound(Lease),
    /// The lease is over.
    Lost,
}

#[derive(Clone, Debug)]
enum State {
    Selecting,
    Requesting { address: Ipv4Addr, server: Ipv4Addr },
    Bound { address: Ipv4Addr, end: Instant },
}

/// The client.
#[derive(Clone, Debug)]
pub struct Client {
    mac: Mac,
    transaction: u32,
    state: State,
    due: Instant,
    tries: u32,
}

impl Client {
    /// Begins at once. `transaction` is random.
    pub fn new(mac: Mac, transaction: u32) -> Client {
        Client { mac, transaction, state: State::Selecting, due: Instant::default(), tries: 0 }
    }

    /// When [`Client::poll`] has something to do.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// The message to broadcast now, if there is one, and what time has changed.
    pub fn poll(&mut self, now: Instant) -> (Option<Vec<u8>>, Option<News>) {
        if now < self.due {
            return (None, None);
        }
        let mut news = None;
        match self.state {
            State::Requesting { .. } if self.tries >= REQUESTS_MAX => self.begin_again(),
            State::Bound { end, .. } if now >= end => {
                self.begin_again();
                news = Some(News::Lost);
            }
            _ => {}
        }
        let message = self.message();
        self.tries += 1;
        self.due = now + self.wait(now);
        (Some(message), news)
    }

    /// Doubling, and for a lease half of what is left of it.
    fn wait(&self, now: Instant) -> Duration {
        match self.state {
            State::Bound { end, .. } => ((end - now) / 2).max(RENEW_MIN).min(end - now),
            _ => (WAIT * (1 << (self.tries - 1).min(8))).min(WAIT_MAX),
        }
    }

    fn begin_again(&mut self) {
        self.transaction = self.transaction.wrapping_mul(0x9e37_79b1).wrapping_add(1);
        self.state = State::Selecting;
        self.tries = 0;
    }

    fn message(&self) -> Vec<u8> {
        let mut repr = DhcpRepr {
            message_type: DhcpMessageType::Request,
            transaction_id: self.transaction,
            secs: 0,
            client_hardware_address: EthernetAddress(self.mac),
            client_ip: Ipv4Addr::UNSPECIFIED,
            your_ip: Ipv4Addr::UNSPECIFIED,
            server_ip: Ipv4Addr::UNSPECIFIED,
            router: None,
            subnet_mask: None,
            relay_agent_ip: Ipv4Addr::UNSPECIFIED,
            // Without an address we cannot be told ours by unicast.
            broadcast: true,
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
        match self.state {
            State::Selecting => repr.message_type = DhcpMessageType::Discover,
            State::Requesting { address, server } => {
                repr.requested_ip = Some(address);
                repr.server_identifier = Some(server);
            }
            State::Bound { address, .. } => repr.client_ip = address,
        }
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..]))
            .expect("the buffer is as long as asked for");
        bytes
    }

    /// Takes a message; what it changed.
    pub fn take(&mut self, now: Instant, bytes: &[u8]) -> Option<News> {
        let packet = DhcpPacket::new_checked(bytes).ok()?;
        let repr = DhcpRepr::parse(&packet).ok()?;
        let is_ours = repr.transaction_id == self.transaction && repr.client_hardware_address.0 == self.mac;
        if !is_ours {
            return None;
        }
        match (repr.message_type, &self.state) {
            (DhcpMessageType::Offer, State::Selecting) => {
                let server = repr.server_identifier?;
                let address = Some(repr.your_ip).filter(|address| is_usable(*address))?;
                self.state = State::Requesting { address, server };
                self.tries = 0;
                self.due = now;
                None
            }
            (DhcpMessageType::Ack, State::Requesting { .. } | State::Bound { .. }) => self.bind(now, &repr),
            (DhcpMessageType::Nak, State::Requesting { .. } | State::Bound { .. }) => {
                let was_bound = matches!(self.state, State::Bound { .. });
                self.begin_again();
                self.due = now;
                was_bound.then_some(News::Lost)
            }
            _ => None,
        }
    }

    fn bind(&mut self, now: Instant, repr: &DhcpRepr<'_>) -> Option<News> {
        let address = Some(repr.your_ip).filter(|address| is_usable(*address))?;
        let lease = Duration::from_secs(u64::from(repr.lease_duration.unwrap_or(3600)));
        let renew = repr.renew_duration.map_or(lease / 2, |secs| Duration::from_secs(u64::from(secs)));
        self.state = State::Bound { address, end: now + lease };
        self.tries = 0;
        self.due = now + renew.max(RENEW_MIN).min(lease);
        let prefix = repr.subnet_mask.map_or(24, |mask| mask.to_bits().leading_ones() as u8);
        Some(News::Bound(Lease {
            address: Cidr { address: address.into(), prefix },
            router: repr.router,
            nameservers: repr.dns_servers.iter().flatten().copied().collect(),
        }))
    }
}

fn is_usable(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast() && !address.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 1];
    const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

    fn at(secs: u64) -> Instant {
        Instant::from_micros(secs * 1_000_000)
    }

    /// What a server says to `message`, and what `message` was.
    fn answer(message: &[u8], kind: DhcpMessageType, lease: u32) -> (DhcpMessageType, Vec<u8>) {
        let packet = DhcpPacket::new_checked(message).unwrap();
        let asked = DhcpRepr::parse(&packet).unwrap();
        let said = asked.message_type;
        let repr = DhcpRepr {
            message_type: kind,
            your_ip: OURS,
            router: Some(SERVER),
            subnet_mask: Some(Ipv4Addr::new(255, 255, 254, 0)),
            server_identifier: Some(SERVER),
            lease_duration: Some(lease),
            client_identifier: None,
            parameter_request_list: None,
            ..asked
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..])).unwrap();
        (said, bytes)
    }

    fn bound(lease: u32) -> Client {
        let mut client = Client::new(MAC, 7);
        let (said, offer) = answer(&client.poll(at(0)).0.unwrap(), DhcpMessageType::Offer, lease);
        assert_eq!((said, client.take(at(0), &offer)), (DhcpMessageType::Discover, None));
        let (said, ack) = answer(&client.poll(at(0)).0.unwrap(), DhcpMessageType::Ack, lease);
        assert_eq!(said, DhcpMessageType::Request);
        let address = Cidr { address: OURS.into(), prefix: 23 };
        let expected = Lease { address, router: Some(SERVER), nameservers: Vec::new() };
        assert_eq!(client.take(at(0), &ack), Some(News::Bound(expected)));
        client
    }

    #[test]
    fn a_lease_is_offered_taken_and_kept() {
        let mut client = bound(3600);
        assert_eq!(client.due(), at(1800));
        let (said, ack) = answer(&client.poll(at(1800)).0.unwrap(), DhcpMessageType::Ack, 3600);
        assert_eq!(said, DhcpMessageType::Request);
        assert!(matches!(client.take(at(1801), &ack), Some(News::Bound(_))));
        assert_eq!(client.due(), at(3601));
    }

    #[test]
    fn a_lease_that_nobody_renews_ends() {
        let mut client = bound(3600);
        let mut asked = 0;
        let lost = loop {
            let now = client.due();
            let (message, news) = client.poll(now);
            asked += usize::from(message.is_some());
            if news.is_some() {
                break (now, news);
            }
        };
        assert_eq!(lost, (at(3600), Some(News::Lost)));
        assert!((3..10).contains(&asked), "{asked} requests");
    }

    #[test]
    fn a_refusal_begins_again() {
        let mut client = bound(3600);
        let (_, nak) = answer(&client.poll(at(1800)).0.unwrap(), DhcpMessageType::Nak, 0);
        assert_eq!(client.take(at(1800), &nak), Some(News::Lost));
        let (said, offer) = answer(&client.poll(at(1800)).0.unwrap(), DhcpMessageType::Offer, 60);
        assert_eq!(
            (said, client.take(at(1800), &nak)),
            (DhcpMessageType::Discover, None),
            "an old transaction"
        );
        client.take(at(1800), &offer);
        assert!(matches!(client.state, State::Requesting { .. }));
    }

    #[test]
    fn silence_is_asked_ever_later() {
        let mut client = Client::new(MAC, 7);
        let times: Vec<u64> =
            (0..7).map(|_| (client.due(), client.poll(client.due())).0.micros() / 1_000_000).collect();
        assert_eq!(times, [0, 4, 12, 28, 60, 124, 188]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            at_byte in 0usize..400,
            value: u8,
        ) {
            let mut client = bound(3600);
            client.take(at(1), &bytes);
            let (_, mut ack) = answer(&client.poll(at(1800)).0.unwrap(), DhcpMessageType::Ack, 3600);
            if let Some(byte) = ack.get_mut(at_byte) {
                *byte = value;
            }
            client.take(at(1800), &ack);
            client.poll(client.due());
        }
    }
}
