//! TCP (RFC 9293) as small state functions, each in a file of its own and testable alone.

pub mod congestion;
pub mod reassemble;
pub mod rtt;
pub mod sequence;
