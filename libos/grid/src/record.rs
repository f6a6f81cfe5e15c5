//! What serving consumed.

/// A resource consumption record: what a resource consumed to serve a client. Any number of them may tell of
/// one message, as the resource learns more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceRecord {
    /// Messages that were served.
    pub messages: u64,
    /// Nanoseconds of a core.
    pub core_ns: u64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Bytes that were transmitted for it.
    pub sent_bytes: u64,
    /// Nanoseconds of a device.
    pub device_ns: u64,
}

impl core::ops::AddAssign for ResourceRecord {
    fn add_assign(&mut self, other: ResourceRecord) {
        self.messages = self.messages.saturating_add(other.messages);
        self.core_ns = self.core_ns.saturating_add(other.core_ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.sent_bytes = self.sent_bytes.saturating_add(other.sent_bytes);
        self.device_ns = self.device_ns.saturating_add(other.device_ns);
    }
}

/// What of a record a scheduler shares out or limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedMetric {
    /// Messages.
    Messages,
    /// Nanoseconds of a core.
    #[default]
    CoreTime,
    /// Bytes.
    Bytes,
    /// Bytes that were transmitted: what a client gets of a line.
    SentBytes,
    /// Nanoseconds of a device.
    DeviceTime,
}

impl SharedMetric {
    /// How much of it a record tells of.
    #[inline]
    #[must_use]
    pub fn of(self, record: &ResourceRecord) -> u64 {
        match self {
            SharedMetric::Messages => record.messages,
            SharedMetric::CoreTime => record.core_ns,
            SharedMetric::Bytes => record.bytes,
            SharedMetric::SentBytes => record.sent_bytes,
            SharedMetric::DeviceTime => record.device_ns,
        }
    }
}
