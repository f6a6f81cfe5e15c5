//! Sockets over a core's stack: for code that was written for sockets, and for the Linux personality.
//!
//! A [`Sockets`] owns a [`Stack`](nom_net::Stack) and everything open on it. Its calls never block: they say
//! [`Error::WouldBlock`]. Who wants to wait has three ways, all of which end in the same [`readiness`]:
//! - **Interest sets** like epoll's, level- or edge-triggered or one-shot: [`Sockets::watch`] and
//!   [`Sockets::take_ready`]. A wait costs as much as there is ready, however many sockets are idle.
//! - **Tasks**: a [`Network`] shares the sockets of a core among its tasks; [`TcpStream`], [`TcpListener`]
//!   and
//!   [`UdpSocket`] have `async` methods and close themselves when dropped.
//! - **Threads** of [`nom_rt::threads`]: [`Blocking`] has the same methods, and blocks.
//!
//! What is received is copied once, into the caller's memory, as sockets demand; who wants none of that takes
//! it as it lies ([`TcpStream::receive_bytes`]). Streams implement [`embedded_io_async`]'s traits, for
//! libraries that know of nothing else.
//!
//! ```
//! use nom_net::Observed;
//! use nom_rt::Handle;
//! use nom_socket::{Error, Network, TcpStream};
//!
//! /// Sends back what a client sends, until it has no more to say.
//! async fn echo<N: Observed + 'static>(client: TcpStream<N>) -> Result<(), Error> {
//!     let mut buffer = [0; 4096];
//!     loop {
//!         match client.receive(&mut buffer).await? {
//!             0 => return Ok(()),
//!             len => client.send_all(&buffer[..len]).await?,
//!         }
//!     }
//! }
//!
//! async fn serve<N: Observed + 'static>(network: Network<N>, handle: Handle) -> Result<(), Error> {
//!     let listener = network.listen(7)?;
//!     loop {
//!         let client = listener.accept().await?;
//!         handle.spawn(echo(client));
//!     }
//! }
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod blocking;
mod datagram;
mod error;
mod events;
mod exchange;
mod inbox;
mod io;
mod listener;
mod names;
mod network;
pub mod readiness;
mod sockets;
mod stream;

pub use blocking::Blocking;
pub use datagram::{ArrivedDatagram, ReceivedDatagram};
pub use error::Error;
pub use listener::{ListenAddress, PortSharing};
pub use network::{Network, TcpListener, TcpStream, UdpSocket};
pub use nom_net::{Family, ResolveError};
pub use readiness::{Event, Interest, PollId, Ready, Trigger};
pub use sockets::{Shutdown, SocketId, Sockets};
