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
use nom_app::alloc::rc::Rc;
use nom_app::alloc::vec;
use nom_app::logs::{self, info, warn};
use nom_app::sockets::{self, Network, Shutdown, TcpStream};
use nom_app::{args, files, memory_free, time};
use nom_tls::{Identity, TlsStream};

nom_app::main!(main);

const PORT: u16 = 443;
/// Who has not shaken hands by then does not want to.
const HANDSHAKE_NS: u64 = 10_000_000_000;
/// Bytes that are moved at a time, decrypted: a record.
const PIECE: usize = 16 << 10;
/// What a client can make the proxy keep: a handshake message, a record each way in each form that it has
/// here, and what sockets hold.
const CLIENT_BYTES: u64 = 256 << 10;

fn main() -> Result<u8, Box<dyn core::error::Error>> {
    logs::start()?;
    let Options { port, server } = options()?;
    let [chain, key] = [file("cert.pem")?, file("key.pem")?];
    let identity = Identity::new(chain, key, time::unix_ns)?;
    let (mut event_loop, network) = sockets::start()?;
    let handle = event_loop.handle().clone();
    let listener = network.listen(port)?;
    info!("serves at TCP port {port}, by TLS 1.3, what {server} serves in the clear");
    let proxy = Rc::new(Proxy { identity, network, server });
    handle.clone().spawn(async move {
        while let Ok(client) = listener.accept().await {
            if memory_free() < CLIENT_BYTES {
                warn!("a client is turned away: {} bytes of memory are left", memory_free());
                continue;
            }
            let (proxy, timers) = (proxy.clone(), handle.clone());
            handle.spawn(async move {
                let shakes = timers.timeout(HANDSHAKE_NS, TlsStream::accept(&proxy.identity, client));
                let served = match shakes.await {
                    Ok(Ok(client)) => proxy.serve(&client).await,
                    Ok(Err(why)) => Err(Failure::Client(why)),
                    Err(_) => Err(Failure::Slow),
                };
                if let Err(why) = served {
                    info!("{why}");
                }
            });
        }
    });
    Ok(event_loop.run() as u8)
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
    network: Network,
    server: SocketAddr,
}

/// Why a client was not served to the end.
enum Failure {
    Slow,
    Client(nom_tls::Error),
    Server(SocketAddr, sockets::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Slow => write!(out, "a client: no handshake within {} s", HANDSHAKE_NS / 1_000_000_000),
            Failure::Client(why) => write!(out, "a client: {why}"),
            Failure::Server(address, why) => write!(out, "the server at {address}: {why}"),
        }
    }
}

/// The stream that a proxy's clients have.
type Client = TlsStream<sockets::Device>;

impl Proxy {
    /// Moves bytes both ways until both sides have said that this was all.
    async fn serve(&self, client: &Client) -> Result<(), Failure> {
        let of_server = |why| Failure::Server(self.server, why);
        let server = self.network.connect(self.server).await.map_err(of_server)?;
        try_join(async { self.ask(client, &server).await }, async { self.answer(client, &server).await })
            .await?;
        Ok(())
    }

    async fn ask(&self, client: &Client, server: &TcpStream) -> Result<(), Failure> {
        let of_server = |why| Failure::Server(self.server, why);
        let mut piece = vec![0; PIECE];
        loop {
            match client.receive(&mut piece).await.map_err(Failure::Client)? {
                0 => return server.shutdown(Shutdown::Send).map_err(of_server),
                len => server.send_all(&piece[..len]).await.map_err(of_server)?,
            }
        }
    }

    async fn answer(&self, client: &Client, server: &TcpStream) -> Result<(), Failure> {
        let of_server = |why| Failure::Server(self.server, why);
        while let Some(bytes) = server.receive_bytes().await.map_err(of_server)? {
            client.send_all(&bytes).await.map_err(Failure::Client)?;
        }
        client.finish().await.map_err(Failure::Client)
    }
}
