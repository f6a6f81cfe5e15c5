//! A client of 9P2000.L, the protocol by which a host lends a directory to a machine.
//!
//! The protocol's messages are described in Linux's `include/net/9p/9p.h` and in diod's `protocol.md`;
//! errors are Linux's numbers. [`NinepChannel`] is how one message gets there and its answer comes back: a
//! device, or a test's server. What the server says is checked before it is believed; what is no answer to
//! what was asked is [`Error::Broken`].
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod client;
mod message;
mod wire;

pub use client::{Change, Client, Fid, LentAttributes, LentEntry, LentSpace, Qid};
pub use message::Kind;
pub use wire::{Reader, Writer};

use core::fmt;

/// Bytes of a message at most, with its head: pieces of 64 KiB, and what says what they are.
pub const MESSAGE_BYTES: usize = (64 << 10) + 64;

/// How a message gets to the server.
pub trait NinepChannel {
    /// Sends a request, waits for its answer, and says how many bytes that has, which are put into `answer`.
    ///
    /// # Errors
    /// If there is no answer any more: the device has left, or broke the rules.
    fn exchange(&mut self, request: &[u8], answer: &mut [u8]) -> Result<usize, NoAnswer>;
}

/// There was no answer, and there will be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The server refused, with one of Linux's error numbers.
    Refused(u32),
    /// The server said nothing, or nothing that answers what was asked.
    Broken,
}

impl From<NoAnswer> for Error {
    fn from(_: NoAnswer) -> Error {
        Error::Broken
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(number) => write!(out, "the host refused: errno {number}"),
            Error::Broken => out.write_str("the host does not answer as 9P2000.L has it"),
        }
    }
}

impl core::error::Error for Error {}

/// The result of what the server was asked.
pub type Answered<T> = Result<T, Error>;
