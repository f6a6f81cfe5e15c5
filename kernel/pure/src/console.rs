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
    /// Whether so many bytes may pass now; if so, how many did not before.
    pub fn take(&mut self, now_ns: u64, bytes: u64) -> Option<u64> {
        let full_ns = self.full_ns.max(now_ns) + bytes * NS_PER_BYTE;
        if full_ns - now_ns > BURST_NS {
            self.dropped += bytes;
            return None;
        }
        self.full_ns = full_ns;
        Some(core::mem::take(&mut self.dropped))
    }
}

impl<M: Machine> Kernel<'_, M> {
    /// Whether an application may say so much more; if so, how much it could not say before is told.
    pub(crate) fn may_say(&mut self, app: AppId, bytes: u64) -> bool {
        let passed = self.console[app].take(self.machine.now_ns(), bytes);
        if let Some(dropped @ 1..) = passed {
            let record = self.record(app);
            let name = crate::bundle::name(&record);
            self.machine.log(Level::Warn, format_args!("{name} says too much: {dropped} bytes are dropped"));
        }
        passed.is_some()
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
        assert_eq!([0; 4].map(|now| bucket.take(now, 64 << 10)), [Some(0); 4]);
        assert_eq!([0, 1000].map(|now| bucket.take(now, 4096)), [None; 2]);
        assert_eq!(bucket.take(second, 64 << 10), Some(8192));
        assert_eq!(bucket.take(second, 64 << 10), None);
        assert_eq!(bucket.take(3 * second, 64 << 10), Some(64 << 10));
        assert_eq!(bucket.take(3 * second, 64 << 10), Some(0));
    }
}
