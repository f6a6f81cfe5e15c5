//! What a stack finds out by itself: its address by DHCP, other addresses by DNS.

use super::flows::EPHEMERAL;
use super::{Application, Stack};
use crate::chance::Chance;
use crate::config::Cidr;
use crate::dhcp::{self, Client, Lease, News};
use crate::dns::{self, Family, ResolveError};
use crate::table::keyed;
use crate::time::Instant;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use nom_port::buffer::Chain;
use nom_port::nic::Nic;

/// Questions open at a time.
const QUERIES_MAX: usize = 64;
/// How often each question is asked, in turn of each server, and how long each answer is waited for.
const TRIES_MAX: u32 = 4;
const WAIT: Duration = Duration::from_secs(2);

/// A question's name, to tell its answer from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryId(u32);

#[derive(Debug)]
struct Query {
    id: QueryId,
    name: Vec<u8>,
    family: Family,
    /// Both cannot be foretold (RFC 5452 section 9.2).
    transaction: u16,
    port: u16,
    server: SocketAddr,
    tries: u32,
    due: Instant,
}

/// DHCP and DNS of one stack.
#[derive(Debug, Default)]
pub(super) struct Services {
    client: Option<Client>,
    lease: Option<Lease>,
    queries: Vec<Query>,
    next: u32,
    /// Another stack of this host has the client.
    pub(super) is_following: bool,
}

impl Services {
    /// When there is something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let queries = self.queries.iter().map(|query| query.due);
        queries.chain(self.client.as_ref().map(Client::due)).min()
    }

    /// Whether a datagram to `port` is for them.
    pub(super) fn takes(&self, port: u16) -> bool {
        port == dhcp::CLIENT_PORT && (self.client.is_some() || self.is_following)
            || self.queries.iter().any(|query| query.port == port)
    }
}

impl<N: Nic> Stack<N> {
    /// Asks the network for an IPv4 address, a router and name servers, and keeps them. Each change is told
    /// by [`Application::configured`].
    pub fn start_dhcp(&mut self) {
        let chance = Chance::new([self.chance(&"dhcp"), self.chance(&"when")]);
        self.services.client = Some(Client::new(self.link.properties.mac, chance));
    }

    /// Asks for the addresses of a name, of one family; [`Application::resolved`] tells.
    ///
    /// # Errors
    /// [`ResolveError`], if the question cannot even be asked.
    pub fn resolve(&mut self, name: &str, family: Family) -> Result<QueryId, ResolveError> {
        let name = dns::encode(name)?;
        let server = *self.config.nameservers.first().ok_or(ResolveError::NoServer)?;
        if self.services.queries.len() >= QUERIES_MAX {
            return Err(ResolveError::Full);
        }
        self.services.next = self.services.next.wrapping_add(1);
        let id = QueryId(self.services.next);
        let chance = self.chance(&(&name, id.0));
        let port = self.free_port((chance >> 16) as u16).ok_or(ResolveError::Full)?;
        let server = SocketAddr::new(server, dns::SERVER_PORT);
        let transaction = chance as u16;
        let query = Query { id, name, family, transaction, port, server, tries: 0, due: self.now };
        self.services.queries.push(query);
        Ok(id)
    }

    /// The first port from a place on that neither is bound nor has a question: its answers would be taken
    /// from those who have it.
    fn free_port(&self, place: u16) -> Option<u16> {
        let count = EPHEMERAL.len() as u16;
        let mut ports = (0..count).map(|step| EPHEMERAL.start + (place % count + step) % count);
        ports.find(|port| !self.bound.contains(*port) && !self.services.takes(*port))
    }

    pub(super) fn chance(&self, about: &impl core::hash::Hash) -> u64 {
        let [a, b, c, d] = self.config.secret;
        keyed([a ^ c, b ^ d], &(about, self.now, self.link.properties.mac))
    }

    /// Does what is due.
    pub(super) fn serve(&mut self, application: &mut impl Application<N>) {
        if self.services.due().is_none_or(|due| due > self.now) {
            return;
        }
        if let Some(client) = &mut self.services.client {
            let (message, news) = client.poll(self.now);
            self.learn_news(application, news);
            if let Some(message) = message {
                let ours = self.services.lease.as_ref().map(|lease| lease.address.address);
                let from = ours.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
                let to = message.to.map_or(Ipv4Addr::BROADCAST, |(_, server)| server);
                let (from, to) = ((from, dhcp::CLIENT_PORT).into(), (to, dhcp::SERVER_PORT).into());
                self.send_message(from, to, &message.bytes);
            }
        }
        self.ask_servers(application);
    }

    fn ask_servers(&mut self, application: &mut impl Application<N>) {
        let mut over = Vec::new();
        for index in 0..self.services.queries.len() {
            let query = &mut self.services.queries[index];
            if query.due > self.now {
                continue;
            }
            if query.tries >= TRIES_MAX {
                over.push(query.id);
                continue;
            }
            let servers = &self.config.nameservers;
            if let Some(server) = servers.get(query.tries as usize % servers.len().max(1)) {
                query.server.set_ip(*server);
            }
            query.tries += 1;
            query.due = self.now + WAIT;
            let (port, server) = (query.port, query.server);
            let message = dns::question(query.transaction, &query.name, query.family);
            let from = self.config.source_for(server.ip()).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            self.send_message((from, port).into(), server, &message);
        }
        for id in over {
            self.services.queries.retain(|query| query.id != id);
            application.resolved(self, id, Err(ResolveError::TimedOut));
        }
    }

    fn send_message(&mut self, from: SocketAddr, to: SocketAddr, message: &[u8]) {
        if let Some(bytes) = self.link.nic.buffer(message) {
            // Whatever hinders it, the next try is due.
            let _ = self.send_datagram(from, to, Chain::from_iter([bytes]));
        }
    }

    /// Takes a datagram if it is for them: what comes to the port of a question and does not answer it is
    /// for whoever has bound that port since.
    pub(super) fn take_message(
        &mut self,
        application: &mut impl Application<N>,
        port: u16,
        from: SocketAddr,
        bytes: &Chain<N::Buffer>,
    ) -> bool {
        let bytes = nom_port::nic::gather(bytes);
        if port == dhcp::CLIENT_PORT {
            let client = self.services.client.as_mut().filter(|_| from.port() == dhcp::SERVER_PORT);
            let news = client.and_then(|client| client.take(self.now, &bytes));
            self.learn_news(application, news);
            return true;
        }
        let queries = &mut self.services.queries;
        let found = queries.iter().enumerate().find_map(|(index, query)| {
            let is_from_server = query.port == port && query.server == from;
            let answer = dns::answer(&bytes, query.transaction, &query.name, query.family);
            answer.filter(|_| is_from_server).map(|answer| (index, answer))
        });
        if let Some((index, answer)) = found {
            let id = queries.swap_remove(index).id;
            application.resolved(self, id, answer);
            return true;
        }
        false
    }

    /// Nobody else has an address; whether it is one that was lent.
    pub(super) fn accept_lease(&mut self, application: &mut impl Application<N>, cidr: Cidr) -> bool {
        let Some(client) = self.services.client.as_mut().filter(|client| client.tests(cidr.address)) else {
            return false;
        };
        let news = client.accept();
        self.learn_news(application, news);
        true
    }

    /// Somebody else has an address: if it was lent, its server is told.
    pub(super) fn decline_lease(&mut self, address: IpAddr) {
        if let Some(client) = self.services.client.as_mut().filter(|client| client.tests(address)) {
            client.decline(self.now);
        }
    }

    fn learn_news(&mut self, application: &mut impl Application<N>, news: Option<News>) {
        let lease = match news {
            None => return,
            Some(News::Lent(address)) => return self.test(self.now, address),
            Some(News::Bound(lease)) => Some(lease),
            Some(News::Lost) => None,
        };
        if lease == self.services.lease {
            return;
        }
        if let Some(old) = self.services.lease.take() {
            self.end_test(old.address.address);
            self.config.addresses.retain(|cidr| *cidr != old.address);
            self.config.gateway4 = None;
            self.config.nameservers.retain(|server| server.is_ipv6());
        }
        if let Some(lease) = &lease {
            self.config.addresses.insert(0, lease.address);
            self.config.gateway4 = lease.router;
            self.config.nameservers.extend(lease.nameservers.iter().copied().map(IpAddr::V4));
        }
        self.services.lease = lease;
        self.neighbours.doubt();
        application.configured(self);
    }
}
