//! Azure Retail Prices: what an instance costs an hour, taken apart into cores and memory.

use super::fetch::{Answer, Fetch, SourceError};
use super::instance::Instance;
use super::spec::{BadSource, Spec};
use super::{Adapter, Quote};
use nom_proto::prices::Resource;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

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
    arm_sku_name: String,
    unit_of_measure: String,
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

    fn first_url(&self) -> String {
        let filter = utf8_percent_encode(&self.filter, NON_ALPHANUMERIC);
        format!(
            "{}/api/retail/prices?api-version=2023-01-01-preview&currencyCode='USD'&meterRegion='primary'\
             &$filter={filter}",
            self.base
        )
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
            if latest.as_ref().is_none_or(|latest| latest.since < item.effective_start_date) {
                let field = format!("Items[{index}].retailPrice");
                latest = Some(Candidate {
                    since: item.effective_start_date.clone(),
                    per_hour: item.retail_price,
                    field,
                });
            }
        }
        Ok(latest)
    }
}

/// A price that may be the present one.
struct Candidate {
    /// RFC 3339, UTC.
    since: String,
    per_hour: f64,
    field: String,
}

impl Adapter for Azure {
    fn resources(&self) -> Vec<Resource> {
        self.instance.resources()
    }

    fn ask(&self, fetch: &Fetch) -> Result<Vec<Quote>, SourceError> {
        let mut best: Option<Candidate> = None;
        let mut url = self.first_url();
        for _ in 0..PAGES_MAX {
            let answer = fetch.get(&url, &[])?;
            let page: Page = answer.json()?;
            let found = self.latest(&answer, &page)?;
            best = best.into_iter().chain(found).max_by(|a, b| a.since.cmp(&b.since));
            match page.next_page_link.filter(|link| !link.is_empty()) {
                Some(link) if link.starts_with(&format!("{}/", self.base)) => url = link,
                Some(link) => {
                    return Err(answer.wrong("NextPageLink", &format!("`{link}` leads elsewhere")));
                }
                None => {
                    let found = best.ok_or_else(|| answer.wrong("Items", &self.nothing()))?;
                    return Ok(self.instance.quotes(found.per_hour, &found.field));
                }
            }
        }
        Err(SourceError::Field {
            url,
            field: "NextPageLink".into(),
            detail: format!("expected at most {PAGES_MAX} pages"),
        })
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
