//! What can go wrong with a socket.

use core::fmt;
use nom_net::{Closed, ConnectError, DatagramError, SendError};

/// Why a call did nothing. The names are those of POSIX, which the Linux personality needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Not now: wait until the socket is ready. EAGAIN.
    WouldBlock,
    /// There is no such socket or interest set. EBADF.
    BadSocket,
    /// A socket of this kind does no such thing. EOPNOTSUPP.
    NotSupported,
    /// Another socket has the port. EADDRINUSE.
    InUse,
    /// The connection is not open yet, or this socket was never connected. ENOTCONN.
    NotConnected,
    /// The connection, or our side of it, is closed for sending. EPIPE.
    BrokenPipe,
    /// The peer reset the connection. ECONNRESET.
    Reset,
    /// Nobody listens there. ECONNREFUSED.
    Refused,
    /// The peer does not answer. ETIMEDOUT.
    TimedOut,
    /// The network cannot reach the peer. EHOSTUNREACH.
    Unreachable,
    /// The datagram is longer than any packet. EMSGSIZE.
    TooLong,
    /// There is no port or place left for another flow. EADDRNOTAVAIL.
    Full,
    /// There is no memory that the device reaches. ENOBUFS.
    NoMemory,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Error::WouldBlock => "the socket is not ready",
            Error::BadSocket => "there is no such socket or interest set",
            Error::NotSupported => "a socket of this kind does no such thing",
            Error::InUse => "another socket has the port",
            Error::NotConnected => "the socket is not connected",
            Error::BrokenPipe => "the socket is closed for sending",
            Error::Reset => "the peer reset the connection",
            Error::Refused => "the peer refused the connection",
            Error::TimedOut => "the peer does not answer",
            Error::Unreachable => "the network cannot reach the peer",
            Error::TooLong => "the datagram is longer than any packet",
            Error::Full => "there is no port or place left for another flow",
            Error::NoMemory => "there is no memory that the device reaches",
        })
    }
}

impl core::error::Error for Error {}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Error {
        match error {
            ConnectError::NoRoute => Error::Unreachable,
            ConnectError::Full => Error::Full,
        }
    }
}

impl From<SendError> for Error {
    fn from(error: SendError) -> Error {
        match error {
            SendError::Full => Error::WouldBlock,
            SendError::Closed => Error::BrokenPipe,
        }
    }
}

impl From<DatagramError> for Error {
    fn from(error: DatagramError) -> Error {
        match error {
            DatagramError::TooLong => Error::TooLong,
            DatagramError::Full => Error::WouldBlock,
            DatagramError::NoRoute => Error::Unreachable,
        }
    }
}

/// The error that the end of a connection is; none if both sides had said all they had to say.
pub(crate) fn of_end(why: Closed) -> Option<Error> {
    match why {
        Closed::Finished => None,
        Closed::Reset => Some(Error::Reset),
        Closed::Refused => Some(Error::Refused),
        Closed::TimedOut => Some(Error::TimedOut),
        Closed::Unreachable => Some(Error::Unreachable),
    }
}
