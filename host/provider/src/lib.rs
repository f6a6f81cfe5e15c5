//! The provider: prices, the ledger of what was used and owed, and what machines report, over REST.
//!
//! ```text
//! sources ──▶ PriceBook ──▶ REST, events ──▶ machines ──▶ StatusBook ──▶ REST, events ──▶ people
//! ```
//!
//! [`Provider::start`] runs one on a thread of its own; what it says over the wire is in `nom-proto`.
#![forbid(unsafe_code)]

mod clock;
mod file;
mod http;
mod ledger;
pub mod meter;
mod price_book;
mod provider;
mod source;
mod status_book;
mod token;

pub use price_book::{Refused, Standing};
pub use provider::{Config, Provider};
pub use source::{BadSource, Source};
pub use token::Token;
