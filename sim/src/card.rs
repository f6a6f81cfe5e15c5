//! A host's device, as the host's loop and the world see it, whatever it is inside.

/// One queue pair of a device. Times are those of its host's clock, in nanoseconds.
pub trait Card {
    /// It is `now_ns`.
    fn set_time(&mut self, now_ns: u64);
    /// A frame comes in from the network at `at_ns`; `false` if it is lost for want of room.
    fn deliver(&mut self, frame: Vec<u8>, at_ns: u64) -> bool;
    /// Does what the device does by itself, now that its driver may have told it of something.
    fn work(&mut self) {}
    /// Its core comes back, which nobody has expected to look at it meanwhile.
    fn come_back(&mut self) {}
    /// When it does something by itself next.
    fn due_ns(&self) -> Option<u64> {
        None
    }
    /// Whether it has interrupted its core since it was asked last.
    fn take_interrupt(&mut self) -> bool;
    /// Whether frames wait for the stack, as far as that is known.
    fn has_received(&self) -> bool;
    /// Takes what goes out to the network.
    fn take_sent(&mut self) -> Vec<Vec<u8>>;
    /// Packets and bytes that went to and from the stack since it was asked last.
    fn take_work(&mut self) -> (u64, u64);
    /// What happened.
    fn tally(&self) -> Tally;
    /// Frames that each of its rings can hold.
    fn ring(&self) -> usize;
    /// It breaks, until `until_ns` or until its driver has mended it. Returns whether the driver has to find
    /// that out by itself, by an interrupt at most.
    fn break_down(&mut self, until_ns: u64) -> bool;
    /// Pieces of its memory that somebody else than the device and its driver holds.
    fn memory_live(&self) -> usize;
}

/// What happened at a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Kicks.
    pub kicks: u64,
    /// The host's time at the last of them.
    pub kicked_ns: u64,
    /// Packets that the stack handed over.
    pub packets: u64,
    /// The longest that a packet waited for its kick, in nanoseconds.
    pub held_max_ns: u64,
    /// The longest that a received frame lay in the ring, in nanoseconds.
    pub lay_max_ns: u64,
    /// Frames that found the receive ring full, no memory, or the device broken.
    pub overruns: u64,
    /// How often it broke.
    pub resets: u64,
}
