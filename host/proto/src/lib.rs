//! What machines and the provider say to each other: the bodies of its REST API and of its events, as JSON.
//!
//! Both ends use these types: the provider on Linux, and `priced` in a machine.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod prices;
pub mod problem;
pub mod status;

/// Paths of the REST API.
pub mod path {
    /// Present prices: GET gives a [`Prices`](crate::prices::Prices); PUT, with the operator's token, sets
    /// them ([`NewPrices`](crate::prices::NewPrices)).
    pub const PRICES: &str = "/v1/prices";
    /// Prices as server-sent events, the present ones first: event `prices`, each a whole
    /// [`Prices`](crate::prices::Prices), whose revision is the event's id.
    pub const PRICE_EVENTS: &str = "/v1/prices/events";
    /// What machines report: POST a [`Status`](crate::status::Status), GET the last of each application.
    pub const STATUS: &str = "/v1/status";
    /// The same as server-sent events: event `status`, each a [`Status`](crate::status::Status).
    pub const STATUS_EVENTS: &str = "/v1/status/events";
}
