//! TCP (RFC 9293) as small state functions, each in a file of its own and testable alone.

pub mod accept;
pub mod acknowledge;
pub mod close;
pub mod congestion;
pub mod connect;
pub mod connection;
pub mod cookie;
pub mod deliver;
pub mod emit;
pub mod expire;
pub mod flight;
pub mod forward;
pub mod hystart;
pub mod input;
pub mod listen;
pub mod memory;
pub mod pace;
pub mod plain;
pub mod proportion;
pub mod rack;
pub mod ranges;
pub mod rare;
pub mod reassemble;
pub mod rtt;
mod runs;
pub mod segment;
pub mod sequence;
pub mod undo;
pub mod unreachable;

#[cfg(test)]
mod tests;
