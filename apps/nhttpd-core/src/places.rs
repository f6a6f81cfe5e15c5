//! How many connections there may be, on all cores of a server together.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A number of places that all who have a copy share.
#[derive(Clone, Debug)]
pub struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

impl Places {
    /// So many places, all of them free.
    pub fn new(most: usize) -> Places {
        Places { taken: Arc::default(), most }
    }

    /// Takes a place; whether there was one.
    #[must_use]
    pub fn take(&self) -> bool {
        let more = |taken: usize| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Gives one back.
    pub fn give_back(&self) {
        let before = self.taken.fetch_sub(1, Relaxed);
        assert!(before > 0, "a place is given back that nobody took");
    }
}

impl Default for Places {
    /// As many as anybody wants.
    fn default() -> Places {
        Places::new(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_their_places() {
        let (first, second) = (Places::new(2), Places::new(2));
        let other = first.clone();
        assert!(first.take() && other.take() && second.take());
        assert!(!first.take() && !other.take());
        other.give_back();
        assert!(first.take() && !other.take());
    }
}
