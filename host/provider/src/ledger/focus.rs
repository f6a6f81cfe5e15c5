//! The bill in the columns of FOCUS, the FinOps Open Cost and Usage Specification, version 1.2.
//!
//! The billing account is the tenant. A row is what one activity of one machine consumed of one resource at
//! one price within one hour; a record belongs to the hour in which it begins.

use super::query::{self, Filter};
use nom_proto::prices::Resource;
use rusqlite::{Connection, Row, params_from_iter};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime, Time};

const HOUR_NS: u64 = 3_600_000_000_000;
const PROVIDER: &str = "nom";
/// The billing account of machines that nobody is known to pay for.
const ACCOUNT: &str = "default";

/// All mandatory columns and those that there is something to say in, in the order of [`Line::fields`].
pub const COLUMNS: [&str; 38] = [
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingCurrency",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
];

/// How FOCUS speaks of a resource.
struct Terms {
    category: &'static str,
    subcategory: &'static str,
    service: &'static str,
    meter: &'static str,
    /// Unit of the price.
    pricing: &'static str,
    /// Unit of what was consumed, and how many of the ledger's counts make one.
    consumed: (&'static str, u64),
}

const fn terms(resource: Resource) -> Terms {
    let compute = ("Compute", "Virtual Machines");
    let network = ("Networking", "Network Connectivity");
    let ((category, subcategory), service, meter, pricing, consumed) = match resource {
        Resource::Core => {
            (compute, "Processors", "Core time", "Core-Seconds", ("Core-Seconds", 1_000_000_000))
        }
        Resource::Memory => (compute, "Memory", "Memory held", "GiB-Seconds", ("B-Seconds", 1)),
        Resource::NetworkOut => (network, "Network", "Data sent", "Gb", ("B", 1)),
        Resource::NetworkIn => (network, "Network", "Data received", "Gb", ("B", 1)),
        Resource::Storage => {
            (("Storage", "Block Storage"), "Storage", "Storage operations", "Requests", ("Requests", 1))
        }
        Resource::Energy => (("Other", "Other (Other)"), "Energy", "Energy", "Joules", ("Joules", 1_000_000)),
    };
    Terms { category, subcategory, service, meter, pricing, consumed }
}

struct Line {
    hour: u64,
    tenant: Option<String>,
    machine: String,
    activity: String,
    resource: Resource,
    unit_price: f64,
    quantity: u128,
    cost_nanos: i128,
}

/// A bill.
pub(crate) struct Bill(Vec<Line>);

impl Bill {
    /// The bill for the records that the filter lets through.
    ///
    /// # Errors
    /// If the database fails.
    pub fn of(connection: &Connection, filter: &Filter) -> rusqlite::Result<Bill> {
        let (clause, values) = filter.clause();
        let (quantity, cost) = (query::exact_sum("quantity"), query::exact_sum("cost_nanos"));
        let mut statement = connection.prepare_cached(&format!(
            "SELECT from_unix_ns / {HOUR_NS} AS hour, machine, activity, resource, unit_price, tenant, \
             {quantity}, {cost} FROM record {clause} \
             GROUP BY hour, tenant, machine, activity, resource, unit_price \
             ORDER BY hour, machine, activity, resource, unit_price, tenant"
        ))?;
        let line = |row: &Row<'_>| {
            Ok(Line {
                hour: row.get(0)?,
                machine: row.get(1)?,
                activity: row.get(2)?,
                resource: query::resource(row, 3)?,
                unit_price: row.get(4)?,
                tenant: row.get(5)?,
                quantity: query::count(row, 6)?,
                cost_nanos: query::sum_of(row, 8)?,
            })
        };
        let lines = statement.query_map(params_from_iter(values), line)?.collect::<Result<_, _>>()?;
        Ok(Bill(lines))
    }

    /// It as CSV (RFC 4180).
    ///
    /// # Errors
    /// If a time of the ledger is in no calendar.
    pub fn to_csv(&self) -> anyhow::Result<Vec<u8>> {
        let mut csv = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
        csv.write_record(COLUMNS)?;
        for line in &self.0 {
            csv.write_record(line.fields()?)?;
        }
        Ok(csv.into_inner()?)
    }
}

impl Line {
    fn fields(&self) -> anyhow::Result<[String; COLUMNS.len()]> {
        let terms = terms(self.resource);
        let (hour, month) = periods(self.hour)?;
        let cost = decimal(self.cost_nanos);
        let price = self.unit_price.to_string();
        let sku = self.resource.name();
        let (consumed_unit, counts) = terms.consumed;
        let account = self.tenant.as_deref().unwrap_or(ACCOUNT);
        let tags = serde_json::json!({ "nom/activity": self.activity }).to_string();
        let description = format!("{} of {} on {}", terms.meter, self.activity, self.machine);
        let fields: [&str; COLUMNS.len()] = [
            &cost,
            account,
            account,
            "USD",
            &month.1,
            &month.0,
            "Usage",
            "",
            &description,
            "Usage-Based",
            &hour.1,
            &hour.0,
            &quotient(self.quantity, counts),
            consumed_unit,
            &cost,
            &price,
            &cost,
            PROVIDER,
            &cost,
            &price,
            "Dynamic",
            "USD",
            &quotient(self.quantity, self.resource.counts_per_unit()),
            terms.pricing,
            PROVIDER,
            PROVIDER,
            &self.machine,
            &self.machine,
            "Virtual Machine",
            terms.category,
            terms.service,
            terms.subcategory,
            sku,
            terms.meter,
            &format!("{sku}@{price}"),
            &self.machine,
            &self.machine,
            &tags,
        ];
        Ok(fields.map(str::to_owned))
    }
}

type Period = (String, String);

/// Begin and end of an hour since 1970, and of the month it is in.
fn periods(hour: u64) -> anyhow::Result<(Period, Period)> {
    let start = OffsetDateTime::from_unix_timestamp(i64::try_from(hour)? * 3600)?;
    let month = start.replace_day(1)?.replace_time(Time::MIDNIGHT);
    // From the first of a month, 31 days reach into the next one and no further.
    let next_month = (month + Duration::days(31)).replace_day(1)?;
    let text = |time: OffsetDateTime| time.format(&Rfc3339);
    let hour = (text(start)?, text(start + Duration::HOUR)?);
    Ok((hour, (text(month)?, text(next_month)?)))
}

/// Nano-dollars as dollars, exactly.
fn decimal(nanos: i128) -> String {
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    format!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

fn quotient(quantity: u128, counts: u64) -> String {
    let counts = u128::from(counts);
    if quantity.is_multiple_of(counts) {
        return (quantity / counts).to_string();
    }
    (quantity as f64 / counts as f64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_those_of_the_calendar() {
        // The last hours of a leap day and of a year.
        for (hour, expected) in [
            (
                474_791,
                [
                    "2024-02-29T23:00:00Z",
                    "2024-03-01T00:00:00Z",
                    "2024-02-01T00:00:00Z",
                    "2024-03-01T00:00:00Z",
                ],
            ),
            (
                482_135,
                [
                    "2024-12-31T23:00:00Z",
                    "2025-01-01T00:00:00Z",
                    "2024-12-01T00:00:00Z",
                    "2025-01-01T00:00:00Z",
                ],
            ),
        ] {
            let ((from, to), (month, next)) = periods(hour).expect("in the calendar");
            assert_eq!([from, to, month, next], expected);
        }
        assert!(periods(u64::MAX / HOUR_NS * HOUR_NS).is_err());
    }

    #[test]
    fn money_is_written_exactly() {
        assert_eq!(decimal(10_000_000_001), "10.000000001");
        assert_eq!(decimal(-1), "-0.000000001");
        assert_eq!((quotient(250, 125), quotient(1, 8)), ("2".into(), "0.125".into()));
    }
}
