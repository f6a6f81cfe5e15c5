//! Sequence lock: one writer at a time, any number of readers that never wait for it in the kernel.

use core::sync::atomic::{AtomicU32, Ordering, fence};

/// Counter that is odd while the section it guards is being written.
///
/// The guarded fields are themselves atomics accessed with relaxed ordering, so a torn read is a stale
/// value that [`Sequence::read`] throws away, never undefined behaviour.
#[derive(Debug, Default, zerocopy::FromZeros)]
#[repr(transparent)]
pub struct Sequence(AtomicU32);

impl Sequence {
    /// A section that nobody is writing.
    pub const fn new() -> Self {
        Sequence(AtomicU32::new(0))
    }

    /// Runs `write` while readers are told to try again. Writers must exclude each other by other means.
    pub fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        let start = self.0.load(Ordering::Relaxed);
        self.0.store(start.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        let result = write();
        self.0.store(start.wrapping_add(2), Ordering::Release);
        result
    }

    /// Runs `read` until it saw no write in progress, and returns what it read.
    pub fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        loop {
            if let Some(value) = self.try_read(&mut read) {
                return value;
            }
            core::hint::spin_loop();
        }
    }

    /// One attempt of [`Sequence::read`]; `None` if a write interfered.
    pub fn try_read<R>(&self, mut read: impl FnMut() -> R) -> Option<R> {
        let before = self.0.load(Ordering::Acquire);
        if before & 1 != 0 {
            return None;
        }
        let value = read();
        fence(Ordering::Acquire);
        (self.0.load(Ordering::Relaxed) == before).then_some(value)
    }

    /// Number of completed writes.
    pub fn generation(&self) -> u32 {
        self.0.load(Ordering::Acquire) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;

    #[test]
    fn a_reader_never_sees_half_a_write() {
        extern crate std;
        let (sequence, a, b) = (Sequence::new(), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 1..=2_000 {
                    sequence.write(|| {
                        a.store(value, Ordering::Relaxed);
                        b.store(value * 3, Ordering::Relaxed);
                    });
                }
            });
            loop {
                let (x, y) = sequence.read(|| (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed)));
                assert_eq!(x * 3, y);
                if x == 2_000 {
                    break;
                }
            }
        });
        assert_eq!(sequence.generation(), 2_000);
    }

    #[test]
    fn a_write_in_progress_refuses_readers() {
        let sequence = Sequence::new();
        sequence.write(|| assert_eq!(sequence.try_read(|| 1), None));
        assert_eq!(sequence.try_read(|| 1), Some(1));
    }
}
