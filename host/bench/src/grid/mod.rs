//! `nom bench grid`: three tenants of one memcached, and three sites of one nhttpd, who are served by weight.
//!
//! Each tenant is a closed-loop client with more on its way than the core can serve. Their shares of the
//! core's time are what the machine itself tells; what a hostile tenant costs the others is told by their
//! clients, in turns beside a peaceful one; what telling apart and scheduling cost is counted in guest
//! instructions, against the same program without either.

mod hostile;
mod measure;
mod summary;
pub(crate) mod tenants;
mod transmit;

use crate::Outcome;
use crate::environment::Environment;
use crate::others::Watch;
use crate::record::Samples;
use crate::serve::counts;
use crate::serve::guests::Provider;
use crate::serve::service;
use anyhow::Result;
use measure::Bench;
use nom_build::Project;
use std::path::PathBuf;
use std::time::Duration;

/// What to measure, and where the results go.
#[derive(Clone, Debug)]
pub struct Options {
    /// The checkout that nom is built from.
    pub project: Project,
    /// Directory for `results.json`, `results.csv` and `report.html`; created.
    pub out: PathBuf,
    /// How often everything is measured that takes time.
    pub turns: u32,
    /// How long each time.
    pub duration: Duration,
    /// The experiments that are wanted, by name; all, if none is named.
    pub only: Vec<String>,
}

/// The experiments, by name: each says what it is about in [`Options::only`].
pub const EXPERIMENTS: [&str; 5] = ["counts", "shares", "hostile", "overload", transmit::TRANSMIT];

impl Options {
    fn wants(&self, experiment: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == experiment)
    }
}

const EXPERIMENT: &str = "grid";
const APPLICATION: &str = "memcached";

/// A machine that is measured: its name in records, and what its manifest says more than memcached's.
#[derive(Clone, Copy, Debug)]
struct Variant {
    system: &'static str,
    manifest: &'static str,
}

/// Nobody is told apart.
const BYPASSED: Variant = Variant { system: "nom-bypassed", manifest: "" };
/// All are told apart by their addresses.
const BY_ADDRESS: Variant =
    Variant { system: "nom-by-address", manifest: "[[activity]]\nname = \"all\"\nclients = \"0.0.0.0/0\"\n" };
/// Requests are told apart by their keys, and served as they come.
const TOLD_APART: Variant = Variant {
    system: "nom-told-apart",
    manifest: concat!(
        "[[activity]]\nname = \"gold\"\nkey = \"gold:\"\n",
        "[[activity]]\nname = \"silver\"\nkey = \"silver:\"\n",
        "[[activity]]\nname = \"bronze\"\nkey = \"bronze:\"\n"
    ),
};
/// Requests are told apart by their keys, and served by weight.
const FAIR: Variant = Variant {
    system: "nom",
    manifest: concat!(
        "[grid.input]\nscheduler = \"fair\"\n",
        "[[activity]]\nname = \"gold\"\nkey = \"gold:\"\nweight = 50\n",
        "[[activity]]\nname = \"silver\"\nkey = \"silver:\"\nweight = 33\n",
        "[[activity]]\nname = \"bronze\"\nkey = \"bronze:\"\nweight = 17\n"
    ),
};
/// Whatever is gold's is due soon.
const DEADLINE: Variant = Variant {
    system: "nom-deadline",
    manifest: concat!(
        "[grid.input]\nscheduler = \"deadline\"\nbatching = 1\n",
        "[[activity]]\nname = \"gold\"\nkey = \"gold:\"\ndeadline = 2000\n",
        "[[activity]]\nname = \"silver\"\nkey = \"silver:\"\n",
        "[[activity]]\nname = \"bronze\"\nkey = \"bronze:\"\n"
    ),
};
/// What all of them say: the machine tells of itself.
const CONTROL: &str = "environment = { control = \"9999\" }\n";

/// Measures and writes everything to `options.out`.
///
/// # Errors
/// If this is not root, QEMU is missing, or a client was not answered.
pub fn run(options: &Options) -> Result<Outcome> {
    let cache = crate::cache(&options.project)?;
    crate::make_directory(&options.out)?;
    let choice = nom_vmm::accelerator::choose(&cache);
    let environment = Environment::capture(&choice.to_string())?;
    let plugin = counts::plugin(&cache)?;
    let images = tempfile::tempdir_in(&cache)?;
    let provider = |variant: Variant| {
        let Variant { system, manifest } = variant;
        let manifest = [CONTROL, manifest].concat();
        Provider::nom_that(&options.project, &service::MEMCACHED, images.path(), system, &manifest)
    };
    let watch = Watch::begin();
    let mut bench = Bench { options, accelerator: choice.accelerator, samples: Samples::new(EXPERIMENT) };
    let wanted = |experiment, variants: &[Variant]| match options.wants(experiment) {
        true => variants.to_vec(),
        false => Vec::new(),
    };
    for variant in wanted("counts", &[BYPASSED, BY_ADDRESS, TOLD_APART, FAIR]) {
        bench.count(&provider(variant)?, &plugin)?;
    }
    for variant in wanted("shares", &[TOLD_APART, FAIR]) {
        bench.shares(&provider(variant)?)?;
    }
    for variant in wanted("hostile", &[TOLD_APART, FAIR]) {
        bench.hostile(&provider(variant)?)?;
    }
    for variant in wanted("overload", &[TOLD_APART, DEADLINE]) {
        bench.overload(&provider(variant)?)?;
    }
    for variant in wanted(transmit::TRANSMIT, &[transmit::ALIKE, transmit::BY_BYTES]) {
        bench.transmit(variant, images.path())?;
    }
    let mut records = bench.samples.records();
    records.extend(watch.and_then(|watch| watch.record(EXPERIMENT)));
    summary::conclude(options, environment, records)
}
