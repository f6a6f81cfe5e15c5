//! Which of a server's cores serve, and whose flows are on their way: one word that all cores read.

/// A numbered configuration of a server's cores, in one word.
///
/// A core beyond the active ones gives away every flow it has; when there are more active ones, each of the
/// old gives a fair part to the new. A frame goes round the *ring*: the cores that may have its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// It differs from that of every epoch before.
    pub number: u32,
    /// So many cores, the first ones, may have flows.
    pub ring: u16,
    /// So many cores, the first ones, keep flows and begin new ones.
    pub active: u16,
    /// Whether flows may be on their way from core to core.
    pub is_moving: bool,
}

/// Where in the word the parts are; the number is below.
const MOVING_AT: u32 = 31;
const RING_AT: u32 = 32;
const ACTIVE_AT: u32 = 48;

/// No epoch has this number: it is said by those that have left.
pub(crate) const AWAY: u32 = u32::MAX;

impl Epoch {
    /// That with which so many cores begin.
    pub(crate) fn of(cores: usize) -> Epoch {
        let cores = u16::try_from(cores).unwrap_or(u16::MAX);
        Epoch { number: 0, ring: cores, active: cores, is_moving: false }
    }

    /// The epoch of a word.
    pub(crate) fn from_word(word: u64) -> Epoch {
        Epoch {
            number: word as u32 & ((1 << MOVING_AT) - 1),
            ring: (word >> RING_AT) as u16,
            active: (word >> ACTIVE_AT) as u16,
            is_moving: word >> MOVING_AT & 1 == 1,
        }
    }

    /// As a word.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.number)
            | u64::from(self.is_moving) << MOVING_AT
            | u64::from(self.ring) << RING_AT
            | u64::from(self.active) << ACTIVE_AT
    }

    /// The one after it.
    pub(crate) fn next(self, ring: usize, active: usize, is_moving: bool) -> Epoch {
        let number = (self.number + 1) & ((1 << MOVING_AT) - 1);
        Epoch { number, ring: ring as u16, active: active as u16, is_moving }
    }

    /// Whether core `index` keeps flows.
    pub fn has(&self, index: usize) -> bool {
        index < usize::from(self.active)
    }

    /// The active core that stands for core `index`, or for number `index` of anything that is spread.
    pub fn active_for(&self, index: usize) -> usize {
        index % usize::from(self.active).max(1)
    }

    /// The core after `index` on the ring.
    pub(crate) fn after(&self, index: usize) -> usize {
        if index + 1 < usize::from(self.ring) { index + 1 } else { 0 }
    }

    /// How often a frame is passed on before it is nobody's, and is back where it came in. A flow that
    /// moves may be missed once: the frame came to its new core before it and to the old one after it. In
    /// the second round its new core has it, since a flow is in the queue of its new core before any frame
    /// that its old core passes on.
    pub(crate) fn hops(&self) -> usize {
        let rounds = if self.is_moving { 2 } else { 1 };
        rounds * usize::from(self.ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_fits_into_a_word() {
        let first = Epoch::of(3);
        let last = Epoch { number: (1 << MOVING_AT) - 1, ..first };
        for epoch in [first, last, last.next(u16::MAX.into(), 1, true), first.next(4, 4, false)] {
            assert_eq!(Epoch::from_word(epoch.word()), epoch);
            assert_ne!(epoch.number, AWAY);
        }
        assert_eq!(last.next(3, 3, false).number, 0);
    }
}
