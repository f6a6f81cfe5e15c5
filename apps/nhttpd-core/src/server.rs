//! What all connections share.

use crate::connection::Connection;
use crate::date;
use crate::known::KnownHeads;
use crate::places::Places;
use crate::reply;
use crate::request::Status;
use crate::site::Site;
use alloc::format;
use alloc::string::String;
use nom_port::buffer::{Buffer, Sink};

/// `Date: Sun, 06 Nov 1994 08:49:37 GMT` and its line end.
pub(crate) type DateLine = [u8; 37];

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Heads of requests that were understood.
    pub requests: u64,
    /// Replies that carry a file, or a part, or say that the client has it.
    pub served: u64,
    /// Replies that send the client elsewhere.
    pub redirected: u64,
    /// Replies with an error of the client's.
    pub refused: u64,
    /// Connections for which there was no place.
    pub connections_refused: u64,
    /// Connections that were ended because the client took too long.
    pub timed_out: u64,
}

/// A site and the time.
#[derive(Debug)]
pub struct Server<B> {
    pub(crate) site: Site<B>,
    pub(crate) now: u64,
    pub(crate) date: DateLine,
    /// Separates the parts of a reply with several.
    pub(crate) boundary: String,
    pub(crate) known: KnownHeads,
    places: Places,
    /// Counters.
    pub stats: Stats,
}

impl<B: Buffer> Server<B> {
    /// A server for a site. `unix` is the time in seconds since 1970; `seed` should not be in any file.
    pub fn new(site: Site<B>, unix: u64, seed: u64) -> Server<B> {
        let boundary = format!("{seed:016x}");
        let (date, places, stats) = ([b' '; 37], Places::default(), Stats::default());
        let known = KnownHeads::default();
        let mut server = Server { site, now: 0, date, boundary, known, places, stats };
        server.date[..6].copy_from_slice(b"Date: ");
        server.date[35..].copy_from_slice(b"\r\n");
        server.write_date(unix);
        server
    }

    /// The same for as many connections as there are `places`.
    #[must_use]
    pub fn with_places(self, places: Places) -> Server<B> {
        Server { places, ..self }
    }

    /// A client has connected. If there is no place for it, it is told so, and nothing is to be heard of it
    /// any more; otherwise [`Server::disconnected`] is to follow.
    pub fn connected(&mut self, sink: &mut impl Sink<B>) -> Option<Connection> {
        if self.places.take() {
            return Some(Connection::new(self.now));
        }
        self.stats.connections_refused += 1;
        reply::send_error(self, Status::ServiceUnavailable, None, sink);
        None
    }

    /// A client is gone.
    pub fn disconnected(&mut self) {
        self.places.give_back();
    }

    /// A client could not even connect.
    pub fn refused(&mut self) {
        self.stats.connections_refused += 1;
    }

    /// Tells the time, in seconds since 1970. Cheap if it is the same as before.
    pub fn set_time(&mut self, unix: u64) {
        if self.now != unix {
            self.write_date(unix);
        }
    }

    fn write_date(&mut self, unix: u64) {
        self.now = unix;
        self.date[6..35].copy_from_slice(&date::format(unix));
    }
}
