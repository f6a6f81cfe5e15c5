//! The servers, as they run in applications, over a simulated stack.

use crate::memory::{Bytes, Memory};
use crate::nic::Device;
use crate::random::text;
use nom_memcached_core as memcached;
use nom_netpipe_core as netpipe;
use nom_nhttpd_core as nhttpd;
use nom_port::buffer::{Buffer, Buffers as _, Sink as _, Slice};
use nom_service::{Service, Stream};
use std::net::SocketAddr;

/// Where memcached is found, over TCP and UDP.
pub const MEMCACHED_PORT: u16 = 11211;
/// Where nhttpd is found.
pub const HTTP_PORT: u16 = 80;
/// Where netpipe is found.
pub const NETPIPE_PORT: u16 = 5002;
/// Where the server of endless texts is found.
pub const STREAM_PORT: u16 = 7;

/// What a server answers.
type Reply<B = Memory> = nom_service::Reply<B>;

/// Seconds since 1970 at time 0.
const EPOCH: u64 = 1_700_000_000;

fn unix(now_ns: u64) -> u64 {
    EPOCH + now_ns / 1_000_000_000
}

/// memcached.
pub struct Memcached<B: Buffer = Memory>(memcached::Server<B, parking_lot::RawMutex>);

impl<B: Buffer> Memcached<B> {
    /// Without items, and with memory for more than its clients store.
    pub fn new(seed: u64) -> Memcached<B> {
        let options = memcached::Options { udp_port: MEMCACHED_PORT, ..memcached::Options::default() };
        Memcached(memcached::Server::new(options, EPOCH, seed))
    }
}

impl<B: Buffer> Service<B> for Memcached<B> {
    type Connection = memcached::Connection<B>;

    fn connected(&mut self, peer: SocketAddr, reply: &mut Reply<B>) -> Option<Self::Connection> {
        self.0.connected(peer, reply)
    }

    fn refused(&mut self) {
        self.0.refused();
    }

    fn received(&mut self, client: &mut Self::Connection, bytes: Slice<B>, reply: &mut Reply<B>) -> Stream {
        client.receive(&mut self.0, bytes, reply)
    }

    fn held(&self, client: &Self::Connection) -> usize {
        client.held()
    }

    fn disconnected(&mut self, client: Self::Connection) {
        self.0.disconnected(&client);
    }

    fn datagram(&mut self, bytes: Slice<B>, reply: &mut Reply<B>) {
        let Some(request) = memcached::udp::answer(&mut self.0, bytes, reply) else { return };
        for (head, range) in memcached::udp::frames(request, reply.len()) {
            reply.datagram(&head, range.len());
        }
    }

    fn at(&mut self, now_ns: u64) {
        self.0.set_time(unix(now_ns));
    }
}

/// nhttpd.
pub struct Nhttpd {
    server: nhttpd::Server<Memory>,
    unix: u64,
}

/// Lengths of the files `/0`, `/1` and so on.
pub const FILES: [usize; 5] = [0, 17, 1_400, 40_000, 700_000];

/// The name of the text in file `number`.
pub fn file_name(number: usize) -> u64 {
    0xf11e_0000 + number as u64
}

impl Nhttpd {
    /// With its files in memory of the device.
    pub fn new(device: &mut Device, seed: u64) -> Nhttpd {
        let mut site = nhttpd::Site::new();
        for (number, len) in FILES.into_iter().enumerate() {
            let body = device.buffer(&text(file_name(number), 0, len)).expect("hosts of nhttpd have memory");
            site.insert(&format!("/{number}"), "application/octet-stream", EPOCH, body);
        }
        Nhttpd { server: nhttpd::Server::new(site, EPOCH, seed), unix: EPOCH }
    }
}

impl Service<Memory> for Nhttpd {
    type Connection = nhttpd::Connection;

    fn connected(&mut self, _: SocketAddr, _: &mut Reply) -> Option<Self::Connection> {
        Some(nhttpd::Connection::new(self.unix))
    }

    fn received(&mut self, client: &mut Self::Connection, bytes: Bytes, reply: &mut Reply) -> Stream {
        client.receive(&mut self.server, bytes, reply)
    }

    fn held(&self, client: &Self::Connection) -> usize {
        client.held()
    }

    fn look_every_ns(&self) -> Option<u64> {
        Some(1_000_000_000)
    }

    fn progressed(&mut self, client: &mut Self::Connection) {
        client.progressed(&self.server);
    }

    fn check(&mut self, client: &mut Self::Connection, reply: &mut Reply) -> Stream {
        client.check_time(&mut self.server, reply)
    }

    fn at(&mut self, now_ns: u64) {
        self.unix = unix(now_ns);
        self.server.set_time(self.unix);
    }
}

/// The options of both sides of NetPIPE.
pub fn netpipe_options() -> netpipe::Options {
    netpipe::Options { last: 20_000, trials: 1, ..netpipe::Options::default() }
}

/// The receiver of NetPIPE, which serves one transmitter at a time.
pub struct Netpipe {
    session: netpipe::Session<Memory>,
    is_taken: bool,
    now_ns: u64,
}

impl Netpipe {
    /// Waiting for a transmitter.
    pub fn new() -> Netpipe {
        Netpipe { session: netpipe::Session::new(netpipe_options()), is_taken: false, now_ns: 0 }
    }
}

impl Default for Netpipe {
    fn default() -> Netpipe {
        Netpipe::new()
    }
}

impl Service<Memory> for Netpipe {
    type Connection = ();

    fn connected(&mut self, _: SocketAddr, reply: &mut Reply) -> Option<()> {
        if std::mem::replace(&mut self.is_taken, true) {
            return None;
        }
        self.session.connected(reply);
        Some(())
    }

    fn received(&mut self, (): &mut (), bytes: Bytes, reply: &mut Reply) -> Stream {
        self.session.receive(bytes, self.now_ns, reply).unwrap_or(Stream::Close)
    }

    fn disconnected(&mut self, (): ()) {
        self.is_taken = false;
        self.session = netpipe::Session::new(netpipe_options());
    }

    fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
}

/// Sends as many bytes of a text as it is asked for; the request is the text's name and their number, 8
/// bytes each, and then as many bytes of the text of the next name, which it checks.
#[derive(Debug, Default)]
pub struct Streams;

/// A client of [`Streams`].
#[derive(Debug, Default)]
pub struct StreamClient {
    request: Vec<u8>,
    /// Bytes of the client's own text that have come.
    taken: u64,
}

impl<B: Buffer> Service<B> for Streams {
    type Connection = StreamClient;

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<B>) -> Option<StreamClient> {
        Some(StreamClient::default())
    }

    fn received(&mut self, client: &mut StreamClient, bytes: Slice<B>, reply: &mut Reply<B>) -> Stream {
        reply.copy(&client.answer(&bytes));
        Stream::Open
    }
}

impl StreamClient {
    /// Takes bytes, and answers them.
    ///
    /// # Panics
    /// If they are others than they must be.
    pub fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (request, bytes) = bytes.split_at((16 - self.request.len()).min(bytes.len()));
        self.request.extend_from_slice(request);
        if self.request.len() < 16 || bytes.is_empty() {
            return Vec::new();
        }
        let (name, wanted) = (self.word(0), self.word(8));
        let expected = text(name + 1, self.taken, bytes.len());
        assert!(*bytes == expected[..], "a server got other bytes than were sent, {} in", self.taken);
        // What is sent back depends on what has come, so that both directions are busy at once.
        let len = (bytes.len() as u64).min(wanted.saturating_sub(self.taken));
        let answer = text(name, self.taken, len as usize);
        self.taken += bytes.len() as u64;
        assert!(self.taken <= wanted, "a server got more bytes than were sent");
        answer
    }

    /// Whether all has come that the client has to send.
    pub fn is_whole(&self) -> bool {
        self.request.len() == 16 && self.taken == self.word(8)
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.request[at..at + 8].try_into().expect("8 bytes"))
    }
}
