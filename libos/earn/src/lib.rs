//! What makes a server earn: its contract, the prices on the board, and who sets its working point.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
