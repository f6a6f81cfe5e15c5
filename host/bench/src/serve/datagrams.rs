//! The client of datagrams: some sockets, each with some requests on their way, one thread for all.
//!
//! It must cost less than what it measures. So replies are received by the dozen (`recvmmsg`), and the
//! requests that follow them leave as one message that Linux cuts into datagrams behind its stack
//! (`UDP_SEGMENT`).

use super::load::{Exchange, Load, PATIENCE, Seen, Sockets, check};
use anyhow::{Context, Result, ensure};
use mio::net::UdpSocket;
use mio::{Interest, Poll, Token};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use std::io::{ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::time::Instant;

/// Length of memcached's frame header: request, sequence number, number of datagrams, reserved; 16 bits each.
const FRAME_BYTES: usize = 8;
/// Linux cuts a message into so many datagrams at most, and takes so long a one.
const DATAGRAMS_MAX: usize = 64;
const MESSAGE_BYTES_MAX: usize = 60_000;
/// What is received at once may be several datagrams that Linux has put together.
const RECEIVED_BYTES_MAX: usize = 1 << 16;

/// The client of one server.
pub(super) struct Datagrams<'a> {
    poll: Poll,
    sources: Vec<Source>,
    exchanges: &'a [Exchange],
    next: usize,
    seen: Seen,
    buffers: Vec<Vec<u8>>,
    /// Kept for its memory.
    message: Vec<u8>,
}

struct Source {
    socket: UdpSocket,
    state: UdpSocketState,
    target: SocketAddr,
    requests: Vec<Request>,
    /// Requests that were answered, and can be sent anew.
    answered: Vec<usize>,
}

/// One request on its way.
#[derive(Clone, Copy)]
struct Request {
    exchange: usize,
    /// Its place among its source's, and how often that was used: tells a reply that is late.
    number: u16,
    sent: Instant,
    /// When it was sent last.
    repeated: Instant,
}

impl<'a> Datagrams<'a> {
    /// Opens the sockets and asks.
    ///
    /// # Errors
    /// If there can be no such sockets, or nothing can be sent.
    pub fn open(load: &Load<'a>) -> Result<Datagrams<'a>> {
        ensure!((1..=256).contains(&load.window), "{} requests on their way: expected 1 to 256", load.window);
        let poll = Poll::new()?;
        let source = |index| Source::open(load, &poll, Token(index));
        let sources = (0..load.connections).map(source).collect::<Result<_>>()?;
        let buffers = vec![vec![0; RECEIVED_BYTES_MAX]; BATCH_SIZE];
        let (exchanges, seen, message) = (load.exchanges, Seen::nothing()?, Vec::new());
        let mut client = Datagrams { poll, sources, exchanges, next: 0, seen, buffers, message };
        (0..load.connections).try_for_each(|index| client.ask(index))?;
        Ok(client)
    }

    /// Takes all replies that have come to a socket.
    fn take_all(&mut self, index: usize) -> Result<()> {
        let (source, mut metas) = (&mut self.sources[index], [RecvMeta::default(); BATCH_SIZE]);
        loop {
            let mut slices: Vec<_> = self.buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            let received = source.state.recv(UdpSockRef::from(&source.socket), &mut slices, &mut metas);
            let count = match received {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("cannot receive a reply"),
            };
            let now = Instant::now();
            for (buffer, meta) in self.buffers.iter().zip(&metas[..count]) {
                let datagrams = buffer[..meta.len].chunks(meta.stride.max(1));
                for datagram in datagrams {
                    source.take(datagram, self.exchanges, now, &mut self.seen)?;
                }
            }
            // A batch that is not full was the last: asking again would only be told so.
            if count < BATCH_SIZE {
                return Ok(());
            }
        }
    }

    /// Sends as many requests as were answered.
    fn ask(&mut self, index: usize) -> Result<()> {
        let (source, now) = (&mut self.sources[index], Instant::now());
        let length = |exchange: usize| FRAME_BYTES + self.exchanges[exchange].request.len();
        while !source.answered.is_empty() {
            let segment = length(self.next);
            self.message.clear();
            // All datagrams of a message are of one length.
            for _ in 0..DATAGRAMS_MAX.min(MESSAGE_BYTES_MAX / segment).max(1) {
                if length(self.next) != segment {
                    break;
                }
                let Some(place) = source.answered.pop() else { break };
                let request = &mut source.requests[place];
                *request = Request { exchange: self.next, sent: now, repeated: now, ..*request };
                request.write(self.exchanges, &mut self.message);
                self.next = (self.next + 1) % self.exchanges.len();
            }
            source.send(&self.message, segment)?;
        }
        Ok(())
    }

    fn repeat_lost(&mut self) -> Result<()> {
        let now = Instant::now();
        for source in &mut self.sources {
            for place in 0..source.requests.len() {
                let request = &mut source.requests[place];
                if now - request.repeated > PATIENCE {
                    self.seen.lost += 1;
                    request.repeated = now;
                    self.message.clear();
                    request.write(self.exchanges, &mut self.message);
                    source.send(&self.message, self.message.len())?;
                }
            }
        }
        Ok(())
    }
}

impl Sockets for Datagrams<'_> {
    fn watched(&mut self) -> (&mut Poll, &mut Seen) {
        (&mut self.poll, &mut self.seen)
    }

    fn receive(&mut self, index: usize) -> Result<()> {
        self.take_all(index)?;
        self.ask(index)
    }

    fn remind(&mut self) -> Result<()> {
        self.repeat_lost()
    }
}

impl Source {
    fn open(load: &Load, poll: &Poll, token: Token) -> Result<Source> {
        let mut socket = UdpSocket::bind(([0, 0, 0, 0], 0).into())?;
        socket.connect(load.target).with_context(|| format!("cannot reach {}", load.target))?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        poll.registry().register(&mut socket, token, Interest::READABLE)?;
        let now = Instant::now();
        let request = |place| Request { exchange: 0, number: place as u16, sent: now, repeated: now };
        let requests = (0..load.window).map(request).collect();
        Ok(Source {
            socket,
            state,
            target: load.target,
            requests,
            answered: (0..load.window).rev().collect(),
        })
    }

    /// Checks a reply and notes how long it took; one that came before is passed over.
    fn take(&mut self, datagram: &[u8], exchanges: &[Exchange], now: Instant, seen: &mut Seen) -> Result<()> {
        let Some((header, reply)) = datagram.split_first_chunk::<FRAME_BYTES>() else { return Ok(()) };
        let number = u16::from_be_bytes([header[0], header[1]]);
        let place = usize::from(number & 0xff);
        let Some(request) = self.requests.get_mut(place).filter(|request| request.number == number) else {
            return Ok(());
        };
        check(reply, &exchanges[request.exchange].reply)?;
        request.number = number.wrapping_add(0x100);
        seen.latency.saturating_record((now - request.sent).as_nanos() as u64);
        self.answered.push(place);
        Ok(())
    }

    /// Sends a message of datagrams of `segment` bytes each.
    fn send(&self, message: &[u8], segment: usize) -> Result<()> {
        let segment_size = (message.len() > segment).then_some(segment);
        let transmit =
            Transmit { destination: self.target, ecn: None, contents: message, segment_size, src_ip: None };
        match self.state.try_send(UdpSockRef::from(&self.socket), &transmit) {
            // No room: as if the network had lost it.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            result => result.context("cannot send datagrams"),
        }
    }
}

impl Request {
    /// Appends it to `message`.
    fn write(&self, exchanges: &[Exchange], message: &mut Vec<u8>) {
        message.extend(self.number.to_be_bytes());
        message.extend([0, 0, 0, 1, 0, 0]);
        message.extend(&exchanges[self.exchange].request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::load::{Transport, serve};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    fn exchanges() -> Vec<Exchange> {
        [(b"a\n".to_vec(), b"A\n".to_vec()), (b"bcd\n".to_vec(), b"BCD\n".to_vec())]
            .map(|(request, reply)| Exchange { request, reply })
            .into()
    }

    fn client<'a>(target: SocketAddr, exchanges: &'a [Exchange]) -> Datagrams<'a> {
        let load = Load {
            target,
            transport: Transport::Udp,
            connections: 2,
            window: 40,
            exchanges,
            qemu: None,
            warm_up: Duration::ZERO,
            duration: Duration::ZERO,
        };
        Datagrams::open(&load).unwrap()
    }

    /// A server that answers each datagram by as many as `replies` says of its number.
    fn server(replies: fn(u64) -> u32) -> SocketAddr {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut buffer, count) = ([0; 64], AtomicU64::new(0));
            while let Ok((length, from)) = server.recv_from(&mut buffer) {
                buffer[FRAME_BYTES..length].make_ascii_uppercase();
                for _ in 0..replies(count.fetch_add(1, Relaxed)) {
                    let _ = server.send_to(&buffer[..length], from);
                }
            }
        });
        address
    }

    #[test]
    fn every_request_is_answered_once() {
        let exchanges = exchanges();
        let mut client = client(server(|_| 1), &exchanges);
        for _ in 0..2 {
            let served = serve(&mut client, Duration::from_millis(50)).unwrap();
            assert!(served.replies() > 0 && served.throughput() > 0.0);
        }
    }

    /// Every third datagram is swallowed, and every other reply is sent twice.
    #[test]
    fn lost_and_repeated_datagrams_do_no_harm() {
        let exchanges = exchanges();
        let mut client = client(server(|count| if count % 3 == 0 { 0 } else { 2 }), &exchanges);
        let served = serve(&mut client, PATIENCE * 3).unwrap();
        assert!(served.lost > 0 && served.replies() > 0);
        let longest = Duration::from_nanos(served.latency.max());
        assert!(longest > PATIENCE / 2, "what was lost counts from its first try");
    }

    #[test]
    fn wrong_reply_is_quoted() {
        let exchanges = [Exchange { request: b"a".to_vec(), reply: b"B".to_vec() }];
        let error = serve(&mut client(server(|_| 1), &exchanges), PATIENCE).unwrap_err().to_string();
        assert_eq!(error, "the server answered `A` where `B` was expected");
    }

    #[test]
    fn no_requests_on_their_way_are_refused() {
        let exchanges = exchanges();
        let target = SocketAddr::from(([127, 0, 0, 1], 9));
        let load = Load {
            target,
            transport: Transport::Udp,
            connections: 1,
            window: 0,
            exchanges: &exchanges,
            qemu: None,
            warm_up: Duration::ZERO,
            duration: Duration::ZERO,
        };
        assert!(Datagrams::open(&load).is_err_and(|error| error.to_string().contains("expected 1 to 256")));
    }
}
