//! Wakers that nobody waits by any more.
//!
//! Whoever waits leaves a waker with what it waits for, and mostly that is woken before long. One whose owner
//! has gone meanwhile, a thread that ended or an interest that was taken back, stays, and cannot be told from
//! others. So whoever had such wakers says that it is gone, and a list that has no more in it than owners
//! have gone since wakes all of them: those who still wait come back.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many owners of wakers have gone.
static RETIRED: AtomicU64 = AtomicU64::new(0);

/// A list is looked through when so many may be gone, at least.
const SWEEP_MIN: u64 = 64;

/// Somebody has gone whose wakers may be in lists.
pub fn retire() {
    RETIRED.fetch_add(1, Relaxed);
}

/// When a list of wakers is to be emptied, so that those who are gone are not in it for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sweep(u64);

impl Sweep {
    /// Whether a list that has so many is to wake all of them, and forget them, before one comes in. It takes
    /// as many steps as owners have gone since it was empty, or was emptied so.
    #[inline]
    pub fn is_due(&mut self, len: usize) -> bool {
        let retired = RETIRED.load(Relaxed);
        let is_due = len > 0 && retired.wrapping_sub(self.0) >= SWEEP_MIN.max(len as u64);
        if len == 0 || is_due {
            self.0 = retired;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_swept_when_as_many_have_gone_as_are_in_it() {
        // Other tests of this process retire nobody.
        let mut sweep = Sweep::default();
        let mut len = 0;
        let mut longest = 0;
        for round in 0..10_000 {
            if sweep.is_due(len) {
                len = 0;
            }
            len += 1;
            longest = longest.max(len);
            retire();
            assert!(len as u64 <= SWEEP_MIN + 1, "round {round}");
        }
        assert!(longest >= SWEEP_MIN as usize / 2, "it is not swept each time");
        let mut sweep = Sweep::default();
        assert!(!sweep.is_due(0), "as it begins nobody is gone");
        assert!((1..10_000).all(|len| !sweep.is_due(len)), "nobody has gone");
    }
}
