//! How long to wait before the next try.

use fastrand::Rng;

/// The first wait.
const FIRST_NS: u64 = 200_000_000;
/// The longest.
const LONGEST_NS: u64 = 8_000_000_000;

/// Waits that double up to a limit, each shortened by chance, so that the machines of a provider that comes
/// back do not all ask at once.
#[derive(Debug)]
pub struct Backoff {
    wait_ns: u64,
    chance: Rng,
}

impl Backoff {
    pub fn new(seed: u64) -> Backoff {
        Backoff { wait_ns: FIRST_NS, chance: Rng::with_seed(seed) }
    }

    /// The next wait, from half of the full one on.
    pub fn next_ns(&mut self) -> u64 {
        let full_ns = self.wait_ns;
        self.wait_ns = (full_ns * 2).min(LONGEST_NS);
        self.chance.u64(full_ns / 2..=full_ns)
    }

    /// All is well again.
    pub fn reset(&mut self) {
        self.wait_ns = FIRST_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_differ_by_machine() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            core::array::from_fn::<u64, 10, _>(|_| backoff.next_ns())
        };
        let mut full_ns = FIRST_NS;
        for wait_ns in waits(1) {
            assert!((full_ns / 2..=full_ns).contains(&wait_ns), "{wait_ns} of {full_ns}");
            full_ns = (2 * full_ns).min(LONGEST_NS);
        }
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
        let mut backoff = Backoff::new(3);
        assert!((0..9).map(|_| backoff.next_ns()).max() > Some(FIRST_NS));
        backoff.reset();
        assert!(backoff.next_ns() <= FIRST_NS);
    }
}
