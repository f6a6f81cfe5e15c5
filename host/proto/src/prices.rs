//! What resources cost.

use alloc::string::String;
use alloc::vec::Vec;
pub use nom_economy::prices::Resource;
use serde::{Deserialize, Serialize};

/// Present prices of all resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Prices {
    /// Grows with every change, and never otherwise.
    pub revision: u64,
    /// Where the prices come from, for people: `schedule`, `trace prices.csv`, `azure westeurope`.
    pub source: String,
    /// How long ago the source last confirmed them, in seconds.
    pub age_seconds: f64,
    /// At most one for each resource.
    pub prices: Vec<Price>,
    /// Prices that the source announces: each holds from its `since_unix_ns` on, if nothing changes until
    /// then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<Price>,
}

/// The price of a resource, in dollars for one of its units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Price {
    /// What it is for.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::prices::describe))]
    pub resource: Resource,
    /// Dollars for one [`Resource::unit`].
    pub dollars: f64,
    /// Since when, in nanoseconds since 1970, UTC.
    pub since_unix_ns: u64,
}

/// Where prices come from, and how it fares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Source {
    /// For people: `schedule`, `azure westeurope`.
    pub name: String,
    /// What it names prices of.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub resources: Vec<Resource>,
    /// How often it was asked in vain.
    pub failures: u64,
    /// Seconds since it last answered; nothing if it never did.
    pub answered_seconds_ago: Option<f64>,
    /// What was wrong with its last answer, if something was.
    pub problem: Option<String>,
}

/// Prices to set; those of other resources stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPrices {
    /// At most one for each resource.
    pub prices: Vec<NewPrice>,
}

/// A price to set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPrice {
    /// What it is for.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::prices::describe))]
    pub resource: Resource,
    /// Dollars for one [`Resource::unit`].
    pub dollars: f64,
}

/// What a resource is in JSON: one of the names.
#[cfg(feature = "openapi")]
pub fn describe() -> utoipa::openapi::schema::Object {
    let names = Resource::ALL.map(Resource::name);
    utoipa::openapi::schema::ObjectBuilder::new()
        .schema_type(utoipa::openapi::schema::Type::String)
        .enum_values(Some(names))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_json() {
        for resource in Resource::ALL {
            let json = serde_json::to_string(&resource).expect("a name");
            assert_eq!(json, format!("\"{}\"", resource.name()));
        }
    }

    #[test]
    fn a_field_that_nobody_knows_is_no_new_price() {
        let text = r#"{"prices":[{"resource":"core","dollars":1.0,"currency":"EUR"}]}"#;
        assert!(serde_json::from_str::<NewPrices>(text).is_err());
    }
}
