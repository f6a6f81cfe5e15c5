//! The same calls for threads: they block the thread, and nobody else.

use crate::error::Error;
use crate::network::{Network, TcpListener, TcpStream, UdpSocket};
use crate::readiness::{Event, PollId};
use core::fmt;
use core::net::SocketAddr;
use nom_net::Observed;
use nom_rt::threads::Thread;

/// A socket, or a network, as a thread uses it.
pub struct Blocking<'a, 't, S> {
    socket: &'a S,
    thread: &'a Thread<'t>,
}

impl<'a, 't, S> Blocking<'a, 't, S> {
    /// `socket`, as `thread` uses it.
    pub fn new(socket: &'a S, thread: &'a Thread<'t>) -> Blocking<'a, 't, S> {
        Blocking { socket, thread }
    }
}

impl<S: fmt::Debug> fmt::Debug for Blocking<'_, '_, S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(out)
    }
}

impl<N: Observed + 'static> Blocking<'_, '_, Network<N>> {
    /// As [`Network::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(&self, remote: SocketAddr) -> Result<TcpStream<N>, Error> {
        self.thread.block_on(self.socket.connect(remote))
    }

    /// As [`Network::wait`].
    ///
    /// # Errors
    /// As there.
    pub fn wait(&self, poll: PollId, events: &mut [Event]) -> Result<usize, Error> {
        self.thread.block_on(self.socket.wait(poll, events))
    }
}

impl<N: Observed> Blocking<'_, '_, TcpListener<N>> {
    /// As [`TcpListener::accept`].
    ///
    /// # Errors
    /// As there.
    pub fn accept(&self) -> Result<TcpStream<N>, Error> {
        self.thread.block_on(self.socket.accept())
    }
}

impl<N: Observed> Blocking<'_, '_, TcpStream<N>> {
    /// As [`TcpStream::receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(&self, target: &mut [u8]) -> Result<usize, Error> {
        self.thread.block_on(self.socket.receive(target))
    }

    /// As [`TcpStream::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Error> {
        self.thread.block_on(self.socket.send(bytes))
    }

    /// As [`TcpStream::send_all`].
    ///
    /// # Errors
    /// As there.
    pub fn send_all(&self, bytes: &[u8]) -> Result<(), Error> {
        self.thread.block_on(self.socket.send_all(bytes))
    }
}

impl<N: Observed> Blocking<'_, '_, UdpSocket<N>> {
    /// As [`UdpSocket::send_to`].
    ///
    /// # Errors
    /// As there.
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        self.thread.block_on(self.socket.send_to(bytes, to))
    }

    /// As [`UdpSocket::receive_from`].
    ///
    /// # Errors
    /// As there.
    pub fn receive_from(&self, target: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        self.thread.block_on(self.socket.receive_from(target))
    }
}
