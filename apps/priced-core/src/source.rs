//! Where prices come from.

use crate::schedule::{BadSchedule, Schedule};
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::net::SocketAddr;

/// Where prices come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A provider's REST API.
    Provider(SocketAddr),
    /// A schedule.
    Fixed(Schedule),
}

/// A text that names no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSource {
    /// It is not an address, and not `fixed:`.
    #[error(
        "`{0}`: expected ADDRESS:PORT, such as 10.0.2.2:7070, or fixed:PRICES, such as fixed:core=1,2@60s"
    )]
    Unknown(String),
    /// What follows `fixed:`.
    #[error("{0}")]
    Schedule(#[from] BadSchedule),
}

impl Source {
    /// Reads `10.0.2.2:7070` or `fixed:network_out=1`.
    ///
    /// # Errors
    /// [`BadSource`].
    pub fn parse(text: &str) -> Result<Source, BadSource> {
        if let Some(schedule) = text.strip_prefix("fixed:") {
            return Ok(Source::Fixed(Schedule::parse(schedule)?));
        }
        text.parse().map(Source::Provider).map_err(|_| BadSource::Unknown(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_address_or_a_schedule() {
        assert_eq!(Source::parse("10.0.2.2:80"), Ok(Source::Provider(([10, 0, 2, 2], 80).into())));
        assert!(matches!(Source::parse("fixed:core=1"), Ok(Source::Fixed(_))));
        for text in ["", "10.0.2.2", "http://10.0.2.2:80", "fixed=core=1", "fixed:core"] {
            let problem = Source::parse(text).expect_err(text).to_string();
            assert!(problem.starts_with('`') && problem.contains("expected"), "{problem}");
        }
    }
}
