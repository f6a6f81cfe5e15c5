//! A TLS 1.3 front for a server that speaks none: what clients say is decrypted and sent on, over a
//! connection of each client's own, and what the server answers comes back encrypted.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::fmt;
use core::net::SocketAddr;
use futures_util::future::try_join;
use nom_app::alloc::boxed::Box;
use nom_app::alloc::format;
use nom_app::alloc::sync::Arc;
use nom_app::alloc::vec;
use nom_app::logs::{self, info};
use nom_app::serve::{Ports, TaskCore, TaskStream, serve_tasks};
use nom_app::service::StreamError;
use nom_app::{args, files, memory_free, time};
use nom_tls::{Identity, TlsStream};

nom_app::main!(main);

const PORT: u16 = 443;
/// Who has not shaken hands by then does not want to.
const HANDSHAKE_NS: u64 = 10_000_000_000;
/// Bytes that are moved at a time, decrypted: a record.
const PIECE: usize = 16 << 10;
/// What a client can make the proxy keep: a handshake message, a record each way in each form that it has
/// here, and what streams hold.
const CLIENT_BYTES: u64 = 256 << 10;

fn main() -> Result<u8, Box<dyn core::error::Error>> {
    logs::start()?;
    let Options { port, server } = options()?;
    let [chain, key] = [file("cert.pem")?, file("key.pem")?];
    let proxy = Arc::new(Proxy { identity: Identity::new(chain, key, time::unix_ns)?, server });
    info!("serves at TCP port {port}, by TLS 1.3, what {server} serves in the clear");
    let ports = Ports { tcp: [port].into(), udp: [].into() };
    Ok(serve_tasks(&ports, move |client, core| proxy.clone().serve(client, core))?)
}

/// What the program is told.
struct Options {
    port: u16,
    /// Who speaks in the clear.
    server: SocketAddr,
}

fn options() -> Result<Options, Box<dyn core::error::Error>> {
    let (mut port, mut server) = (PORT, None);
    let mut words = args();
    while let Some(name) = words.next() {
        match name {
            "-p" => {
                let value = words.next().and_then(|value| value.parse().ok());
                port = value.ok_or("-p: expected a port from 0 to 65535")?;
            }
            address => {
                let parsed = address.parse();
                server = Some(parsed.map_err(|_| format!("{address}: expected [-p PORT] ADDRESS:PORT"))?);
            }
        }
    }
    let server = server.ok_or("expected the ADDRESS:PORT of the server, in the clear")?;
    Ok(Options { port, server })
}

/// A file of the manifest, or of `nom run -v DIRECTORY:/`.
fn file(path: &str) -> Result<&'static [u8], Box<dyn core::error::Error>> {
    let found = files().find(|file| file.path == path);
    let missing = || format!("no file {path}: expected cert.pem and key.pem, by `nom run -v DIRECTORY:/`");
    Ok(found.ok_or_else(missing)?.contents)
}

struct Proxy {
    identity: Identity,
    server: SocketAddr,
}

/// Why a client was not served to the end.
enum Failure {
    NoMemory(u64),
    Slow,
    Client(nom_tls::Error),
    Server(SocketAddr, StreamError),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NoMemory(left) => write!(out, "turned away: {left} bytes of memory are left"),
            Failure::Slow => write!(out, "no handshake within {} s", HANDSHAKE_NS / 1_000_000_000),
            Failure::Client(why) => why.fmt(out),
            Failure::Server(address, why) => write!(out, "the server at {address}: {why}"),
        }
    }
}

/// The stream that a proxy's clients have.
type Client = TlsStream<TaskStream>;

impl Proxy {
    /// Serves one client to the end.
    async fn serve(self: Arc<Self>, client: TaskStream, core: TaskCore) -> Result<(), Failure> {
        if memory_free() < CLIENT_BYTES {
            return Err(Failure::NoMemory(memory_free()));
        }
        let shakes = core.handle().timeout(HANDSHAKE_NS, TlsStream::accept(&self.identity, client));
        let client = shakes.await.map_err(|_| Failure::Slow)?.map_err(Failure::Client)?;
        let server = core.connect(self.server).await.map_err(self.of_server())?;
        try_join(self.ask(&client, &server), self.answer(&client, &server)).await?;
        Ok(())
    }

    fn of_server(&self) -> impl Fn(StreamError) -> Failure + use<> {
        let server = self.server;
        move |why| Failure::Server(server, why)
    }

    /// Moves bytes to the server until the client has said that this was all.
    async fn ask(&self, client: &Client, server: &TaskStream) -> Result<(), Failure> {
        let mut piece = vec![0; PIECE];
        loop {
            match client.receive(&mut piece).await.map_err(Failure::Client)? {
                0 => break server.finish(),
                len => server.send_all(&piece[..len]).await.map_err(self.of_server())?,
            }
        }
        Ok(())
    }

    /// Moves bytes to the client until the server has said that this was all.
    async fn answer(&self, client: &Client, server: &TaskStream) -> Result<(), Failure> {
        while let Some(bytes) = server.receive().await.map_err(self.of_server())? {
            client.send_all(&bytes).await.map_err(Failure::Client)?;
        }
        client.finish().await.map_err(Failure::Client)
    }
}
