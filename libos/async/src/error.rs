//! What can go wrong with a stream.

use core::fmt;
use nom_service::StreamEnd;

/// Why a stream did not do what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// It has ended, in that way.
    Ended(StreamEnd),
    /// It was told that nothing more would be sent.
    Finished,
    /// There is no memory for what was to be sent.
    NoMemory,
}

impl fmt::Display for StreamError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Ended(end) => end.fmt(out),
            StreamError::Finished => out.write_str("nothing more was to be sent"),
            StreamError::NoMemory => out.write_str("there is no memory for what is to be sent"),
        }
    }
}

impl core::error::Error for StreamError {}
