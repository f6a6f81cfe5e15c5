//! The list of spot prices that AWS's web pages show, for everybody, hourly.

use crate::source::fetch::{Fetch, SourceError};
use crate::source::instance::Instance;
use crate::source::spec::{BadSource, Spec};
use crate::source::{Adapter, Quote};
use nom_proto::prices::Resource;
use serde::Deserialize;

/// Regions that the list calls otherwise.
const OLD_NAMES: [(&str, &str); 7] = [
    ("us-east-1", "us-east"),
    ("us-west-1", "us-west"),
    ("eu-west-1", "eu-ireland"),
    ("ap-southeast-1", "apac-sin"),
    ("ap-southeast-2", "apac-syd"),
    ("ap-northeast-1", "apac-tokyo"),
    ("us-gov-west-1", "us-govcloud"),
];

/// `aws-spot-list:REGION,instance=TYPE,cores=N[,memory_gib=N,core_share=X]`.
#[derive(Debug)]
pub struct SpotList {
    url: String,
    region: String,
    instance_type: String,
    instance: Instance,
}

#[derive(Deserialize)]
struct List {
    config: Config,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    rate: String,
    regions: Vec<Region>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    region: String,
    instance_types: Vec<Family>,
}

#[derive(Deserialize)]
struct Family {
    sizes: Vec<Size>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Size {
    size: String,
    value_columns: Vec<Column>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
    prices: Prices,
}

#[derive(Deserialize)]
struct Prices {
    #[serde(rename = "USD")]
    usd: String,
}

impl SpotList {
    /// From its line.
    ///
    /// # Errors
    /// If that does not say which instance, and what it has.
    pub fn new(spec: &mut Spec) -> Result<SpotList, BadSource> {
        let instance_type = spec.required("instance", "a type of instance, such as m5.large")?;
        let instance = Instance::new(spec)?;
        let url = spec.base_url("https://website.spot.ec2.aws.a2z.com/spot.json");
        Ok(SpotList { url, region: spec.argument.clone(), instance_type, instance })
    }

    fn is_region(&self, listed: &str) -> bool {
        listed == self.region || OLD_NAMES.contains(&(self.region.as_str(), listed))
    }
}

impl Adapter for SpotList {
    fn resources(&self) -> Vec<Resource> {
        self.instance.resources()
    }

    fn ask(&self, fetch: &Fetch) -> Result<Vec<Quote>, SourceError> {
        let answer = fetch.get(&self.url, &[])?;
        let list: List = answer.json()?;
        if list.config.rate != "perhr" {
            return Err(answer.wrong("config.rate", &format!("`{}`, expected `perhr`", list.config.rate)));
        }
        let region = list.config.regions.iter().find(|region| self.is_region(&region.region));
        let region = region
            .ok_or_else(|| answer.wrong("config.regions", &format!("none is called {}", self.region)))?;
        let mut sizes = region.instance_types.iter().flat_map(|family| &family.sizes);
        let size = sizes.find(|size| size.size == self.instance_type);
        let field =
            format!("config.regions[{}].instanceTypes[].sizes[{}]", region.region, self.instance_type);
        let size = size.ok_or_else(|| answer.wrong(&field, "missing"))?;
        let column = size.value_columns.iter().find(|column| column.name == "linux");
        let field = format!("{field}.valueColumns[linux].prices.USD");
        let text = &column.ok_or_else(|| answer.wrong(&field, "missing"))?.prices.usd;
        let price = text.parse().map_err(|_| {
            answer.wrong(&field, &format!("`{text}`, expected a decimal number: it is not for sale"))
        })?;
        Ok(self.instance.quotes(price, &field))
    }
}
