//! Where prices come from: a schedule, a trace, another provider, or a cloud's price list.
//!
//! A line of text chooses: `KIND:ARGUMENT,OPTION=VALUE,...` ([`Source`]'s `FromStr`). What a source says is
//! believed only as far as [`PriceBook`](crate::price_book::PriceBook) believes it; a source that is dead,
//! slow or lying changes no price, and is named with the reason.

mod aws;
mod azure;
mod cloudsigma;
mod convert;
mod energy_charts;
mod fetch;
mod instance;
mod journal;
mod nom;
mod runner;
mod spec;
mod timeline;

pub use spec::BadSource;

pub(crate) use journal::Journal;
pub(crate) use runner::{Running, start};

use fetch::{Fetch, SourceError};
use nom_proto::prices::Resource;
use spec::Spec;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use timeline::Timeline;

/// Where prices come from, checked but not yet asked.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Timeline(Timeline),
    Polled(Polled),
}

#[derive(Clone, Debug)]
struct Polled {
    adapter: Arc<dyn Adapter>,
    /// From one question to the next.
    every: Duration,
    /// How long an answer may take.
    timeout: Duration,
}

/// What knows how to ask one kind of price list.
trait Adapter: fmt::Debug + Send + Sync {
    /// Whether its prices depend on what was sent in this month, so that it wants to know.
    fn counts_usage(&self) -> bool {
        false
    }

    /// Tells how many bytes the ledger says were sent in this month.
    fn used(&self, _sent_bytes: u64) {}

    /// What it names prices of.
    fn resources(&self) -> Vec<Resource>;

    /// Asks for the present prices.
    ///
    /// # Errors
    /// If there is no answer, or it is not of the documented shape.
    fn ask(&self, fetch: &Fetch) -> Result<Vec<Quote>, SourceError>;
}

/// A price as a source names it, converted to dollars for one of the resource's units.
#[derive(Clone, Debug, PartialEq)]
struct Quote {
    resource: Resource,
    dollars: f64,
    /// How old it is already.
    age: Duration,
    /// The field of the answer that it comes from.
    field: String,
    /// What the price will be, and when, in nanoseconds since 1970, if the source says so.
    next: Option<(f64, u64)>,
}

impl Quote {
    /// A price of this moment.
    fn fresh(resource: Resource, dollars: f64, field: impl Into<String>) -> Quote {
        Quote { resource, dollars, age: Duration::ZERO, field: field.into(), next: None }
    }
}

impl Source {
    /// Its name for people: `schedule`, `azure westeurope`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it names prices of.
    #[must_use]
    pub fn resources(&self) -> Vec<Resource> {
        match &self.kind {
            Kind::Timeline(timeline) => timeline.resources(),
            Kind::Polled(polled) => polled.adapter.resources(),
        }
    }

    /// A source of prices at fixed times, as the command line has them:
    /// `network_out=1@0s,10@60s; core=0.01; repeat=120s`.
    ///
    /// # Errors
    /// If that is no schedule.
    pub fn schedule(text: &str) -> Result<Source, BadSource> {
        Ok(Source { name: "schedule".to_owned(), kind: Kind::Timeline(Timeline::schedule(text)?) })
    }
}

/// From one question to the next of a source whose prices depend on usage, in seconds.
const USAGE_SECONDS: u64 = 3600;
/// Kinds of sources, and what comes behind the colon.
const KINDS: &str = "schedule:PRICES, trace:FILE, nom:URL, cloudsigma:LOCATION, azure:REGION, \
                     azure-egress:REGION, aws-spot:REGION, aws-spot-list:REGION, aws-egress:REGION, \
                     energy-charts:ZONE";

impl FromStr for Source {
    type Err = BadSource;

    fn from_str(text: &str) -> Result<Source, BadSource> {
        if let Some(schedule) = text.strip_prefix("schedule:") {
            return Source::schedule(schedule);
        }
        let mut spec = Spec::parse(text)?;
        let name = format!("{} {}", spec.kind, spec.argument);
        if spec.kind == "trace" {
            let timeline = Timeline::trace(&mut spec)?;
            spec.finish()?;
            return Ok(Source { name, kind: Kind::Timeline(timeline) });
        }
        let (adapter, every): (Arc<dyn Adapter>, u64) = match spec.kind.as_str() {
            "nom" => (Arc::new(nom::Upstream::new(&mut spec)?), 1),
            "cloudsigma" => (Arc::new(cloudsigma::CloudSigma::new(&mut spec)?), 60),
            "azure" => (Arc::new(azure::Azure::new(&mut spec)?), 3600),
            "azure-egress" => (Arc::new(azure::Egress::new(&mut spec)?), 86_400),
            "aws-spot" => (Arc::new(aws::SpotHistory::new(&mut spec)?), 300),
            "aws-spot-list" => (Arc::new(aws::SpotList::new(&mut spec)?), 3600),
            "aws-egress" => (Arc::new(aws::Egress::new(&mut spec)?), 86_400),
            "energy-charts" => (Arc::new(energy_charts::EnergyCharts::new(&mut spec)?), 300),
            _ => return Err(spec.bad("kind", &spec.kind, KINDS)),
        };
        // Tiers are reached in the midst of a day.
        let every = if adapter.counts_usage() { USAGE_SECONDS } else { every };
        let every = spec.seconds("every", every as f64)?;
        let timeout = spec.seconds("timeout", 30.0)?;
        spec.finish()?;
        Ok(Source { name, kind: Kind::Polled(Polled { adapter, every, timeout }) })
    }
}

/// Checks that no resource has two sources.
///
/// # Errors
/// Names the first that has.
pub(crate) fn check(sources: &[Source]) -> Result<(), String> {
    for (index, source) in sources.iter().enumerate() {
        for other in &sources[..index] {
            let shared = source.resources().into_iter().find(|mine| other.resources().contains(mine));
            if let Some(resource) = shared {
                let (name, first, second) = (resource.name(), &other.name, &source.name);
                return Err(format!("{name} would have two sources, `{first}` and `{second}`: expected one"));
            }
        }
    }
    Ok(())
}
