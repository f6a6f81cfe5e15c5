//! Prices, utility, profit: arithmetic and decisions, no I/O.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
