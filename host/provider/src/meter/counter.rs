//! What is counted at a network device.

/// Bytes that passed a network device, as whole frames without their check sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// From the machine.
    pub sent: u64,
    /// To the machine.
    pub received: u64,
}

impl Bytes {
    /// What was added since `before`; nothing if less was counted then, as after a device was made anew.
    #[must_use]
    pub fn since(self, before: Bytes) -> Bytes {
        Bytes {
            sent: self.sent.saturating_sub(before.sent),
            received: self.received.saturating_sub(before.received),
        }
    }
}

/// What counts the bytes that pass a network device.
pub trait Counter: Send {
    /// All that passed so far; the last count if the device is gone.
    fn read(&mut self) -> Bytes;
}

/// The counter of a machine without a network.
#[derive(Debug)]
pub(super) struct Nothing;

impl Counter for Nothing {
    fn read(&mut self) -> Bytes {
        Bytes::default()
    }
}
