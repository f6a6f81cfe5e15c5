//! Which core's queue a message goes to, if several could serve it.
//!
//! Where a message comes from, what it is about and whom it is for make its routing tag. A scheduler grants
//! each tag a core for a time ([`RoutingTags::load_share`], the omni-kernel's `load_share`): that serves all
//! messages of the tag from the same caches, and shares load anew when the time is over. While messages of a
//! tag wait somewhere, the next goes there too, whatever time it is: those of the same dependency label are
//! served in the order in which they were sent.

use crate::activity::Activity;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A hint: messages of the same label are best served by the same core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AffinityLabel(pub u64);

/// Messages of the same label, of one sender and activity, are served in the order in which they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DependencyLabel(pub u64);

/// What routes a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoutingTag {
    /// The resource that it comes from.
    pub source: u32,
    /// What it is about.
    pub affinity: AffinityLabel,
    /// Messages that must not overtake each other.
    pub dependency: DependencyLabel,
    /// Whom it is for.
    pub activity: Activity,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    core: usize,
    until_ns: u64,
    outstanding: u32,
}

/// The cores that tags were granted.
#[derive(Debug)]
pub struct RoutingTags {
    granted: BTreeMap<RoutingTag, Granted>,
    /// Tags by the core that they are granted.
    loads: Vec<u32>,
    ttl_ns: u64,
    most: usize,
    /// Messages of tags that there was no place to remember. They are on core 0.
    others: u32,
}

impl RoutingTags {
    /// For `cores` cores, at least one. A grant holds for `ttl_ns`; at most so many tags are remembered.
    #[must_use]
    pub fn new(cores: usize, ttl_ns: u64, most: usize) -> Self {
        RoutingTags {
            granted: BTreeMap::new(),
            loads: (0..cores.max(1)).map(|_| 0).collect(),
            ttl_ns,
            most,
            others: 0,
        }
    }

    /// The core that a message goes to which is sent now. Its sender says when it was served
    /// ([`RoutingTags::served`]).
    pub fn route(&mut self, tag: RoutingTag, now_ns: u64) -> usize {
        if let Some(granted) = self.granted.get_mut(&tag)
            && (granted.outstanding > 0 || now_ns < granted.until_ns)
        {
            granted.outstanding += 1;
            return granted.core;
        }
        self.forget(tag);
        if self.granted.len() >= self.most {
            self.expire(now_ns);
        }
        // Of a tag that nobody remembers something may wait there.
        if self.granted.len() >= self.most || self.others > 0 {
            self.others += 1;
            return 0;
        }
        let (core, ttl_ns) = self.load_share();
        self.loads[core] += 1;
        let granted = Granted { core, until_ns: now_ns.saturating_add(ttl_ns), outstanding: 1 };
        self.granted.insert(tag, granted);
        core
    }

    /// The core with the fewest tags, and for how long.
    #[must_use]
    pub fn load_share(&self) -> (usize, u64) {
        let least = self.loads.iter().enumerate().min_by_key(|(_, load)| **load);
        (least.map_or(0, |(core, _)| core), self.ttl_ns)
    }

    /// A message that was routed is served, or dropped.
    pub fn served(&mut self, tag: RoutingTag) {
        let outstanding = match self.granted.get_mut(&tag) {
            Some(granted) => &mut granted.outstanding,
            None => &mut self.others,
        };
        *outstanding = outstanding.saturating_sub(1);
    }

    /// Forgets grants whose time is over and of which no message waits.
    pub fn expire(&mut self, now_ns: u64) {
        let loads = &mut self.loads;
        self.granted.retain(|_, granted| {
            let stays = granted.outstanding > 0 || now_ns < granted.until_ns;
            loads[granted.core] -= u32::from(!stays);
            stays
        });
    }

    fn forget(&mut self, tag: RoutingTag) {
        if let Some(granted) = self.granted.remove(&tag) {
            self.loads[granted.core] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tag(affinity: u64) -> RoutingTag {
        RoutingTag {
            source: 0,
            affinity: AffinityLabel(affinity),
            dependency: DependencyLabel(affinity),
            activity: Activity(3),
        }
    }

    #[test]
    fn a_grant_holds_for_its_time_and_is_then_shared_anew() {
        let mut tags = RoutingTags::new(2, 100, 16);
        let first = tags.route(tag(1), 0);
        tags.served(tag(1));
        assert_ne!(tags.route(tag(2), 10), first, "the other core has no tag");
        tags.served(tag(2));
        assert_eq!(tags.route(tag(1), 99), first);
        tags.served(tag(1));
        tags.route(tag(3), 99);
        tags.expire(300);
        assert_eq!(tags.load_share().0, 1, "tag 3 waits on the first core, and nothing on the second");
    }

    proptest! {
        /// Messages of a tag are never on two cores at once, though grants expire and places are short.
        #[test]
        fn messages_of_a_tag_are_never_on_two_cores_at_once(
            steps in proptest::collection::vec((0u64..6, 0u64..80, any::<bool>()), 1..200),
            most in 1usize..6,
        ) {
            let mut tags = RoutingTags::new(3, 100, most);
            let mut waiting: Vec<(u64, usize)> = Vec::new();
            let mut now_ns = 0;
            for (affinity, later_ns, serves) in steps {
                now_ns += later_ns;
                if serves && !waiting.is_empty() {
                    let (served, _) = waiting.remove(0);
                    tags.served(tag(served));
                    continue;
                }
                let core = tags.route(tag(affinity), now_ns);
                waiting.push((affinity, core));
                let mut cores: Vec<_> =
                    waiting.iter().filter(|(other, _)| *other == affinity).map(|(_, core)| *core).collect();
                cores.dedup();
                prop_assert_eq!(cores.len(), 1, "tag {} on cores {:?}", affinity, cores);
            }
        }
    }
}
