//! Runs every system, one after the other, and keeps what was served.

use super::analysis::{Account, Run, System};
use super::client::Kind;
use super::contract::{Function, PAPER_LATENCY_S, Slowness};
use super::experiment::{self, Halves, Load};
use super::governing::Reading;
use super::guests::{self, Setup};
use super::market::{self, Heard, Market, Set};
use super::money::{Interval, Served};
use super::native::{self, Native};
use super::peer::Peer;
use super::place::{self, Machine, Place};
use super::progress::{Interrupted, Progress};
use super::schedule::{LINUX_START, NOM_START, Schedule, Turn};
use super::tables;
use super::turns::{self, Plan, Turns};
use crate::linux::Tuning;
use crate::linux::serve::{Server, Servers};
use crate::report::Notes;
use crate::serve::guests::LINUX_APPLICATION;
use crate::serve::service::{self, Service};
use crate::unmodified::programs;
use anyhow::{Context, Result};
use nom_build::Project;
use nom_vmm::Accelerator;
use std::path::Path;
use std::time::{Duration, Instant};

/// Phases of a run that only tells how slow this machine is.
pub const SHORT: Duration = Duration::from_secs(3);
/// How long that run takes, for the progress bar.
pub const PROBE: Duration = LINUX_START.saturating_add(SHORT).saturating_add(SHORT);
/// Mean latency of nom with a single client in the paper (table 1), where Linux cannot be had.
const PAPER_NOM_LATENCY_S: f64 = 63e-6;

/// An application, and the client that loads it.
#[derive(Clone, Copy, Debug)]
pub struct Application {
    /// Its name for people and in records.
    name: &'static str,
    /// The service that it provides.
    pub service: &'static Service,
    /// Its client.
    pub client: Kind,
}

/// memcached under memcaslap, which the quick demo shows.
pub const MEMCACHED: Application =
    Application { name: "memcached", service: &service::MEMCACHED, client: Kind::Memcaslap };
/// The web server under wrk.
const HTTP: Application = Application { name: "nhttpd", service: &service::HTTP, client: Kind::Wrk };
/// NetPIPE's receiver under its transmitter.
const NETPIPE: Application = Application { name: "netpipe", service: &NETPIPE_SERVICE, client: Kind::Nptcp };
/// Debian's memcached, which both systems run as it is.
const UNMODIFIED: Application =
    Application { name: "linux-memcached", service: &programs::MEMCACHED, client: Kind::Memcaslap };
/// All applications: the paper's, in its order, and others.
pub const ALL: [Application; 4] = [MEMCACHED, HTTP, NETPIPE, UNMODIFIED];

/// NetPIPE from one size of message on.
static NETPIPE_SERVICE: Service = Service {
    arguments: &experiment::NPTCP_SIZES,
    linux: Server { script: "while :; do /usr/bin/NPtcp -2 -l 1024 -p 0; done\n", ..service::NETPIPE.linux },
    // A transmitter's first word, which the receiver repeats: behind a forwarded port, being connected says
    // nothing.
    greeting: b"SyncMe",
    ..service::NETPIPE
};

/// The application of this name.
///
/// # Errors
/// If there is none.
pub fn named(name: &str) -> Result<Application> {
    let found = ALL.into_iter().find(|application| application.label() == name);
    let known = || ALL.map(|application| application.label()).join(", ");
    found.with_context(|| format!("no application `{name}`: expected {}", known()))
}

impl Application {
    /// Its name for people and in records.
    pub fn label(&self) -> &'static str {
        self.name
    }

    /// Whether it is one of the paper's.
    pub fn is_papers(&self) -> bool {
        self.service.application != LINUX_APPLICATION
    }
}

/// One adaptive run as the provider saw it.
#[derive(Clone, Debug)]
pub struct Adaptation {
    /// By which function it adapted.
    pub function: Function,
    /// What its clients were served.
    pub halves: Halves,
    /// The prices that were set.
    pub set: Vec<Set>,
    /// What the application said of itself.
    pub heard: Vec<Heard>,
    /// Share of its processor that choosing the working point took; none where nobody could ask.
    pub governing_share: Option<f64>,
}

impl Adaptation {
    /// How long it took from the last change of price to a working point that was chosen by it, in seconds.
    pub fn reaction_s(&self) -> Option<f64> {
        market::reaction_s(self.set.last()?, &self.heard)
    }
}

/// A run at a market.
struct Traded {
    halves: Halves,
    set: Vec<Set>,
    heard: Vec<Heard>,
    governing_share: Option<f64>,
}

/// nom's application while it serves.
struct Serving {
    machine: Machine,
    market: Option<Market>,
    origin: Instant,
}

/// Keeps what a runner has so far, on a machine that is so slow.
pub type Saver<'a> = dyn Fn(&Runner<'_>, Slowness) -> Result<()> + 'a;

/// All runs so far of one application.
pub struct Runner<'a> {
    /// The checkout.
    pub project: &'a Project,
    /// Linux and its servers, if they can be had.
    pub servers: Option<&'a Servers>,
    /// Machines of others that take part.
    pub peers: &'a [Peer],
    /// What executes the guests' instructions.
    pub accelerator: Accelerator,
    /// Whether machines have TAP devices.
    pub tap: bool,
    /// A directory for images.
    pub images: &'a Path,
    /// The application.
    pub application: Application,
    /// How long and how often.
    pub schedule: Schedule,
    /// How many clients the first phase has.
    pub connections: u32,
    /// Under which contracts.
    pub functions: &'a [Function],
    /// How long settings take turns within one machine under each function; not at all if zero.
    pub turning: Duration,
    /// What the order of turns follows from.
    pub seed: u64,
    /// Whether servers are processes of this computer, without a machine.
    pub native: bool,
    /// How far all is.
    pub progress: &'a mut Progress,
    /// What failed.
    pub notes: &'a mut Notes,
    /// Everybody who served.
    pub accounts: Vec<Account>,
    /// Every adaptive run.
    pub adaptations: Vec<Adaptation>,
    /// What settings brought by turns, under each function.
    pub turned: Vec<(Function, Vec<Account>)>,
    /// Which of how many runs of its kind is the present one, from 1.
    pub turn: (u32, u32),
    /// Keeps what there is after each run, lest all be lost if somebody ends the whole.
    pub saver: &'a Saver<'a>,
}

impl Runner<'_> {
    /// Runs everything in the order of the schedule. `slowness`, if it is not known yet, follows from a short
    /// run of Linux before; it is returned.
    ///
    /// # Errors
    /// If somebody interrupts, or nothing tells how slow this machine is.
    pub fn run(&mut self, slowness: Option<Slowness>) -> Result<Slowness> {
        let slowness = match slowness {
            Some(slowness) => slowness,
            None => self.slowness()?,
        };
        let linux = match (self.servers, self.native) {
            (None, _) => &[][..],
            (Some(_), false) => &Tuning::ALL[..],
            // What tunes a machine tunes no process.
            (Some(_), true) => &[Tuning::Shipped][..],
        };
        let linux = linux.iter().map(|tuning| System::Linux(*tuning));
        let beside: Vec<_> = linux.chain(self.peers.iter().map(|peer| System::Peer(peer.name))).collect();
        let delays = if self.takes_turns() { vec![] } else { self.delays_us(slowness) };
        let turns = self.schedule.turns(&beside, &delays, self.functions);
        // What takes turns within one machine lies between the others, too.
        let functions = if self.takes_turns() { self.functions } else { &[] };
        let share = turns.len().div_ceil(functions.len().max(1)).max(1);
        let mut functions = functions.iter();
        for some in turns.chunks(share) {
            some.iter().try_for_each(|turn| self.take(*turn, slowness))?;
            functions.next().map_or(Ok(()), |function| self.turned(*function, slowness))?;
        }
        functions.try_for_each(|function| self.turned(*function, slowness))?;
        Ok(slowness)
    }

    fn take(&mut self, turn: Turn, slowness: Slowness) -> Result<()> {
        self.attempt(turn, |runner| match turn.system {
            System::Fixed(us) => runner.fixed(us, runner.schedule.phase),
            System::Adaptive(function) => runner.adaptive(function, slowness),
            System::Linux(tuning) => runner.linux(tuning, runner.schedule.phase),
            System::Peer(name) => runner.peer(name),
        })?;
        self.save(slowness)
    }

    fn save(&mut self, slowness: Slowness) -> Result<()> {
        self.accounts.sort_by_key(|account| rank(account.system));
        (self.saver)(self, slowness)
    }

    /// Whether fixed delays and adapting take turns within one machine. Only in a network namespace every
    /// port of a machine is reached, and only memcaslap reports each second.
    fn takes_turns(&self) -> bool {
        self.tap && !self.turning.is_zero() && self.application.client == Kind::Memcaslap
    }

    /// The batching delays to try.
    fn delays_us(&self, slowness: Slowness) -> Vec<u32> {
        if self.native { native::DELAYS_US.to_vec() } else { slowness.delays_us() }
    }

    /// By turns within one machine, the fixed delays and adapting by `function`; what fails becomes a note,
    /// unless somebody interrupted.
    fn turned(&mut self, function: Function, slowness: Slowness) -> Result<()> {
        let delays = self.delays_us(slowness);
        let plan = Plan::new(&delays, function, self.turning, self.seed ^ function as u64);
        match self.by_turns(&plan, function, slowness) {
            Ok(turns) => {
                let first = self.turned.len() as u32 * plan.rounds();
                let fixed = turns::accounts(&turns, first).into_iter();
                for account in fixed.filter(|account| account.system.delay_us().is_some()) {
                    self.keep(account);
                }
                self.turned.push((function, turns::accounts(&turns, 0)));
                self.save(slowness)
            }
            Err(error) if error.is::<Interrupted>() => Err(error),
            Err(error) => {
                let name = self.application.label();
                self.notes.add(format!("{name}, {} by turns, not measured: {error:#}.", function.name()));
                Ok(())
            }
        }
    }

    fn by_turns(&mut self, plan: &Plan, function: Function, slowness: Slowness) -> Result<Turns> {
        self.turn = (1, 1);
        let what = self.said(&format!("nom, by turns ({})", function.name()));
        let mut served = self.boot(&what, self.adapting(function, slowness))?;
        let (load, origin, progress) = (self.load(plan.phase()), served.origin, &mut *self.progress);
        let (machine, market) = (&mut served.machine, &mut served.market);
        plan.carry_out(machine, load, origin, progress, &what, |price| {
            market.as_mut().map_or(Ok(()), |market| market.set_price(price))
        })
    }

    fn adapting(&self, function: Function, slowness: Slowness) -> Setup {
        let longest = self.delays_us(slowness).last().copied().unwrap_or_default();
        Setup::Adaptive(function, slowness, longest)
    }

    /// Adds the runs of an account to those that its system has already.
    fn keep(&mut self, account: Account) {
        match self.accounts.iter_mut().find(|known| known.system == account.system) {
            Some(known) => known.runs.extend(account.runs),
            None => self.accounts.push(account),
        }
    }

    /// How slow this machine is: by a short run of Linux, or of nom if there is no Linux. The paper's latency
    /// is memcached's.
    ///
    /// # Errors
    /// If somebody interrupts, or nothing was served.
    pub fn slowness(&mut self) -> Result<Slowness> {
        let (halves, paper_s) = if self.servers.is_some() {
            (self.linux(Tuning::Shipped, SHORT), PAPER_LATENCY_S)
        } else {
            let note = "Without Linux the factor is nom's latency over the paper's nom's, 63 \u{b5}s.";
            self.notes.add(note.into());
            (self.fixed(0, SHORT), PAPER_NOM_LATENCY_S)
        };
        let halves = halves.context("nothing tells how slow this machine is")?;
        let served = Served::of(&halves[1]).context("a single client was served nothing")?;
        Slowness::of(served.latency_s / paper_s * PAPER_LATENCY_S)
    }

    /// Takes one run; what fails becomes a note, unless somebody interrupted.
    fn attempt(&mut self, turn: Turn, run: impl FnOnce(&mut Self) -> Result<Halves>) -> Result<()> {
        let Turn { system, repetition } = turn;
        self.turn = (repetition + 1, self.schedule.runs);
        match run(self) {
            Ok(halves) => {
                self.keep(Account { system, runs: vec![Run { repetition, halves }] });
            }
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => {
                let name = self.application.label();
                self.notes.add(format!("{name} on {} not measured: {error:#}.", system.name()));
            }
        }
        Ok(())
    }

    fn linux(&mut self, tuning: Tuning, phase: Duration) -> Result<Halves> {
        let what = self.said(&tables::label(System::Linux(tuning)));
        let mut machine = self.boot_linux(&what, tuning)?;
        let load = self.load(phase);
        experiment::run(&mut machine, load, Instant::now(), self.progress, &what, |_| Ok(()))
    }

    /// Starts the distribution's server.
    fn boot_linux(&mut self, what: &str, tuning: Tuning) -> Result<Machine> {
        let servers = self.servers.context("there is no Linux")?;
        self.progress.step(&format!("{what} boots"), LINUX_START)?;
        let (service, place) = (self.application.service, Place::new(self.tap)?);
        if self.native {
            let server = Native::Linux(servers, service);
            return Machine::start_native(
                server,
                service,
                &place::setting(self.accelerator),
                place,
                self.progress,
            );
        }
        let guest = guests::linux(servers, service, tuning, self.images)?;
        Machine::start(&guest, service, &place::setting(self.accelerator), place, false, self.progress)
    }

    /// What one machine of Linux serves so many connections at a time, one number after the other.
    ///
    /// # Errors
    /// If anything fails.
    pub fn crowds(&mut self, connections: &[u32], phase: Duration) -> Result<Vec<(u32, Vec<Interval>)>> {
        let what = self.said("Linux");
        let (machine, origin) = (self.boot_linux(&what, Tuning::Shipped)?, Instant::now());
        let of = |connections: &u32| {
            self.progress.step(&format!("{what}: {connections} connections"), phase)?;
            let load = Load { kind: self.application.client, connections: *connections, phase };
            let mut client = experiment::clients(&machine, &load, &experiment::PHASES[0], origin)?;
            client.wait_for_load(self.progress)?;
            let intervals = client.finish(self.progress, experiment::PHASES[0].price)?;
            // Of the first second nobody knows when it began.
            Ok((*connections, intervals.into_iter().skip(1).collect()))
        };
        connections.iter().map(of).collect()
    }

    fn peer(&mut self, name: &str) -> Result<Halves> {
        let peer = self.peers.iter().find(|peer| peer.name == name).context("there is no such peer")?;
        let what = self.said(name);
        self.progress.step(&format!("{what} boots"), LINUX_START)?;
        let (service, load) = (self.application.service, self.load(self.schedule.phase));
        let place = Place::new(self.tap)?;
        let mut machine =
            Machine::start_peer(peer, service, &place::setting(self.accelerator), place, self.progress)?;
        experiment::run(&mut machine, load, Instant::now(), self.progress, &what, |_| Ok(()))
    }

    fn load(&self, phase: Duration) -> Load {
        Load { kind: self.application.client, connections: self.connections, phase }
    }

    /// What happens, for the progress bar.
    fn said(&self, system: &str) -> String {
        let name = self.application.label();
        match self.turn {
            (_, 0 | 1) => format!("{name}, {system}"),
            (run, runs) => format!("{name}, run {run} of {runs}, {system}"),
        }
    }

    /// A run with a fixed batching delay on the machine that adapts otherwise: it, too, hears of prices and
    /// reports what it earns, so that nothing but the choice differs.
    fn fixed(&mut self, us: u32, phase: Duration) -> Result<Halves> {
        let what = format!("nom, W = {us} \u{b5}s");
        Ok(self.trade(&what, Setup::Fixed(us), phase, Market::set_price)?.halves)
    }

    fn adaptive(&mut self, function: Function, slowness: Slowness) -> Result<Halves> {
        let what = format!("nom, adaptive ({})", function.name());
        let setup = self.adapting(function, slowness);
        let Traded { halves, set, heard, governing_share } =
            self.trade(&what, setup, self.schedule.phase, Market::set_price)?;
        self.adaptations.push(Adaptation { function, halves: halves.clone(), set, heard, governing_share });
        Ok(halves)
    }

    /// A run with a fixed batching delay, and what the application said meanwhile.
    ///
    /// # Errors
    /// If anything fails.
    pub fn reporting(&mut self, us: u32) -> Result<(Vec<Set>, Vec<Heard>)> {
        let phase = self.schedule.phase;
        let Traded { set, heard, .. } =
            self.trade(&format!("W = {us} \u{b5}s"), Setup::Fixed(us), phase, Market::begin)?;
        Ok((set, heard))
    }

    /// A run of nom at a market of its own, where each phase begins with its price.
    fn trade(
        &mut self,
        what: &str,
        setup: Setup,
        phase: Duration,
        begin: fn(&mut Market, f64) -> Result<()>,
    ) -> Result<Traded> {
        let what = self.said(what);
        let Serving { mut machine, mut market, origin } = self.boot(&what, setup)?;
        let (load, before) = (self.load(phase), self.governing(&machine, setup));
        let progress = &mut *self.progress;
        let halves = experiment::run(&mut machine, load, origin, progress, &what, |price| {
            market.as_mut().map_or(Ok(()), |market| begin(market, price))
        })?;
        let after = self.governing(&machine, setup);
        let governing_share = before.zip(after).map(|(before, after)| after.share_since(&before));
        let (set, heard) = market.map(Market::close).unwrap_or_default();
        Ok(Traded { halves, set, heard, governing_share })
    }

    /// Starts nom's application, at a market of its own: without a machine nobody names it prices.
    fn boot(&mut self, what: &str, setup: Setup) -> Result<Serving> {
        self.progress.step(&format!("{what} boots"), NOM_START)?;
        let (service, setting) = (self.application.service, place::setting(self.accelerator));
        let origin = Instant::now();
        if self.native {
            let place = Place::with_pair()?;
            let process = native::process(self.project, service, setup, self.images)?;
            let server = Native::Nom(&process);
            let machine = Machine::start_native(server, service, &setting, place, self.progress)?;
            return Ok(Serving { machine, market: None, origin });
        }
        let place = Place::new(self.tap)?;
        let mut market = Market::open(&place, origin)?;
        market.set_price(experiment::PHASES[0].price)?;
        let feed = market.feed()?;
        let guest = guests::nom(self.project, self.servers, (service, setup), &feed, self.images)?;
        let machine = Machine::start(&guest, service, &setting, place, true, self.progress)?;
        market.wait_until_known(self.progress)?;
        Ok(Serving { machine, market: Some(market), origin })
    }

    /// What choosing took so far, where somebody chooses. Only in a network namespace every port of a machine
    /// is reached.
    fn governing(&mut self, machine: &Machine, setup: Setup) -> Option<Reading> {
        let is_told = self.tap && matches!(setup, Setup::Adaptive(..));
        let reading = is_told.then(|| Reading::of(machine))?;
        reading
            .map_err(|error| self.notes.add(format!("What choosing takes was not measured: {error:#}.")))
            .ok()
    }
}

/// The order of systems in tables.
fn rank(system: System) -> (u8, u32) {
    match system {
        System::Linux(tuning) => (0, tuning as u32),
        System::Peer(_) => (1, 0),
        System::Fixed(us) => (2, us),
        System::Adaptive(function) => (3, function as u32),
    }
}
