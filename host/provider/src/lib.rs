//! The provider: prices, the ledger of what was used and owed, and what machines report, over REST.
//!
//! ```text
//! sources ──▶ PriceBook ──▶ REST, events ──▶ machines ──▶ StatusBook ──▶ REST, events ──▶ people
//! ```
//!
//! [`Provider::start`] runs one on a thread of its own; what it says over the wire is in `nom-proto`.
#![forbid(unsafe_code)]

mod accounts;
mod clock;
mod file;
pub mod files;
mod http;
mod ledger;
pub mod meter;
mod name;
mod pace;
mod price_book;
mod provider;
mod secret_file;
mod source;
mod status_book;
pub mod tls;
mod token;

pub use accounts::{Accounts, CannotRegister, Identity, Key, Stored};
pub use pace::Pace;
pub use price_book::{Refused, Standing};
pub use provider::{Config, Provider};
pub use source::{BadSource, Source};
pub use token::Token;
