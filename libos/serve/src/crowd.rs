//! Gives the buffers back that a crowd of clients needed, when it has gone.
//!
//! Looking for buffers that nobody uses takes as long as there are many, so it is not done all the time: only
//! after most clients have left, and stayed away for a while.

use crate::reserve::KEPT_BYTES;
use nom_port::buffer::Buffers;

/// Fewer clients than that may come and go: what they need is kept.
const CROWD: u32 = 64;

/// How long most of them must have been away: who closes a connection often opens the next one.
const AWAY_NS: u64 = 1_000_000_000;

/// Between two parts of what is given back: others are served meanwhile.
const PAUSE_NS: u64 = 1_000_000;

/// Watches how many clients there are.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// The most there were at a time since something was given back.
    most: u32,
    /// When to give back, if most of them have gone.
    due_ns: Option<u64>,
}

impl Crowd {
    /// Looks at how many clients are there, and gives back a part of `memory` if it is time to. Returns when
    /// to look again though nothing happens.
    #[inline]
    pub fn look(&mut self, now_ns: u64, clients: u32, memory: &mut impl Buffers) -> Option<u64> {
        self.most = self.most.max(clients);
        if self.most < CROWD || clients > self.most / 2 {
            self.due_ns = None;
            return None;
        }
        let due_ns = *self.due_ns.get_or_insert(now_ns + AWAY_NS);
        if now_ns >= due_ns {
            self.give_back(now_ns, clients, memory);
        }
        self.due_ns
    }

    #[cold]
    fn give_back(&mut self, now_ns: u64, clients: u32, memory: &mut impl Buffers) {
        if memory.trim(KEPT_BYTES).left_bytes > 0 {
            self.due_ns = Some(now_ns + PAUSE_NS);
        } else {
            *self = Crowd { most: clients, due_ns: None };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_port::buffer::{Slice, Trimmed};
    use nom_wire::Memory;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Of which so many parts are in nobody's use.
    struct Pool(usize);

    impl Buffers for Pool {
        type Buffer = Memory;

        fn buffer(&mut self, _: &[u8]) -> Option<Slice<Memory>> {
            None
        }

        fn trim(&mut self, keep_bytes: usize) -> Trimmed {
            assert_eq!(keep_bytes, KEPT_BYTES);
            self.0 = self.0.checked_sub(1).expect("nobody asks when there is nothing");
            Trimmed { released_bytes: 1, left_bytes: self.0, sparse_bytes: 0 }
        }
    }

    #[test]
    fn what_a_crowd_needed_goes_back_in_parts_a_while_after_it() {
        let (mut crowd, mut pool) = (Crowd::default(), Pool(3));
        assert_eq!(crowd.look(0, 1000, &mut pool), None);
        assert_eq!(crowd.look(1, 501, &mut pool), None, "many are there");
        assert_eq!(crowd.look(2, 500, &mut pool), Some(2 + AWAY_NS));
        assert_eq!((crowd.look(3, 400, &mut pool), pool.0), (Some(2 + AWAY_NS), 3));
        let mut now_ns = 2 + AWAY_NS;
        for left in [2, 1] {
            let next_ns = crowd.look(now_ns, 10, &mut pool);
            assert_eq!((next_ns, pool.0), (Some(now_ns + PAUSE_NS), left));
            now_ns += PAUSE_NS;
        }
        assert_eq!((crowd.look(now_ns, 10, &mut pool), pool.0), (None, 0));
        assert_eq!(crowd.look(now_ns + 10 * SECOND_NS, 0, &mut pool), None, "and once");
    }

    #[test]
    fn nothing_goes_back_while_clients_come_again_or_are_few() {
        let (mut crowd, mut pool) = (Crowd::default(), Pool(0));
        for second in 0..10 {
            let (early_ns, late_ns) = (second * SECOND_NS, second * SECOND_NS + SECOND_NS / 2);
            assert_eq!(crowd.look(early_ns, 1000, &mut pool), None);
            assert_eq!(crowd.look(late_ns, 0, &mut pool), Some(late_ns + AWAY_NS));
        }
        let mut crowd = Crowd::default();
        for second in 0..10 {
            assert_eq!(crowd.look(second * SECOND_NS, CROWD - 1, &mut pool), None);
            assert_eq!(crowd.look((second + 5) * SECOND_NS, 0, &mut pool), None);
        }
    }
}
