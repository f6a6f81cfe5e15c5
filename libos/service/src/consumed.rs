//! What was consumed for an activity.

use alloc::string::String;

/// What an activity has consumed since the server began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// Its name.
    pub name: String,
    /// Nanoseconds of cores.
    pub core_ns: u64,
    /// Requests answered.
    pub requests: u64,
    /// How long they took as clients see it, in nanoseconds all together.
    pub latency_ns: u64,
    /// Bytes of frames that came.
    pub received_bytes: u64,
    /// Bytes of frames that left.
    pub sent_bytes: u64,
    /// Clients that are connected now.
    pub connections: u64,
    /// Bytes of memory that they hold now; 0 where nobody's is bounded.
    pub memory_bytes: u64,
    /// Billionths of a dollar that it has cost.
    pub cost_nanodollars: u64,
    /// Billionths of a dollar that it has brought; negative where users are compensated.
    pub revenue_nanodollars: i64,
}

impl Consumed {
    /// Adds what another has consumed; the name stays.
    pub fn add(&mut self, other: &Consumed) {
        self.core_ns += other.core_ns;
        self.requests += other.requests;
        self.latency_ns += other.latency_ns;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.connections += other.connections;
        self.memory_bytes += other.memory_bytes;
        self.cost_nanodollars += other.cost_nanodollars;
        self.revenue_nanodollars += other.revenue_nanodollars;
    }
}
