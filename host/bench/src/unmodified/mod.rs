//! `nom bench linux`: Debian's own programs, unchanged, on nom beside a Debian guest.
//!
//! Both machines have the same processor and memory, run the same files with the same arguments and
//! configuration, and are loaded by the same clients, one after the other, again and again. What a request
//! costs is counted in instructions, too. One small program times what programs ask of a system most.

mod loads;
mod primitives;
pub(crate) mod programs;
mod redis;
mod resident;
mod summary;

use crate::Outcome;
use crate::environment::Environment;
use crate::linux::Tuning;
use crate::linux::serve::{Server, Servers};
use crate::machine::{Guest, Setting};
use crate::others::Watch;
use crate::record::{Key, Record, Samples, Unit};
use crate::report::Notes;
use crate::serve::counts::{self, Counters};
use crate::serve::guests::{Provider, nom_bundle, running};
use crate::serve::processors::Processors;
use crate::serve::running::Running;
use crate::serve::runs;
use crate::serve::service::{self, Service};
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use loads::{Scenario, scenarios};
use nom_build::Project;
use nom_build::debian::{self, Tool};
use nom_image::{Command, Root};
use nom_vmm::{Accelerator, Allocation};
use primitives::Primitives;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to measure, and where the results go.
#[derive(Clone, Debug)]
pub struct Options {
    /// The checkout that nom is built from; what is fetched or made once lies in its `.nom/bench`.
    pub project: Project,
    /// Directory for `results.json`, `results.csv`, the figure and `report.html`; created.
    pub out: PathBuf,
    /// How often each system is started and loaded.
    pub repetitions: u32,
    /// How long each load lasts.
    pub duration: Duration,
    /// Names of what is measured; everything if there are none.
    pub programs: Vec<String>,
}

/// Memory of each machine.
const MEMORY_BYTES: u64 = 512 << 20;
/// No system takes longer to its first reply, or for its primitives, even counted on a slow machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// For how long a program is loaded before anything counts, so that code is translated and caches are warm.
const WARM_UP: Duration = Duration::from_millis(500);
/// The same of a program that compiles itself meanwhile, the oftener something was called the better.
const WARM_UP_OF_COMPILER: Duration = Duration::from_secs(15);
/// How long nobody asks anything before idleness is measured, and while it is.
const CALM: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(2);
/// The scenario of what is measured without a load, and that of primitives.
const START: &str = "start";
/// The Debian guest, and nom beside it, in records.
const LINUX: &str = "linux";
const RATIO: &str = "nom/linux";
const ONE_CORE: &str = "one-core";
const TWO_CORES: &str = "two-cores";

const TOOLS: [Tool; 5] = [
    Tool::new("redis-tools", &["redis-benchmark"]),
    Tool::new("wrk", &["wrk"]),
    Tool::new("golang-go", &["go"]),
    Tool::new("iproute2", &["ip"]),
    Tool::new("gcc libc6-dev", &["cc"]),
];

/// Measures and writes everything to `options.out`. What fails becomes a note.
///
/// # Errors
/// If there is no program of a name, this is not root, a client, a package or QEMU is missing, or nothing was
/// measured.
pub fn run(options: &Options) -> Result<Outcome> {
    let (services, with_primitives) = programs::named(&options.programs)?;
    debian::set_up(&TOOLS)?;
    let cache = crate::cache(&options.project)?;
    crate::make_directory(&options.out)?;
    // Now, not after minutes of building: whoever may not make one is told.
    drop(nom_vmm::Namespace::create("bench", 1)?);
    let choice = nom_vmm::accelerator::choose(&cache);
    let environment = Environment::capture(&choice.to_string())?;
    let images = tempfile::tempdir_in(&cache)?;
    let servers = prepare(&cache)?;
    let mut bench = Bench::new(choice.accelerator, options.duration);
    let mut providers = Vec::new();
    for service in services {
        providers.extend(bench.providers(&options.project, &servers, service, images.path())?);
    }
    let primitives = match with_primitives {
        true => Some(Primitives::prepare(&options.project, &servers, images.path())?),
        false => None,
    };
    let watch = Watch::begin();
    for _ in 0..options.repetitions {
        bench.each(&providers, "not measured", Bench::start_up);
        bench.each(&providers, "not measured", Bench::serve);
        bench.primitives(primitives.as_ref(), choice.accelerator, false);
        bench.two_cores(primitives.as_ref(), choice.accelerator);
    }
    let plugin = counts::plugin(&cache)?;
    bench.each(&providers, "not counted", |bench, provider| bench.count(provider, &plugin, &options.out));
    bench.primitives(primitives.as_ref(), Accelerator::Tcg, true);
    let (mut records, notes) = bench.finish();
    ensure!(!records.is_empty(), "nothing was measured: {}", notes.into_vec().join(" "));
    records.extend(watch.and_then(|watch| watch.record(summary::EXPERIMENT)));
    summary::report(environment, records, notes).conclude(&options.out)
}

/// Debian's programs, with those of the serve bench, which has them in the same place.
fn prepare(cache: &Path) -> Result<Servers> {
    let all = service::ALL.iter().chain(&programs::ALL).map(|service| service.linux);
    let fetched = all.chain([programs::REDIS_PROGRAM]).filter(|server| !server.package.is_empty());
    let servers = Servers::prepare(cache, &fetched.collect::<Vec<Server>>())?;
    programs::compile(servers.tree())?;
    Ok(servers)
}

/// What is measured so far.
struct Bench {
    accelerator: Accelerator,
    duration: Duration,
    samples: Samples,
    notes: Notes,
    progress: ProgressBar,
}

impl Bench {
    fn new(accelerator: Accelerator, duration: Duration) -> Bench {
        let style =
            ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a well-formed template");
        Bench {
            accelerator,
            duration,
            samples: Samples::new(summary::EXPERIMENT),
            notes: Notes::default(),
            progress: ProgressBar::new_spinner().with_style(style),
        }
    }

    fn finish(self) -> (Vec<Record>, Notes) {
        self.progress.finish_and_clear();
        (self.samples.records(), self.notes)
    }

    /// Both systems with one program; how large their images are is noted.
    fn providers(
        &mut self,
        project: &Project,
        servers: &Servers,
        service: &'static Service,
        images: &Path,
    ) -> Result<[Provider; 2]> {
        self.say(&format!("{}: building", service.name));
        let nom = Provider::unmodified(project, servers, service, images)?;
        let linux = Provider::linux(servers, service, Tuning::Shipped, images)?;
        for provider in [&nom, &linux] {
            self.push(provider, START, "image_size", Unit::Bytes, provider.image_bytes as f64);
        }
        let nothing = running(project, Root::new(), &Command::plain("/nothing", &[]))?;
        let (empty, _) = nom_bundle(project, nothing, &images.join("nom-empty"))?;
        let bytes = empty.kernel.metadata().context("an image was built")?.len();
        self.push(&nom, START, "image_beyond_program", Unit::Bytes, bytes as f64);
        Ok([nom, linux])
    }

    /// Does `work` with each of `providers`; what fails is noted.
    fn each(
        &mut self,
        providers: &[Provider],
        problem: &str,
        work: impl Fn(&mut Bench, &Provider) -> Result<()>,
    ) {
        for provider in providers {
            if let Err(error) = work(self, provider) {
                let (system, name) = (provider.system, provider.service.name);
                self.notes.add(format!("{name} of {system} {problem}: {error:#}."));
            }
        }
    }

    /// Starts a program once, and notes when it answers.
    fn start_up(&mut self, provider: &Provider) -> Result<()> {
        self.say(&format!("{} {}: start", provider.system, provider.service.name));
        // The time to take memory that nobody needs would count.
        let setting = Setting { allocation: Allocation::OnDemand, ..setting(self.accelerator) };
        let running = Running::start(&provider.guest, provider.service, &setting, &[])?;
        let seconds = running.first_reply.as_secs_f64();
        self.push(provider, START, "time_to_first_reply", Unit::Seconds, seconds);
        std::thread::sleep(CALM);
        let (before, start) = (Processors::now(running.process_id())?, Instant::now());
        std::thread::sleep(IDLE);
        let used = Processors::now(running.process_id())?.since(before);
        let share = (used.guest + used.monitor).as_secs_f64() / start.elapsed().as_secs_f64();
        self.push(provider, START, "idle_processor_share", Unit::Ratio, share);
        let touched = resident::guest_memory(running.process_id(), MEMORY_BYTES)?;
        self.push(provider, START, "memory_touched", Unit::Bytes, touched as f64);
        Ok(())
    }

    /// Starts a program once, and has its clients load it in every way.
    fn serve(&mut self, provider: &Provider) -> Result<()> {
        let running = Running::start(&provider.guest, provider.service, &setting(self.accelerator), &[])?;
        loads::prepare(&running, provider.service)?;
        for scenario in scenarios(provider.service) {
            let rate = self.warm_up(provider, scenario, &running)?;
            let served = scenario.run(&running, self.duration, Some(rate)).context(scenario.name)?;
            self.push(provider, scenario.name, "throughput", Unit::PerSecond, served.throughput);
            for (metric, value) in ["latency_mean", "latency_p50", "latency_p99"].iter().zip(served.latency) {
                self.push(provider, scenario.name, metric, Unit::Seconds, value);
            }
        }
        Ok(())
    }

    /// Counts what one request costs, which only QEMU's translator can.
    fn count(&mut self, provider: &Provider, plugin: &Path, out: &Path) -> Result<()> {
        let directory = tempfile::tempdir()?;
        let mut counters = Counters::new(directory.path());
        let (setting, arguments) = (setting(Accelerator::Tcg), counters.arguments(plugin));
        let running = Running::start(&provider.guest, provider.service, &setting, &arguments)?;
        let booted = counters.now()?.instructions as f64;
        self.push(provider, START, "instructions_to_first_reply", Unit::Instructions, booted);
        loads::prepare(&running, provider.service)?;
        for scenario in scenarios(provider.service) {
            let rate = self.warm_up(provider, scenario, &running)?;
            let (before, executed) = (counters.now()?, counters.executed()?);
            let served = scenario.run(&running, self.duration, Some(rate)).context(scenario.name)?;
            let counts = counters.now()?.since(before);
            if let Some(programs) = &provider.programs {
                let parts = programs.parts(&counters.executed()?.since(&executed))?;
                parts.save(out, &format!("{}-{}", provider.service.name, scenario.name), served.requests)?;
            }
            let each = |count: u64| count as f64 / served.requests.max(1) as f64;
            for (metric, unit, count) in [
                ("instructions_per_request", Unit::Instructions, counts.instructions),
                ("exits_per_request", Unit::Count, counts.exits),
            ] {
                self.push(provider, scenario.name, metric, unit, each(count));
            }
        }
        Ok(())
    }

    /// Requests a second before anything counts.
    fn warm_up(&mut self, provider: &Provider, scenario: &Scenario, running: &Running) -> Result<f64> {
        self.say(&format!("{} {}: {}", provider.system, provider.service.name, scenario.name));
        let compiles = provider.service.name == programs::NODE.name;
        let duration = if compiles { WARM_UP_OF_COMPILER } else { WARM_UP };
        Ok(scenario.run(running, duration, None).context(scenario.name)?.throughput)
    }

    /// Runs the program that times primitives on each system, or has QEMU count their instructions.
    fn primitives(
        &mut self,
        primitives: Option<&Primitives>,
        accelerator: Accelerator,
        counts_instructions: bool,
    ) {
        let setting = Setting { counts_instructions, ..setting(accelerator) };
        for (system, guest) in primitives.iter().flat_map(|primitives| &primitives.guests) {
            self.primitives_of(system, guest, &setting, ONE_CORE);
        }
    }

    /// The same of what concerns two processors.
    fn two_cores(&mut self, primitives: Option<&Primitives>, accelerator: Accelerator) {
        for (system, guest) in primitives.iter().flat_map(|primitives| primitives.of_two()) {
            self.primitives_of(system, &guest, &setting(accelerator), TWO_CORES);
        }
    }

    fn primitives_of(&mut self, system: &str, guest: &Guest, setting: &Setting, scenario: &str) {
        self.say(&format!("{system}: primitives, {scenario}"));
        let figures = match primitives::figures(guest, setting) {
            Ok(figures) => figures,
            Err(error) => {
                return self
                    .notes
                    .add(format!("primitives of {system}, {scenario}, not measured: {error:#}."));
            }
        };
        for (name, value) in figures {
            let (metric, unit) = match setting.counts_instructions {
                true => (format!("{name}{}", summary::COUNTED), Unit::Instructions),
                false => (name, Unit::Cycles),
            };
            self.samples.push(key(system, programs::PRIMITIVES, scenario, &metric, unit), value as f64);
        }
    }

    fn say(&self, what: &str) {
        self.progress.set_message(what.to_owned());
        self.progress.tick();
    }

    fn push(&mut self, provider: &Provider, scenario: &str, metric: &str, unit: Unit, value: f64) {
        self.samples.push(key(provider.system, provider.service.name, scenario, metric, unit), value);
    }
}

/// Of each machine.
fn setting(accelerator: Accelerator) -> Setting {
    Setting { memory_bytes: MEMORY_BYTES, timeout: PATIENCE, ..runs::serving(accelerator) }
}

fn key(system: &str, application: &'static str, scenario: &str, metric: &str, unit: Unit) -> Key {
    let (system, scenario, metric) = (system.to_owned(), scenario.to_owned(), metric.to_owned());
    Key { system, application, scenario, metric, unit }
}
