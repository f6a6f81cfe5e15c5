//! Sockets, for applications that were written for them: `apps/echo` is one, in both styles.

mod control;

use crate::net::{self, QueuePair};
use crate::port::{Clock, Idle};
use crate::serve::{Core, ServeError, address, governors, settings};
use crate::world::ThreadStack;
use alloc::boxed::Box;
use nom_earn::Settings as Earning;
use nom_net::{Config, Instant, Stack};
use nom_port::world::Clock as _;
use nom_rt::event_loop::EventLoop;
use nom_rt::handle::Handle;
use nom_rt::meter::INFRASTRUCTURE;
pub use nom_rt::threads::{CoreWaker, NoStack, Thread};
use nom_serve::{Metered, Reception, Steered};
pub use nom_socket::{Blocking, Error, Event, Family, PollId, Ready, ResolveError, Shutdown, SocketId};

/// The network device of sockets, under measurement.
pub type Device = Metered<QueuePair, Clock>;
/// The sockets of the running core.
pub type Network = nom_socket::Network<Device>;
/// A TCP port on which connections are accepted.
pub type TcpListener = nom_socket::TcpListener<Device>;
/// A TCP connection.
pub type TcpStream = nom_socket::TcpStream<Device>;
/// A UDP port.
pub type UdpSocket = nom_socket::UdpSocket<Device>;
/// Threads that may block.
pub type Threads = nom_rt::threads::Threads;

/// The running core's event loop, with sockets on the program's network interface. The environment says the
/// rest, as for [`crate::serve`]: with a contract the application earns, and with `control` it has a control
/// port. A request is what a connection received until it answers, or a datagram that is answered.
///
/// # Errors
/// If there is no network device, or no valid address; or if the contract asks for what sockets do not do.
pub fn start() -> Result<(EventLoop<Clock, Idle>, Network), ServeError> {
    let (config, discovery) = settings::network().map_err(ServeError::Setting)?;
    let nameservers = settings::nameservers(&config).map_err(ServeError::Setting)?;
    let config = Config { nameservers, ..config };
    let ear = address::ear(&config, discovery);
    let contract = Earning::from_environment(crate::var).map_err(ServeError::Earning)?;
    let is_beyond = |earning: &Earning| earning.knobs.cores || earning.knobs.memory;
    if contract.as_ref().is_some_and(is_beyond) {
        return Err(ServeError::Sockets);
    }
    let control_port = settings::control().map_err(ServeError::Setting)?;
    let delay = match &contract {
        Some(contract) => contract.first_delay(),
        None => settings::batching_delay().map_err(ServeError::Setting)?,
    };
    let Core { index, pair, idle, doorbell } = net::core().map_err(ServeError::Interface)?;
    let mut stack = Stack::new(Metered::new(pair, Clock), config);
    stack.discover(Instant::from_nanos(Clock.now_ns()), discovery);
    stack.set_delay(delay).expect("a delay that was checked");
    let event_loop = EventLoop::new(index, Clock, idle, doorbell);
    let handle = event_loop.handle();
    if let Some(preemption) = crate::world::preemption() {
        handle.set_preemption(preemption);
    }
    let network = match steered(&mut stack, handle, contract, control_port) {
        None => Network::start(handle, stack),
        Some((mut steered, reception)) => {
            let network = Network::start_steered(handle, stack, move |sockets, now_ns| {
                let clients = sockets.clients();
                let due_ns = steered.steer(sockets.stack(), clients, now_ns);
                sockets.set_clients_max(steered.clients_max());
                due_ns
            });
            if let Some(reception) = reception {
                control::open(&network, reception, handle).expect("nobody listens yet");
            }
            network
        }
    };
    network.with(|sockets| sockets.set_ear(ear));
    Ok((event_loop, network))
}

/// Whoever governs, and the control port, as far as the environment asks for them.
fn steered(
    stack: &mut Stack<Device>,
    handle: &Handle,
    contract: Option<Earning>,
    control_port: Option<u16>,
) -> Option<(Steered, Option<Reception>)> {
    let governed = governors(contract, 1);
    if governed.is_none() && control_port.is_none() {
        return None;
    }
    let mut steered = Steered::new(stack, handle);
    if let Some((mut governors, ear)) = governed {
        steered.govern(Box::new(governors.next().expect("one core has one governor")));
        if let Some(ear) = ear {
            handle.add_poller(INFRASTRUCTURE, ear);
        }
    }
    let reception = control_port.map(|port| steered.control(port));
    Some((steered, reception))
}

/// Threads on the loop of `handle`, each on a stack of `bytes` with a guard page below.
pub fn threads(handle: &Handle, bytes: usize) -> Threads {
    Threads::new(handle, move || ThreadStack::new(bytes).ok())
}
