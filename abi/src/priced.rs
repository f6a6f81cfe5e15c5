//! What applications and `priced`, the application that knows the prices, say over their channel.
//!
//! Prices themselves stand on the bulletin board ([`crate::board::Prices`]): an [`Announcement`] only says
//! that they have changed, so that nobody has to look all the time. Each is one message of [`crate::ipc`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Name of the application that publishes prices.
pub const NAME: &str = "priced";

/// To an application: prices on the board have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Announcement {
    /// [`Announcement::KIND`].
    pub kind: u64,
    /// The provider's revision of the prices.
    pub revision: u64,
    /// Board time at which they were published, in nanoseconds.
    pub published_ns: u64,
}

impl Announcement {
    /// First word of an announcement.
    pub const KIND: u64 = 1;
}

/// From an application: what it served over a stretch of time, at which working point, and what it earned.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Report {
    /// [`Report::KIND`].
    pub kind: u64,
    /// End of the stretch, in nanoseconds of board time.
    pub at_ns: u64,
    /// Its length in nanoseconds. 0 if the working point changed, for prices did, before more was measured:
    /// then latencies and rates are those of the report before.
    pub window_ns: u64,
    /// Batching delay W in force at its end, in microseconds.
    pub batching_delay_us: u64,
    /// 1 if the application polls its device, 0 if it sleeps until an interrupt.
    pub polls: u64,
    /// Requests answered.
    pub requests: u64,
    /// Bytes that left the machine, with their headers.
    pub sent_bytes: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// Mean latency in nanoseconds; 0 if no request was answered.
    pub latency_mean_ns: u64,
    /// Its standard deviation.
    pub latency_jitter_ns: u64,
    /// Its 99th percentile.
    pub latency_p99_ns: u64,
    /// Revision of the prices reckoned with; 0 before there are any.
    pub price_revision: u64,
    /// Price of outgoing data, in dollars for a Gbit: the bits of an IEEE 754 double.
    pub price_network_out: u64,
    /// Dollars per second that users paid: the bits of an IEEE 754 double.
    pub revenue_per_second: u64,
    /// Dollars per second that are owed to the provider: the bits of an IEEE 754 double.
    pub cost_per_second: u64,
    /// Dollars earned since the application began: the bits of an IEEE 754 double.
    pub profit: u64,
}

impl Report {
    /// First word of a report.
    pub const KIND: u64 = 2;
}

/// From an application that tells activities apart: what one of them has consumed since the application
/// began. One message for each, in the order of their numbers, about once a second.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ActivityReport {
    /// [`ActivityReport::KIND`].
    pub kind: u64,
    /// When it was so, in nanoseconds of board time; the same for all of them.
    pub at_ns: u64,
    /// Which of them it is, from 0.
    pub number: u32,
    /// How many there are, at most [`ActivityReport::COUNT_MAX`].
    pub count: u32,
    /// Its name in UTF-8, with zeros behind; cut, if it is longer.
    pub name: [u8; 64],
    /// Nanoseconds of cores.
    pub core_ns: u64,
    /// Requests answered.
    pub requests: u64,
    /// How long they took, in nanoseconds all together.
    pub latency_ns: u64,
    /// Bytes of frames that came.
    pub received_bytes: u64,
    /// Bytes of frames that left.
    pub sent_bytes: u64,
    /// Clients that are connected now.
    pub connections: u64,
    /// Bytes of memory that they hold now; 0 where nobody's is bounded.
    pub memory_bytes: u64,
    /// Dollars that its consumption has cost: the bits of an IEEE 754 double.
    pub cost: u64,
    /// Dollars that it has brought, less that: the bits of an IEEE 754 double.
    pub profit: u64,
}

impl ActivityReport {
    /// First word of such a message.
    pub const KIND: u64 = 3;
    /// Most activities that an application tells apart in such messages.
    pub const COUNT_MAX: u32 = 32;
}

/// Whether what is served pays. It may follow a [`Report`] in the same message; a report without it says
/// nothing of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Solvency {
    /// One of the constants.
    pub state: u64,
    /// The latency that is promised, in nanoseconds; 0 if the contract has no such objective.
    pub objective_ns: u64,
    /// The 99th percentile of latency at the shortest batching delay that was tried; 0 if none was.
    pub soonest_p99_ns: u64,
    /// That batching delay, in microseconds.
    pub soonest_delay_us: u64,
    /// Most clients that each core admits; [`Solvency::NO_LIMIT`] if none is refused.
    pub clients_max: u64,
}

impl Solvency {
    /// There is no contract: only costs are reckoned.
    pub const NO_CONTRACT: u64 = 0;
    /// Nothing is amiss.
    pub const PAYS: u64 = 1;
    /// Each request costs more than it brings.
    pub const COSTS_MORE: u64 = 2;
    /// Requests would pay if they were answered in time, which they are not.
    pub const LATE: u64 = 3;
    /// Requests pay, but less than the cores and memory cost that are held.
    pub const HELD_COSTS_MORE: u64 = 4;
    /// Of [`Solvency::clients_max`].
    pub const NO_LIMIT: u64 = u64::MAX;
}
