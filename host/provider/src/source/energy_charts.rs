//! energy-charts.info: the day-ahead price of electricity in a bidding zone.

use super::convert::per_joule;
use super::fetch::{Fetch, SourceError};
use super::spec::{BadSource, Spec};
use super::{Adapter, Quote};
use crate::clock::Moment;
use nom_proto::prices::Resource;
use serde::Deserialize;
use std::time::Duration;

/// The longest time for which one price of the market holds.
const SLOT_MAX: Duration = Duration::from_secs(3600);

/// `energy-charts:ZONE,dollars_per_euro=X`.
#[derive(Debug)]
pub struct EnergyCharts {
    url: String,
    dollars_per_euro: f64,
}

#[derive(Deserialize)]
struct Answer {
    unix_seconds: Vec<u64>,
    /// There are hours without a price.
    price: Vec<Option<f64>>,
    unit: String,
}

impl EnergyCharts {
    /// From its line.
    ///
    /// # Errors
    /// If that does not say what a euro is worth.
    pub fn new(spec: &mut Spec) -> Result<EnergyCharts, BadSource> {
        let dollars_per_euro = spec.required_number("dollars_per_euro", "what a euro is worth in dollars")?;
        let base = spec.base_url("https://api.energy-charts.info");
        Ok(EnergyCharts { url: format!("{base}/price?bzn={}", spec.argument), dollars_per_euro })
    }
}

impl Adapter for EnergyCharts {
    fn resources(&self) -> Vec<Resource> {
        vec![Resource::Energy]
    }

    fn ask(&self, fetch: &Fetch) -> Result<Vec<Quote>, SourceError> {
        let answer = fetch.get(&self.url, &[])?;
        let prices: Answer = answer.json()?;
        let unit: String = prices.unit.split_whitespace().collect();
        if unit != "EUR/MWh" {
            return Err(answer.wrong("unit", &format!("`{}`, expected `EUR / MWh`", prices.unit)));
        }
        let now = Moment::now().unix_ns / 1_000_000_000;
        let slot = prices.unix_seconds.iter().rposition(|&begin| begin <= now);
        let slot = slot.filter(|&slot| now - prices.unix_seconds[slot] <= SLOT_MAX.as_secs());
        let slot = slot.ok_or_else(|| answer.wrong("unix_seconds", "no price is of the present time"))?;
        let field = format!("price[{slot}]");
        let price = prices.price.get(slot).copied().flatten();
        let price = price.ok_or_else(|| answer.wrong(&field, "missing"))?;
        Ok(vec![Quote::fresh(Resource::Energy, per_joule(price, self.dollars_per_euro), field)])
    }
}
