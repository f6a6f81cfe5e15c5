//! Prices, utility, profit: arithmetic and decisions, no I/O.
//!
//! [`units`] keep dollars for data and dollars for operations apart; [`utility`] says what the owner is paid,
//! [`prices`] what she pays; [`ledger`] sums both; [`controller`] chooses the working point that leaves most.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod controller;
mod decimal;
pub mod decision;
mod knobs;
pub mod ledger;
pub mod memory;
pub mod prices;
pub mod response;
pub mod table;
pub mod units;
pub mod utility;
