//! The server side of NetPIPE's TCP protocol, without its machine: what `NPtcp`, version 3.7, does when it is
//! started without `-h`.
//!
//! Nothing on the wire says how long a message is: both sides walk through the same [sizes](Sizes), and the
//! transmitter tells only how often it will send each. It is the transmitter that ends the walk, when a
//! message takes a second or the last size is done; so this side does nothing unasked.
//!
//! ```text
//!   SyncMe  100 messages of the first size  SyncMe
//!   then for each size:   SyncMe  repeat count  3 x (SyncMe  as many messages)
//!   at the end:           QUIT
//! ```
//! Each word is answered by the same word, each message by itself, in the very buffers it came in. In trials
//! that go both ways (`-2`) this side sends a message of its own first, and owes none for the last.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod options;
mod session;
mod sizes;

pub use nom_port::options::OptionError;
pub use options::Options;
pub use session::{ProtocolError, Session};
pub use sizes::Sizes;
