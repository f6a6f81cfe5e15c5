//! `nom demo --knobs`: a step in the price of memory, or of a core, against every static setting.
//!
//! Users pay for the values that they find, whatever their latency. Clients ask for keys as Zipf's law has
//! it, and store what is not found, so that what memory brings is what its miss-ratio curve says.

mod load;
mod results;

use super::guests::{self, Setup};
use super::market::Market;
use super::place::{self, Machine, Place};
use super::progress::{Interrupted, Progress};
use super::schedule::NOM_START;
use super::{FIRST_BUILD, Options, runner};
use crate::Outcome;
use crate::environment::Environment;
use crate::others::Watch;
use crate::report::{Notes, Report};
use anyhow::{Context, Result, ensure};
use load::{Clients, Tally};
use nom_proto::prices::Resource;
use nom_vmm::Accelerator;
use std::path::Path;
use std::time::{Duration, Instant};

/// Name of the experiment in records.
pub const EXPERIMENT: &str = "demo-knobs";
/// How long a phase is by itself.
const PHASE: Duration = Duration::from_secs(20);
const GIB: f64 = (1_u64 << 30) as f64;
const BITS_IN_GBIT: f64 = 1e9;

/// A knob, its static settings, and the prices between which it is to be turned.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Its name, which is the server's for it.
    pub name: &'static str,
    /// What a price is of: GiB and second, or core and second.
    pub resource: Resource,
    /// The price while it is cheap, and while it is dear.
    pub prices: [f64; 2],
    /// Clients.
    pub clients: usize,
    /// Processors of the machine.
    pub cores: u32,
    /// The settings that do not change: a name, and what has the server take it.
    pub settings: &'static [(&'static str, Fixed)],
}

/// What keeps a server at a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixed {
    /// Arguments.
    Arguments(&'static [&'static str]),
    /// As many cores as its machine has.
    Cores(u32),
}

/// Every knob that the demo turns. Prices are such that the setting that earns most is another one in each
/// phase: found values bring some dollars a second here.
pub const KNOBS: [Knob; 2] = [
    Knob {
        name: "memory",
        resource: Resource::Memory,
        prices: [1.0, 30.0],
        clients: 4,
        cores: 1,
        settings: &[
            ("4 MiB", Fixed::Arguments(&["-m", "4"])),
            ("8 MiB", Fixed::Arguments(&["-m", "8"])),
            ("16 MiB", Fixed::Arguments(&["-m", "16"])),
            ("32 MiB", Fixed::Arguments(&["-m", "32"])),
            ("64 MiB", Fixed::Arguments(&["-m", "64"])),
        ],
    },
    Knob {
        name: "cores",
        resource: Resource::Core,
        prices: [0.01, 1.5],
        clients: 12,
        cores: 2,
        settings: &[("1 core", Fixed::Cores(1)), ("2 cores", Fixed::Cores(2))],
    },
];

/// Names of the phases, in the order of [`Knob::prices`].
pub const PHASES: [&str; 2] = ["cheap", "dear"];
/// The setting that changes by itself.
pub const ADAPTIVE: &str = "adaptive";

/// What a second brought and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Its length.
    pub seconds: f64,
    /// What clients were answered.
    pub tally: Tally,
    /// Memory held at its end, in bytes.
    pub memory_bytes: f64,
    /// Cores held at its end.
    pub cores: f64,
    /// Dollars: found values less what was held.
    pub profit: f64,
}

/// A setting in both phases.
pub struct Trial {
    /// The setting.
    pub setting: &'static str,
    /// Each phase, second by second.
    pub phases: [Vec<Second>; 2],
}

/// The knobs of these names.
///
/// # Errors
/// If there is none of a name.
pub fn named(names: &[String]) -> Result<Vec<Knob>> {
    let of = |name: &String| {
        let known = KNOBS.iter().find(|knob| knob.name == name);
        known.copied().with_context(|| format!("no knob `{name}`: expected memory or cores"))
    };
    names.iter().map(of).collect()
}

/// Turns the knobs of these names, and compares with every static setting.
///
/// # Errors
/// If this is not root, nothing can be started, or somebody interrupts ([`Interrupted`]).
pub fn run(options: &Options, names: &[String]) -> Result<Outcome> {
    let knobs = named(names)?;
    ensure!(
        rustix::process::geteuid().is_root(),
        "--knobs needs root: each machine has a network of its own"
    );
    let cache = crate::cache(&options.project)?;
    crate::make_directory(&options.out)?;
    let choice = nom_vmm::accelerator::choose(&cache);
    let environment = Environment::capture(&choice.to_string())?;
    let phase = options.phase.unwrap_or(PHASE);
    let repetitions = options.repetitions.unwrap_or(1);
    let settings: usize = knobs.iter().map(|knob| knob.settings.len() + 1).sum();
    let planned = FIRST_BUILD + (NOM_START + phase * 2) * settings as u32 * repetitions;
    let about = humantime::format_duration(Duration::from_secs(planned.as_secs().div_ceil(60) * 60));
    eprintln!("{}: phases of {} s; this takes about {about}", names.join(", "), phase.as_secs());
    let mut progress = Progress::new(planned, options.signal.clone());
    let images =
        tempfile::tempdir_in(&cache).with_context(|| format!("cannot write to {}", cache.display()))?;
    let mut bench = Bench {
        options,
        accelerator: choice.accelerator,
        images: images.path(),
        phase,
        progress: &mut progress,
        notes: Notes::default(),
    };
    let watch = Watch::begin();
    let mut trials = Vec::new();
    for knob in &knobs {
        trials.push((*knob, bench.trials(knob, repetitions)?));
    }
    let notes = bench.notes;
    progress.finish();
    let mut records = results::records(&trials);
    let tables = trials.iter().map(|(knob, trials)| results::table(knob, trials)).collect();
    records.extend(watch.and_then(|watch| watch.record(EXPERIMENT)));
    let report = Report {
        title: "nom demo --knobs: what memory and cores bring".into(),
        environment,
        targets: results::targets(&knobs),
        tables,
        records,
        figures: vec![],
        notes: notes.into_vec(),
    };
    report.conclude(&options.out)
}

struct Bench<'a> {
    options: &'a Options,
    accelerator: Accelerator,
    images: &'a Path,
    phase: Duration,
    progress: &'a mut Progress,
    notes: Notes,
}

impl Bench<'_> {
    /// Every setting in turn, adaptive among them, every other repetition backwards.
    fn trials(&mut self, knob: &Knob, repetitions: u32) -> Result<Vec<Trial>> {
        let mut trials = Vec::new();
        let fixed = knob.settings.iter().map(|(name, fixed)| (*name, Some(*fixed)));
        let all: Vec<_> = fixed.chain([(ADAPTIVE, None)]).collect();
        for repetition in 0..repetitions {
            let turns: Vec<_> =
                if repetition.is_multiple_of(2) { all.clone() } else { all.iter().rev().copied().collect() };
            for (setting, fixed) in turns {
                match self.trial(knob, setting, fixed) {
                    Ok(phases) => trials.push(Trial { setting, phases }),
                    Err(error) if error.is::<Interrupted>() => return Err(error),
                    Err(error) => self.notes.add(format!("{} {setting}: {error:#}.", knob.name)),
                }
            }
        }
        ensure!(!trials.is_empty(), "nothing was measured: {}", self.notes.clone().into_vec().join(" "));
        Ok(trials)
    }

    fn trial(&mut self, knob: &Knob, setting: &str, fixed: Option<Fixed>) -> Result<[Vec<Second>; 2]> {
        let what = format!("{}, {setting}", knob.name);
        self.progress.step(&format!("{what} boots"), NOM_START)?;
        let cores = if let Some(Fixed::Cores(cores)) = fixed { cores } else { knob.cores };
        let (service, place) = (runner::MEMCACHED.service, Place::with_queues(cores)?);
        let mut market = Market::open(&place, Instant::now())?;
        market.set(knob.resource, knob.prices[0])?;
        let arguments = if let Some(Fixed::Arguments(arguments)) = fixed { arguments } else { &[] };
        let adapts = fixed.is_none().then_some(knob.name);
        let setup = Setup::Knob { arguments, cores, knob: adapts };
        let (project, feed) = (&self.options.project, market.feed()?);
        let guest = guests::nom(project, None, (service, setup), &feed, self.images)?;
        let machine =
            Machine::start(&guest, service, &place::setting(self.accelerator), place, true, self.progress)?;
        market.wait_until_known(self.progress)?;
        self.serve(knob, &what, &machine, market)
    }

    fn serve(
        &mut self,
        knob: &Knob,
        what: &str,
        machine: &Machine,
        mut market: Market,
    ) -> Result<[Vec<Second>; 2]> {
        let clients = Clients::start(machine, knob.clients, self.options.seed)?;
        let mut phases = [Vec::new(), Vec::new()];
        for (index, price) in knob.prices.into_iter().enumerate() {
            self.progress.step(&format!("{what}: {}", PHASES[index]), self.phase)?;
            market.set(knob.resource, price)?;
            let (begin, mut before) = (Instant::now(), (Instant::now(), clients.tally()));
            while begin.elapsed() < self.phase {
                std::thread::sleep(Duration::from_secs(1));
                self.progress.tick()?;
                clients.check()?;
                let now = (Instant::now(), clients.tally());
                let status = market.status().context("the application said nothing")?;
                let seconds = now.0.duration_since(before.0).as_secs_f64();
                let held = (status.memory_bytes as f64, f64::from(status.cores));
                phases[index].push(second(knob, price, seconds, now.1.since(before.1), held));
                before = now;
            }
        }
        clients.end()?;
        Ok(phases)
    }
}

/// What a second brought: found values are paid for, and what is held costs.
fn second(knob: &Knob, price: f64, seconds: f64, tally: Tally, (memory_bytes, cores): (f64, f64)) -> Second {
    let revenue = tally.useful_bytes as f64 * 8.0 / BITS_IN_GBIT * super::contract::ALPHA;
    let held = if knob.resource == Resource::Memory { memory_bytes / GIB } else { cores };
    Second { seconds, tally, memory_bytes, cores, profit: revenue - held * price * seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_values_bring_and_what_is_held_costs() {
        let tally = Tally { requests: 2000, found: 1000, useful_bytes: 125_000_000 };
        let of = |knob: &Knob, price| second(knob, price, 2.0, tally, (GIB / 2.0, 2.0)).profit;
        assert!((of(&KNOBS[0], 3.0) - (20.0 - 3.0)).abs() < 1e-9, "a Gbit, and a GiB-second at 3 $");
        assert!((of(&KNOBS[1], 3.0) - (20.0 - 12.0)).abs() < 1e-9, "four core-seconds");
    }

    #[test]
    fn knobs_are_chosen_by_name() {
        assert_eq!(named(&["cores".into()]).unwrap()[0].cores, 2);
        let error = named(&["disk".into()]).unwrap_err().to_string();
        assert_eq!(error, "no knob `disk`: expected memory or cores");
    }
}
