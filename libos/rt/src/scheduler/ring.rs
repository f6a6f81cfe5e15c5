//! A queue in a ring of memory. The standard library's does the same for any number of places; where that is
//! a power of two, a place is found by one instruction, and a switch between threads finds three.

use alloc::vec::Vec;

#[derive(Debug)]
pub(super) struct Ring<T> {
    /// A power of two of them, at least one more than are in the queue: those have an old value.
    slots: Vec<T>,
    /// Where the first is, counted on without end.
    head: usize,
    len: usize,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), head: 0, len: 0 }
    }
}

impl<T: Copy> Ring<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn slot(&mut self, place: usize) -> Option<&mut T> {
        let at = self.head.wrapping_add(place) & self.slots.len().wrapping_sub(1);
        self.slots.get_mut(at)
    }

    #[inline]
    pub fn front(&self) -> Option<&T> {
        if self.len == 0 { None } else { self.get(0) }
    }

    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut T> {
        if self.len == 0 { None } else { self.slot(0) }
    }

    /// Who is in that place, if that is below the length.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&T> {
        self.slots.get(self.head.wrapping_add(place) & self.slots.len().wrapping_sub(1))
    }

    #[inline]
    pub fn back(&self) -> Option<&T> {
        if self.len == 0 { None } else { self.get(self.len - 1) }
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (len, places) = (self.len, self.slots.len());
        let first = self.head & places.wrapping_sub(1);
        let (second, first) = self.slots.split_at_mut(first.min(places));
        first.iter_mut().chain(second).take(len)
    }

    /// The place, from `low` on, of the first that is not as `is_before` says; who is not comes after all who
    /// are.
    pub fn partition_point(&self, mut low: usize, is_before: impl Fn(&T) -> bool) -> usize {
        let mut high = self.len;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(&is_before) { low = middle + 1 } else { high = middle }
        }
        low
    }

    pub fn position(&self, is_it: impl Fn(&T) -> bool) -> Option<usize> {
        (0..self.len).find(|place| self.get(*place).is_some_and(&is_it))
    }

    #[inline]
    pub fn push_back(&mut self, value: T) {
        if self.len + 1 >= self.slots.len() {
            self.grow(value);
        }
        self.len += 1;
        if let Some(last) = self.slot(self.len - 1) {
            *last = value;
        }
    }

    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let first = *self.front()?;
        self.head = self.head.wrapping_add(1);
        self.len -= 1;
        Some(first)
    }

    /// Puts the first behind the last, as `change` makes it once it has seen that one. Returns who is the
    /// first from then on.
    #[inline]
    pub fn rotate(&mut self, change: impl FnOnce(&mut T, &T)) -> Option<&T> {
        if self.len < 2 {
            return self.front();
        }
        // There is a place to spare, so these are three: no need to keep the first elsewhere meanwhile.
        let (mask, behind) = (self.slots.len().wrapping_sub(1), self.head.wrapping_add(self.len));
        let mut moved = *self.get(0)?;
        change(&mut moved, self.slots.get(behind.wrapping_sub(1) & mask)?);
        *self.slots.get_mut(behind & mask)? = moved;
        self.head = self.head.wrapping_add(1);
        self.get(0)
    }

    /// Puts `value` in front of the one in that place.
    pub fn insert(&mut self, place: usize, value: T) {
        self.push_back(value);
        let mut carried = value;
        for at in place..self.len {
            let Some(slot) = self.slot(at) else { return };
            core::mem::swap(slot, &mut carried);
        }
    }

    pub fn remove(&mut self, place: usize) -> Option<T> {
        let removed = self.get(place).copied()?;
        for at in place + 1..self.len {
            let next = *self.get(at)?;
            *self.slot(at - 1)? = next;
        }
        self.len -= 1;
        Some(removed)
    }

    /// Makes room; `filler` stands in it until it is used.
    #[cold]
    fn grow(&mut self, filler: T) {
        let places = (2 * self.slots.len()).max(4);
        let mut slots = Vec::with_capacity(places);
        slots.extend((0..self.len).filter_map(|place| self.get(place)));
        slots.resize(places, filler);
        (self.slots, self.head) = (slots, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        /// As the standard library's queue.
        #[test]
        fn it_is_a_queue(steps in proptest::collection::vec((0u8..6, 0u32..100), 0..100)) {
            let (mut ring, mut queue) = (Ring::default(), VecDeque::new());
            for (step, value) in steps {
                match step {
                    0 | 1 => {
                        ring.push_back(value);
                        queue.push_back(value);
                    }
                    2 => prop_assert_eq!(ring.pop_front(), queue.pop_front()),
                    3 => {
                        let first = ring.rotate(|first, last| *first += *last + value).copied();
                        let ends = queue.front().zip(queue.back()).filter(|_| queue.len() > 1);
                        if let Some((moved, last)) = ends {
                            let moved = moved + last + value;
                            queue.pop_front();
                            queue.push_back(moved);
                        }
                        prop_assert_eq!(first, queue.front().copied());
                    }
                    4 => {
                        let place = value as usize % (queue.len() + 1);
                        ring.insert(place, value);
                        queue.insert(place, value);
                    }
                    _ => {
                        let place = queue.iter().position(|other| other % 3 == value % 3);
                        prop_assert_eq!(ring.position(|other| other % 3 == value % 3), place);
                        let removed = place.and_then(|place| ring.remove(place));
                        prop_assert_eq!(removed, place.and_then(|place| queue.remove(place)));
                    }
                }
                prop_assert_eq!((ring.front(), ring.back()), (queue.front(), queue.back()));
                prop_assert_eq!(ring.len(), queue.len());
                ring.iter_mut().for_each(|value| *value += 1);
                queue.iter_mut().for_each(|value| *value += 1);
                let all: Vec<_> = ring.iter_mut().map(|value| *value).collect();
                prop_assert_eq!(all, queue.iter().copied().collect::<Vec<_>>());
            }
        }

        #[test]
        fn a_sorted_one_is_searched(
            values in proptest::collection::vec(0u32..50, 0..40),
            limit in 0u32..50,
            from in 0usize..40,
        ) {
            let mut values = values;
            let from = from.min(values.len());
            values[from..].sort_unstable();
            let mut ring = Ring::default();
            values.iter().for_each(|value| ring.push_back(*value));
            let expected = from + values[from..].partition_point(|value| *value < limit);
            prop_assert_eq!(ring.partition_point(from, |value| *value < limit), expected);
        }
    }
}
