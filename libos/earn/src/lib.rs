//! What makes a server earn: its contract, the prices on the board, and who sets its working point.
//!
//! An [`Earner`] is the governor of a server. At the end of each window it hears what was served, books what
//! that brought and cost, and sets the working point from which its controller expects the most; at a new
//! price it does so at once. [`Settings`] are read from the environment, prices from a [`PriceBoard`], and an
//! [`Audience`] hears what is earned. A server on several cores has a [`CoreGovernor`] on each. Without a
//! contract it only watches: what is served and what that costs is reported, and nothing is set.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod books;
mod contracts;
mod core_governor;
mod earner;
mod keeping;
mod market;
mod report;
mod settings;
mod solvency;
mod staffing;
mod steering;
mod window;
mod worth;

pub use core_governor::CoreGovernor;
pub use earner::{Earner, Held};
pub use market::{PriceBoard, Tariff};
pub use nom_abi::priced::{ActivityReport, Report, Solvency};
pub use nom_abi::prices::PriceList;
pub use report::Audience;
pub use settings::{BadSetting, Batching, Knobs, Settings};
