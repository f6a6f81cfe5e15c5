//! The history of spot prices: EC2's `DescribeSpotPriceHistory`, signed, answered in XML.

use super::sigv4::{Credentials, Request, canonical_query};
use crate::clock::Moment;
use crate::source::fetch::{Fetch, SourceError};
use crate::source::instance::Instance;
use crate::source::spec::{BadSource, Spec};
use crate::source::{Adapter, Quote};
use nom_proto::prices::Resource;
use serde::Deserialize;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use time::macros::format_description;

/// Version of the interface, which every request names.
const VERSION: &str = "2016-11-15";

/// `aws-spot:REGION,instance=TYPE,cores=N[,memory_gib=N,core_share=X][,zone=ZONE][,product=NAME]`;
/// credentials from the environment, by the names that AWS's own tools use.
#[derive(Debug)]
pub struct SpotHistory {
    base: String,
    region: String,
    instance_type: String,
    product: String,
    zone: Option<String>,
    instance: Instance,
    credentials: Credentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct History {
    spot_price_history_set: Set,
}

#[derive(Deserialize)]
struct Set {
    #[serde(default)]
    item: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    instance_type: String,
    product_description: String,
    spot_price: String,
    timestamp: String,
    availability_zone: String,
}

impl SpotHistory {
    /// From its line and the environment.
    ///
    /// # Errors
    /// If the line does not say which instance, or the environment who asks.
    pub fn new(spec: &mut Spec) -> Result<SpotHistory, BadSource> {
        SpotHistory::with(spec, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// From its line and an environment.
    ///
    /// # Errors
    /// See [`SpotHistory::new`].
    pub fn with(
        spec: &mut Spec,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<SpotHistory, BadSource> {
        let credential = |spec: &Spec, name: &str| {
            variable(name)
                .ok_or_else(|| spec.bad(&format!("environment variable {name}"), "", "a credential"))
        };
        let credentials = Credentials {
            access_key: credential(spec, "AWS_ACCESS_KEY_ID")?,
            secret_key: credential(spec, "AWS_SECRET_ACCESS_KEY")?,
            session_token: variable("AWS_SESSION_TOKEN"),
        };
        let instance_type = spec.required("instance", "a type of instance, such as m5.large")?;
        let instance = Instance::new(spec)?;
        let region = spec.argument.clone();
        Ok(SpotHistory {
            base: spec.base_url(&format!("https://ec2.{region}.amazonaws.com")),
            region,
            instance_type,
            product: spec.take("product").unwrap_or_else(|| "Linux/UNIX".to_owned()),
            zone: spec.take("zone"),
            instance,
            credentials,
        })
    }

    /// URL and headers of the question for the prices in force at `now`.
    fn question(&self, now: Moment) -> (String, Vec<(&'static str, String)>) {
        let now = OffsetDateTime::from_unix_timestamp((now.unix_ns / 1_000_000_000) as i64)
            .expect("the present is in the calendar");
        let stamp = format_description!("[year][month][day]T[hour][minute][second]Z");
        let stamp = now.format(&stamp).expect("a time of the calendar");
        let moment = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
        let moment = now.format(&moment).expect("a time of the calendar");
        let mut query = vec![
            ("Action", "DescribeSpotPriceHistory"),
            ("Version", VERSION),
            ("InstanceType.1", &self.instance_type),
            ("ProductDescription.1", &self.product),
            ("StartTime", &moment),
            ("EndTime", &moment),
        ];
        query.extend(self.zone.as_deref().map(|zone| ("AvailabilityZone", zone)));
        let (_, host) = self.base.split_once("://").unwrap_or(("", &self.base));
        let mut headers = vec![("host", host), ("x-amz-date", &stamp)];
        let token = self.credentials.session_token.as_deref();
        headers.extend(token.map(|token| ("x-amz-security-token", token)));
        let request = Request {
            path: "/",
            query: &query,
            headers: &headers,
            region: &self.region,
            service: "ec2",
            time: &stamp,
        };
        let authorization = request.authorization(&self.credentials);
        let url = format!("{}/?{}", self.base, canonical_query(&query));
        let mut sent: Vec<_> =
            headers.iter().skip(1).map(|(name, value)| (*name, (*value).to_owned())).collect();
        sent.push(("authorization", authorization));
        (url, sent)
    }
}

impl Adapter for SpotHistory {
    fn resources(&self) -> Vec<Resource> {
        self.instance.resources()
    }

    /// The price of the zone that was asked for, or else of the cheapest.
    fn ask(&self, fetch: &Fetch) -> Result<Vec<Quote>, SourceError> {
        let (url, headers) = self.question(Moment::now());
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = fetch.get(&url, &headers)?;
        let text = answer.text()?;
        let history: History = quick_xml::de::from_str(text).map_err(|error| {
            let detail = format!("{error}, expected the XML of DescribeSpotPriceHistory");
            answer.wrong("DescribeSpotPriceHistoryResponse", &detail)
        })?;
        let mut latest: BTreeMap<&str, (usize, &Item)> = BTreeMap::new();
        for (index, item) in history.spot_price_history_set.item.iter().enumerate() {
            let asked = item.instance_type == self.instance_type && item.product_description == self.product;
            let zone = latest.get(item.availability_zone.as_str());
            if asked && zone.is_none_or(|(_, known)| known.timestamp < item.timestamp) {
                latest.insert(&item.availability_zone, (index, item));
            }
        }
        let mut best: Option<(f64, String)> = None;
        for (index, item) in latest.into_values() {
            let field = format!("spotPriceHistorySet.item[{index}].spotPrice");
            let price: f64 = item.spot_price.parse().map_err(|_| {
                answer.wrong(&field, &format!("`{}`, expected a decimal number", item.spot_price))
            })?;
            if best.as_ref().is_none_or(|(best, _)| price < *best) {
                best = Some((price, field));
            }
        }
        let (price, field) = best.ok_or_else(|| {
            let detail = format!("none is of {} with {}", self.instance_type, self.product);
            answer.wrong("spotPriceHistorySet", &detail)
        })?;
        Ok(self.instance.quotes(price, &field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    const HISTORY: &str = include_str!("../../../tests/fixtures/aws_spot_history.xml");

    #[test]
    fn a_question_is_signed_and_names_the_moment() {
        let mut spec = Spec::parse("aws-spot:eu-central-1,instance=m5.large,cores=2").expect("of the shape");
        let source = SpotHistory::with(&mut spec, |name| Some(name.to_lowercase())).expect("good");
        let now = Moment { unix_ns: 1_440_938_160_000_000_000, steady_ns: 0 };
        let (url, headers) = source.question(now);
        assert!(url.starts_with("https://ec2.eu-central-1.amazonaws.com/?Action=Describe"), "{url}");
        assert!(url.contains("EndTime=2015-08-30T12%3A36%3A00Z"), "{url}");
        let value = |name| headers.iter().find(|header| header.0 == name).map(|header| header.1.as_str());
        assert_eq!(value("x-amz-date"), Some("20150830T123600Z"));
        assert_eq!(value("x-amz-security-token"), Some("aws_session_token"));
        let authorization = value("authorization").expect("signed");
        assert!(authorization.contains("aws_access_key_id/20150830/eu-central-1/ec2/aws4_request"));
        assert!(authorization.contains("SignedHeaders=host;x-amz-date;x-amz-security-token"));
    }

    /// The prices in a history, asked of a server that answers once.
    fn prices(line: &str, answer: &'static str) -> Result<Vec<Quote>, SourceError> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let line = format!("{line},url=http://{}", listener.local_addr().expect("bound"));
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("asked");
            let mut reader = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).expect("a line");
            }
            let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
            reader.get_mut().write_all((start + answer).as_bytes()).expect("sent");
            head
        });
        let mut spec = Spec::parse(&line).expect("of the shape");
        let source = SpotHistory::with(&mut spec, |name| Some(name.to_lowercase())).expect("good");
        let quotes = source.ask(&Fetch::new(std::time::Duration::from_secs(60)));
        let head = server.join().expect("it answered").to_lowercase();
        assert!(head.contains("authorization: aws4-hmac-sha256 credential="), "{head}");
        quotes
    }

    #[test]
    fn the_latest_price_of_the_cheapest_zone_counts() {
        let line = "aws-spot:eu-test-1,instance=t9.test,cores=2";
        let quotes = prices(line, HISTORY).expect("prices");
        let field = "spotPriceHistorySet.item[0].spotPrice";
        assert_eq!(quotes, [Quote::fresh(Resource::Core, 0.036 / 3600.0 / 2.0, field)]);
        let nothing = prices("aws-spot:eu-test-1,instance=t9.other,cores=2", HISTORY).expect_err("none");
        assert!(nothing.to_string().contains("none is of t9.other with Linux/UNIX"), "{nothing}");
    }

    #[test]
    fn what_is_no_history_is_refused() {
        let line = "aws-spot:eu-test-1,instance=t9.test,cores=2";
        let dear: &'static str = HISTORY.replace("0.036000", "dear").leak();
        for (answer, expected) in [
            ("<!doctype html><html></html>", "DescribeSpotPriceHistory"),
            (&HISTORY[..400], "DescribeSpotPriceHistory"),
            ("{}", "DescribeSpotPriceHistory"),
            (dear, "item[0].spotPrice`: `dear`"),
        ] {
            let error = prices(line, answer).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn nobody_asks_without_credentials() {
        let mut spec = Spec::parse("aws-spot:eu-central-1,instance=m5.large,cores=2").expect("of the shape");
        let error = SpotHistory::with(&mut spec, |_| None).expect_err("no credentials").to_string();
        assert!(error.contains("AWS_ACCESS_KEY_ID"), "{error}");
    }
}
