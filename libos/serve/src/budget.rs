//! How much of memory a service lets its clients take.

/// An account of bytes that are kept for clients. The heap cannot refuse a client: who asks it for more than
/// there is ends the program. So a service takes from an account first what it is about to keep, refuses the
/// request if that fails, and gives back what it lets go.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: usize,
    room: fn() -> bool,
}

impl Budget {
    /// Of `limit` bytes, as long as `room` says that the program has memory beside them.
    pub fn new(limit: usize, room: fn() -> bool) -> Budget {
        Budget { limit, used: 0, room }
    }

    /// Takes `bytes`, all or none; whether there were as many.
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> bool {
        let is_there = bytes <= self.limit - self.used && (self.room)();
        if is_there {
            self.used += bytes;
        }
        is_there
    }

    /// Gives `bytes` back that were taken.
    ///
    /// # Panics
    /// If so many were not.
    pub fn give(&mut self, bytes: usize) {
        self.used = self.used.checked_sub(bytes).expect("bytes are given back that were taken");
    }

    /// Bytes taken.
    pub fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_taken_in_part() {
        let mut budget = Budget::new(10, || true);
        assert!(budget.take(6) && !budget.take(5) && !budget.take(usize::MAX));
        assert_eq!(budget.used(), 6);
        budget.give(2);
        assert!(budget.take(6) && !budget.take(1) && budget.take(0));
        assert!(!Budget::new(10, || false).take(1), "others have used the memory up");
    }

    #[test]
    #[should_panic(expected = "that were taken")]
    fn nobody_gives_what_he_has_not() {
        Budget::new(10, || true).give(1);
    }
}
