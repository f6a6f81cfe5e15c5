//! A server on the program's own network interface.
//!
//! Each core has its own queue pair, stack and event loop; a request is received, carried out and answered in
//! one event. A [`Service`] sees streams and datagrams, and writes what it answers into a [`Reply`].

pub(crate) mod address;
pub(crate) mod settings;

use crate::market;
use crate::net::{DmaBuffer, Network, NoInterface, QueuePair};
use crate::port::{Clock, Idle};
use crate::shutdown;
use crate::sync::{Mutex, RawLock};
use address::Announcement;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use nom_earn::{CoreGovernor, Earner, Settings};
use nom_elastic::{CorePool, ElasticCore};
use nom_grid::{BadGrid, GridPlan};
use nom_net::{Config, Ear, Instant};
use nom_port::world::{Clock as _, Doorbell};
use nom_rt::event_loop::EventLoop;
use nom_rt::handle::Handle;
use nom_rt::inbox::Remote;
use nom_rt::meter::INFRASTRUCTURE;
use nom_rt::rest::Thresholds;
pub use nom_serve::Ports;
use nom_serve::{Closing, Control, Free, Migration, Server};
use nom_service::{BadRules, Rules};
pub use nom_service::{Curve, Demand, Metrics, Service, Stream};
pub use settings::BadSetting;

/// A piece of a stream: the memory that the device filled.
pub type Bytes = nom_port::buffer::Slice<DmaBuffer>;

/// A client's connection, as a task has it, or one that it asked for.
pub type TaskStream = nom_async::ByteStream<DmaBuffer>;

/// The core that a task runs on.
pub type TaskCore = nom_async::AsyncCore<DmaBuffer>;

/// What a service answers.
pub type Reply = nom_service::Reply<DmaBuffer>;

/// Why there is no service.
#[derive(Debug)]
pub enum ServeError {
    /// There is no network interface.
    Interface(NoInterface),
    /// A variable of the environment is not what it must be.
    Setting(BadSetting),
    /// The contract, or what else is said about earning, is not what it must be.
    Earning(nom_earn::BadSetting),
    /// The rules that tell activities apart are not what they must be.
    Rules(BadRules),
    /// What is asked of the grid cannot be.
    Grid(BadGrid),
    /// An application on sockets has knobs that it cannot turn.
    Sockets,
    /// A service of tasks has a knob that it cannot turn.
    Tasks,
}

impl fmt::Display for ServeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Interface(why) => why.fmt(out),
            ServeError::Setting(why) => why.fmt(out),
            ServeError::Earning(why) => why.fmt(out),
            ServeError::Rules(why) => write!(out, "the environment's activity: {why}"),
            ServeError::Grid(why) => write!(out, "the environment's grid: {why}"),
            ServeError::Sockets => out.write_str(
                "an application on sockets stays on its core with its memory: expected of `knobs` in its \
                 environment at most `batching_delay`, `notice` and `admission`",
            ),
            ServeError::Tasks => out.write_str(
                "a service of tasks stays on its cores: expected no `cores` among `knobs` in its environment",
            ),
        }
    }
}

impl core::error::Error for ServeError {}

/// A core as the world gives it to sockets.
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

/// One core's part in governing the working point.
type Governed = CoreGovernor<RawLock, market::Board, market::Voice>;

/// What a core of a server begins with.
struct Part<C> {
    core: ElasticCore<DmaBuffer, Migration<DmaBuffer, C>>,
    /// If the owner has a contract, or somebody hears what is served.
    governor: Option<Governed>,
    /// On one core, who hears of new prices, if anybody says them.
    ear: Option<market::Ear>,
}

/// Governors for so many cores, and who hears of new prices. Nothing without a contract, unless `priced` runs
/// in this machine: then it hears what is served and what that costs.
pub(crate) fn governors(
    contract: Option<Settings>,
    cores: usize,
) -> Option<(impl Iterator<Item = Governed>, Option<market::Ear>)> {
    let (voice, ear) = market::priced();
    let settings = contract.or_else(|| ear.is_some().then(Settings::watched))?;
    let earner = Earner::new(settings, market::board(), voice, market::held);
    Some((CoreGovernor::of_cores(earner, market::board(), cores), ear))
}

/// The parts of all cores.
fn parts<C>(
    cores: Vec<ElasticCore<DmaBuffer, Migration<DmaBuffer, C>>>,
    contract: Option<Settings>,
) -> Vec<Part<C>> {
    let Some((governors, ear)) = governors(contract, cores.len()) else {
        return cores.into_iter().map(|core| Part { core, governor: None, ear: None }).collect();
    };
    let ears = core::iter::once(ear).chain(core::iter::repeat_with(|| None));
    let parts = cores.into_iter().zip(governors).zip(ears);
    parts.map(|((core, governor), ear)| Part { core, governor: Some(governor), ear }).collect()
}

/// Bytes of the stack on which the tasks of a core run, one after the other.
const TASK_STACK: usize = 256 << 10;

/// What all cores of a server have in common.
#[derive(Clone)]
struct Setup {
    config: Config,
    /// What the first core asks others for.
    discovery: nom_net::Setup,
    delay: Duration,
    waiting: Thresholds,
    ports: Ports,
    control_port: Option<u16>,
    control: Option<Arc<Control>>,
    closing: Arc<Closing>,
    /// Whose clients and requests are whose, if they are told apart.
    rules: Option<Arc<Rules>>,
    /// Who of them is served before whom, if anybody is.
    grid: GridPlan,
}

impl Setup {
    fn new(ports: &Ports, contract: Option<&Settings>) -> Result<Setup, ServeError> {
        let (config, discovery) = settings::network().map_err(ServeError::Setting)?;
        let delay = match contract {
            Some(contract) => contract.first_delay(),
            None => settings::batching_delay().map_err(ServeError::Setting)?,
        };
        let control_port = settings::control().map_err(ServeError::Setting)?;
        let waiting = settings::waiting().map_err(ServeError::Setting)?;
        let closing = Closing::new(1, shutdown::is_requested);
        let rules = settings::rules().map_err(ServeError::Rules)?.map(Arc::new);
        let grid = settings::grid(rules.as_deref(), contract).map_err(ServeError::Grid)?;
        let (control, ports) = (None, ports.clone());
        Ok(Setup { config, discovery, delay, waiting, ports, control_port, control, closing, rules, grid })
    }

    /// The same, once it is known how many cores have a part in it.
    fn on(self, cores: usize) -> Setup {
        let control = self.control_port.map(|port| Control::new(port, cores));
        let config = self.config.shared_by(cores);
        Setup { control, config, closing: Closing::new(cores, shutdown::is_requested), ..self }
    }

    /// Serves on the running core, one of `cores`, until the program ends.
    fn run<S: Service<DmaBuffer> + 'static>(
        self,
        announcement: Arc<Announcement>,
        Part { core, governor, ear }: Part<S::Connection>,
        (mut pair, idle): (QueuePair, Idle),
        pool: Option<Arc<dyn CorePool>>,
        make: impl FnOnce(&Handle, &mut QueuePair) -> S,
    ) -> u8 {
        let mut event_loop = EventLoop::reached_by(core.remote(), Clock, idle);
        let index = core.index();
        if S::IS_ACTIVE {
            crate::world::contain(event_loop.handle(), TASK_STACK);
        }
        let service = make(event_loop.handle(), &mut pair);
        // Whoever hears of the service may ask any core at once.
        announcement.begin();
        let mut server = Server::new(pair, Clock, self.config, &self.ports, service);
        server.set_delay(self.delay).expect("a delay that was checked");
        server.set_waiting(self.waiting, event_loop.handle());
        let free = Free { obtainable: crate::memory_free, idle: crate::memory_idle };
        server.keep_free(crate::memory_reserve(), free);
        server.close_with(self.closing, core.index(), event_loop.handle());
        if let Some(rules) = self.rules {
            server.charge(rules, event_loop.handle());
        }
        if let Some(control) = self.control {
            server.control(control, core.index(), event_loop.handle());
        }
        server.share(&self.grid, event_loop.handle());
        if let Some(governor) = governor {
            server.govern(Box::new(governor), event_loop.handle());
        }
        if let Some(ear) = ear {
            event_loop.handle().add_poller(INFRASTRUCTURE, ear);
        }
        if announcement.cores() > 1 {
            server.set_core(core);
        }
        if index == 0 {
            let ear = Ear::new(move |finding| announcement.hear(finding));
            server.discover(Instant::from_nanos(Clock.now_ns()), self.discovery, ear);
        } else {
            server.await_addresses();
        }
        if let Some(pool) = pool.filter(|_| !S::IS_ACTIVE) {
            server.set_pool(pool);
        }
        event_loop.handle().add_poller(INFRASTRUCTURE, server);
        event_loop.run() as u8
    }
}

/// Serves on one core until the machine is asked to end: then nobody is accepted any more, all that was asked
/// is answered, and the status is 0. `service` is made on the queue pair that it will answer
/// by, whose memory can hold what it sends often.
///
/// # Errors
/// If there is no network device, or no valid address.
pub fn serve<S: Service<DmaBuffer, Connection: Send> + 'static>(
    ports: &Ports,
    service: impl FnOnce(&mut QueuePair) -> S + Send + 'static,
) -> Result<u8, ServeError> {
    let service = Mutex::new(Some(service));
    serve_on(1, ports, |_| {
        move |pair: &mut QueuePair| service.lock().take().expect("one core makes one service")(pair)
    })
}

/// Serves on up to `cores` cores until the machine is asked to end, as [`serve`] does: on as many as the
/// program may hold and the network device has queue pairs. `services` is told how many, and makes what makes
/// each core's service.
///
/// # Errors
/// If there is no network device, or no valid address.
pub fn serve_on<S, F>(
    cores: usize,
    ports: &Ports,
    services: impl FnOnce(usize) -> F,
) -> Result<u8, ServeError>
where
    S: Service<DmaBuffer, Connection: Send> + 'static,
    F: Fn(&mut QueuePair) -> S + Send + Sync + 'static,
{
    serve_at(cores, ports, |cores| {
        let service = services(cores);
        move |place: Place<'_>| service(place.pair)
    })
}

/// Serves each client by a task, on one core, until the machine is asked to end. What a task says went wrong
/// is logged.
///
/// # Errors
/// As [`serve`].
pub fn serve_tasks<R, E>(
    ports: &Ports,
    serve: impl Fn(TaskStream, TaskCore) -> R + Clone + Send + Sync + 'static,
) -> Result<u8, ServeError>
where
    R: Future<Output = Result<(), E>> + 'static,
    E: fmt::Display + 'static,
{
    serve_at(1, ports, |_| move |place: Place<'_>| place.tasks(serve.clone()))
}

/// Where a core's service is made.
#[derive(Debug)]
pub struct Place<'a> {
    /// The event loop that will poll its server.
    pub handle: &'a Handle,
    /// The queue pair by which it will answer, whose memory can hold what it sends often.
    pub pair: &'a mut QueuePair,
    /// All cores of the server, by their numbers.
    pub cores: &'a [Remote],
}

impl Place<'_> {
    /// A service that serves each client by a task.
    pub fn tasks<R, E>(
        self,
        serve: impl Fn(TaskStream, TaskCore) -> R + 'static,
    ) -> nom_async::AsyncService<DmaBuffer>
    where
        R: Future<Output = Result<(), E>> + 'static,
        E: fmt::Display + 'static,
    {
        nom_async::AsyncService::new(self.handle, serve).among(self.cores)
    }
}

/// Serves on up to `cores` cores until the machine is asked to end, as [`serve_on`] does, by what is made on
/// each core's own event loop.
///
/// # Errors
/// As [`serve_on`]; [`ServeError::Tasks`] if cores of a service of tasks are to come and go.
pub fn serve_at<S, F>(
    cores: usize,
    ports: &Ports,
    services: impl FnOnce(usize) -> F,
) -> Result<u8, ServeError>
where
    S: Service<DmaBuffer, Connection: Send> + 'static,
    F: Fn(Place<'_>) -> S + Send + Sync + 'static,
{
    shutdown::handle();
    // What the environment says is checked before anything is acquired.
    let contract = Settings::from_environment(crate::var).map_err(ServeError::Earning)?;
    if S::IS_ACTIVE && contract.as_ref().is_some_and(|contract| contract.knobs.cores) {
        return Err(ServeError::Tasks);
    }
    let setup = Setup::new(ports, contract.as_ref())?;
    let network = Network::open(cores.max(1)).map_err(ServeError::Interface)?;
    let cores = network.cores();
    let setup = setup.on(cores);
    let service = services(cores);
    let remotes: Vec<Remote> = (0..cores).map(|core| Remote::new(core, network.doorbell())).collect();
    let announcement = Announcement::new(ports, &setup.config, setup.discovery, cores);
    let others: Arc<[Remote]> = remotes.clone().into();
    let work = move |part, pair, idle, pool| {
        let make = |handle: &Handle, pair: &mut QueuePair| service(Place { handle, pair, cores: &others });
        setup.clone().run(announcement.clone(), part, (pair, idle), pool, make)
    };
    network.run(parts(ElasticCore::group(remotes), contract), work).map_err(ServeError::Interface)
}
