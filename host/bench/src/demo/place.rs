//! Where a machine of the demo runs, and how clients reach it there.

use super::native::{self, Native};
use super::peer::{self, Peer};
use super::progress::Progress;
use super::tap::Meter;
use crate::machine::{self, Guest, Setting};
use crate::serve::running::answers;
use crate::serve::service::Service;
use anyhow::{Context, Result, bail};
use nom_vmm::namespace::GUEST;
use nom_vmm::{Accelerator, Allocation, Forward, Namespace, Network, Placement, Qemu, Session, Vmm};
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Memory of every machine.
const MEMORY_BYTES: u64 = 256 << 20;
/// No guest takes longer to its first reply, even on a slow machine without KVM.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two attempts to be answered.
const PAUSE: Duration = Duration::from_millis(5);

/// How every machine of the demo is.
pub fn setting(accelerator: Accelerator) -> Setting {
    Setting {
        accelerator,
        counts_instructions: false,
        memory_bytes: MEMORY_BYTES,
        allocation: Allocation::Immediate,
        timeout: START_TIMEOUT,
    }
}

/// A network for one machine.
#[derive(Debug)]
pub enum Place {
    /// A network namespace with a TAP device, or an end of a virtual Ethernet pair in its place: what the
    /// machine sends is metered. Needs root.
    Tap(Namespace),
    /// QEMU's user-mode network, with one port of this computer that leads to the service.
    User {
        /// That port.
        port: u16,
    },
}

impl Place {
    /// A place for one machine; `tap` asks for the better kind.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn new(tap: bool) -> Result<Place> {
        if tap {
            return Place::with_queues(1);
        }
        // Free a moment ago, and nobody hands out the same one soon again.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
        Ok(Place::User { port: listener.local_addr()?.port() })
    }

    /// A place of the better kind for a machine of so many processors.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn with_queues(queues: u32) -> Result<Place> {
        Ok(Place::Tap(Namespace::create("demo", queues)?))
    }

    /// A place for a process that has an XDP socket.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn with_pair() -> Result<Place> {
        Ok(Place::Tap(Namespace::with_pair("demo", 1)?))
    }

    /// Does `work` in a thread that is in the place's network: what listens at its loopback interface, the
    /// machine reaches at 10.0.2.2 through a user-mode network.
    ///
    /// # Errors
    /// If the network cannot be entered, or the work fails.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let enter_and_work = || {
            if let Place::Tap(namespace) = self {
                namespace.enter()?;
            }
            work()
        };
        let result = std::thread::scope(|scope| scope.spawn(enter_and_work).join());
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn network(&self, service: &Service) -> Network {
        match self {
            Place::Tap(namespace) => namespace.network(),
            Place::User { port } => {
                let address = Some(Ipv4Addr::LOCALHOST.into());
                let forward = Forward { address, host: *port, guest: service.port, udp: false };
                Network::User { forwards: vec![forward] }
            }
        }
    }

    fn target(&self, service: &Service) -> SocketAddr {
        match self {
            Place::Tap(_) => (GUEST, service.port).into(),
            Place::User { port } => (Ipv4Addr::LOCALHOST, *port).into(),
        }
    }
}

/// What a machine is for whoever started it.
enum Host {
    /// Our own monitor's.
    Monitored(Session),
    /// Somebody else's, or no machine at all.
    Foreign(peer::Running),
}

/// A machine that serves; it is killed when dropped, and its network removed.
pub struct Machine {
    // Killed before its network is removed.
    host: Host,
    place: Place,
    directory: TempDir,
    target: SocketAddr,
    meter: Meter,
    /// Held while the machine is there; none where there are too few processors.
    placement: Option<Placement>,
    /// Processors that clients keep to beside a server without a machine, as `taskset` lists them.
    clients_on: Option<String>,
    /// Where such a server is, if not with its clients.
    _beside: Option<Namespace>,
}

impl Machine {
    /// Starts `guest` at `place`, with a user-mode network for prices if it is `priced`, and waits until it
    /// answers.
    ///
    /// # Errors
    /// If it cannot be started, ends, or does not answer within the setting's timeout; or by interruption.
    pub fn start(
        guest: &Guest,
        service: &'static Service,
        setting: &Setting,
        place: Place,
        priced: bool,
        progress: &Progress,
    ) -> Result<Machine> {
        let directory = tempfile::tempdir().context("no temporary directory")?;
        let mut config = machine::config(guest, setting)?;
        config.networks = vec![place.network(service)];
        config.networks.extend(priced.then(Network::default));
        let qemu = Qemu.start(&config, directory.path())?;
        let meter = match &place {
            Place::Tap(_) => Meter::of_process(qemu.process_id()),
            Place::User { .. } => Meter::blind(),
        };
        let (target, process) = (place.target(service), qemu.process_id());
        let host = Host::Monitored(Session::new(qemu));
        let mut machine = Machine::new(host, place, directory, target, meter);
        machine.wait_for_reply(service, setting, progress)?;
        machine.placement = Placement::apart(machine.directory.path(), process)?;
        Ok(machine)
    }

    /// Has `peer` start its machine at `place`, and waits until that answers. Where its processor is, is its
    /// own affair.
    ///
    /// # Errors
    /// As [`Machine::start`].
    pub fn start_peer(
        peer: &Peer,
        service: &'static Service,
        setting: &Setting,
        place: Place,
        progress: &Progress,
    ) -> Result<Machine> {
        let directory = tempfile::tempdir().context("no temporary directory")?;
        let running = peer::Running::start(peer, &place, service, setting.memory_bytes, directory.path())?;
        let (target, meter) = (place.target(service), Meter::of_process(running.id()));
        let host = Host::Foreign(running);
        let mut machine = Machine::new(host, place, directory, target, meter);
        machine.wait_for_reply(service, setting, progress)?;
        Ok(machine)
    }

    fn new(host: Host, place: Place, directory: TempDir, target: SocketAddr, meter: Meter) -> Machine {
        Machine { host, place, directory, target, meter, placement: None, clients_on: None, _beside: None }
    }

    /// Starts a server without a machine at `place`, and waits until it answers.
    ///
    /// # Errors
    /// As [`Machine::start`].
    pub fn start_native(
        server: Native<'_>,
        service: &'static Service,
        setting: &Setting,
        place: Place,
        progress: &Progress,
    ) -> Result<Machine> {
        let directory = tempfile::tempdir().context("no temporary directory")?;
        let Place::Tap(namespace) = &place else { bail!("a server without a machine needs root") };
        let (running, meter, beside) = server.start(namespace, directory.path())?;
        let target = place.target(service);
        let mut machine = Machine::new(Host::Foreign(running), place, directory, target, meter);
        machine.clients_on = native::processors().map(|[_, clients]| clients);
        machine._beside = beside;
        machine.wait_for_reply(service, setting, progress)?;
        Ok(machine)
    }

    fn wait_for_reply(&mut self, service: &Service, setting: &Setting, progress: &Progress) -> Result<()> {
        let (target, deadline) = (self.target, Instant::now() + setting.timeout);
        while !self.place.inside(|| Ok(answers(target, service.greeting)))? {
            progress.tick()?;
            self.check()?;
            if Instant::now() > deadline {
                bail!("the guest did not answer in time and wrote last: {}", self.last_words());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Takes in what the guest wrote.
    ///
    /// # Errors
    /// If it has ended; with what it wrote last.
    pub fn check(&mut self) -> Result<()> {
        let has_ended = match &mut self.host {
            Host::Monitored(session) => {
                while session.advance(Duration::ZERO)? {}
                session.has_ended()
            }
            Host::Foreign(running) => running.ending()?.is_some(),
        };
        if has_ended {
            bail!("the guest ended and wrote last: {}", self.last_words());
        }
        Ok(())
    }

    /// `program`, to be started where it reaches the service.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match &self.place {
            Place::Tap(namespace) => match &self.clients_on {
                Some(processors) => {
                    let mut command = namespace.command("taskset");
                    command.args(["-c", processors]).arg(program);
                    command
                }
                None => namespace.command(program),
            },
            Place::User { .. } => Command::new(program),
        }
    }

    /// Where it runs.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Where the service is, for such a program.
    pub fn target(&self) -> SocketAddr {
        self.target
    }

    /// What the machine has sent.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// A directory for what clients write.
    pub fn scratch(&self) -> &Path {
        self.directory.path()
    }

    fn last_words(&self) -> String {
        let serial = match &self.host {
            Host::Monitored(session) => session.serial(),
            Host::Foreign(running) => return running.last_words(),
        };
        serial.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").trim().to_owned()
    }
}
