//! What was used, at which price, and what is owed for it.

use crate::prices::Resource;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Records to enter: all of them, or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRecords {
    /// In any order.
    pub records: Vec<NewRecord>,
}

/// What an activity consumed of a resource over a time in which its price did not change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRecord {
    /// Chosen by who enters it, once and for all: a record that is entered again is known by it.
    pub id: String,
    /// The machine, as the provider knows it.
    pub machine: String,
    /// What it is charged to.
    pub activity: String,
    /// What was consumed.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::prices::describe))]
    pub resource: Resource,
    /// How much, in [`Resource::counted_in`].
    pub quantity: u64,
    /// The unit of the quantity, which has to be [`Resource::counted_in`]: said, so that nobody mistakes it.
    pub unit: String,
    /// Price in force, in dollars for one [`Resource::unit`]; 0 if there was none.
    pub unit_price: f64,
    /// Begin, in nanoseconds since 1970, UTC.
    pub from_unix_ns: u64,
    /// End, after the begin.
    pub to_unix_ns: u64,
}

impl NewRecord {
    /// The largest quantity of a record: a thousand cores for 11 days, a TiB for 10, an exabyte. A record
    /// lasts seconds; who has to do with more makes several of it.
    pub const QUANTITY_MAX: u64 = 1_000_000_000_000_000_000;
    /// The largest cost of a record, in nano-dollars: a billion dollars.
    pub const COST_MAX_NANOS: i64 = 1_000_000_000_000_000_000;
}

/// What came of entering records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Entered {
    /// How many are new. All survive whatever happens to the provider from now on.
    pub recorded: u64,
    /// How many had been entered before.
    pub known: u64,
}

/// A record of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Record {
    /// Its place in the ledger, from 1.
    pub sequence: u64,
    /// What was entered.
    #[serde(flatten)]
    pub entered: NewRecord,
    /// Who paid for the machine when it was entered, if anybody was known to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Quantity times price, rounded once to whole nano-dollars.
    pub cost_nanos: i64,
}

/// Some of the records, in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page {
    /// At most as many as were asked for.
    pub records: Vec<Record>,
    /// If there are more: ask for those `after` this sequence.
    pub next: Option<u64>,
}

/// Sums over records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Summary {
    /// One for each tenant, machine, activity and resource.
    pub sums: Vec<Sum>,
    /// What is owed for all, in nano-dollars.
    pub cost_nanos: i128,
}

/// What an activity of a machine consumed of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sum {
    /// Who pays for it, if anybody is known to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The machine.
    pub machine: String,
    /// The activity.
    pub activity: String,
    /// What was consumed.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::prices::describe))]
    pub resource: Resource,
    /// How much, in `unit`.
    pub quantity: u128,
    /// [`Resource::counted_in`].
    pub unit: String,
    /// How many records that are.
    pub records: u64,
    /// Begin of the first, in nanoseconds since 1970, UTC.
    pub from_unix_ns: u64,
    /// End of the last.
    pub to_unix_ns: u64,
    /// What is owed for it, in nano-dollars.
    pub cost_nanos: i128,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> NewRecord {
        NewRecord {
            id: "web-1/1".into(),
            machine: "web-1".into(),
            activity: "memcached".into(),
            resource: Resource::NetworkOut,
            quantity: 125_000_000,
            unit: Resource::NetworkOut.counted_in().into(),
            unit_price: 10.0,
            from_unix_ns: 1,
            to_unix_ns: 2,
        }
    }

    #[test]
    fn a_record_is_one_object() {
        let record = Record { sequence: 7, entered: record(), tenant: None, cost_nanos: 10_000_000_000 };
        let json = serde_json::to_value(&record).expect("plain data");
        assert_eq!((&json["sequence"], &json["resource"]), (&7.into(), &"network_out".into()));
        assert_eq!(serde_json::from_value::<Record>(json).expect("the same"), record);
    }

    #[test]
    fn a_field_that_nobody_knows_is_no_record() {
        let mut json = serde_json::to_value(record()).expect("plain data");
        json["cost"] = 1.into();
        assert!(serde_json::from_value::<NewRecord>(json).is_err());
    }

    #[test]
    fn a_gbit_is_so_many_bytes() {
        assert_eq!(Resource::NetworkOut.counts_per_unit() * 8, 1_000_000_000);
        for resource in Resource::ALL {
            assert_eq!(Resource::from_name(resource.name()), Some(resource));
        }
        assert_eq!(Resource::from_name("gold"), None);
    }
}
