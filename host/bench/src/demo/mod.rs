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
mod knobs;
mod market;
mod money;
mod native;
mod offline;
mod oracle;
mod peer;
mod place;
mod profits;
mod progress;
mod rows;
mod runner;
mod scan;
mod schedule;
mod shares;
mod steer;
mod summary;
mod tables;
mod tap;
mod tenants;
mod turns;

use crate::Outcome;
use crate::environment::Environment;
use crate::linux::Tuning;
use crate::linux::serve::Servers;
use crate::others::Watch;
use crate::report::{Notes, Report};
use agreement::Agreement;
use anyhow::{Context, Result, bail, ensure};
use contract::{Contract, Function, Slowness};
use findings::Findings;
use nom_build::{Project, debian};
use nom_vmm::{Accelerator, Namespace};
use progress::Progress;
use runner::{Adaptation, Application, Runner};
use schedule::{NOM_START, Schedule};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

pub use experiment::CONNECTIONS;
pub use knobs::run as turn_knobs;
pub use offline::{TableOptions, table};
pub use peer::Peer;
pub use progress::Interrupted;
pub use scan::scan;
pub use tenants::run as tenants;

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
    /// How long fixed and adaptive batching delays take turns within one machine under each function, if
    /// not as usual; if it is zero, each delay has a machine of its own.
    pub turns: Option<Duration>,
    /// What the order of turns follows from.
    pub seed: u64,
    /// Whether servers are processes of this computer, without a machine.
    pub native: bool,
    /// Another length of each phase than the usual one.
    pub phase: Option<Duration>,
    /// Names of the utility functions; none means all.
    pub functions: Vec<String>,
    /// The number of a signal that asks for an end, once there is one.
    pub signal: Arc<AtomicUsize>,
}

/// Phases of the quick demo, so that all of it takes less than five minutes.
const QUICK: Schedule = Schedule { phase: Duration::from_secs(8), runs: 1 };
/// How long settings take turns in it under each function: three rounds.
const QUICK_TURNS: Duration = Duration::from_secs(42);
/// Phases and repetitions of the whole, so that all of it takes less than ninety minutes.
const FULL: Schedule = Schedule { phase: Duration::from_secs(20), runs: 3 };
/// How long settings take turns in it: the standard error of a share is below 1%.
const FULL_TURNS: Duration = Duration::from_secs(300);
/// About how long it takes to fetch the other system and its servers, for the progress bar.
const FETCHING: Duration = Duration::from_secs(20);
/// About how long the kernel and a first application take to build, with the library.
const FIRST_BUILD: Duration = Duration::from_secs(60);
/// About how long one more application takes, or one that was built before.
const BUILD: Duration = Duration::from_secs(2);
/// What turns take at least: two rounds.
const TURNS_MIN: Duration = Duration::from_secs(28);
/// What they take beside turns: clients begin and end.
const TURNS_ASIDE: Duration = Duration::from_secs(8);
/// What executes servers without a machine.
const NATIVE: &str = "none: servers are processes of this computer";
/// How many batching delays are tried.
const DELAYS: usize = 6;

impl Options {
    fn schedule(&self) -> Schedule {
        let Schedule { phase, runs } = if self.full { FULL } else { QUICK };
        Schedule { phase: self.phase.unwrap_or(phase), runs: self.repetitions.unwrap_or(runs) }
    }

    /// Whether what is asked for can be had.
    fn check(&self, applications: &[Application]) -> Result<()> {
        if self.native {
            ensure!(
                rustix::process::geteuid().is_root(),
                "--native needs root: a server has a network of its own"
            );
            let others =
                applications.iter().find(|application| application.label() != runner::MEMCACHED.label());
            if let Some(other) = others {
                bail!("--native knows memcached, not {}", other.label());
            }
        }
        Ok(())
    }

    fn turning(&self) -> Duration {
        self.turns.unwrap_or(if self.full { FULL_TURNS } else { QUICK_TURNS })
    }

    /// About how long it takes to run all these.
    fn length(&self, applications: &[Application], functions: usize) -> Duration {
        let linux = if self.linux { if self.native { 1 } else { Tuning::ALL.len() } } else { 0 };
        let (schedule, beside) = (self.schedule(), linux + self.peers.len());
        let of = |application: &Application| {
            let takes_turns = !self.turning().is_zero()
                && application.client == client::Kind::Memcaslap
                && rustix::process::geteuid().is_root();
            if takes_turns {
                let turning = NOM_START + self.turning().max(TURNS_MIN) + TURNS_ASIDE;
                schedule.length(beside, functions, 0) + turning * functions as u32
            } else {
                schedule.length(beside, functions, DELAYS)
            }
        };
        applications.iter().map(of).sum()
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
            [] => self.full && application.is_papers() || application.label() == runner::MEMCACHED.label(),
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
    turning: Duration,
    seed: u64,
    native: bool,
}

/// What a stage is made of.
struct Means<'a> {
    /// Linux and its servers, if they can be had.
    servers: Option<Servers>,
    accelerator: Accelerator,
    cache: &'a Path,
    /// Whether servers are processes of this computer.
    native: bool,
}

impl Means<'_> {
    /// Builds an application: an image, or a process.
    fn build(&self, project: &Project, application: &Application, directory: &Path) -> Result<()> {
        let (service, setup) = (application.service, guests::Setup::Fixed(0));
        if self.native {
            return native::process(project, service, setup, directory).map(drop);
        }
        let feed = market::feed(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), None);
        guests::nom(project, self.servers.as_ref(), (service, setup), &feed, directory).map(drop)
    }
}

impl Stage {
    /// One without peers, for `applications`, which are built.
    fn build(
        project: &Project,
        applications: &[Application],
        means: Means<'_>,
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
        let images = tempfile::tempdir_in(means.cache)
            .with_context(|| format!("cannot write to {}", means.cache.display()))?;
        for application in applications {
            // Built once before anything is timed; nobody runs this one. What is up to date takes no time.
            let what = format!("building nom's {}", application.label());
            progress.step(&what, building(project))?;
            let project = project.with_listener(progress.teller(&what));
            let built = means.build(&project, application, images.path());
            // Who interrupts ends cargo, too.
            progress.tick()?;
            built?;
        }
        Ok(Stage { accelerator: means.accelerator, servers: means.servers, peers: Vec::new(), tap, images })
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
            turning: asked.turning,
            seed: asked.seed,
            native: asked.native,
            progress,
            notes,
            accounts: Vec::new(),
            adaptations: Vec::new(),
            turned: Vec::new(),
            turn: (1, 1),
            saver: &|_, _| Ok(()),
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
    options.check(&applications)?;
    debian::set_up(&debian::CLIENTS)?;
    let cache = crate::cache(&options.project)?;
    crate::make_directory(&options.out)?;
    let choice = nom_vmm::accelerator::choose(&cache);
    let executes = if options.native { NATIVE.to_owned() } else { choice.to_string() };
    let environment = Environment::capture(&executes)?;
    let mut notes = Notes::default();
    let mut progress = begin(options, &applications, &functions);
    let stage = prepare(options, &applications, choice.accelerator, &cache, &mut progress, &mut notes)?;
    let results =
        Results { out: &options.out, environment, watch: Watch::begin(), are_there: Cell::new(false) };
    let performed =
        perform(options, (&applications, &functions), &stage, &results, (&mut progress, &mut notes));
    progress.finish();
    let (findings, adaptations) = performed.map_err(|error| results.cut(error))?;
    let served = findings.iter().any(|findings| !findings.accounts.is_empty());
    let outcome = results.write(&findings, &adaptations, notes)?;
    ensure!(served, "nothing was served, see {}", outcome.report.display());
    Ok(outcome)
}

/// Where results go, and what holds for all of them.
struct Results<'a> {
    out: &'a Path,
    environment: Environment,
    watch: Option<Watch>,
    /// Whether some have been written.
    are_there: Cell<bool>,
}

impl Results<'_> {
    /// Writes everything that was found, in place of what was there before.
    fn write(&self, findings: &[Findings], adaptations: &[Vec<Adaptation>], notes: Notes) -> Result<Outcome> {
        let mut records = summary::records(findings)?;
        records.extend(self.watch.and_then(|watch| watch.record(summary::EXPERIMENT)));
        let mut drawn: Vec<_> = findings.iter().flat_map(figures::figures).collect();
        drawn.extend(figures::timelines(findings, adaptations));
        rows::save_intervals(findings, self.out)?;
        rows::save_statuses(findings, adaptations, self.out)?;
        let report = Report {
            title: "nom demo: what a server earns".into(),
            environment: self.environment.clone(),
            tables: tables::tables(findings),
            targets: summary::targets(&records),
            figures: drawn,
            records,
            notes: notes.into_vec(),
        };
        let outcome = report.conclude(self.out)?;
        self.are_there.set(true);
        Ok(outcome)
    }

    /// Writes what was found so far, beside what applications before this one were; it is not the whole.
    fn write_part(
        &self,
        before: (&[Findings], &[Vec<Adaptation>]),
        runner: &Runner,
        slowness: Slowness,
    ) -> Result<()> {
        let mut notes = runner.notes.clone();
        notes.add(
            "The run was not over when this was written: it is what had been measured until then.".into(),
        );
        let findings = [before.0, &[found(runner, slowness)]].concat();
        let adaptations = [before.1, std::slice::from_ref(&runner.adaptations)].concat();
        self.write(&findings, &adaptations, notes).map(drop)
    }

    /// What ended a run, and what is left of it.
    fn cut(&self, error: anyhow::Error) -> anyhow::Error {
        if !self.are_there.get() {
            return error;
        }
        error.context(format!("what was measured before is in {}", self.out.display()))
    }
}

/// Says what is to come, and how long it will take with all that is to be fetched and built before.
fn begin(options: &Options, applications: &[Application], functions: &[Function]) -> Progress {
    let schedule = options.schedule();
    let mut planned = options.length(applications, functions.len());
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
        Ok(_) if options.native => notes.add(
            "Linux is this computer's kernel with Debian's memcached, behind a pair of virtual Ethernet \
             devices; nom is a process with an XDP socket behind another, and no prices are named to it: it \
             maximises revenue."
                .into(),
        ),
        Ok(servers) => notes.add(format!("Linux is Debian's {} with Debian's servers.", servers.package)),
        Err(error) => notes.add(format!("Linux was not measured: {error:#}.")),
    }
    let means = Means { servers: servers.ok(), accelerator, cache, native: options.native };
    let stage = Stage::build(&options.project, &needed, means, progress, notes)?;
    Ok(Stage { peers: options.peers.clone(), ..stage })
}

/// Runs every application under every function.
fn perform(
    options: &Options,
    (applications, functions): (&[Application], &[Function]),
    stage: &Stage,
    results: &Results,
    (progress, notes): (&mut Progress, &mut Notes),
) -> Result<(Vec<Findings>, Vec<Vec<Adaptation>>)> {
    let asked = Asked {
        project: &options.project,
        schedule: options.schedule(),
        connections: options.connections,
        functions,
        turning: options.turning(),
        seed: options.seed,
        native: options.native,
    };
    let (mut findings, mut adaptations, mut slowness) = (Vec::new(), Vec::new(), None);
    for &application in applications {
        if slowness.is_none() && application.label() != runner::MEMCACHED.label() {
            slowness = Some(stage.runner(&asked, runner::MEMCACHED, progress, notes).slowness()?);
        }
        let saver =
            |runner: &Runner, slowness| results.write_part((&findings, &adaptations), runner, slowness);
        let mut runner = Runner { saver: &saver, ..stage.runner(&asked, application, progress, notes) };
        let measured = runner.run(slowness)?;
        let (here, adapted) = (found(&runner, measured), runner.adaptations);
        slowness = Some(measured);
        findings.push(here);
        adaptations.push(adapted);
    }
    Ok((findings, adaptations))
}

/// What a runner has measured, on a machine that is so slow.
fn found(runner: &Runner, slowness: Slowness) -> Findings {
    let adapted = &runner.adaptations;
    Findings {
        application: runner.application.label(),
        slowness,
        seconds: runner.schedule.phase.as_secs_f64(),
        accounts: runner.accounts.clone(),
        turned: runner.turned.clone(),
        agreements: adapted.iter().filter_map(|run| agreement(run, slowness)).collect(),
        reactions_s: adapted.iter().filter_map(Adaptation::reaction_s).collect(),
        governing_shares: adapted.iter().filter_map(|run| run.governing_share).collect(),
    }
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
