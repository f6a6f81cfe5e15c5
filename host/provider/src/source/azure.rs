//! Azure Retail Prices: what an instance costs an hour, taken apart into cores and memory, and what data
//! costs.

use super::convert::per_gbit_from_gb;
use super::fetch::{Answer, Fetch, SourceError};
use super::instance::Instance;
use super::spec::{BadSource, Spec};
use super::{Adapter, Quote};
use nom_proto::prices::Resource;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of an answer that are read at most.
const PAGES_MAX: usize = 20;
const UNIT: &str = "1 Hour";

/// `azure:REGION,sku=NAME,cores=N[,memory_gib=N,core_share=X][,spot=yes]`.
#[derive(Debug)]
pub struct Azure {
    base: String,
    filter: String,
    sku: String,
    spot: bool,
    instance: Instance,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    items: Vec<Item>,
    next_page_link: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    currency_code: String,
    retail_price: f64,
    effective_start_date: String,
    product_name: String,
    sku_name: String,
    #[serde(default)]
    arm_sku_name: String,
    unit_of_measure: String,
    #[serde(default)]
    meter_name: String,
    #[serde(default)]
    tier_minimum_units: f64,
}

impl Item {
    fn candidate(&self, index: usize) -> Candidate {
        Candidate {
            rank: (self.tier_minimum_units as i64, self.effective_start_date.clone()),
            per_unit: self.retail_price,
            field: format!("Items[{index}].retailPrice"),
        }
    }
}

impl Azure {
    /// From its line.
    ///
    /// # Errors
    /// If that does not say which instance, and what it has.
    pub fn new(spec: &mut Spec) -> Result<Azure, BadSource> {
        let sku = spec.required("sku", "the name of an instance, such as Standard_D4s_v5")?;
        let instance = Instance::new(spec)?;
        let spot = match spec.take("spot").as_deref() {
            None | Some("no") => false,
            Some("yes") => true,
            Some(other) => return Err(spec.bad("option `spot`", other, "yes or no")),
        };
        let region = &spec.argument;
        if [region, &sku].iter().any(|word| word.contains('\'')) {
            return Err(spec.bad("a name", "'", "letters, digits, _ and -"));
        }
        // Filters distinguish between capitals and small letters.
        let filter = format!(
            "serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and armSkuName eq '{sku}' \
             and priceType eq 'Consumption'"
        );
        Ok(Azure { base: spec.base_url("https://prices.azure.com"), filter, sku, spot, instance })
    }

    /// The instance as it is rented by the hour, with Linux: others of the same name are left out.
    fn fits(&self, item: &Item) -> bool {
        item.arm_sku_name == self.sku
            && item.sku_name.ends_with(" Spot") == self.spot
            && !item.sku_name.ends_with(" Low Priority")
            && !item.product_name.ends_with(" Windows")
    }

    /// The item that was the last to come into force on a page.
    fn latest(&self, answer: &Answer, page: &Page) -> Result<Option<Candidate>, SourceError> {
        let mut latest: Option<Candidate> = None;
        for (index, item) in page.items.iter().enumerate().filter(|(_, item)| self.fits(item)) {
            check(answer, index, "currencyCode", &item.currency_code, "USD")?;
            check(answer, index, "unitOfMeasure", &item.unit_of_measure, UNIT)?;
            let candidate = item.candidate(index);
            if latest.as_ref().is_none_or(|latest| latest.rank < candidate.rank) {
                latest = Some(candidate);
            }
        }
        Ok(latest)
    }
}

/// A price that may be the one that is asked for: the one of the highest rank is.
struct Candidate {
    rank: Rank,
    per_unit: f64,
    field: String,
}

/// Units from which on a price holds, or, of a tier that is not reached, how far off it is, below 0; and
/// since when it holds (RFC 3339, UTC).
type Rank = (i64, String);

impl Adapter for Azure {
    fn resources(&self) -> Vec<Resource> {
        self.instance.resources()
    }

    fn ask(&self, fetch: &Fetch) -> Result<Vec<Quote>, SourceError> {
        let best = search(fetch, &self.base, &self.filter, |answer, page| self.latest(answer, page))?;
        let found = best.map_err(|answer| answer.wrong("Items", &self.nothing()))?;
        Ok(self.instance.quotes(found.per_unit, &found.field))
    }
}

/// Asks page after page for what suits best; the last answer, if nothing does.
fn search(
    fetch: &Fetch,
    base: &str,
    filter: &str,
    best_of: impl Fn(&Answer, &Page) -> Result<Option<Candidate>, SourceError>,
) -> Result<Result<Candidate, Answer>, SourceError> {
    let filter = utf8_percent_encode(filter, NON_ALPHANUMERIC);
    let mut url = format!(
        "{base}/api/retail/prices?api-version=2023-01-01-preview&currencyCode='USD'&meterRegion='primary'\
         &$filter={filter}"
    );
    let mut best: Option<Candidate> = None;
    for _ in 0..PAGES_MAX {
        let answer = fetch.get(&url, &[])?;
        let page: Page = answer.json()?;
        let found = best_of(&answer, &page)?;
        best = best.into_iter().chain(found).max_by(|a, b| a.rank.cmp(&b.rank));
        match page.next_page_link.filter(|link| !link.is_empty()) {
            Some(link) if link.starts_with(&format!("{base}/")) => url = link,
            Some(link) => return Err(answer.wrong("NextPageLink", &format!("`{link}` leads elsewhere"))),
            None => return Ok(best.ok_or(answer)),
        }
    }
    let (field, detail) = ("NextPageLink".into(), format!("expected at most {PAGES_MAX} pages"));
    Err(SourceError::Field { url, field, detail })
}

/// `azure-egress:REGION[,gb_per_month=N]`: what data costs that leaves a region, after so many GB in a month:
/// by default as many as the ledger has of this month. GB of 10^9 bytes. Of what is free at first the price
/// is that of the first tier that costs something: a price is above 0.
#[derive(Debug)]
pub struct Egress {
    base: String,
    filter: String,
    gb_per_month: Option<f64>,
    /// Bytes sent in this month.
    used: AtomicU64,
}

const EGRESS_METER: &str = "Standard Data Transfer Out";
const EGRESS_UNIT: &str = "1 GB";
const GB: f64 = 1e9;

impl Egress {
    /// From its line.
    ///
    /// # Errors
    /// If an option is no number.
    pub fn new(spec: &mut Spec) -> Result<Egress, BadSource> {
        let region = spec.argument.clone();
        if region.contains('\'') {
            return Err(spec.bad("a name", "'", "letters, digits, _ and -"));
        }
        let filter = format!(
            "serviceName eq 'Bandwidth' and armRegionName eq '{region}' and meterName eq '{EGRESS_METER}' \
             and priceType eq 'Consumption'"
        );
        let gb_per_month = spec.number("gb_per_month")?;
        let base = spec.base_url("https://prices.azure.com");
        Ok(Egress { base, filter, gb_per_month, used: AtomicU64::new(0) })
    }

    /// The tier of a page that so much data reaches.
    fn tier(&self, answer: &Answer, page: &Page) -> Result<Option<Candidate>, SourceError> {
        let mut tiers = Vec::new();
        let amount = self.gb_per_month.unwrap_or_else(|| self.used.load(Ordering::Relaxed) as f64 / GB);
        let is_free = |item: &Item| item.tier_minimum_units == 0.0 && item.retail_price == 0.0;
        let costs = |item: &Item| item.meter_name == EGRESS_METER && !is_free(item);
        for (index, item) in page.items.iter().enumerate().filter(|(_, item)| costs(item)) {
            check(answer, index, "currencyCode", &item.currency_code, "USD")?;
            check(answer, index, "unitOfMeasure", &item.unit_of_measure, EGRESS_UNIT)?;
            let mut tier = item.candidate(index);
            if item.tier_minimum_units > amount {
                tier.rank.0 = -tier.rank.0;
            }
            tiers.push(tier);
        }
        Ok(tiers.into_iter().max_by(|a, b| a.rank.cmp(&b.rank)))
    }
}

impl Adapter for Egress {
    fn counts_usage(&self) -> bool {
        self.gb_per_month.is_none()
    }

    fn used(&self, sent_bytes: u64) {
        self.used.store(sent_bytes, Ordering::Relaxed);
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Resource::NetworkOut]
    }

    fn ask(&self, fetch: &Fetch) -> Result<Vec<Quote>, SourceError> {
        let best = search(fetch, &self.base, &self.filter, |answer, page| self.tier(answer, page))?;
        let found = best.map_err(|answer| answer.wrong("Items", &format!("none is of `{EGRESS_METER}`")))?;
        Ok(vec![Quote::fresh(Resource::NetworkOut, per_gbit_from_gb(found.per_unit), found.field)])
    }
}

impl Azure {
    fn nothing(&self) -> String {
        let kind = if self.spot { "spot" } else { "ordinary" };
        format!("none is the {kind} price of {}", self.sku)
    }
}

fn check(answer: &Answer, index: usize, field: &str, found: &str, expected: &str) -> Result<(), SourceError> {
    if found == expected {
        return Ok(());
    }
    let field = format!("Items[{index}].{field}");
    Err(answer.wrong(&field, &format!("`{found}`, expected `{expected}`")))
}
