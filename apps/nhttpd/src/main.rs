//! An HTTP/1.1 file server for the files of its manifest, or those of `nom run -v DIRECTORY:/`.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use nom_app::alloc::boxed::Box;
use nom_app::alloc::format;
use nom_app::net::{DmaBuffer, QueuePair};
use nom_app::port::buffer::Buffers as _;
use nom_app::port::world::Entropy as _;
use nom_app::serve::{Bytes, Metrics, Ports, Reply, Service, Stream, serve_on};
use nom_app::{args, files, port, println, time};
use nom_nhttpd_core::{Connection, Places, Server, Site, content_type_of};

nom_app::main!(main);

const PORT: u16 = 80;

fn main() -> Result<u8, Box<dyn core::error::Error>> {
    let Options { port, connections } = options()?;
    let places = Places::new(connections);
    let ports = Ports { tcp: [port].into(), udp: Default::default() };
    // Each core has the files in memory of its own, so that none waits for another to count who sends them.
    let is_first = AtomicBool::new(true);
    let service = move |pair: &mut QueuePair| {
        let server = Server::new(site(pair), time::unix(), seed()).with_places(places.clone());
        Nhttpd { server, told: 0, is_first: is_first.swap(false, Relaxed) }
    };
    Ok(serve_on(usize::MAX, &ports, |_| service)?)
}

/// What the program is told.
struct Options {
    port: u16,
    /// Most connections at a time.
    connections: usize,
}

fn options() -> Result<Options, Box<dyn core::error::Error>> {
    let mut options = Options { port: PORT, connections: usize::MAX };
    let mut words = args();
    while let Some(name) = words.next() {
        let value = words.next().unwrap_or_default();
        match name {
            "-p" => {
                options.port = value.parse().map_err(|_| "-p: expected a port from 0 to 65535")?;
            }
            "-c" => {
                let count = value.parse().ok().filter(|count| *count > 0);
                options.connections = count.ok_or("-c: expected a number of connections above 0")?;
            }
            other => return Err(format!("{other}: expected -p PORT or -c CONNECTIONS").into()),
        }
    }
    Ok(options)
}

/// The files, in memory that the device reaches.
fn site(pair: &mut QueuePair) -> Site<DmaBuffer> {
    let mut site = Site::new();
    for file in files() {
        let path = format!("/{}", file.path);
        match pair.buffer(file.contents) {
            Some(body) => site.insert(&path, content_type_of(&path), file.modified, body),
            None => println!("nhttpd: {path}: no memory for its {} bytes", file.contents.len()),
        }
    }
    site
}

fn seed() -> u64 {
    let mut seed = [0; 8];
    port::Entropy::new().fill(&mut seed);
    u64::from_ne_bytes(seed)
}

struct Nhttpd {
    server: Server<DmaBuffer>,
    /// Second at which the time was told last.
    told: u64,
    /// Whether it speaks for all cores of what they have together.
    is_first: bool,
}

impl Service<DmaBuffer> for Nhttpd {
    type Connection = Connection;

    fn connected(&mut self, _: SocketAddr, reply: &mut Reply) -> Option<Connection> {
        self.server.connected(reply)
    }

    fn refused(&mut self) {
        self.server.refused();
    }

    fn disconnected(&mut self, _: Connection) {
        self.server.disconnected();
    }

    fn metrics(&self, out: &mut Metrics) {
        let help = "Connections for which there was no place.";
        out.counter("nhttpd_connections_refused_total", help, self.server.stats.connections_refused);
        let free = if self.is_first { nom_app::memory_free() } else { 0 };
        out.gauge("nhttpd_free_bytes", "Memory that the program may yet take.", free);
    }

    fn received(&mut self, client: &mut Connection, bytes: Bytes, reply: &mut Reply) -> Stream {
        let before = self.server.stats.requests;
        let stream = client.receive(&mut self.server, bytes, reply);
        reply.count((self.server.stats.requests - before) as u32);
        stream
    }

    fn held(&self, client: &Connection) -> usize {
        client.held()
    }

    fn look_every_ns(&self) -> Option<u64> {
        Some(1_000_000_000)
    }

    fn progressed(&mut self, client: &mut Connection) {
        client.progressed(&self.server);
    }

    fn check(&mut self, client: &mut Connection, reply: &mut Reply) -> Stream {
        client.check_time(&mut self.server, reply)
    }

    fn at(&mut self, now_ns: u64) {
        let second = now_ns / 1_000_000_000;
        if self.told != second {
            self.told = second;
            self.server.set_time(time::unix());
        }
    }
}
