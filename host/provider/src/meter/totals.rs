//! What was consumed of each resource.

use nom_proto::prices::Resource;

/// Counts of each resource, in [`Resource::counted_in`], that only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals([u64; Resource::COUNT]);

impl Totals {
    /// The same with this count of a resource.
    #[must_use]
    pub fn with(mut self, resource: Resource, count: u64) -> Totals {
        self.0[resource as usize] = count;
        self
    }

    /// The count of a resource.
    pub fn of(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Totals) -> Totals {
        self.0.iter_mut().zip(other.0).for_each(|(one, other)| *one = one.saturating_add(other));
        self
    }

    /// What was added since `before`; nothing of what was more then.
    pub fn since(&self, before: Totals) -> Totals {
        let mut added = *self;
        added.0.iter_mut().zip(before.0).for_each(|(now, before)| *now = now.saturating_sub(before));
        added
    }
}
