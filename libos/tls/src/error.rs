//! How a connection fails.

use core::fmt;

/// Why a connection is over before its time.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// The connection below failed.
    Socket(nom_socket::Error),
    /// The same, of a task's stream.
    Stream(nom_async::StreamError),
    /// The peer does not keep to the protocol, or wants what is not offered. It was told so by an alert.
    Protocol(rustls::Error),
    /// The connection below ended, though the peer did not say that this was all: somebody may have cut it
    /// off.
    Truncated,
    /// A record was sent in part only, since who sent it gave up: nothing can follow it.
    Interrupted,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Socket(error) => error.fmt(out),
            Error::Stream(error) => error.fmt(out),
            Error::Protocol(error) => write!(out, "TLS: {error}"),
            Error::Truncated => out.write_str("TLS: the connection ended without close_notify"),
            Error::Interrupted => out.write_str("TLS: a record was sent in part"),
        }
    }
}

impl core::error::Error for Error {}

impl From<nom_socket::Error> for Error {
    fn from(error: nom_socket::Error) -> Error {
        Error::Socket(error)
    }
}

impl From<nom_async::StreamError> for Error {
    fn from(error: nom_async::StreamError) -> Error {
        Error::Stream(error)
    }
}

impl From<rustls::Error> for Error {
    fn from(error: rustls::Error) -> Error {
        Error::Protocol(error)
    }
}

impl embedded_io_async::Error for Error {
    fn kind(&self) -> embedded_io_async::ErrorKind {
        match self {
            Error::Socket(error) => error.kind(),
            Error::Stream(error) => error.kind(),
            Error::Protocol(_) => embedded_io_async::ErrorKind::InvalidData,
            Error::Truncated | Error::Interrupted => embedded_io_async::ErrorKind::ConnectionAborted,
        }
    }
}
