//! Asks the provider for prices: the protocol and its state, without a machine.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
