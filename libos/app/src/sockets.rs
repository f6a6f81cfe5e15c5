//! Sockets, for applications that were written for them: `apps/echo` is one, in both styles.

use crate::net::{self, QueuePair};
use crate::port::{Clock, Idle};
use crate::serve::{Core, ServeError, settings};
use crate::world::ThreadStack;
use nom_net::Stack;
use nom_rt::event_loop::EventLoop;
use nom_rt::handle::Handle;
use nom_rt::threads::policy::Settings;
pub use nom_rt::threads::{NoStack, Thread};
pub use nom_socket::{Blocking, Error, Event, PollId, Ready, Shutdown, SocketId};

/// The sockets of the running core.
pub type Network = nom_socket::Network<QueuePair>;
/// A TCP port on which connections are accepted.
pub type TcpListener = nom_socket::TcpListener<QueuePair>;
/// A TCP connection.
pub type TcpStream = nom_socket::TcpStream<QueuePair>;
/// A UDP port.
pub type UdpSocket = nom_socket::UdpSocket<QueuePair>;
/// Threads that may block.
pub type Threads = nom_rt::threads::Threads<ThreadStack>;

/// The running core's event loop, with sockets on the program's network interface. The environment says the
/// rest, as for [`crate::serve`].
///
/// # Errors
/// If there is no network device, or no valid address.
pub fn start() -> Result<(EventLoop<Clock, Idle>, Network), ServeError> {
    let config = settings::network().map_err(ServeError::Setting)?;
    let delay = settings::batching_delay().map_err(ServeError::Setting)?;
    let Core { index, pair, idle, doorbell } = net::core().map_err(ServeError::Interface)?;
    let mut stack = Stack::new(pair, config);
    stack.set_delay(delay).expect("a delay that was checked");
    let event_loop = EventLoop::new(index, Clock, idle, doorbell);
    let network = Network::start(event_loop.handle(), stack);
    Ok((event_loop, network))
}

/// Threads on the loop of `handle`, each on a stack of `bytes` with a guard page below.
pub fn threads(handle: &Handle, bytes: usize) -> Threads {
    Threads::new(handle, Settings::default(), move || ThreadStack::new(bytes).ok())
}
