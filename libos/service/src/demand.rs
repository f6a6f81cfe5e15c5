//! What a service makes of memory.

use crate::curve::Curve;

/// What a service makes of memory, as it has measured it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// The share of look-ups that find something, by what is kept.
    pub curve: Curve,
    /// Look-ups that the curve was made of.
    pub samples: f64,
    /// Look-ups in a second.
    pub lookups: f64,
    /// Bytes that one which finds something sends more than one which does not; a mean.
    pub hit_bytes: f64,
    /// Bytes that it may take at present for what it keeps.
    pub limit_bytes: u64,
    /// Bytes without which it cannot do its work.
    pub least_bytes: u64,
    /// Bytes that it may ever take.
    pub most_bytes: u64,
}
