//! CloudSigma's pricing: levels that burst prices move along every five minutes.
//!
//! What is owed is `price * seconds * amount / multiplier`, where memory is counted in bytes and processors
//! in MHz; data is counted in bytes and has no seconds.

use super::convert::{per_gbit, per_gib};
use super::fetch::{Answer, Decimal, Fetch, SourceError};
use super::spec::{BadSource, Spec};
use super::{Adapter, Quote};
use crate::clock::Moment;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use nom_proto::prices::Resource;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Its currency.
const CURRENCY: &str = "USD";

/// Levels that are announced hold so long after they are (CloudSigma's documentation of its billing).
const AHEAD_NS: u64 = 300_000_000_000;
/// Variables of the environment that say who asks.
const VARIABLES: [&str; 2] = ["CLOUDSIGMA_EMAIL", "CLOUDSIGMA_PASSWORD"];

/// `cloudsigma:LOCATION,core_mhz=N`; credentials from the environment, if they are there.
pub struct CloudSigma {
    url: String,
    core_mhz: f64,
    /// Value of the header that says who asks.
    authorization: Option<String>,
    /// The levels that were announced last, and since when, in nanoseconds since 1970.
    announced: Mutex<(BTreeMap<String, u32>, u64)>,
}

/// Without the credentials.
impl fmt::Debug for CloudSigma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloudSigma").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Pricing {
    /// Level in force of each resource.
    current: BTreeMap<String, u32>,
    /// Levels that follow.
    #[serde(default)]
    next: BTreeMap<String, u32>,
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
    /// If that does not say how fast a core is, or credentials would be sent in the clear.
    pub fn new(spec: &mut Spec) -> Result<CloudSigma, BadSource> {
        CloudSigma::with(spec, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// From its line and an environment.
    ///
    /// # Errors
    /// See [`CloudSigma::new`].
    pub fn with(spec: &mut Spec, variable: impl Fn(&str) -> Option<String>) -> Result<CloudSigma, BadSource> {
        let core_mhz = spec.required_number("core_mhz", "how many MHz of CloudSigma make a core")?;
        let base = spec.base_url(&format!("https://{}.cloudsigma.com", spec.argument));
        let authorization = match VARIABLES.map(variable) {
            [Some(email), Some(password)] => {
                Some(format!("Basic {}", BASE64.encode(format!("{email}:{password}"))))
            }
            [None, None] => None,
            [email, _] => {
                let missing = VARIABLES[usize::from(email.is_some())];
                return Err(spec.bad(
                    &format!("environment variable {missing}"),
                    "",
                    "both or none of the two",
                ));
            }
        };
        let is_safe = base.starts_with("https://") || base.starts_with("http://127.0.0.1:");
        if authorization.is_some() && !is_safe {
            return Err(spec.bad("option `url`", &base, "https://..., since a password is sent there"));
        }
        // Without a limit it answers with the first page alone.
        let url = format!("{base}/api/2.0/pricing/?limit=0");
        Ok(CloudSigma { url, core_mhz, authorization, announced: Mutex::default() })
    }

    /// Since when the levels that follow have been announced, so that it is known when they will hold.
    fn announced_since(&self, next: &BTreeMap<String, u32>, now_unix_ns: u64) -> u64 {
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        if announced.0 != *next {
            *announced = (next.clone(), now_unix_ns);
        }
        announced.1
    }
}

impl Adapter for CloudSigma {
    fn resources(&self) -> Vec<Resource> {
        vec![Resource::Core, Resource::Memory, Resource::NetworkOut]
    }

    fn ask(&self, fetch: &Fetch) -> Result<Vec<Quote>, SourceError> {
        let headers: Vec<(&str, &str)> =
            self.authorization.iter().map(|value| ("Authorization", value.as_str())).collect();
        let answer = fetch.get(&self.url, &headers)?;
        let pricing: Pricing = answer.json()?;
        let holds_unix_ns = self.announced_since(&pricing.next, Moment::now().unix_ns) + AHEAD_NS;
        let quote = |name, resource, convert: &dyn Fn(f64) -> f64| {
            let (price, field) = per_count(&answer, &pricing, &pricing.current, "current", name)?;
            // What cannot be read of the future changes nothing of the present.
            let next = per_count(&answer, &pricing, &pricing.next, "next", name).ok();
            let next = next.map(|(price, _)| (convert(price), holds_unix_ns));
            Ok(Quote { next, ..Quote::fresh(resource, convert(price), field) })
        };
        Ok(vec![
            quote("cpu", Resource::Core, &|per_mhz| per_mhz * self.core_mhz)?,
            quote("mem", Resource::Memory, &per_gib)?,
            quote("tx", Resource::NetworkOut, &per_gbit)?,
        ])
    }
}

/// The price for one count of what `name` is counted in (and a second, if it is held), and its field.
fn per_count(
    answer: &Answer,
    pricing: &Pricing,
    levels: &BTreeMap<String, u32>,
    which: &str,
    name: &str,
) -> Result<(f64, String), SourceError> {
    let level = levels.get(name).copied();
    let level = level.ok_or_else(|| answer.wrong(&format!("{which}.{name}"), "missing"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn source(line: &str, credentials: [Option<&str>; 2]) -> Result<CloudSigma, BadSource> {
        let variable = |name: &str| {
            let index = VARIABLES.iter().position(|known| *known == name).expect("one of them");
            credentials[index].map(str::to_owned)
        };
        CloudSigma::with(&mut Spec::parse(line).expect("of the shape"), variable)
    }

    #[test]
    fn credentials_are_sent_to_it_alone_and_not_in_the_clear() {
        let line = "cloudsigma:zrh,core_mhz=2000";
        let both = [Some("me@example.com"), Some("secret")];
        let known = source(line, both).expect("good");
        assert_eq!(known.authorization.as_deref(), Some("Basic bWVAZXhhbXBsZS5jb206c2VjcmV0"));
        assert!(!format!("{known:?}").contains("Basic"));
        assert_eq!(source(line, [None, None]).expect("good").authorization, None);
        let error = source(line, [Some("me"), None]).expect_err("half").to_string();
        assert!(error.contains("CLOUDSIGMA_PASSWORD"), "{error}");
        let error = source(&format!("{line},url=http://example.com"), both).expect_err("clear").to_string();
        assert!(error.contains("https://"), "{error}");
    }

    #[test]
    fn what_is_announced_holds_five_minutes_after_it_was_first_seen() {
        let source = source("cloudsigma:zrh,core_mhz=2000", [None, None]).expect("good");
        let levels = |level| BTreeMap::from([("cpu".to_owned(), level)]);
        let since: Vec<u64> = [(8, 10), (8, 70), (9, 130), (9, 190)]
            .map(|(level, now)| source.announced_since(&levels(level), now))
            .into();
        assert_eq!(since, [10, 10, 130, 130]);
    }
}
