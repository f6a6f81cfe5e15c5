//! What data costs that leaves a region toward the Internet: the price list of AWSDataTransfer.

use crate::source::convert::per_gbit_from_gib;
use crate::source::fetch::{Answer, Decimal, Fetch, SourceError};
use crate::source::spec::{BadSource, Spec};
use crate::source::{Adapter, Quote};
use nom_proto::prices::Resource;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// `aws-egress:REGION[,gb_per_month=N]`: the price that holds after so many GB in a month, by default after
/// as many as the ledger has of this month; GB of 2^30 bytes, as AWS counts them.
#[derive(Debug)]
pub struct Egress {
    url: String,
    region: String,
    gb_per_month: Option<f64>,
    /// Bytes sent in this month.
    used: AtomicU64,
}

const GB: f64 = 1_073_741_824.0;

#[derive(Deserialize)]
struct Offer {
    products: BTreeMap<String, Product>,
    terms: Terms,
}

#[derive(Deserialize)]
struct Product {
    #[serde(default)]
    attributes: Attributes,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Attributes {
    transfer_type: String,
    from_region_code: String,
    to_location: String,
}

#[derive(Deserialize)]
struct Terms {
    #[serde(rename = "OnDemand")]
    on_demand: BTreeMap<String, BTreeMap<String, Term>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    price_dimensions: BTreeMap<String, Dimension>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dimension {
    unit: String,
    begin_range: Decimal,
    price_per_unit: Price,
}

#[derive(Deserialize)]
struct Price {
    #[serde(rename = "USD")]
    usd: Decimal,
}

impl Egress {
    /// From its line.
    ///
    /// # Errors
    /// If an option is no number.
    pub fn new(spec: &mut Spec) -> Result<Egress, BadSource> {
        let region = spec.argument.clone();
        let base = spec.base_url("https://pricing.us-east-1.amazonaws.com");
        let url = format!("{base}/offers/v1.0/aws/AWSDataTransfer/current/{region}/index.json");
        Ok(Egress { url, region, gb_per_month: spec.number("gb_per_month")?, used: AtomicU64::new(0) })
    }

    fn goes_out(&self, product: &Product) -> bool {
        let Attributes { transfer_type, from_region_code, to_location } = &product.attributes;
        transfer_type == "AWS Outbound" && to_location == "External" && *from_region_code == self.region
    }

    /// The tier that so much data reaches: tiers begin at different amounts.
    fn tier<'o>(&self, answer: &Answer, offer: &'o Offer) -> Result<(&'o Dimension, String), SourceError> {
        let sku = offer.products.iter().find(|(_, product)| self.goes_out(product)).map(|(sku, _)| sku);
        let sku = sku.ok_or_else(|| {
            answer.wrong("products", &format!("none is data from {} to outside", self.region))
        })?;
        let terms = offer.terms.on_demand.get(sku).into_iter().flat_map(BTreeMap::values);
        let tiers = terms.flat_map(|term| &term.price_dimensions);
        let amount = self.gb_per_month.unwrap_or_else(|| self.used.load(Ordering::Relaxed) as f64 / GB);
        let reached = tiers.filter(|(_, tier)| tier.begin_range.0 <= amount);
        let last = reached.max_by(|(_, a), (_, b)| a.begin_range.0.total_cmp(&b.begin_range.0));
        let field = format!("terms.OnDemand.{sku}");
        let (code, tier) = last.ok_or_else(|| answer.wrong(&field, "no price of the amount"))?;
        Ok((tier, format!("{field}.{code}")))
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
        let answer = fetch.get(&self.url, &[])?;
        let offer: Offer = answer.json()?;
        let (tier, field) = self.tier(&answer, &offer)?;
        if tier.unit != "GB" {
            return Err(answer.wrong(&format!("{field}.unit"), &format!("`{}`, expected `GB`", tier.unit)));
        }
        let field = format!("{field}.pricePerUnit.USD");
        Ok(vec![Quote::fresh(Resource::NetworkOut, per_gbit_from_gib(tier.price_per_unit.usd.0), field)])
    }
}
