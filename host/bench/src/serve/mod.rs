//! `nom bench serve`: throughput, latency and jitter of three services, nom beside Linux.
//!
//! Both systems boot the same machine in a network namespace of its own, and the same clients load them,
//! one after the other, again and again, so that what else the host does falls on both.

mod counted;
pub(crate) mod counts;
mod datagrams;
pub(crate) mod guests;
pub mod load;
mod parts;
pub(crate) mod processors;
pub(crate) mod running;
pub(crate) mod runs;
pub(crate) mod service;
mod summary;
mod sweep;
pub(crate) mod tools;
pub mod visits;

use crate::Outcome;
use crate::environment::Environment;
use crate::linux::Tuning;
use crate::linux::serve::Servers;
use crate::others::Watch;
use crate::report::{Notes, Report};
use anyhow::{Result, ensure};
use counted::Counting;
use guests::Provider;
use nom_build::{Project, debian};
use runs::Runs;
use service::Service;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to measure, and where the results go.
#[derive(Clone, Debug)]
pub struct Options {
    /// The checkout that nom is built from; what is fetched or made once lies in its `.nom/bench`.
    pub project: Project,
    /// Directory for `results.json`, `results.csv`, the figures and `report.html`; created.
    pub out: PathBuf,
    /// How often each system is started and loaded.
    pub repetitions: u32,
    /// How long each load lasts.
    pub duration: Duration,
    /// Names of the services to measure; all if there are none.
    pub services: Vec<String>,
    /// Who and what is measured.
    pub extent: Extent,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Both systems in every way.
    Whole,
    /// Only what requests to nom cost in counts: a minute instead of a quarter of an hour.
    Counts,
}

/// Batching delays that are tried, in microseconds.
const DELAYS_US: [u32; 6] = [0, 5, 10, 20, 30, 40];

/// Processors of a machine with several, each with a pair of queues of the network device.
const WIDE: u32 = 2;

/// Runs the bench and writes everything to `options.out`. What one system lacks is a note.
///
/// # Errors
/// If this is not root, a client, QEMU or a directory is missing, or neither system serves anything.
pub fn run(options: &Options) -> Result<Outcome> {
    let services = service::named(&options.services)?;
    debian::set_up(&debian::CLIENTS)?;
    let cache = crate::cache(&options.project)?;
    crate::make_directory(&options.out)?;
    // Now, not after minutes of building: whoever may not make one is told.
    drop(nom_vmm::Namespace::create("bench", 1)?);
    let choice = nom_vmm::accelerator::choose(&cache);
    let environment = Environment::capture(&choice.to_string())?;
    let images = tempfile::tempdir_in(&cache)?;
    let mut notes = Notes::default();
    let servers = match options.extent {
        Extent::Whole => linux_servers(&services, &cache, &mut notes),
        Extent::Counts => None,
    };
    let providers = providers(&options.project, &services, servers.as_ref(), images.path(), &mut notes);
    let watch = Watch::begin();
    let mut runs = Runs::new(choice.accelerator, options.duration);
    if options.extent == Extent::Whole {
        measure(&mut runs, &providers, options.repetitions, &mut notes);
    }
    count(&mut runs, &providers, &cache, &options.out, &mut notes);
    let is_swept = services.iter().any(|service| service.name == service::MEMCACHED.name);
    if options.extent == Extent::Whole && is_swept {
        sweep(&mut runs, &options.project, images.path(), options.repetitions, &mut notes);
    }
    let (measured, noted) = runs.records();
    noted.into_vec().into_iter().for_each(|note| notes.add(note));
    let mut records = summary::complete(measured);
    records.extend(watch.and_then(|watch| watch.record(summary::EXPERIMENT)));
    let served = summary::served(&records);
    let report = Report {
        title: "nom bench serve".into(),
        environment,
        tables: Vec::new(),
        targets: match options.extent {
            Extent::Whole => summary::targets(&services),
            Extent::Counts => Vec::new(),
        },
        figures: summary::figures(&records),
        records,
        notes: notes.into_vec(),
    };
    let outcome = report.conclude(&options.out)?;
    ensure!(served, "nothing was served, see {}", outcome.report.display());
    Ok(outcome)
}

/// Linux's servers.
fn linux_servers(services: &[&'static Service], cache: &Path, notes: &mut Notes) -> Option<Servers> {
    let all: Vec<_> = services.iter().map(|service| service.linux).collect();
    let servers = Servers::prepare(cache, &all);
    match &servers {
        Ok(servers) => notes.add(format!("Linux is Debian's {} with Debian's servers.", servers.package)),
        Err(error) => notes.add(format!("Linux was not measured: {error:#}.")),
    }
    servers.ok()
}

/// Everybody who provides a service, the systems of one service side by side.
fn providers(
    project: &Project,
    services: &[&'static Service],
    servers: Option<&Servers>,
    images: &Path,
    notes: &mut Notes,
) -> Vec<Provider> {
    let mut providers = Vec::new();
    for service in services.iter().copied() {
        let linux = |tuning| Some(Provider::linux(servers?, service, tuning, images));
        for provider in
            Tuning::ALL.into_iter().filter_map(linux).chain([Provider::nom(project, service, images)])
        {
            match provider {
                Ok(provider) => providers.push(provider),
                Err(error) => notes.add(format!("{} was not measured everywhere: {error:#}.", service.name)),
            }
        }
    }
    providers
}

/// Takes every measurement; what fails becomes a note. Systems take turns.
fn measure(runs: &mut Runs, providers: &[Provider], repetitions: u32, notes: &mut Notes) {
    let mut note = |what, provider: &Provider, result| note(notes, what, provider, result);
    for _ in 0..repetitions {
        for provider in providers {
            note("time to first reply", provider, runs.start_up(provider));
            note("throughput and latency", provider, runs.serve(provider));
        }
    }
    for provider in providers.iter().map(|provider| provider.on(WIDE)) {
        note("serving on several processors", &provider, runs.serve_wide(&provider));
    }
    // The packet API's image is memcached's.
    for provider in providers.iter().filter(|provider| provider.service.name != service::PACKET_API.name) {
        note("sizes", provider, runs.sizes(provider));
    }
}

/// Processors of machines whose requests are counted, beside one.
const WIDTHS: [u32; 2] = [2, 4];

/// Counts what requests cost; what fails becomes a note.
fn count(runs: &mut Runs, providers: &[Provider], cache: &Path, out: &Path, notes: &mut Notes) {
    let plugin = counts::plugin(cache);
    for provider in providers {
        let counted = match &plugin {
            Ok(plugin) => runs.count(provider, Counting { plugin, out }),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        note(notes, "counts per request", provider, counted);
        let Ok(plugin) = &plugin else { continue };
        for provider in WIDTHS.map(|cores| provider.on(cores)).iter().filter(|one| one.programs.is_some()) {
            let counted = runs.count_wide(provider, Counting { plugin, out });
            note(notes, "counts per request on several processors", provider, counted);
        }
    }
}

/// Notes what could not be measured.
fn note(notes: &mut Notes, what: &str, provider: &Provider, result: Result<()>) {
    if let Err(error) = result {
        let Service { name, .. } = provider.service;
        notes.add(format!("{what} of {name} on {} not measured: {error:#}.", provider.system));
    }
}

/// Tries one batching delay after the other, again and again.
fn sweep(runs: &mut Runs, project: &Project, images: &Path, repetitions: u32, notes: &mut Notes) {
    let provider = |us| Ok((us, Provider::nom_with_delay(project, &service::MEMCACHED, images, us)?));
    let providers: Result<Vec<_>> = DELAYS_US.into_iter().map(provider).collect();
    // Where there is no such application, that has been noted.
    let Ok(providers) = providers else { return };
    for _ in 0..repetitions {
        for (delay_us, provider) in &providers {
            if let Err(error) = runs.serve_delayed(provider, *delay_us) {
                notes.add(format!("batching delay {delay_us} us not measured: {error:#}."));
            }
        }
    }
}
