//! How much is queued and promised: windows and send queues that grow as far as the path needs it and memory
//! allows.
//!
//! A receive window grows by what the application takes in a round trip (dynamic right-sizing, Fisk and Feng
//! 2001), a send queue with the congestion window. Neither may have more than a part of what is left of the
//! memory that all connections have for it (dynamic thresholds, Choudhury and Hahne 1998): a lone connection
//! may have half of it, and when all is taken every window shrinks and nobody is locked out.

use super::connection::{Connection, Context, Settings};
use super::segment::Timestamps;
use crate::buffer::Buffer;
use crate::time::Instant;

/// What the queues of all connections of a stack hold, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Queued, and not yet acknowledged.
    pub queued: usize,
    /// Memory kept by what came too early, and bytes that applications have not yet read.
    pub kept: usize,
}

impl Held {
    /// Counts a connection in.
    pub fn remember<B: Buffer>(&mut self, connection: &Connection<B>) {
        self.queued += connection.send.queue.len();
        self.kept += connection.kept();
    }

    /// Counts a connection out.
    pub fn forget<B: Buffer>(&mut self, connection: &Connection<B>) {
        self.queued -= connection.send.queue.len();
        self.kept -= connection.kept();
    }

    /// Whether a connection that keeps `mine` bytes, of which `new` are not yet counted here, may keep
    /// `more`.
    pub fn has_room_for(&self, settings: &Settings, new: usize, mine: usize, more: usize) -> bool {
        let free = settings.kept_max.saturating_sub(self.kept + new + more);
        free > 0 && mine <= free
    }
}

/// How a receive window grows.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// The window, if nothing is in its way.
    pub grown: u32,
    /// The most that the application wants.
    pub limit: u32,
    /// Bytes that the application has and has not yet read.
    pub unread: u32,
    /// Bytes that it had read, counted like sequence numbers, when the present round trip began.
    round: u32,
    /// When that is over.
    pub(super) until: Instant,
}

impl Tuning {
    /// A window that begins with `window`.
    pub fn new(window: u32, now: Instant) -> Tuning {
        Tuning { grown: window, limit: u32::MAX, unread: 0, round: 0, until: now }
    }
}

/// Timestamps tell round trips in milliseconds: a shorter round is not measured.
const ROUND_MIN_NS: u64 = 1_000_000;
/// What is taken in a round trip, times this, is the window: a sender in slow start doubles while it is
/// measured, and once more before it hears of it.
const AHEAD: u32 = 4;
/// A send queue holds what is in flight, what the next round trip may need, and some while the application is
/// told that there is room.
const QUEUE_WINDOWS: usize = 3;

impl<B: Buffer> Connection<B> {
    /// Bytes of memory that it keeps of what it received.
    pub fn kept(&self) -> usize {
        self.receive.reassembly.pinned() + self.receive.tuning.unread as usize
    }

    /// Measures what the application took in a round trip, and lets the window grow by it.
    pub fn tune_window(&mut self, context: &mut Context<'_>, stamps: Option<Timestamps>) {
        if context.now < self.receive.tuning.until {
            return;
        }
        let round_ns = self.round_trip_ns(context.now, stamps);
        let tuning = &mut self.receive.tuning;
        let read = self.receive.next.0.wrapping_sub(tuning.unread);
        // In the first round nothing has begun.
        let taken = if tuning.round == 0 { 0 } else { read.wrapping_sub(tuning.round) };
        (tuning.round, tuning.until) = (read, context.now.plus_nanos(round_ns));
        let wanted = taken.saturating_mul(AHEAD).min(context.settings.receive_window_max);
        if wanted > tuning.grown && taken < 1 << 31 {
            tuning.grown = wanted;
            context.counters.receive_windows_grown += 1;
        }
        self.refresh_window(context);
    }

    /// A round trip as far as a receiver knows: that of the handshake, or, if the peer stamps what it sends,
    /// the age of what it echoes, which may be the peer's idleness and is not believed beyond all bounds.
    fn round_trip_ns(&self, now: Instant, stamps: Option<Timestamps>) -> u64 {
        let known = self.rtt.smoothed_ns().unwrap_or(0).max(ROUND_MIN_NS);
        let echo = stamps.filter(|stamps| self.stamps.is_some() && stamps.echo != 0);
        let age = echo.map_or(0, |stamps| self.stamp_clock(now).wrapping_sub(stamps.echo));
        known.max((u64::from(age) * 1_000_000).min(known * 8))
    }

    /// The window that we want to give: what it grew to, less if the application wants less, has not read
    /// what came, or memory is short.
    pub fn refresh_window(&mut self, context: &mut Context<'_>) {
        let receive = &mut self.receive;
        let Tuning { grown, limit, unread, .. } = receive.tuning;
        let free = context.settings.kept_max.saturating_sub(context.held.kept);
        // Whoever is in nobody's way sends at least by whole segments.
        let share = u32::try_from(free / 2).unwrap_or(u32::MAX).max(2 * receive.mss);
        context.counters.receive_windows_short += u64::from(share < grown.min(limit));
        let window = grown.min(share).min(limit).saturating_sub(unread);
        receive.window = window.min(0xffff << receive.scale);
    }

    /// How many bytes the application may have queued before it is told to wait. A queue that is empty takes
    /// something in any case, or nobody would say when there is room again.
    #[inline]
    pub fn send_limit(&self, settings: &Settings, held: &Held) -> usize {
        let flying = QUEUE_WINDOWS * self.cubic.window().min(self.send.window_max) as usize;
        let wanted = flying.min(settings.send_queue_max).max(settings.send_max);
        let free = settings.queued_max.saturating_sub(held.queued);
        wanted.min(free / 2).max(1)
    }
}
