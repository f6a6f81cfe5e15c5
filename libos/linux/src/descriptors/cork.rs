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
    /// Nothing yet, that goes there as `what` says.
    pub fn new(what: &Outgoing<'_>, to: SocketAddr) -> Begun {
        Begun { bytes: Vec::new(), to, marks: what.marks, segment: what.segment }
    }

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

    /// Adds bytes to what was begun, which is `first` if nothing was.
    ///
    /// # Errors
    /// `EMSGSIZE` if that is more than `most`: then nothing is left of it.
    pub fn add(&self, first: impl FnOnce() -> Begun, bytes: &[u8], most: usize) -> Result<(), Errno> {
        let mut begun = self.begun.borrow_mut();
        let whole = begun.get_or_insert_with(first);
        if whole.bytes.len() + bytes.len() > most {
            *begun = None;
            return Err(Errno::EMSGSIZE);
        }
        whole.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// What was begun: it is over.
    pub fn take(&self) -> Option<Begun> {
        self.begun.take()
    }
}
