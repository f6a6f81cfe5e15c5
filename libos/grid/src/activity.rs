//! Who pays.

use alloc::vec::Vec;

/// Whom consumption is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Activity(pub u32);

/// Something for each of a few activities, in their order. They are so few that a list is found
/// through as fast as a tree, and the code for it is a small part of a tree's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByActivity<V>(Vec<(Activity, V)>);

impl<V> Default for ByActivity<V> {
    fn default() -> ByActivity<V> {
        ByActivity(Vec::new())
    }
}

impl<V> ByActivity<V> {
    /// Nearly always all up to the last are there, so that a number is a place.
    #[inline]
    fn place(&self, activity: Activity) -> Result<usize, usize> {
        let place = activity.0 as usize;
        match self.0.get(place) {
            Some((known, _)) if *known == activity => Ok(place),
            _ => self.search(activity),
        }
    }

    fn search(&self, activity: Activity) -> Result<usize, usize> {
        self.0.binary_search_by_key(&activity, |(known, _)| *known)
    }

    /// What is there for an activity.
    pub fn get(&self, activity: Activity) -> Option<&V> {
        self.place(activity).ok().map(|place| &self.0[place].1)
    }

    /// The same, to change it; made by `make` if there is nothing.
    pub fn get_or_insert_with(&mut self, activity: Activity, make: impl FnOnce() -> V) -> &mut V {
        let place = self.place(activity).unwrap_or_else(|place| {
            self.0.insert(place, (activity, make()));
            place
        });
        &mut self.0[place].1
    }

    /// All, by activity.
    pub fn iter(&self) -> impl Iterator<Item = (Activity, &V)> {
        self.0.iter().map(|(activity, value)| (*activity, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_an_ordered_map(asked in proptest::collection::vec((0u32..8, any::<u16>()), 0..40)) {
            let (mut list, mut map) = (ByActivity::default(), BTreeMap::new());
            for (number, value) in asked {
                let activity = Activity(number);
                prop_assert_eq!(list.get(activity), map.get(&activity));
                let here = list.get_or_insert_with(activity, || value);
                let there = map.entry(activity).or_insert(value);
                prop_assert_eq!(&*here, &*there);
                (*here, *there) = (value, value);
            }
            prop_assert!(list.iter().eq(map.iter().map(|(activity, value)| (*activity, value))));
        }
    }
}
