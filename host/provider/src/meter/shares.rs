//! Whom of a machine's activities what it consumed is for, as the machine says itself.
//!
//! What is charged is measured outside the machine; its word only says how that is divided. An activity is
//! charged for no more than it was said to have consumed, and all together for no more than was measured: the
//! rest is the machine's. What is said comes a little later than what is measured, so what finds nothing left
//! to be a part of is charged with what is measured next.

use crate::name;
use nom_proto::prices::Resource;
use nom_proto::status::{Activity, Reported};
use std::collections::BTreeMap;

/// Most activities of a machine that have records of their own.
const ACTIVITIES_MAX: usize = 256;

/// What a machine says of one activity, counted from its application's begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name, with that of its application before it.
    pub name: String,
    /// When it was so, by the machine's clock.
    pub at_ns: u64,
    /// Nanoseconds of cores, bytes sent and received.
    pub consumed: [u64; 3],
    /// Bytes of memory that it holds.
    pub memory_bytes: u64,
}

/// Name of an activity in the ledger.
pub(crate) fn activity_name(application: &str, activity: &str) -> String {
    format!("{application}/{activity}")
}

impl Claim {
    fn of(application: &str, activity: &Activity) -> Claim {
        Claim {
            name: activity_name(application, &activity.name),
            at_ns: activity.at_ns,
            consumed: [activity.core_ns, activity.sent_bytes, activity.received_bytes],
            memory_bytes: activity.memory_bytes,
        }
    }
}

/// What the applications of a machine say of their activities.
pub fn claims(statuses: &[Reported]) -> Vec<Claim> {
    let of = |reported: &Reported| {
        let status = &reported.status;
        status.activities.iter().map(|own| Claim::of(&status.application, own)).collect::<Vec<_>>()
    };
    statuses.iter().flat_map(of).collect()
}

/// Of which resources [`Claim::consumed`] is.
const CLAIMED: [Resource; 3] = [Resource::Core, Resource::NetworkOut, Resource::NetworkIn];

#[derive(Debug, Default)]
struct Share {
    last: Option<Claim>,
    /// What it was said to have consumed and is not charged for, in the ledger's counts.
    owed: [u64; Resource::COUNT],
    /// Byte-nanoseconds that are no byte-second yet.
    byte_ns: u128,
}

impl Share {
    fn hear(&mut self, claim: Claim) {
        let same = self.last.take().filter(|last| last.at_ns <= claim.at_ns);
        for (index, resource) in CLAIMED.into_iter().enumerate() {
            // An application that began anew counts from 0.
            let before = same.as_ref().map_or(0, |last| last.consumed[index]);
            let more = claim.consumed[index].checked_sub(before).unwrap_or(claim.consumed[index]);
            self.owe(resource, more);
        }
        let time_ns = same.as_ref().map_or(0, |last| claim.at_ns - last.at_ns);
        self.byte_ns += u128::from(claim.memory_bytes) * u128::from(time_ns);
        let byte_seconds = self.byte_ns / 1_000_000_000;
        self.byte_ns %= 1_000_000_000;
        self.owe(Resource::Memory, u64::try_from(byte_seconds).unwrap_or(u64::MAX));
        self.last = Some(claim);
    }

    fn owe(&mut self, resource: Resource, more: u64) {
        let owed = &mut self.owed[resource as usize];
        *owed = owed.saturating_add(more);
    }
}

/// The activities of a machine.
#[derive(Debug, Default)]
pub struct Shares(BTreeMap<String, Share>);

impl Shares {
    /// The machine has said what its activities have consumed. What one of them had consumed when it was
    /// heard of for the first time is its, too. One under whose name there can be no record has no part, so
    /// that what it consumed is the machine's: the provider that was asked may be one that lets it pass.
    pub fn hear(&mut self, claims: Vec<Claim>) {
        for claim in claims.into_iter().filter(|claim| name::is_name(&claim.name)) {
            if self.0.len() < ACTIVITIES_MAX || self.0.contains_key(&claim.name) {
                self.0.entry(claim.name.clone()).or_default().hear(claim);
            }
        }
    }

    /// Divides what was consumed of a resource: each activity's part, and what is left for the machine.
    pub fn divide(&mut self, resource: Resource, quantity: u64) -> (Vec<(String, u64)>, u64) {
        let at = resource as usize;
        let mut owed: u128 = self.0.values().map(|share| u128::from(share.owed[at])).sum();
        let mut left = quantity;
        let mut parts = Vec::new();
        for (name, share) in &mut self.0 {
            let own = share.owed[at];
            // In proportion, if there is less than all were said to have consumed; the last takes what
            // rounding left.
            let part = match u128::from(left) >= owed {
                true => own,
                false => (u128::from(own) * u128::from(left) / owed) as u64,
            };
            owed -= u128::from(own);
            share.owed[at] -= part;
            left -= part;
            if part > 0 {
                parts.push((name.clone(), part));
            }
        }
        (parts, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(name: &str, at_ns: u64, consumed: [u64; 3], memory_bytes: u64) -> Claim {
        Claim { name: name.into(), at_ns, consumed, memory_bytes }
    }

    #[test]
    fn each_has_what_it_consumed_and_the_machine_the_rest() {
        let mut shares = Shares::default();
        shares.hear(vec![claim("m/gold", 1, [600, 10, 1], 0), claim("m/silver", 1, [300, 20, 2], 0)]);
        let parts = |parts: &[(&str, u64)]| {
            parts.iter().map(|(name, part)| ((*name).to_owned(), *part)).collect::<Vec<_>>()
        };
        assert_eq!(shares.divide(Resource::Core, 1000), (parts(&[("m/gold", 600), ("m/silver", 300)]), 100));
        assert_eq!(shares.divide(Resource::Core, 1000), (vec![], 1000), "nobody pays twice");
        // It was said sooner than it was measured: the rest comes next.
        assert_eq!(shares.divide(Resource::NetworkOut, 15), (parts(&[("m/gold", 5), ("m/silver", 10)]), 0));
        assert_eq!(shares.divide(Resource::NetworkOut, 40), (parts(&[("m/gold", 5), ("m/silver", 10)]), 25));
        // Two seconds of three bytes; and the application began anew.
        shares.hear(vec![claim("m/gold", 2_000_000_001, [50, 0, 0], 3)]);
        assert_eq!(shares.divide(Resource::Memory, 100), (parts(&[("m/gold", 6)]), 94));
        assert_eq!(shares.divide(Resource::Core, 100), (parts(&[("m/gold", 50)]), 50));
        assert_eq!(shares.divide(Resource::Energy, 7), (vec![], 7));
    }

    #[test]
    fn whose_name_no_record_may_have_has_no_part() {
        let mut shares = Shares::default();
        let long = "x".repeat(name::NAME_MAX);
        let names = ["m/\n", &format!("m/{long}"), "m/gold"];
        shares.hear(names.map(|name| claim(name, 1, [10, 0, 0], 0)).to_vec());
        assert_eq!(shares.divide(Resource::Core, 100), (vec![("m/gold".to_owned(), 10)], 90));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Hear(Vec<[u64; 3]>),
        Divide(usize, u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        let much = prop_oneof![4 => 0u64..1_000_000, 1 => Just(u64::MAX)];
        prop_oneof![
            prop::collection::vec([much.clone(), much.clone(), much.clone()], 1..5).prop_map(Event::Hear),
            (0..CLAIMED.len(), much).prop_map(|(resource, quantity)| Event::Divide(resource, quantity)),
        ]
    }

    /// Sums by activity and resource.
    #[derive(Default)]
    struct Sums(BTreeMap<(String, usize), u128>);

    impl Sums {
        fn add(&mut self, name: &str, resource: usize, more: u64) {
            *self.0.entry((name.to_owned(), resource)).or_default() += u128::from(more);
        }

        fn of(&self, resource: usize) -> u128 {
            self.0.iter().filter(|((_, of), _)| *of == resource).map(|(_, sum)| sum).sum()
        }
    }

    proptest! {
        /// Whatever a machine says, and whenever: what its activities and it itself are charged for is what
        /// was measured, and none of them pays for more than was said of it.
        #[test]
        fn the_parts_are_the_whole(events in prop::collection::vec(event(), 1..60)) {
            let (mut shares, mut said, mut paid) = (Shares::default(), Sums::default(), Sums::default());
            let mut last: BTreeMap<String, [u64; 3]> = BTreeMap::new();
            for (at_ns, event) in (1u64..).zip(events) {
                match event {
                    Event::Hear(all) => {
                        let named = all.iter().enumerate().map(|(number, own)| (format!("a{number}"), *own));
                        shares.hear(named.clone().map(|(name, own)| claim(&name, at_ns, own, 0)).collect());
                        for (name, own) in named {
                            let before = last.insert(name.clone(), own).unwrap_or_default();
                            for (resource, (own, before)) in own.into_iter().zip(before).enumerate() {
                                said.add(&name, resource, own.checked_sub(before).unwrap_or(own));
                            }
                        }
                    }
                    Event::Divide(resource, quantity) => {
                        let (parts, left) = shares.divide(CLAIMED[resource], quantity);
                        let sum: u128 = parts.iter().map(|(_, part)| u128::from(*part)).sum();
                        prop_assert_eq!(sum + u128::from(left), u128::from(quantity));
                        parts.iter().for_each(|(name, part)| paid.add(name, resource, *part));
                        // Whoever said less than there was has it all.
                        let claimed = said.of(resource).min(u128::from(u64::MAX));
                        prop_assert!(left == 0 || paid.of(resource) >= claimed);
                    }
                }
            }
            for (key, paid) in paid.0 {
                prop_assert!(paid <= said.0[&key], "{:?}: {} of {}", key, paid, said.0[&key]);
            }
        }
    }
}
