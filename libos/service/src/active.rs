//! What a server and an *active* service say to each other: one that has more to say than what it answers at
//! once. It names its clients, takes what they send in its own time, speaks though nothing came, and connects
//! to others.

use core::fmt;
use core::net::SocketAddr;
use nom_port::buffer::Slice;

/// A connection of a server, as its active service names it. A name is never used for a second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u64);

impl ClientId {
    /// The connection to which its server gave this number.
    pub fn new(number: u64) -> ClientId {
        ClientId(number)
    }

    /// The number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What happened to a connection of an active service.
#[derive(Debug)]
pub enum Happening<B> {
    /// It is open, and this is its name from now on.
    Opened(ClientId),
    /// Bytes came in a frame that arrived at that time, in nanoseconds of the server's clock.
    Came(u64, Slice<B>),
    /// The peer will send no more.
    Finished,
    /// The service wanted it ([`Service::next_due`](crate::Service::next_due)), or what it has said before
    /// has found room.
    Due,
}

/// What is to become of a connection's stream, whose service has seen what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// It goes on.
    Open,
    /// What was said so far was all that will be said; what comes is still wanted.
    Finish,
    /// The same, and nothing more is wanted.
    Close,
    /// It ends at once, by a reset.
    Reset,
}

/// What an active service says when something has happened, beside what it has written.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Reaction {
    /// What is to become of the stream.
    pub course: Course,
    /// Bytes that came and that it has yet to take: the peer may send so much less ahead.
    pub unread: u32,
    /// If what it has written answers requests: when the oldest of them arrived.
    pub asked_ns: Option<u64>,
}

/// A connection that an active service wants.
#[derive(Debug)]
pub struct Wanted<C> {
    /// With whom.
    pub remote: SocketAddr,
    /// What the service keeps about it.
    pub connection: C,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// Both sides had said all they had to say, or this side wanted to hear no more.
    Finished,
    /// The peer reset it.
    Reset,
    /// The peer did not accept it.
    Refused,
    /// The peer fell silent.
    TimedOut,
    /// The network cannot reach the peer, or there is no place for another connection.
    Unreachable,
    /// There was no memory for what was to be sent: the peer must not take a part of it for the whole.
    NoMemory,
}

impl fmt::Display for StreamEnd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            StreamEnd::Finished => "the connection is over",
            StreamEnd::Reset => "the peer reset the connection",
            StreamEnd::Refused => "the peer refused the connection",
            StreamEnd::TimedOut => "the peer does not answer",
            StreamEnd::Unreachable => "the network cannot reach the peer",
            StreamEnd::NoMemory => "there was no memory for what was to be sent",
        })
    }
}
