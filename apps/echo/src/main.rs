//! Echo (RFC 862) on TCP and UDP port 7: a task for each client. Or on sockets, in both ways that servers on
//! them are written: with the argument `threads` a thread for each client, which blocks; with `readiness` one
//! task that waits for all of them together.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::num::NonZeroU32;
use nom_app::alloc::boxed::Box;
use nom_app::alloc::collections::BTreeMap;
use nom_app::alloc::vec::Vec;
use nom_app::net::DmaBuffer;
use nom_app::serve::{Bytes, Place, Ports, Reply, TaskStream, serve_at};
use nom_app::service::{Beside, Sink as _, StreamError};
use nom_app::sockets::{
    self, Blocking, Error, Event, Network, PollId, Ready, TcpListener, TcpStream, Thread, Threads, UdpSocket,
};
use nom_app::{alloc::format, args, println};

nom_app::main!(main);

const PORT: u16 = 7;
/// Bytes of a thread's stack.
const STACK: usize = 32 << 10;
/// Bytes taken at a time.
const PIECE: usize = 4096;

fn main() -> Result<u8, Box<dyn core::error::Error>> {
    match args().next() {
        None | Some("tasks") => serve_by_tasks(),
        Some(style @ ("threads" | "readiness")) => serve_by_sockets(style),
        Some(other) => Err(format!("argument `{other}`: expected tasks, threads or readiness").into()),
    }
}

/// By tasks: what a client sent goes back as it lies.
fn serve_by_tasks() -> Result<u8, Box<dyn core::error::Error>> {
    let ports = Ports { tcp: [PORT].into(), udp: [PORT].into() };
    Ok(serve_at(1, &ports, |_| |place: Place<'_>| place.tasks(|client, _| serve(client)).beside(Datagrams))?)
}

async fn serve(client: TaskStream) -> Result<(), StreamError> {
    while let Some(bytes) = client.receive().await? {
        client.share(bytes).await?;
    }
    Ok(())
}

/// Datagrams, which are no client's.
struct Datagrams;

impl Beside<DmaBuffer> for Datagrams {
    fn datagram(&mut self, bytes: Bytes, reply: &mut Reply) {
        let len = bytes.len();
        reply.share(bytes);
        reply.datagram(&[], len);
    }
}

fn serve_by_sockets(style: &str) -> Result<u8, Box<dyn core::error::Error>> {
    let (mut event_loop, network) = sockets::start()?;
    let handle = event_loop.handle().clone();
    let (listener, socket) = (network.listen(PORT)?, network.bind(PORT)?);
    if style == "threads" {
        serve_by_threads(&sockets::threads(&handle, STACK), listener, socket)?;
    } else {
        handle.spawn(serve_by_readiness(network, listener, socket));
    }
    println!("echo serves at TCP and UDP port {PORT}");
    Ok(event_loop.run() as u8)
}

fn serve_by_threads(
    threads: &Threads,
    listener: TcpListener,
    socket: UdpSocket,
) -> Result<(), sockets::NoStack> {
    let starts = threads.clone();
    threads.spawn(NonZeroU32::MIN, move |thread| accept(&starts, &listener, thread))?;
    threads.spawn(NonZeroU32::MIN, move |thread| {
        let socket = Blocking::new(&socket, thread);
        let mut datagram = [0; PIECE];
        while let Ok((len, from)) = socket.receive_from(&mut datagram) {
            // One that cannot be sent is lost, as datagrams are.
            let _ = socket.send_to(&datagram[..len], from);
        }
    })?;
    Ok(())
}

/// Starts a thread for each client; whoever comes when there is no memory for one is turned away.
fn accept(threads: &Threads, listener: &TcpListener, thread: &Thread<'_>) {
    while let Ok(client) = Blocking::new(listener, thread).accept() {
        let started = threads.spawn(NonZeroU32::MIN, move |thread| {
            // A client that resets its connection is gone, and nothing else.
            let _ = echo(&client, thread);
        });
        if let Err(error) = started {
            println!("echo: {error}");
        }
    }
}

fn echo(client: &TcpStream, thread: &Thread<'_>) -> Result<(), Error> {
    let client = Blocking::new(client, thread);
    let mut bytes = [0; PIECE];
    loop {
        match client.receive(&mut bytes)? {
            0 => return Ok(()),
            len => client.send_all(&bytes[..len])?,
        }
    }
}

/// Tokens of the sockets that everybody comes to; clients have larger ones.
const LISTENER: u64 = 0;
const DATAGRAMS: u64 = 1;

/// A client, and what it is still to get.
struct Client {
    stream: TcpStream,
    unsent: Vec<u8>,
}

async fn serve_by_readiness(network: Network, listener: TcpListener, socket: UdpSocket) {
    let poll = network.with(|sockets| sockets.add_poll());
    let served = serve_ready(&network, poll, &listener, &socket).await;
    println!("echo: {}", served.expect_err("it serves for ever"));
}

async fn serve_ready(
    network: &Network,
    poll: PollId,
    listener: &TcpListener,
    socket: &UdpSocket,
) -> Result<core::convert::Infallible, Error> {
    network.with(|sockets| sockets.watch(poll, listener.id(), LISTENER, Ready::READABLE))?;
    network.with(|sockets| sockets.watch(poll, socket.id(), DATAGRAMS, Ready::READABLE))?;
    let (mut clients, mut next) = (BTreeMap::new(), DATAGRAMS + 1);
    let mut events = [Event::default(); 64];
    loop {
        let count = network.wait(poll, &mut events).await?;
        for event in &events[..count] {
            match event.token {
                LISTENER => {
                    let stream = listener.try_accept()?;
                    network.with(|sockets| sockets.watch(poll, stream.id(), next, Ready::READABLE))?;
                    clients.insert(next, Client { stream, unsent: Vec::new() });
                    next += 1;
                }
                DATAGRAMS => {
                    let mut datagram = [0; PIECE];
                    let (len, from) = socket.receive_from(&mut datagram).await?;
                    let _ = socket.send_to(&datagram[..len], from).await;
                }
                token => {
                    let Some(client) = clients.get_mut(&token) else { continue };
                    if client.go_on().is_err() {
                        clients.remove(&token);
                        continue;
                    }
                    let (id, wanted) = (client.stream.id(), client.wanted());
                    network.with(|sockets| sockets.watch(poll, id, token, wanted))?;
                }
            }
        }
    }
}

impl Client {
    /// Takes a piece if the last one is sent, and sends what there is room for; an error if the client is
    /// done.
    fn go_on(&mut self) -> Result<(), Error> {
        if self.unsent.is_empty() {
            let mut bytes = [0; PIECE];
            let len = later(self.stream.try_receive(&mut bytes))?;
            if len == Some(0) {
                return Err(Error::BrokenPipe);
            }
            self.unsent.extend_from_slice(&bytes[..len.unwrap_or(0)]);
        }
        let sent = later(self.stream.try_send(&self.unsent))?;
        self.unsent.drain(..sent.unwrap_or(0));
        Ok(())
    }

    /// What it waits for: who does not read what it sent is not heard.
    fn wanted(&self) -> Ready {
        if self.unsent.is_empty() { Ready::READABLE } else { Ready::WRITABLE }
    }
}

/// Nothing, if it would have blocked.
fn later<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(Error::WouldBlock) => Ok(None),
        other => other.map(Some),
    }
}
