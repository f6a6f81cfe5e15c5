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

    /// Runs `write` while readers are told to try again. Writers must exclude each other by other means. A
    /// write that its writer did not live to complete is completed by the next.
    pub fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        let odd = self.0.load(Ordering::Relaxed) | 1;
        self.0.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        let result = write();
        self.0.store(odd.wrapping_add(1), Ordering::Release);
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

    /// At most `attempts` attempts of [`Sequence::read`], for a writer who may never come to an end; `None`
    /// if a write interfered with each.
    pub fn read_within<R>(&self, attempts: u32, mut read: impl FnMut() -> R) -> Option<R> {
        (0..attempts).find_map(|_| {
            let value = self.try_read(&mut read);
            if value.is_none() {
                core::hint::spin_loop();
            }
            value
        })
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

    #[test]
    fn a_reader_gives_up_on_a_write_that_does_not_end_and_the_next_one_completes_it() {
        let sequence = Sequence(AtomicU32::new(7));
        assert_eq!(sequence.read_within(3, || 1), None);
        sequence.write(|| ());
        assert_eq!(sequence.read_within(3, || 1), Some(1));
        assert_eq!(sequence.generation(), 4);
    }
}
