//! The sizes of messages that both sides walk through.

/// Sizes in bytes: roughly exponential, each base size with its neighbours on both sides.
///
/// Follows the main loop of NetPIPE's `netpipe.c`, whose variables are `len`, `inc`, `nq` and `pert`.
#[derive(Clone, Debug)]
pub struct Sizes {
    base: u64,
    step: u64,
    round: u32,
    last: u64,
    perturbation: u64,
    /// Which neighbour of the base comes next: 0 is the lowest.
    neighbour: u8,
}

impl Sizes {
    /// The sizes from `first` to `last`, and `perturbation` bytes around them (0: none).
    pub fn new(first: u32, last: u32, perturbation: u32) -> Sizes {
        let first = u64::from(first.max(1));
        let (step, round) = if first > 1 { (first / 2, 1) } else { (1, 0) };
        let (last, perturbation) = (u64::from(last), u64::from(perturbation));
        Sizes { base: first, step, round, last, perturbation, neighbour: 0 }
    }

    /// Whether the base is far enough from the next to have neighbours.
    fn has_neighbours(&self) -> bool {
        self.perturbation > 0 && self.step > self.perturbation + 1
    }

    fn next_base(&mut self) {
        self.base += self.step;
        self.round += 1;
        self.neighbour = 0;
        if self.round > 2 && self.round % 2 == 1 {
            self.step *= 2;
        }
    }
}

impl Iterator for Sizes {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.base > self.last {
            return None;
        }
        let size = match (self.has_neighbours(), self.neighbour) {
            (false, _) | (true, 1) => self.base,
            (true, 0) => self.base - self.perturbation,
            (true, _) => self.base + self.perturbation,
        };
        self.neighbour += 1;
        if !self.has_neighbours() || self.neighbour == 3 {
            self.next_base();
        }
        Some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_those_of_a_default_run() {
        let first: Vec<u64> = Sizes::new(1, 100, 3).collect();
        let expected =
            [1, 2, 3, 4, 6, 8, 12, 13, 16, 19, 21, 24, 27, 29, 32, 35, 45, 48, 51, 61, 64, 67, 93, 96, 99];
        assert_eq!(first, expected);
        assert_eq!(Sizes::new(1, 10_000_000, 3).count(), 124);
        assert_eq!(Sizes::new(1, 10_000_000, 3).last(), Some(8_388_611));
    }

    #[test]
    fn sizes_end_whatever_the_bounds() {
        assert_eq!(Sizes::new(u32::MAX, u32::MAX, u32::MAX).collect::<Vec<_>>(), [u64::from(u32::MAX)]);
        assert_eq!(Sizes::new(0, 0, 0).count(), 0);
        assert_eq!(Sizes::new(5, 20, 0).collect::<Vec<_>>(), [5, 7, 9, 13, 17]);
    }
}
