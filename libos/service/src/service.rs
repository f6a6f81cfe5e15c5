//! What a protocol is to a server.

use crate::active::{ClientId, Course, Happening, Reaction, StreamEnd, Wanted};
use crate::demand::Demand;
use crate::metrics::Metrics;
use crate::reply::Reply;
use core::net::SocketAddr;
use nom_port::buffer::{Buffer, Buffers, Slice};

/// Whether a client's stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stream {
    /// It does.
    Open,
    /// It is closed when all that was answered so far is sent.
    Close,
}

/// What a server does with its clients; `B` is the memory that the device fills.
pub trait Service<B: Buffer> {
    /// What it keeps about a client. It goes with the client from core to core: the services of a server's
    /// cores share whatever else they know of one.
    type Connection;

    /// Whether its requests count as the server's: those of the control port do not.
    const IS_TIMED: bool = true;

    /// Whether it is active: then it hears of its connections by [`Service::happened`] and
    /// [`Service::ended`], in place of [`Service::received`] and [`Service::disconnected`], and stays on the
    /// core where it is, with all of them. A service that is not costs nothing for those that are.
    const IS_ACTIVE: bool = false;

    /// A client has connected, and may be greeted; `None` turns it away, after what it is told.
    fn connected(&mut self, peer: SocketAddr, reply: &mut Reply<B>) -> Option<Self::Connection>;

    /// A client could not even connect: the stack has no place for it.
    fn refused(&mut self) {}

    /// Bytes came, as a piece of the memory that the device filled: they can be kept and sent again.
    fn received(
        &mut self,
        connection: &mut Self::Connection,
        bytes: Slice<B>,
        reply: &mut Reply<B>,
    ) -> Stream;

    /// Bytes of memory that it keeps for a client beyond what a connection takes by itself, such as requests
    /// of which only a part came: they count in what the client's activity may hold (`memory`). Asked after
    /// whatever came, where somebody's memory is bounded.
    fn held(&self, connection: &Self::Connection) -> usize {
        let _ = connection;
        0
    }

    /// How often each client is looked at though nothing came from it; `None`: never. It may change while
    /// the server runs.
    fn look_every_ns(&self) -> Option<u64> {
        None
    }

    /// A client has taken something of what it was answered; said before [`Service::check`].
    fn progressed(&mut self, connection: &mut Self::Connection) {
        let _ = connection;
    }

    /// Looks at a client: it may be too slow.
    fn check(&mut self, connection: &mut Self::Connection, reply: &mut Reply<B>) -> Stream {
        let _ = (connection, reply);
        Stream::Open
    }

    /// Tells a client what it is to hear though it asked for nothing; said behind [`Service::check`], only of
    /// clients who have taken what they were told before.
    fn news(&mut self, connection: &mut Self::Connection, reply: &mut Reply<B>) {
        let _ = (connection, reply);
    }

    /// A client is gone.
    fn disconnected(&mut self, connection: Self::Connection) {
        drop(connection);
    }

    /// A datagram came, in one piece; [`Reply::datagram`] sends back.
    fn datagram(&mut self, bytes: Slice<B>, reply: &mut Reply<B>) {
        let _ = (bytes, reply);
    }

    /// The UDP port, if any, whose datagrams [`Service::packet`] sees first.
    fn packet_port(&self) -> Option<u16> {
        None
    }

    /// Answers a datagram to that port in the memory in which it came: writes into `room` and says how many
    /// bytes. `None` leaves it to the stack, and so to [`Service::datagram`], as if nobody had looked.
    fn packet(&mut self, datagram: &[u8], room: &mut [u8]) -> Option<usize> {
        let _ = (datagram, room);
        None
    }

    /// What it makes of memory, and what it would make of more or less. Asked about once a second if the
    /// governor [wants to know](crate::Governor::wants_demand); to be asked may begin the measuring.
    fn demand(&mut self) -> Option<Demand> {
        None
    }

    /// From now on it may take so many bytes for what it keeps; `None`: as many as it was told at its start.
    /// It may take its time to let go of what is too much: it is [tended](Service::tend) until then.
    fn set_memory(&mut self, bytes: Option<u64>) {
        let _ = bytes;
    }

    /// Memory is short: lets go of about so many bytes of what it keeps, what it has least use for first, and
    /// says how many that were; it may take its time to give them back, and is [tended](Service::tend) until
    /// then. It is asked again as long as too little is free, and that helps.
    fn shrink(&mut self, bytes: u64) -> u64 {
        let _ = bytes;
        0
    }

    /// Does a little of what can wait; called after each poll. `memory` has buffers for what is to lie
    /// elsewhere, and gives back what nobody uses. Returns when to call again though nothing else
    /// happens; never, if nothing waits.
    fn tend<M: Buffers<Buffer = B>>(&mut self, now_ns: u64, memory: &mut M) -> Option<u64> {
        let _ = (now_ns, memory);
        None
    }

    /// Adds what it counts to what the control port tells as `/metrics`.
    fn metrics(&self, out: &mut Metrics) {
        let _ = out;
    }

    /// Time passes; said before whatever happens at `now_ns` of the world's clock.
    fn at(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// Something happened to a connection.
    fn happened(
        &mut self,
        connection: &mut Self::Connection,
        what: Happening<B>,
        reply: &mut Reply<B>,
    ) -> Reaction {
        let _ = (connection, what, reply);
        Reaction { course: Course::Open, unread: 0, asked_ns: None }
    }

    /// A connection is over, or could not be had.
    fn ended(&mut self, connection: Self::Connection, end: StreamEnd) {
        let _ = end;
        self.disconnected(connection);
    }

    /// Whether [`Service::next_due`] or [`Service::next_wanted`] has anything.
    #[inline]
    fn has_due(&self) -> bool {
        false
    }

    /// The next connection that has something to say though nothing happened to it: asked before each poll
    /// until there is none.
    #[inline]
    fn next_due(&mut self) -> Option<ClientId> {
        None
    }

    /// The next connection that it wants to somebody: asked in the same way.
    #[inline]
    fn next_wanted(&mut self) -> Option<Wanted<Self::Connection>> {
        None
    }
}
