//! memcached: the protocols and the store of `nom-memcached-core`, served by the program's own stack.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::net::SocketAddr;
use nom_app::alloc::boxed::Box;
use nom_app::net::{DmaBuffer, QueuePair};
use nom_app::port::buffer::Buffers;
use nom_app::port::world::Entropy as _;
use nom_app::serve::{Bytes, Demand, Ports, Reply, Service, Stream, serve_on};
use nom_app::sync::RawLock;
use nom_app::{args, port, println, time};
use nom_memcached_core::{Connection, Options, Server, packet, udp};

nom_app::main!(main);

fn main() -> Result<u8, Box<dyn core::error::Error>> {
    let free = nom_app::memory_free();
    let options = Options::parse_within(args(), free)?;
    let ports = Ports {
        tcp: Some(options.tcp_port).filter(|port| *port != 0).into_iter().collect(),
        udp: Some(options.udp_port).filter(|port| *port != 0).into_iter().collect(),
    };
    if options.verbosity > 0 {
        println!("memcached: TCP {:?}, UDP {:?}, {} bytes", ports.tcp, ports.udp, options.memory);
    }
    let packet_port = ports.udp.first().copied().filter(|_| options.packet_api);
    let cores = options.threads as usize;
    let mut seed = [0; 8];
    port::Entropy::new().fill(&mut seed);
    let services = |cores: usize| {
        let options = Options { threads: cores as u32, ..options };
        let first = Server::within(options, room, time::unix(), u64::from_ne_bytes(seed));
        move |_: &mut QueuePair| Memcached {
            server: first.for_another_core(),
            packet_port,
            second_ends_ns: 0,
        }
    };
    Ok(serve_on(cores, &ports, services)?)
}

/// How often those who watch hear what happened.
const NEWS_NS: u64 = 50_000_000;

/// Whether items may take more memory: not what is kept for whoever needs some next, nor so much that they
/// would have to give it back at once.
fn room() -> bool {
    nom_app::memory_free() > 2 * nom_app::memory_reserve()
}

struct Memcached {
    server: Server<DmaBuffer, RawLock>,
    /// The port of UDP, if its datagrams are answered in place.
    packet_port: Option<u16>,
    second_ends_ns: u64,
}

impl Service<DmaBuffer> for Memcached {
    type Connection = Connection<DmaBuffer>;

    fn connected(&mut self, peer: SocketAddr, reply: &mut Reply) -> Option<Connection<DmaBuffer>> {
        self.server.connected(peer, reply)
    }

    fn refused(&mut self) {
        self.server.refused();
    }

    fn received(&mut self, client: &mut Self::Connection, bytes: Bytes, reply: &mut Reply) -> Stream {
        let before = reply.len();
        let stream = client.receive(&mut self.server, bytes, reply);
        self.server.sent(reply.len() - before);
        reply.count(client.take_done());
        stream
    }

    fn held(&self, client: &Self::Connection) -> usize {
        client.held()
    }

    fn look_every_ns(&self) -> Option<u64> {
        self.server.is_watched().then_some(NEWS_NS)
    }

    fn news(&mut self, client: &mut Self::Connection, reply: &mut Reply) {
        client.news(&self.server, reply);
    }

    fn disconnected(&mut self, client: Self::Connection) {
        self.server.disconnected(&client);
    }

    fn datagram(&mut self, bytes: Bytes, reply: &mut Reply) {
        let Some(request) = udp::answer(&mut self.server, bytes, reply) else { return };
        for (head, range) in udp::frames(request, reply.len()) {
            reply.datagram(&head, range.len());
        }
    }

    fn packet_port(&self) -> Option<u16> {
        self.packet_port
    }

    fn packet(&mut self, datagram: &[u8], room: &mut [u8]) -> Option<usize> {
        packet::answer(&mut self.server, datagram, room)
    }

    fn demand(&mut self) -> Option<Demand> {
        self.server.demand()
    }

    fn set_memory(&mut self, bytes: Option<u64>) {
        self.server.set_limit(bytes.and_then(|bytes| usize::try_from(bytes).ok()));
    }

    fn shrink(&mut self, bytes: u64) -> u64 {
        self.server.shrink(bytes)
    }

    fn tend<M: Buffers<Buffer = DmaBuffer>>(&mut self, now_ns: u64, memory: &mut M) -> Option<u64> {
        self.server.tend(now_ns, memory)
    }

    fn at(&mut self, now_ns: u64) {
        if now_ns >= self.second_ends_ns {
            self.second_ends_ns = now_ns + 1_000_000_000;
            self.server.set_time(time::unix());
            self.server.set_free(nom_app::memory_free());
        }
    }
}
