//! CloudSigma's pricing: levels that burst prices move along every five minutes.
//!
//! What is owed is `price * seconds * amount / multiplier`, where memory is counted in bytes and processors
//! in MHz; data is counted in bytes and has no seconds.

use super::convert::{per_gbit, per_gib};
use super::fetch::{Answer, Decimal, Fetch, SourceError};
use super::spec::{BadSource, Spec};
use super::{Adapter, Quote};
use nom_proto::prices::Resource;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Its currency.
const CURRENCY: &str = "USD";

/// `cloudsigma:LOCATION,core_mhz=N`.
#[derive(Debug)]
pub struct CloudSigma {
    url: String,
    core_mhz: f64,
}

#[derive(Deserialize)]
struct Pricing {
    /// Level in force of each resource.
    current: BTreeMap<String, u32>,
    objects: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    currency: String,
    level: u32,
    multiplier: f64,
    price: Decimal,
    resource: String,
}

impl CloudSigma {
    /// From its line.
    ///
    /// # Errors
    /// If that does not say how fast a core is.
    pub fn new(spec: &mut Spec) -> Result<CloudSigma, BadSource> {
        let core_mhz = spec.required_number("core_mhz", "how many MHz of CloudSigma make a core")?;
        let base = spec.base_url(&format!("https://{}.cloudsigma.com", spec.argument));
        // Without a limit it answers with the first page alone.
        Ok(CloudSigma { url: format!("{base}/api/2.0/pricing/?limit=0"), core_mhz })
    }
}

impl Adapter for CloudSigma {
    fn resources(&self) -> Vec<Resource> {
        vec![Resource::Core, Resource::Memory, Resource::NetworkOut]
    }

    fn ask(&self, fetch: &Fetch) -> Result<Vec<Quote>, SourceError> {
        let answer = fetch.get(&self.url, &[])?;
        let pricing: Pricing = answer.json()?;
        let quote = |name, resource, convert: &dyn Fn(f64) -> f64| {
            let (per_count, field) = per_count(&answer, &pricing, name)?;
            Ok(Quote::fresh(resource, convert(per_count), field))
        };
        Ok(vec![
            quote("cpu", Resource::Core, &|per_mhz| per_mhz * self.core_mhz)?,
            quote("mem", Resource::Memory, &per_gib)?,
            quote("tx", Resource::NetworkOut, &per_gbit)?,
        ])
    }
}

/// The price for one count of what `name` is counted in (and a second, if it is held), and its field.
fn per_count(answer: &Answer, pricing: &Pricing, name: &str) -> Result<(f64, String), SourceError> {
    let level = pricing.current.get(name).copied();
    let level = level.ok_or_else(|| answer.wrong(&format!("current.{name}"), "missing"))?;
    let is_it =
        |object: &Object| object.resource == name && object.currency == CURRENCY && object.level == level;
    let index = pricing.objects.iter().position(is_it).ok_or_else(|| {
        answer.wrong("objects", &format!("none has the price of {name} in {CURRENCY} at level {level}"))
    })?;
    let object = &pricing.objects[index];
    if !(object.multiplier.is_finite() && object.multiplier > 0.0) {
        let detail = format!("{}, expected a number above 0", object.multiplier);
        return Err(answer.wrong(&format!("objects[{index}].multiplier"), &detail));
    }
    Ok((object.price.0 / object.multiplier, format!("objects[{index}].price")))
}
