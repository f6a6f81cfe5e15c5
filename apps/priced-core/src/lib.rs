//! Asks the provider for prices: the protocol and its state, without a machine.
//!
//! [`Daemon`] is the whole of `priced` (nom, VEE'16, section 3.7) as a machine of states: it is told what
//! happens on its connections and what time it is, and is asked what to send, what to publish and what to
//! say. Below it, [`feed`] follows the provider's prices, [`reporter`] sends what applications report,
//! [`book`] believes only prices that can be, [`schedule`] stands in for a provider, and [`voice`] keeps all
//! of them from talking too much. [`http`] and [`sse`] read what the provider answers, in any pieces.
//!
//! Whatever the provider sends, however much or slowly: the last good prices stay, their age is there for
//! everybody to see, and a line says what is wrong.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod backoff;
pub mod book;
mod daemon;
pub mod feed;
pub mod http;
pub mod reporter;
pub mod schedule;
mod source;
pub mod sse;
mod status;
pub mod voice;

pub use daemon::{Daemon, Link, Publication};
pub use nom_abi::priced::{Announcement, Report};
pub use nom_proto::status::Status;
pub use source::{BadSource, Source};
pub use status::{BadReport, Gathering, Held, message, status};

use alloc::vec::Vec;

/// What happened on a connection.
#[derive(Clone, Copy, Debug)]
pub enum Happening<'a> {
    /// It is there.
    Connected,
    /// Bytes came.
    Received(&'a [u8]),
    /// It is over, or never came to be.
    Closed(Loss),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The peer said all it had to say.
    #[error("it closed the connection")]
    Finished,
    /// The peer reset it.
    #[error("it reset the connection")]
    Reset,
    /// The peer refused it.
    #[error("it refuses connections")]
    Refused,
    /// The peer does not answer.
    #[error("it does not answer")]
    TimedOut,
    /// There is no way to the peer.
    #[error("no network leads to it")]
    Unreachable,
}

/// What to do with a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Connect to the provider.
    Connect,
    /// Send these bytes.
    Send(Vec<u8>),
    /// Forget the connection, at once; nothing of it is to be told any more.
    Drop,
}

/// A second of the board's time.
const SECOND_NS: u64 = 1_000_000_000;
/// How long the provider may take to accept a connection.
const CONNECT_NS: u64 = 5 * SECOND_NS;
/// How long it may take to answer.
const ANSWER_NS: u64 = 10 * SECOND_NS;
