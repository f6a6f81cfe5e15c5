//! A datagram that several calls put together (udp(7): `UDP_CORK`, and send(2): `MSG_MORE`).

use super::message::{Outgoing, OwnMarks};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use nom_fs::Errno;

/// What was begun, and with which call: only the first says where it goes and how.
#[derive(Debug)]
pub(super) struct Begun {
    /// All of it so far.
    pub bytes: Vec<u8>,
    /// Where it goes.
    pub to: SocketAddr,
    marks: OwnMarks,
    segment: Option<u16>,
}

impl Begun {
    /// All of it, as one call would have sent it.
    pub fn outgoing(&self) -> Outgoing<'_> {
        Outgoing { marks: self.marks, segment: self.segment, ..Outgoing::plain(&self.bytes) }
    }
}

/// What a socket holds until more has come.
#[derive(Debug, Default)]
pub(super) struct Cork {
    /// Whether each call is a beginning (`UDP_CORK`).
    pub is_on: Cell<bool>,
    begun: RefCell<Option<Begun>>,
}

impl Cork {
    /// Whether something was begun.
    pub fn has_begun(&self) -> bool {
        self.begun.borrow().is_some()
    }

    /// Begins with nothing yet, which goes there as `what` says.
    pub fn begin(&self, what: &Outgoing<'_>, to: SocketAddr) {
        let begun = Begun { bytes: Vec::new(), to, marks: what.marks, segment: what.segment };
        self.begun.replace(Some(begun));
    }

    /// Adds bytes to what was begun.
    ///
    /// # Errors
    /// `EMSGSIZE` if that is more than `most`: then nothing is left of it.
    pub fn add(&self, bytes: &[u8], most: usize) -> Result<(), Errno> {
        let whole = self.take().filter(|whole| whole.bytes.len() + bytes.len() <= most);
        let mut whole = whole.ok_or(Errno::EMSGSIZE)?;
        whole.bytes.extend_from_slice(bytes);
        self.begun.replace(Some(whole));
        Ok(())
    }

    /// What was begun: it is over.
    pub fn take(&self) -> Option<Begun> {
        self.begun.take()
    }
}
