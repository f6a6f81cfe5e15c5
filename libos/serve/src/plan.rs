//! Which of a server's cores serve, and whose flows are on their way: one word that all cores read.
//!
//! A change is a row of plans. Each is published by the first core once every core has carried out the one
//! before, so that no two cores are ever more than one step apart:
//!
//! ```text
//! fewer:  ring all, active few, moving  ->  ring few                  ->  the others leave
//! more:   ring all, active few          ->  active all, moving        ->  at rest
//! ```
//! A core beyond the active ones gives away every flow it has; when there are more active ones, each of the
//! old gives a fair part to the new. A frame goes round the *ring*: the cores that may have its flow.

/// A plan in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// It differs from that of every plan before.
    pub version: u32,
    /// So many cores, the first ones, may have flows.
    pub ring: u16,
    /// So many cores, the first ones, keep flows and begin new ones.
    pub active: u16,
    /// Whether flows may be on their way from core to core.
    pub is_moving: bool,
}

/// Where in the word the parts are; the version is below.
const MOVING_AT: u32 = 31;
const RING_AT: u32 = 32;
const ACTIVE_AT: u32 = 48;

/// No core has carried out a plan of this version: it is said by those that have left.
pub(crate) const AWAY: u32 = u32::MAX;

impl Plan {
    /// That with which so many cores begin.
    pub fn of(cores: usize) -> Plan {
        let cores = u16::try_from(cores).unwrap_or(u16::MAX);
        Plan { version: 0, ring: cores, active: cores, is_moving: false }
    }

    /// The plan of a word.
    pub fn from_word(word: u64) -> Plan {
        Plan {
            version: word as u32 & ((1 << MOVING_AT) - 1),
            ring: (word >> RING_AT) as u16,
            active: (word >> ACTIVE_AT) as u16,
            is_moving: word >> MOVING_AT & 1 == 1,
        }
    }

    /// As a word.
    pub fn word(self) -> u64 {
        u64::from(self.version)
            | u64::from(self.is_moving) << MOVING_AT
            | u64::from(self.ring) << RING_AT
            | u64::from(self.active) << ACTIVE_AT
    }

    /// The one after it.
    pub fn next(self, ring: usize, active: usize, is_moving: bool) -> Plan {
        let version = (self.version + 1) & ((1 << MOVING_AT) - 1);
        Plan { version, ring: ring as u16, active: active as u16, is_moving }
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
    pub fn after(&self, index: usize) -> usize {
        if index + 1 < usize::from(self.ring) { index + 1 } else { 0 }
    }

    /// How often a frame is passed on before it is nobody's, and is back where it came in. A flow that
    /// moves may be missed once: the frame came to its new core before it and to the old one after it. In
    /// the second round its new core has it, since a flow is in the queue of its new core before any frame
    /// that its old core passes on.
    pub fn hops(&self) -> usize {
        let rounds = if self.is_moving { 2 } else { 1 };
        rounds * usize::from(self.ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_fits_into_a_word() {
        let first = Plan::of(3);
        let last = Plan { version: (1 << MOVING_AT) - 1, ..first };
        for plan in [first, last, last.next(u16::MAX.into(), 1, true), first.next(4, 4, false)] {
            assert_eq!(Plan::from_word(plan.word()), plan);
            assert_ne!(plan.version, AWAY);
        }
        assert_eq!(last.next(3, 3, false).version, 0);
    }
}
