//! A list of bounded length in place: tables of this crate never allocate.

use core::ops::{Deref, DerefMut};

/// At most `N` values, in the order they were pushed. Reads and writes as a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<T, const N: usize> {
    length: usize,
    items: [T; N],
}

impl<T: Copy + Default, const N: usize> Default for List<T, N> {
    fn default() -> List<T, N> {
        List { length: 0, items: [T::default(); N] }
    }
}

impl<T: Copy, const N: usize> List<T, N> {
    /// Appends `item`, or says by `false` that the list is full.
    pub fn push(&mut self, item: T) -> bool {
        let Some(place) = self.items.get_mut(self.length) else { return false };
        *place = item;
        self.length += 1;
        true
    }

    /// Takes the last item, if there is one.
    pub fn pop(&mut self) -> Option<T> {
        self.length = self.length.checked_sub(1)?;
        Some(self.items[self.length])
    }
}

impl<T, const N: usize> Deref for List<T, N> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.items[..self.length]
    }
}

impl<T, const N: usize> DerefMut for List<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..self.length]
    }
}
