//! The sockets of a core, shared by its tasks and threads.

use crate::error::Error;
use crate::readiness::{Event, PollId, Ready};
use crate::sockets::{Shutdown, SocketId, Sockets};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::fmt;
use core::future::poll_fn;
use core::net::SocketAddr;
use core::task::{Context, Poll};
use nom_net::{Instant, Observed, SmallSegments, Stack};
use nom_port::buffer::Slice;
use nom_rt::meter::INFRASTRUCTURE;
use nom_rt::{Handle, Poller, Progress};

/// How many connections may wait to be accepted.
const PENDING_MAX: usize = 128;

/// The sockets of a core. Clones are the same sockets.
pub struct Network<N: Observed> {
    sockets: Rc<RefCell<Sockets<N>>>,
}

impl<N: Observed> Clone for Network<N> {
    fn clone(&self) -> Self {
        Network { sockets: self.sockets.clone() }
    }
}

impl<N: Observed> fmt::Debug for Network<N> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Network({} sockets)", self.sockets.borrow().len())
    }
}

impl<N: Observed + 'static> Network<N> {
    /// The sockets of the loop of `handle`, which polls `stack` from now on.
    pub fn start(handle: &Handle, stack: Stack<N>) -> Network<N> {
        Network::start_steered(handle, stack, |_, _| None)
    }

    /// The same. Before each poll `steer` sees the sockets and the time, and says when it is to see them
    /// again though nothing comes. It must wake nobody.
    pub fn start_steered(
        handle: &Handle,
        stack: Stack<N>,
        steer: impl FnMut(&mut Sockets<N>, u64) -> Option<u64> + 'static,
    ) -> Network<N> {
        let network = Network { sockets: Rc::new(RefCell::new(Sockets::new(stack))) };
        handle.add_poller(INFRASTRUCTURE, Polled { network: network.clone(), frames: 0, steer });
        network
    }

    /// Calls `act` on the sockets, then wakes whoever it made go on. `act` must not block.
    pub fn with<T>(&self, act: impl FnOnce(&mut Sockets<N>) -> T) -> T {
        let mut sockets = self.sockets.borrow_mut();
        let value = act(&mut sockets);
        // Mostly nobody.
        let woken = sockets.wakes_somebody().then(|| sockets.take_woken());
        drop(sockets);
        if let Some(woken) = woken {
            woken.into_iter().for_each(core::task::Waker::wake);
        }
        value
    }

    /// Accepts connections to a TCP port.
    ///
    /// # Errors
    /// [`Error::InUse`].
    pub fn listen(&self, port: u16) -> Result<TcpListener<N>, Error> {
        let id = self.with(|sockets| sockets.listen(port, PENDING_MAX))?;
        Ok(TcpListener(self.own(id)))
    }

    /// Asks `remote` for a connection, and waits until it is open.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn connect(&self, remote: SocketAddr) -> Result<TcpStream<N>, Error> {
        let stream = TcpStream(self.own(self.with(|sockets| sockets.connect(remote))?));
        stream.0.when(Ready::WRITABLE, Sockets::connected).await?;
        Ok(stream)
    }

    /// Takes datagrams to a UDP port; 0 takes one that is free.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::Full`].
    pub fn bind(&self, port: u16) -> Result<UdpSocket<N>, Error> {
        let id = self.with(|sockets| sockets.bind(port))?;
        Ok(UdpSocket(self.own(id)))
    }

    /// Waits until a socket of an interest set is ready, and fills `events`, which has room, with those that
    /// are; says how many.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub async fn wait(&self, poll: PollId, events: &mut [Event]) -> Result<usize, Error> {
        poll_fn(|context| {
            self.with(|sockets| match sockets.take_ready(poll, events) {
                Ok(0) => match sockets.wake_for_poll(poll, context.waker()) {
                    Ok(()) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error)),
                },
                other => Poll::Ready(other),
            })
        })
        .await
    }

    fn own(&self, id: SocketId) -> Owned<N> {
        Owned { network: self.clone(), id }
    }
}

/// The stack, as the event loop polls it.
struct Polled<N: Observed, F> {
    network: Network<N>,
    frames: u64,
    steer: F,
}

impl<N: Observed + 'static, F: FnMut(&mut Sockets<N>, u64) -> Option<u64>> Poller for Polled<N, F> {
    fn poll(&mut self, now_ns: u64) -> Progress {
        let steer = &mut self.steer;
        let (steer_ns, due, frames) = self.network.with(|sockets| {
            let steer_ns = steer(sockets, now_ns);
            let due = sockets.poll(Instant::from_nanos(now_ns));
            (steer_ns, due, sockets.stack().counters().frames_received)
        });
        let worked = frames.wrapping_sub(core::mem::replace(&mut self.frames, frames)) as u32;
        Progress { worked, deadline_ns: due.map(Instant::nanos).into_iter().chain(steer_ns).min() }
    }

    fn arm(&mut self) -> bool {
        self.network.with(|sockets| sockets.stack().nic().arm())
    }

    fn disarm(&mut self) {
        self.network.with(|sockets| sockets.stack().nic().disarm());
    }
}

/// A socket that is closed when this is dropped.
pub(crate) struct Owned<N: Observed + 'static> {
    pub network: Network<N>,
    pub id: SocketId,
}

impl<N: Observed + 'static> Owned<N> {
    pub fn with<T>(&self, act: impl FnOnce(&mut Sockets<N>, SocketId) -> T) -> T {
        self.network.with(|sockets| act(sockets, self.id))
    }

    /// Tries `act` until it says something else than that it would block.
    pub async fn when<T>(
        &self,
        wanted: Ready,
        mut act: impl FnMut(&mut Sockets<N>, SocketId) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut attempt = |context: &mut Context<'_>| {
            self.with(|sockets, id| match act(sockets, id) {
                Err(Error::WouldBlock) => match sockets.wake_for(id, wanted, context.waker()) {
                    Ok(()) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error)),
                },
                result => Poll::Ready(result),
            })
        };
        poll_fn(|context| attempt(context)).await
    }
}

impl<N: Observed> Drop for Owned<N> {
    fn drop(&mut self) {
        self.with(|sockets, id| sockets.close(id)).expect("only its owner closes a socket");
    }
}

/// A TCP port on which connections are accepted.
pub struct TcpListener<N: Observed + 'static>(pub(crate) Owned<N>);

impl<N: Observed> TcpListener<N> {
    /// Waits for a connection.
    ///
    /// # Errors
    /// None that passes by waiting.
    pub async fn accept(&self) -> Result<TcpStream<N>, Error> {
        let (id, _) = self.0.when(Ready::READABLE, Sockets::accept).await?;
        Ok(TcpStream(self.0.network.own(id)))
    }

    /// A connection if one waits.
    ///
    /// # Errors
    /// [`Error::WouldBlock`].
    pub fn try_accept(&self) -> Result<TcpStream<N>, Error> {
        let (id, _) = self.0.with(Sockets::accept)?;
        Ok(TcpStream(self.0.network.own(id)))
    }

    /// Its name, to watch it.
    pub fn id(&self) -> SocketId {
        self.0.id
    }
}

/// A TCP connection.
pub struct TcpStream<N: Observed + 'static>(pub(crate) Owned<N>);

impl<N: Observed> TcpStream<N> {
    /// Waits until something was received, and moves it into `target`; 0 at the end of the stream.
    ///
    /// # Errors
    /// Why the connection failed, after all that came.
    pub async fn receive(&self, target: &mut [u8]) -> Result<usize, Error> {
        self.0.when(Ready::READABLE, |sockets, id| sockets.receive(id, target)).await
    }

    /// What was received, if anything, as [`TcpStream::receive`].
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if nothing was.
    pub fn try_receive(&self, target: &mut [u8]) -> Result<usize, Error> {
        self.0.with(|sockets, id| sockets.receive(id, target))
    }

    /// Waits until something was received, and takes it as a piece of the memory that the device filled, to
    /// be kept or sent again without a copy; nothing at the end of the stream.
    ///
    /// # Errors
    /// As [`TcpStream::receive`]; and [`Error::NoMemory`], by which nothing is lost, if there is no buffer to
    /// put small pieces together in.
    pub async fn receive_bytes(&self) -> Result<Option<Slice<N::Buffer>>, Error> {
        self.0.when(Ready::READABLE, Sockets::receive_bytes).await
    }

    /// Waits for room, and sends a piece of the device's memory where it lies.
    ///
    /// # Errors
    /// Why the connection failed.
    pub async fn send_bytes(&self, bytes: &Slice<N::Buffer>) -> Result<(), Error> {
        self.0.when(Ready::WRITABLE, |sockets, id| sockets.send_bytes(id, bytes)).await
    }

    /// Waits for room, and sends as much as fits into it; says how much.
    ///
    /// # Errors
    /// Why the connection failed.
    pub async fn send(&self, bytes: &[u8]) -> Result<usize, Error> {
        self.0.when(Ready::WRITABLE, |sockets, id| sockets.send(id, bytes)).await
    }

    /// Sends as much as there is room for; says how much.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is none.
    pub fn try_send(&self, bytes: &[u8]) -> Result<usize, Error> {
        self.0.with(|sockets, id| sockets.send(id, bytes))
    }

    /// Sends all of it, waiting for room as often as need be.
    ///
    /// # Errors
    /// Why the connection failed; a part may have been sent.
    pub async fn send_all(&self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            bytes = &bytes[self.send(bytes).await?..];
        }
        Ok(())
    }

    /// Shuts one side, or both.
    ///
    /// # Errors
    /// [`Error::NotConnected`] if the connection is over.
    pub fn shutdown(&self, side: Shutdown) -> Result<(), Error> {
        self.0.with(|sockets, id| sockets.shutdown(id, side))
    }

    /// When segments go that are not full, from now on.
    ///
    /// # Errors
    /// None while it is open.
    pub fn set_small_segments(&self, when: SmallSegments) -> Result<(), Error> {
        self.0.with(|sockets, id| sockets.set_small_segments(id, when))
    }

    /// The other end.
    ///
    /// # Errors
    /// None while it is open.
    pub fn peer(&self) -> Result<SocketAddr, Error> {
        self.0.with(Sockets::peer)
    }

    /// Its name, to watch it.
    pub fn id(&self) -> SocketId {
        self.0.id
    }
}

/// A UDP port.
pub struct UdpSocket<N: Observed + 'static>(pub(crate) Owned<N>);

impl<N: Observed> UdpSocket<N> {
    /// Sends a datagram; waits if the ring is full.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Unreachable`], [`Error::NoMemory`].
    pub async fn send_to(&self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        self.0.when(Ready::WRITABLE, |sockets, id| sockets.send_to(id, bytes, to)).await
    }

    /// Waits for a datagram and moves it into `target`, cut to its length; says how much, and whence.
    ///
    /// # Errors
    /// None that passes by waiting.
    pub async fn receive_from(&self, target: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        self.0.when(Ready::READABLE, |sockets, id| sockets.receive_from(id, target)).await
    }

    /// Its port.
    ///
    /// # Errors
    /// None while it is open.
    pub fn port(&self) -> Result<u16, Error> {
        self.0.with(Sockets::port)
    }

    /// Its name, to watch it.
    pub fn id(&self) -> SocketId {
        self.0.id
    }
}

macro_rules! named {
    ($($socket:ident)*) => {$(
        impl<N: Observed> fmt::Debug for $socket<N> {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, concat!(stringify!($socket), "({:?})"), self.0.id)
            }
        }
    )*};
}

named!(TcpListener TcpStream UdpSocket);
