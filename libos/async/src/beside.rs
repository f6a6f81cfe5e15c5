//! What a service of tasks does that is about no client in particular.

use nom_port::buffer::{Buffer, Buffers, Slice};
use nom_service::{Demand, Metrics, Reply};

/// What a service does beside its tasks; each call is that of [`Service`](nom_service::Service) of the same
/// name.
pub trait Beside<B: Buffer> {
    /// A client could not even connect: the stack has no place for it.
    fn refused(&mut self) {}

    /// A datagram came, in one piece; [`Reply::datagram`] sends back.
    fn datagram(&mut self, bytes: Slice<B>, reply: &mut Reply<B>) {
        let _ = (bytes, reply);
    }

    /// What it makes of memory, and what it would make of more or less.
    fn demand(&mut self) -> Option<Demand> {
        None
    }

    /// From now on it may take so many bytes for what it keeps; `None`: as many as at its start.
    fn set_memory(&mut self, bytes: Option<u64>) {
        let _ = bytes;
    }

    /// Does a little of what can wait; called after each poll. Returns when to call again though nothing else
    /// happens.
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
}

/// Nothing beside what tasks do.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMore;

impl<B: Buffer> Beside<B> for NoMore {}
