//! A server on the program's own network interface.
//!
//! Each core has its own queue pair, stack and event loop; a request is received, carried out and answered in
//! one event. A [`Service`] sees streams and datagrams, and writes what it answers into a [`Reply`].

pub(crate) mod settings;

use crate::market;
use crate::net::{self, DmaBuffer, NoInterface, QueuePair};
use crate::port::{Clock, Idle};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use nom_earn::{Earner, Settings};
use nom_port::world::Doorbell;
use nom_rt::event_loop::EventLoop;
use nom_rt::meter::INFRASTRUCTURE;
use nom_serve::{Control, Server};
pub use nom_serve::{Flow, Ports, Service};
pub use settings::BadSetting;

/// A piece of a stream: the memory that the device filled.
pub type Bytes = nom_port::buffer::Slice<DmaBuffer>;

/// What a service answers.
pub type Reply = nom_serve::Reply<DmaBuffer>;

/// Why there is no service.
pub enum ServeError {
    /// There is no network interface.
    Interface(NoInterface),
    /// A variable of the environment is not what it must be.
    Setting(BadSetting),
    /// The contract, or what else is said about earning, is not what it must be.
    Earning(nom_earn::BadSetting),
}

impl fmt::Display for ServeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Interface(why) => why.fmt(out),
            ServeError::Setting(why) => why.fmt(out),
            ServeError::Earning(why) => why.fmt(out),
        }
    }
}

/// What a main function that ends with it prints.
impl fmt::Debug for ServeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl core::error::Error for ServeError {}

/// A core as the world gives it to a server.
pub(crate) struct Core {
    /// Its number.
    pub index: usize,
    /// Its end of the network.
    pub pair: QueuePair,
    /// How it sleeps until `pair` has a frame.
    pub idle: Idle,
    /// How others end that sleep.
    pub doorbell: Arc<dyn Doorbell>,
}

/// The working point's governor, and who hears of new prices, if anybody says them.
type Earning = (Earner<market::Board, market::Voice>, Option<market::Ear>);

/// They, if the owner has a contract.
fn earner() -> Result<Option<Earning>, ServeError> {
    let settings = Settings::from_environment(crate::var).map_err(ServeError::Earning)?;
    Ok(settings.map(|settings| {
        let (voice, ear) = market::priced();
        (Earner::new(settings, market::board(), voice, market::held), ear)
    }))
}

/// Serves until the machine is stopped. `service` is made on the queue pair that it will answer by, whose
/// memory can hold what it sends often.
///
/// # Errors
/// If there is no network device, or no valid address.
pub fn serve<S: Service<DmaBuffer> + 'static>(
    ports: &Ports,
    service: impl FnOnce(&mut QueuePair) -> S,
) -> Result<u8, ServeError> {
    let config = settings::network().map_err(ServeError::Setting)?;
    let earner = earner()?;
    let delay = match &earner {
        Some((earner, _)) => earner.setting().batching_delay,
        None => settings::batching_delay().map_err(ServeError::Setting)?,
    };
    let control = settings::control().map_err(ServeError::Setting)?;
    let Core { index, mut pair, idle, doorbell } = net::core().map_err(ServeError::Interface)?;
    let service = service(&mut pair);
    crate::println!("serves at {}, TCP {:?}, UDP {:?}", config.addresses[0].address, ports.tcp, ports.udp);
    let mut server = Server::new(pair, Clock, config, ports, service);
    server.set_delay(delay).expect("a delay that was checked");
    let mut event_loop = EventLoop::new(index, Clock, idle, doorbell);
    if let Some(port) = control {
        server.control(Control::new(port, 1), 0, event_loop.handle());
    }
    if let Some((earner, ear)) = earner {
        server.govern(Box::new(earner), event_loop.handle());
        if let Some(ear) = ear {
            event_loop.handle().add_poller(INFRASTRUCTURE, ear);
        }
    }
    event_loop.handle().add_poller(INFRASTRUCTURE, server);
    Ok(event_loop.run() as u8)
}
