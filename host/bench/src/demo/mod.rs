//! `nom demo`: what a server earns, nom beside Linux, under the same load and the same change of price.
//!
//! The experiment of the paper (nom, VEE'16, section 6): many clients are served while data is cheap, then a
//! single one while it is dear, and users pay by one of three utility functions. Money only counts what a
//! real client was served, as the client says. `docs/demo.md` says how everything is measured.

mod agreement;
mod analysis;
mod client;
mod contract;
mod experiment;
mod figures;
mod findings;
mod governing;
mod guests;
mod market;
mod money;
mod offline;
mod oracle;
mod peer;
mod place;
mod profits;
mod progress;
mod rows;
mod runner;
mod schedule;
mod shares;
mod summary;
mod tables;
mod tap;

use crate::Outcome;
use crate::environment::Environment;
use crate::linux::Tuning;
use crate::linux::serve::Servers;
use crate::others::Watch;
use crate::report::{Notes, Report};
use agreement::Agreement;
use anyhow::{Context, Result, ensure};
use contract::{Contract, Function, Slowness};
use findings::Findings;
use nom_build::{Project, debian};
use nom_vmm::{Accelerator, Namespace};
use progress::Progress;
use runner::{Adaptation, Application, Runner};
use schedule::Schedule;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

pub use experiment::CONNECTIONS;
pub use offline::{TableOptions, table};
pub use peer::Peer;
pub use progress::Interrupted;

/// What to show, and where the results go.
#[derive(Clone, Debug)]
pub struct Options {
    /// The checkout that nom is built from; what is fetched or made once lies in its `.nom/bench`.
    pub project: Project,
    /// Directory for `results.json`, `results.csv`, `intervals.csv`, `statuses.csv`, the figures and
    /// `report.html`; created.
    pub out: PathBuf,
    /// The paper's times and repetitions, and every application.
    pub full: bool,
    /// Names of the applications; none means all if `full`, and memcached alone otherwise.
    pub applications: Vec<String>,
    /// How often everything is repeated, if not as usual.
    pub repetitions: Option<u32>,
    /// Whether Linux is run, too; what it needs is fetched once.
    pub linux: bool,
    /// How many connections the first phase has.
    pub connections: u32,
    /// Machines of others that take part, too.
    pub peers: Vec<Peer>,
    /// Another length of each phase than the usual one.
    pub phase: Option<Duration>,
    /// Names of the utility functions; none means all.
    pub functions: Vec<String>,
    /// The number of a signal that asks for an end, once there is one.
    pub signal: Arc<AtomicUsize>,
}

/// Phases of the quick demo, so that all of it takes less than five minutes.
const QUICK: Schedule = Schedule { phase: Duration::from_secs(10), runs: 1 };
/// Phases of the paper, and its repetitions.
const FULL: Schedule = Schedule { phase: Duration::from_secs(60), runs: 5 };
/// About how long it takes to fetch the other system and its servers, for the progress bar.
const FETCHING: Duration = Duration::from_secs(20);
/// About how long the kernel and a first application take to build, with the library.
const FIRST_BUILD: Duration = Duration::from_secs(60);
/// About how long one more application takes, or one that was built before.
const BUILD: Duration = Duration::from_secs(2);
/// How many batching delays are tried.
const DELAYS: usize = 6;

impl Options {
    fn schedule(&self) -> Schedule {
        let Schedule { phase, runs } = if self.full { FULL } else { QUICK };
        Schedule { phase: self.phase.unwrap_or(phase), runs: self.repetitions.unwrap_or(runs) }
    }

    fn functions(&self) -> Result<Vec<Function>> {
        let known = |name: &String| {
            let function = Function::ALL.into_iter().find(|function| function.name() == name);
            function
                .with_context(|| format!("no utility function `{name}`: expected penalty, refund or bonus"))
        };
        match self.functions.as_slice() {
            [] => Ok(Function::ALL.to_vec()),
            names => names.iter().map(known).collect(),
        }
    }

    /// Those that are asked for, in the paper's order.
    fn applications(&self) -> Result<Vec<Application>> {
        self.applications.iter().try_for_each(|name| runner::named(name).map(drop))?;
        let is_asked = |application: &Application| match self.applications.as_slice() {
            [] => self.full || application.label() == runner::MEMCACHED.label(),
            names => names.iter().any(|name| name == application.label()),
        };
        Ok(runner::ALL.into_iter().filter(is_asked).collect())
    }
}

/// Where all of it happens.
struct Stage {
    accelerator: Accelerator,
    servers: Option<Servers>,
    peers: Vec<Peer>,
    tap: bool,
    images: tempfile::TempDir,
}

/// What to run on it.
struct Asked<'a> {
    project: &'a Project,
    schedule: Schedule,
    connections: u32,
    functions: &'a [Function],
}

impl Stage {
    /// One without Linux, for `applications`, which are built.
    fn build(
        project: &Project,
        applications: &[Application],
        accelerator: Accelerator,
        cache: &Path,
        progress: &mut Progress,
        notes: &mut Notes,
    ) -> Result<Stage> {
        let tap = Namespace::create("demo", 1)
            .map_err(|error| {
                notes.add(format!(
                    "Machines have QEMU's user-mode network, which meters nothing: what is sent is taken to \
                     be the useful data alone ({error:#})."
                ));
            })
            .is_ok();
        let images =
            tempfile::tempdir_in(cache).with_context(|| format!("cannot write to {}", cache.display()))?;
        for application in applications {
            // Built once before anything is timed; nobody runs this one. What is up to date takes no time.
            let what = format!("building nom's {}", application.label());
            progress.step(&what, building(project))?;
            let project = project.with_listener(progress.teller(&what));
            let feed = market::feed(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), None);
            let setup = guests::Setup::Fixed(0);
            let built = guests::nom(&project, application.service, setup, &feed, images.path());
            // Who interrupts ends cargo, too.
            progress.tick()?;
            built?;
        }
        Ok(Stage { accelerator, servers: None, peers: Vec::new(), tap, images })
    }

    /// Whoever runs `application` there.
    fn runner<'a>(
        &'a self,
        asked: &Asked<'a>,
        application: Application,
        progress: &'a mut Progress,
        notes: &'a mut Notes,
    ) -> Runner<'a> {
        Runner {
            project: asked.project,
            servers: self.servers.as_ref(),
            peers: &self.peers,
            accelerator: self.accelerator,
            tap: self.tap,
            images: self.images.path(),
            application,
            schedule: asked.schedule,
            connections: asked.connections,
            functions: asked.functions,
            progress,
            notes,
            accounts: Vec::new(),
            adaptations: Vec::new(),
            turn: (1, 1),
        }
    }
}

/// About how long the next application takes to build.
fn building(project: &Project) -> Duration {
    if project.is_built("nom-kernel") { BUILD } else { FIRST_BUILD }
}

/// Runs the demo and writes everything to `options.out`. What one system lacks is a note.
///
/// # Errors
/// If a client, QEMU or a directory is missing, nothing is served, or somebody interrupts ([`Interrupted`]).
pub fn run(options: &Options) -> Result<Outcome> {
    let (functions, applications) = (options.functions()?, options.applications()?);
    debian::set_up(&debian::CLIENTS)?;
    let cache = crate::cache(&options.project)?;
    crate::make_directory(&options.out)?;
    let choice = nom_vmm::accelerator::choose(&cache);
    let environment = Environment::capture(&choice.to_string())?;
    let mut notes = Notes::default();
    let mut progress = begin(options, &applications, &functions);
    let stage = prepare(options, &applications, choice.accelerator, &cache, &mut progress, &mut notes)?;
    let watch = Watch::begin();
    let (findings, adaptations) =
        perform(options, &applications, &functions, &stage, &mut progress, &mut notes)?;
    progress.finish();
    let mut records = summary::records(&findings)?;
    records.extend(watch.and_then(|watch| watch.record(summary::EXPERIMENT)));
    let served = findings.iter().any(|findings| !findings.accounts.is_empty());
    let mut drawn: Vec<_> = findings.iter().flat_map(figures::figures).collect();
    drawn.extend(figures::timelines(&findings, &adaptations));
    rows::save_intervals(&findings, &options.out)?;
    rows::save_statuses(&findings, &adaptations, &options.out)?;
    let report = Report {
        title: "nom demo: what a server earns".into(),
        environment,
        tables: tables::tables(&findings),
        targets: summary::targets(&records),
        figures: drawn,
        records,
        notes: notes.into_vec(),
    };
    let outcome = report.conclude(&options.out)?;
    ensure!(served, "nothing was served, see {}", outcome.report.display());
    Ok(outcome)
}

/// Says what is to come, and how long it will take with all that is to be fetched and built before.
fn begin(options: &Options, applications: &[Application], functions: &[Function]) -> Progress {
    let schedule = options.schedule();
    let linux = if options.linux { Tuning::ALL.len() } else { 0 };
    let beside = linux + options.peers.len();
    let mut planned = schedule.length(beside, functions.len(), DELAYS) * applications.len() as u32;
    if options.linux {
        planned += FETCHING + runner::PROBE;
    }
    planned += building(&options.project) + BUILD * applications.len() as u32;
    say(applications, functions, &schedule, planned);
    Progress::new(planned, options.signal.clone())
}

/// Fetches and builds what takes long.
fn prepare(
    options: &Options,
    applications: &[Application],
    accelerator: Accelerator,
    cache: &Path,
    progress: &mut Progress,
    notes: &mut Notes,
) -> Result<Stage> {
    // memcached tells how slow this machine is.
    let needed: Vec<_> = std::iter::once(&runner::MEMCACHED).chain(applications).copied().collect();
    let wanted: Vec<_> = needed.iter().map(|application| application.service.linux).collect();
    let servers = if options.linux {
        progress.step("fetching Linux and its servers", FETCHING)?;
        Servers::prepare(cache, &wanted)
    } else {
        Err(anyhow::anyhow!("it was not asked for"))
    };
    match &servers {
        Ok(servers) => notes.add(format!("Linux is Debian's {} with Debian's servers.", servers.package)),
        Err(error) => notes.add(format!("Linux was not measured: {error:#}.")),
    }
    let stage = Stage::build(&options.project, &needed, accelerator, cache, progress, notes)?;
    Ok(Stage { servers: servers.ok(), peers: options.peers.clone(), ..stage })
}

/// Runs every application.
fn perform(
    options: &Options,
    applications: &[Application],
    functions: &[Function],
    stage: &Stage,
    progress: &mut Progress,
    notes: &mut Notes,
) -> Result<(Vec<Findings>, Vec<Vec<Adaptation>>)> {
    let schedule = options.schedule();
    let asked = Asked { project: &options.project, schedule, connections: options.connections, functions };
    let (mut findings, mut adaptations, mut slowness) = (Vec::new(), Vec::new(), None);
    for &application in applications {
        if slowness.is_none() && application.label() != runner::MEMCACHED.label() {
            slowness = Some(stage.runner(&asked, runner::MEMCACHED, progress, notes).slowness()?);
        }
        let mut runner = stage.runner(&asked, application, progress, notes);
        let found = runner.run(slowness)?;
        slowness = Some(found);
        let (accounts, adapted) = (runner.accounts, runner.adaptations);
        findings.push(Findings {
            application: application.label(),
            slowness: found,
            seconds: schedule.phase.as_secs_f64(),
            accounts,
            agreements: adapted.iter().filter_map(|run| agreement(run, found)).collect(),
            reactions_s: adapted.iter().filter_map(Adaptation::reaction_s).collect(),
            governing_shares: adapted.iter().filter_map(|run| run.governing_share).collect(),
        });
        adaptations.push(adapted);
    }
    Ok((findings, adaptations))
}

/// Says what is to come, and how long it will take.
fn say(applications: &[Application], functions: &[Function], schedule: &Schedule, planned: Duration) {
    let names: Vec<_> = applications.iter().map(Application::label).collect();
    let functions: Vec<_> = functions.iter().copied().map(Function::name).collect();
    let about = humantime::format_duration(Duration::from_secs(planned.as_secs().div_ceil(60) * 60));
    let times = if schedule.runs == 1 { "once".to_owned() } else { format!("{} times", schedule.runs) };
    eprintln!(
        "{} under {}: phases of {} s, {times}; this takes about {about}",
        names.join(", "),
        functions.join(", "),
        schedule.phase.as_secs(),
    );
}

fn agreement(run: &Adaptation, slowness: Slowness) -> Option<Agreement> {
    Agreement::of(run, &Contract::new(run.function, slowness).ok()?)
}
