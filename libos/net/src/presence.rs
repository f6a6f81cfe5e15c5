//! What the stacks of one host know of each other: whether any of them may have a flow, and until when
//! cookies of any of them may come back.
//!
//! A segment that a core has no flow for may be another core's, and then must go to it; but strangers can
//! send any number of segments that are nobody's. Each core counts the flows that it has, and those on
//! their way from it to another, at a place that their keyed hash chooses. Where nobody is counted, nobody
//! need be asked.

use crate::time::Instant;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use core::time::Duration;

/// Bits of the hash that choose a place. Of the segments that are nobody's a part goes round all the same: as
/// many in 65,536 as there are flows.
const BITS: u32 = 16;

/// What the stacks of one host share. They have the same keys ([`crate::Config::secret`]).
#[derive(Debug)]
pub struct Presence {
    /// Flows at each place. A host has no 65,536 that fall to one: they would be 2^32 in all.
    flows: Box<[AtomicU16]>,
    /// In nanoseconds.
    cookies_until: AtomicU64,
}

/// How late others may hear that cookies are given out for longer.
const GRAIN: Duration = Duration::from_secs(1);

impl Presence {
    /// No stack has a flow.
    pub fn new() -> Arc<Presence> {
        let flows = (0..1 << BITS).map(|_| AtomicU16::new(0)).collect();
        Arc::new(Presence { flows, cookies_until: AtomicU64::new(0) })
    }

    fn place(&self, hash: u64) -> &AtomicU16 {
        &self.flows[(hash >> (u64::BITS - BITS)) as usize]
    }

    /// A stack has one flow more.
    pub(crate) fn add(&self, hash: u64) {
        self.place(hash).fetch_add(1, Ordering::AcqRel);
    }

    /// A stack has one flow less.
    pub(crate) fn remove(&self, hash: u64) {
        self.place(hash).fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether any stack may have a flow; if not, none has.
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        self.place(hash).load(Ordering::Acquire) > 0
    }

    /// Until when a cookie may come back.
    pub(crate) fn cookies_until(&self) -> Instant {
        Instant::from_nanos(self.cookies_until.load(Ordering::Acquire))
    }

    /// Cookies that a stack gives out may come back until then.
    pub(crate) fn expect_cookies(&self, until: Instant) {
        // Not with every one of a flood.
        if until > self.cookies_until() {
            self.cookies_until.fetch_max((until + GRAIN).nanos(), Ordering::AcqRel);
        }
    }
}

/// A flow on its way from one stack to another: it is counted until this is gone.
#[derive(Debug)]
pub(crate) struct Transit {
    presence: Arc<Presence>,
    hash: u64,
}

impl Transit {
    pub fn new(presence: Arc<Presence>, hash: u64) -> Transit {
        presence.add(hash);
        Transit { presence, hash }
    }
}

impl Drop for Transit {
    fn drop(&mut self) {
        self.presence.remove(self.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_there_until_its_last_trace_is_gone() {
        let presence = Presence::new();
        let (hash, other) = (0xabcd << 48, 0xabce << 48);
        presence.add(hash);
        assert!(presence.may_have(hash | 1) && !presence.may_have(other));
        let transit = Transit::new(presence.clone(), hash);
        presence.remove(hash);
        assert!(presence.may_have(hash), "it is on its way");
        drop(transit);
        assert!(!presence.may_have(hash));
    }

    #[test]
    fn all_hear_of_cookies_in_time() {
        let presence = Presence::new();
        let at = |secs: u64| Instant::from_micros(secs * 1_000_000);
        for secs in [128, 129, 131] {
            presence.expect_cookies(at(secs));
            assert!(presence.cookies_until() >= at(secs) && presence.cookies_until() <= at(secs + 1));
        }
    }
}
