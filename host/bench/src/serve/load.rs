//! A closed-loop client: so many connections, each with one request on its way (datagrams: with some, see
//! [`super::datagrams`]), one thread for all.
//!
//! Every reply is compared with what it must be, byte by byte, and every request's time goes into a
//! histogram: percentiles are those of all requests, not of samples. One thread, because the machine under
//! test needs the computer's other processors.

use super::datagrams::Datagrams;
use super::processors::Processors;
use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// A request and the only right reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// What is sent.
    pub request: Vec<u8>,
    /// What must come back.
    pub reply: Vec<u8>,
}

/// What carries requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A stream.
    Tcp,
    /// Datagrams with memcached's frame header (memcached, `doc/protocol.txt`, "UDP protocol").
    Udp,
}

/// What a client is to do.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The server.
    pub target: SocketAddr,
    /// How to reach it.
    pub transport: Transport,
    /// Connections, or sockets.
    pub connections: usize,
    /// How many requests each has on its way at a time; streams have one.
    pub window: usize,
    /// What is asked, round and round.
    pub exchanges: &'a [Exchange],
    /// The process id of the guest's QEMU, if its processor time is to be told.
    pub qemu: Option<u32>,
    /// For how long requests are not counted at first.
    pub warm_up: Duration,
    /// For how long they are.
    pub duration: Duration,
}

/// What a client saw.
#[derive(Clone, Debug)]
pub struct Served {
    /// For how long replies were counted.
    pub elapsed: Duration,
    /// Nanoseconds from request to reply, each counted reply once.
    pub latency: Histogram<u64>,
    /// Datagrams that had to be sent again.
    pub lost: u64,
    /// Processor time of those replies; of none if nobody said whose.
    pub processors: Processors,
}

impl Served {
    /// Counted replies.
    pub fn replies(&self) -> u64 {
        self.latency.len()
    }

    /// Replies per second.
    pub fn throughput(&self) -> f64 {
        self.replies() as f64 / self.elapsed.as_secs_f64()
    }
}

/// A datagram that is not answered for so long is sent again.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);
/// A server that answers nobody for so long is stuck.
const STUCK: Duration = Duration::from_secs(10);
/// Longest latency that is told from longer ones, in nanoseconds.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Loads a server.
///
/// # Errors
/// If it cannot be reached, hangs up, answers wrongly (with what it said) or not at all.
pub fn run(load: &Load) -> Result<Served> {
    run_together(load, &Barrier::new(1))
}

/// The same, but the time begins when all who wait at `start` are connected, or cannot be.
///
/// # Errors
/// As [`run`].
pub fn run_together(load: &Load, start: &Barrier) -> Result<Served> {
    ensure!(!load.exchanges.is_empty() && load.connections > 0, "a load without requests");
    match load.transport {
        Transport::Udp => {
            let sockets = Datagrams::open(load);
            start.wait();
            timed(load, &mut sockets?)
        }
        Transport::Tcp => {
            ensure!(load.window == 1, "a stream has one request on its way");
            let client = Client::connect(load);
            start.wait();
            timed(load, &mut client?)
        }
    }
}

/// Serves for as long as nothing counts, and then for as long as it does.
fn timed(load: &Load, client: &mut impl Sockets) -> Result<Served> {
    serve(client, load.warm_up)?;
    let processors = || load.qemu.map_or(Ok(Processors::default()), Processors::now);
    let before = processors()?;
    let served = serve(client, load.duration)?;
    let processors = processors()?.since(before);
    client.take_leave()?;
    Ok(Served { processors, ..served })
}

/// A client of some sockets, each with its index as its token, that has asked already.
pub(super) trait Sockets {
    /// Where sockets are waited for, and what was seen of them.
    fn watched(&mut self) -> (&mut Poll, &mut Seen);

    /// Takes the replies that have come to a socket, and asks again.
    ///
    /// # Errors
    /// If one is wrong, or nothing can be sent.
    fn receive(&mut self, index: usize) -> Result<()>;

    /// Does what is due without a reply.
    ///
    /// # Errors
    /// If nothing can be sent.
    fn remind(&mut self) -> Result<()> {
        Ok(())
    }

    /// Waits for what was asked, and asks no more.
    ///
    /// # Errors
    /// If a reply is wrong, or none comes.
    fn take_leave(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What was seen since it was last forgotten.
pub(super) struct Seen {
    /// See [`Served::latency`].
    pub latency: Histogram<u64>,
    /// See [`Served::lost`].
    pub lost: u64,
}

impl Seen {
    /// Nothing.
    pub fn nothing() -> Result<Seen> {
        Ok(Seen { latency: Histogram::new_with_max(LATENCY_MAX_NS, 3)?, lost: 0 })
    }
}

/// Forgets what was seen, goes on for `duration`, and returns what was seen.
///
/// # Errors
/// If the server answers wrongly or not at all.
pub(super) fn serve(client: &mut impl Sockets, duration: Duration) -> Result<Served> {
    let (_, seen) = client.watched();
    seen.latency.reset();
    seen.lost = 0;
    let (begin, mut events) = (Instant::now(), Events::with_capacity(256));
    let mut last = begin;
    loop {
        let (now, (poll, seen)) = (Instant::now(), client.watched());
        if now - begin >= duration {
            let (elapsed, latency, lost) = (now - begin, seen.latency.clone(), seen.lost);
            return Ok(Served { elapsed, latency, lost, processors: Processors::default() });
        }
        poll.poll(&mut events, Some((duration - (now - begin)).min(PATIENCE)))?;
        for event in &events {
            last = Instant::now();
            client.receive(event.token().0)?;
        }
        client.remind()?;
        ensure!(last.elapsed() < STUCK, "the server answered nothing for {} s", STUCK.as_secs());
    }
}

/// Has each exchange once, in order, over one stream.
///
/// # Errors
/// If the server cannot be reached, or answers wrongly or not at all.
pub fn once(target: SocketAddr, exchanges: &[Exchange]) -> Result<()> {
    let unreachable = || format!("cannot reach {target}");
    let mut stream = std::net::TcpStream::connect_timeout(&target, STUCK).with_context(unreachable)?;
    stream.set_read_timeout(Some(STUCK))?;
    for exchange in exchanges {
        stream.write_all(&exchange.request).context("cannot send a request")?;
        let mut reply = vec![0; exchange.reply.len()];
        stream.read_exact(&mut reply).context("no whole reply")?;
        check(&reply, &exchange.reply)?;
    }
    Ok(())
}

pub(super) fn check(reply: &[u8], expected: &[u8]) -> Result<()> {
    let [reply_text, expected_text] = [reply, expected].map(<[u8]>::escape_ascii);
    ensure!(reply == expected, "the server answered `{reply_text}` where `{expected_text}` was expected");
    Ok(())
}

struct Client<'a> {
    poll: Poll,
    connections: Vec<Connection>,
    exchanges: &'a [Exchange],
    next: usize,
    seen: Seen,
    /// Those that wait for no reply, as their client takes its leave; `None` before.
    gone: Option<usize>,
}

struct Connection {
    stream: TcpStream,
    /// Index of the exchange on its way.
    exchange: usize,
    received: Vec<u8>,
    sent: Instant,
}

impl<'a> Client<'a> {
    fn connect(load: &Load<'a>) -> Result<Client<'a>> {
        let mut client = Client {
            poll: Poll::new()?,
            connections: Vec::new(),
            exchanges: load.exchanges,
            next: 0,
            seen: Seen::nothing()?,
            gone: None,
        };
        for index in 0..load.connections {
            let mut connection = Connection::open(load)?;
            client.poll.registry().register(&mut connection.stream, Token(index), Interest::READABLE)?;
            client.connections.push(connection);
        }
        for index in 0..load.connections {
            client.ask(index)?;
        }
        Ok(client)
    }

    /// Sends the next request.
    fn ask(&mut self, index: usize) -> Result<()> {
        let (exchange, connection) = (self.next, &mut self.connections[index]);
        self.next = (exchange + 1) % self.exchanges.len();
        connection.exchange = exchange;
        connection.received.clear();
        connection.sent = Instant::now();
        // Whole: it is far shorter than any socket's buffer.
        connection.stream.write_all(&self.exchanges[exchange].request).context("cannot send a request")
    }
}

impl Sockets for Client<'_> {
    fn watched(&mut self) -> (&mut Poll, &mut Seen) {
        (&mut self.poll, &mut self.seen)
    }

    fn receive(&mut self, index: usize) -> Result<()> {
        while self.connections[index].read()? {
            let connection = &mut self.connections[index];
            let expected = &self.exchanges[connection.exchange].reply;
            if connection.received.len() < expected.len() {
                continue;
            }
            check(&connection.received, expected)?;
            let latency = connection.sent.elapsed().as_nanos() as u64;
            self.seen.latency.saturating_record(latency);
            if let Some(gone) = &mut self.gone {
                *gone += 1;
                return Ok(());
            }
            self.ask(index)?;
        }
        Ok(())
    }

    // A socket that is closed with a reply unread resets its connection (RFC 1122, 4.2.2.13). A reset that is
    // lost, as some of hundreds at once are, is not sent again, and leaves the server with a client who never
    // comes back and takes up a place.
    fn take_leave(&mut self) -> Result<()> {
        self.gone = Some(0);
        let (begin, mut events) = (Instant::now(), Events::with_capacity(256));
        while self.gone.is_some_and(|gone| gone < self.connections.len()) {
            ensure!(begin.elapsed() < STUCK, "replies are missing after {} s", STUCK.as_secs());
            self.poll.poll(&mut events, Some(PATIENCE))?;
            for event in &events {
                self.receive(event.token().0)?;
            }
        }
        Ok(())
    }
}

impl Connection {
    fn open(load: &Load) -> Result<Connection> {
        let stream = std::net::TcpStream::connect_timeout(&load.target, STUCK);
        let stream = stream.with_context(|| format!("cannot reach {}", load.target))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream);
        Ok(Connection { stream, exchange: 0, received: Vec::new(), sent: Instant::now() })
    }

    /// Appends what has come; `false` if nothing has.
    fn read(&mut self) -> Result<bool> {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => bail!("the server hung up"),
            Ok(length) => self.received.extend(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error).context("cannot receive a reply"),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const DURATION: Duration = Duration::from_millis(30);

    fn exchanges() -> Vec<Exchange> {
        [(b"a\n", b"A\n"), (b"b\n", b"B\n")]
            .map(|(request, reply)| Exchange { request: request.to_vec(), reply: reply.to_vec() })
            .into()
    }

    fn load(target: SocketAddr, transport: Transport, exchanges: &[Exchange]) -> Result<Served> {
        let (connections, window) = (3, 1);
        run(&Load {
            target,
            transport,
            connections,
            window,
            exchanges,
            qemu: None,
            warm_up: DURATION,
            duration: DURATION,
        })
    }

    /// A server of one thread for each of three clients that answers each read by `answer`.
    fn server(answer: fn(&mut [u8])) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().take(3).flatten() {
                std::thread::spawn(move || {
                    let mut buffer = [0; 64];
                    while let Ok(length @ 1..) = stream.read(&mut buffer) {
                        answer(&mut buffer[..length]);
                        if stream.write_all(&buffer[..length]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    #[test]
    fn right_replies_are_counted_and_timed() {
        let served =
            load(server(|bytes| bytes.make_ascii_uppercase()), Transport::Tcp, &exchanges()).unwrap();
        assert!(served.replies() > 0 && served.elapsed >= DURATION);
        assert!(served.latency.min() > 0 && served.throughput() > 0.0);
    }

    #[test]
    fn wrong_reply_is_quoted() {
        let error = load(server(|_| {}), Transport::Tcp, &exchanges()[..1]).unwrap_err().to_string();
        assert_eq!(error, r"the server answered `a\n` where `A\n` was expected");
    }

    #[test]
    fn each_exchange_is_had_once() {
        once(server(|bytes| bytes.make_ascii_uppercase()), &exchanges()).unwrap();
        assert!(once(server(|_| {}), &exchanges()).is_err());
    }

    #[test]
    fn server_that_is_not_there_is_named() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = load(address, Transport::Tcp, &exchanges()).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
    }
}
