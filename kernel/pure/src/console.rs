//! How much an application may say on the console: writing is slow, and others wait for the lock meanwhile.

use crate::ids::AppId;
use crate::kernel::Kernel;
use crate::machine::{Level, Machine};

/// An application may say 64 KiB a second.
const NS_PER_BYTE: u64 = 1_000_000_000 / (64 << 10);
/// And in between so much more than that.
const BURST_NS: u64 = (256 << 10) * NS_PER_BYTE;

/// Bytes of a line of log, about.
const LINE_BYTES: u64 = 128;

/// A token bucket, kept as the time at which it would be full (GCRA, ITU-T I.371).
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    full_ns: u64,
    /// Bytes that it did not let pass, and that nobody was told of yet.
    dropped: u64,
}

impl Bucket {
    /// Whether what is worth so much time may pass now, where as much as `burst_ns` may at once.
    pub fn take(&mut self, now_ns: u64, worth_ns: u64, burst_ns: u64) -> bool {
        let full_ns = self.full_ns.max(now_ns) + worth_ns;
        let passes = full_ns - now_ns <= burst_ns;
        self.full_ns = if passes { full_ns } else { self.full_ns };
        passes
    }

    /// Whether so many bytes may be said now; if so, how many could not be before.
    pub fn say(&mut self, now_ns: u64, bytes: u64) -> Option<u64> {
        if !self.take(now_ns, bytes * NS_PER_BYTE, BURST_NS) {
            self.dropped += bytes;
            return None;
        }
        Some(core::mem::take(&mut self.dropped))
    }
}

impl<M: Machine> Kernel<'_, M> {
    /// Whether an application may say so much more; if so, how much it could not say before is told.
    pub(crate) fn may_say(&mut self, app: AppId, bytes: u64) -> bool {
        let passed = self.console[app].say(self.machine.now_ns(), bytes);
        if let Some(dropped @ 1..) = passed {
            let record = self.record(app);
            let name = crate::bundle::name(&record);
            self.machine.log(Level::Warn, format_args!("{name} says too much: {dropped} bytes are dropped"));
        }
        passed.is_some()
    }

    /// Whether an application may have others live and die now: lines tell of it that are not to be dropped.
    pub(crate) fn may_start(&mut self, app: AppId) -> bool {
        self.console[app].take(self.machine.now_ns(), LINE_BYTES * NS_PER_BYTE, BURST_NS)
    }

    /// Writes a line of log of which an application is the cause, as far as it may still say something.
    pub(crate) fn warn_of(&mut self, app: AppId, text: core::fmt::Arguments<'_>) {
        if self.may_say(app, LINE_BYTES) {
            self.machine.log(Level::Warn, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_so_much_a_second_and_what_is_dropped_is_told_once() {
        let (mut bucket, second) = (Bucket::default(), 1_000_000_000);
        assert_eq!([0; 4].map(|now| bucket.say(now, 64 << 10)), [Some(0); 4]);
        assert_eq!([0, 1000].map(|now| bucket.say(now, 4096)), [None; 2]);
        assert_eq!(bucket.say(second, 64 << 10), Some(8192));
        assert_eq!(bucket.say(second, 64 << 10), None);
        assert_eq!(bucket.say(3 * second, 64 << 10), Some(64 << 10));
        assert_eq!(bucket.say(3 * second, 64 << 10), Some(0));
    }
}
