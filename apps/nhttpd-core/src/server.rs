//! What all connections share.

use crate::date;
use crate::site::Site;
use alloc::format;
use alloc::string::String;
use nom_port::buffer::Buffer;

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
    /// Counters.
    pub stats: Stats,
}

impl<B: Buffer> Server<B> {
    /// A server for a site. `unix` is the time in seconds since 1970; `seed` should not be in any file.
    pub fn new(site: Site<B>, unix: u64, seed: u64) -> Server<B> {
        let boundary = format!("{seed:016x}");
        let mut server = Server { site, now: 0, date: [b' '; 37], boundary, stats: Stats::default() };
        server.date[..6].copy_from_slice(b"Date: ");
        server.date[35..].copy_from_slice(b"\r\n");
        server.write_date(unix);
        server
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
