//! What the owner is paid for throughput, latency and jitter: the published utility functions ([`Penalty`],
//! [`Refund`], [`Bonus`]), and [`Utility`], which is put together from these and from tables, in code, in an
//! application's manifest (`host/image`), or on one line ([`Utility`]'s `FromStr` and `Display`).
//!
//! The axiom that every utility function satisfies (nom, VEE'16, section 4): it weakly increases with
//! throughput at equal total cost, and weakly decreases with price, latency and jitter.

mod axiom;
mod checked;
mod composed;
mod line;
mod normal;
mod published;

pub use axiom::Violation;
pub use checked::{BadTerm, BadUtility};
pub use composed::{BadTable, Contract, Per, Quantity, State, Table, Term, Unit, Utility};
pub use line::BadLine;
pub use normal::exceedance;
pub use published::{BadParameter, Bonus, Penalty, Refund, Throughput};

use crate::units::Seconds;

/// Latency of the requests of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    mean: Seconds,
    jitter: Seconds,
    p99: Seconds,
}

impl Latency {
    /// Mean, standard deviation and 99th percentile. They are measured by different means (running moments, a
    /// histogram), so that nothing is demanded of how they relate.
    ///
    /// # Errors
    /// If the mean is zero: nothing was measured.
    pub fn new(mean: Seconds, jitter: Seconds, p99: Seconds) -> Result<Self, BadParameter> {
        let expected = "the time of at least one request, which is above 0";
        published::checked("mean latency", mean.get(), |value| value > 0.0, expected)?;
        Ok(Self { mean, jitter, p99 })
    }

    /// L.
    #[must_use]
    pub fn mean(self) -> Seconds {
        self.mean
    }

    /// Sigma: the standard deviation.
    #[must_use]
    pub fn jitter(self) -> Seconds {
        self.jitter
    }

    /// The latency that one request in a hundred exceeds.
    #[must_use]
    pub fn p99(self) -> Seconds {
        self.p99
    }
}
