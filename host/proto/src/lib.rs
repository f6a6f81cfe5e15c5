//! What machines and the provider say to each other: the bodies of its REST API and of its events, as JSON.
//!
//! Both ends use these types: the provider on Linux, and `priced` in a machine.
#![cfg_attr(not(any(test, feature = "openapi")), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod account;
pub mod ledger;
pub mod meter;
pub mod prices;
pub mod problem;
pub mod status;

/// Paths of the REST API.
pub mod path {
    /// Present prices: GET gives a [`Prices`](crate::prices::Prices); PUT, as an operator, sets
    /// them ([`NewPrices`](crate::prices::NewPrices)).
    pub const PRICES: &str = "/v1/prices";
    /// Prices as server-sent events, the present ones first: event `prices`, each a whole
    /// [`Prices`](crate::prices::Prices), whose revision is the event's id.
    pub const PRICE_EVENTS: &str = "/v1/prices/events";
    /// What machines report: POST a [`Status`](crate::status::Status) as that machine, GET the last of each
    /// application that the asker may see, each a [`Reported`](crate::status::Reported).
    pub const STATUS: &str = "/v1/status";
    /// The same as server-sent events: event `status`, each a
    /// [`Reported`](crate::status::Reported).
    pub const STATUS_EVENTS: &str = "/v1/status/events";
    /// Where prices come from and how each source fares: GET gives a list of
    /// [`Source`](crate::prices::Source).
    pub const SOURCES: &str = "/v1/sources";
    /// What was used and is owed: POST, as the machine's meter,
    /// [`NewRecords`](crate::ledger::NewRecords), which gives [`Entered`](crate::ledger::Entered); GET, with
    /// parameters `tenant`, `machine`, `activity`, `resource`, `from`, `to` (nanoseconds since 1970 in which
    /// a record begins), `after` and `limit`, gives a [`Page`](crate::ledger::Page).
    pub const LEDGER_RECORDS: &str = "/v1/ledger/records";
    /// Its sums, a [`Summary`](crate::ledger::Summary): GET, with the same parameters but the last two.
    pub const LEDGER_SUMMARY: &str = "/v1/ledger/summary";
    /// The bill in the columns of FOCUS 1.2, as CSV: GET, with the parameters of the sums.
    pub const LEDGER_FOCUS: &str = "/v1/ledger/focus.csv";
    /// Machines that may report and be metered: POST a [`NewMachine`](crate::account::NewMachine) as an
    /// operator, which gives [`MachineKeys`](crate::account::MachineKeys); DELETE one, by its name behind a
    /// slash, to end its keys.
    pub const MACHINES: &str = "/v1/machines";
    /// What meters see: POST a [`MeterReport`](crate::meter::MeterReport) as the machine's meter, GET the
    /// last of each machine.
    pub const METERS: &str = "/v1/meters";
    /// The description of all this (OpenAPI 3.1).
    pub const OPENAPI: &str = "/v1/openapi.json";
    /// Everything for Prometheus.
    pub const METRICS: &str = "/metrics";
}
