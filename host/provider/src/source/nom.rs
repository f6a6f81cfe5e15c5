//! Another provider of nom.

use super::fetch::{Fetch, SourceError};
use super::spec::{BadSource, Spec};
use super::{Adapter, Quote};
use nom_proto::path;
use nom_proto::prices::{Prices, Resource};
use std::time::Duration;

/// `nom:URL`: all prices of another provider.
#[derive(Debug)]
pub struct Upstream {
    url: String,
}

impl Upstream {
    /// From its line.
    ///
    /// # Errors
    /// If that has no URL.
    pub fn new(spec: &mut Spec) -> Result<Upstream, BadSource> {
        let base = spec.argument.trim_end_matches('/');
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(spec.bad("the argument", base, "a URL, http://HOST:PORT"));
        }
        Ok(Upstream { url: format!("{base}{}", path::PRICES) })
    }
}

impl Adapter for Upstream {
    fn resources(&self) -> Vec<Resource> {
        Resource::ALL.into()
    }

    fn ask(&self, fetch: &Fetch) -> Result<Vec<Quote>, SourceError> {
        let answer = fetch.get(&self.url, &[])?;
        let prices: Prices = answer.json()?;
        let age = Duration::try_from_secs_f64(prices.age_seconds)
            .map_err(|_| answer.wrong("age_seconds", "expected seconds, at least 0"))?;
        let next = |resource| {
            let announced = prices.next.iter().find(|next| next.resource == resource);
            announced.map(|next| (next.dollars, next.since_unix_ns))
        };
        let quote = |(index, price): (usize, &nom_proto::prices::Price)| Quote {
            resource: price.resource,
            dollars: price.dollars,
            age,
            field: format!("prices[{index}].dollars"),
            next: next(price.resource),
        };
        Ok(prices.prices.iter().enumerate().map(quote).collect())
    }
}
