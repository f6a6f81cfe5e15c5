//! Slots for items, with the order in which they were used threaded through them.
//!
//! Slots come in chunks, so that growing moves no item and takes no longer with a million items than with
//! none. A slot is named by its number; the list is doubly linked, so every operation is O(1).

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Number of a slot.
pub type Index = u32;

/// No slot.
const NIL: Index = Index::MAX;

/// Slots of a chunk, as a power of two.
const CHUNK_SHIFT: u32 = 10;
const CHUNK: usize = 1 << CHUNK_SHIFT;

#[derive(Debug)]
struct Slot<T> {
    content: T,
    /// Towards the most recently used; not used by free slots.
    newer: Index,
    /// Towards the least recently used; of free slots, the next free one.
    older: Index,
}

/// Values in slots, ordered from the most to the least recently used.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Vec<Box<[Slot<T>; CHUNK]>>,
    free: Index,
    newest: Index,
    oldest: Index,
}

/// There is no memory for one more slot.
#[derive(Debug, PartialEq, Eq)]
pub struct Exhausted;

impl<T: Default> Slab<T> {
    /// A slab without slots.
    pub fn new() -> Slab<T> {
        Slab { chunks: Vec::new(), free: NIL, newest: NIL, oldest: NIL }
    }

    /// Puts a value into a free slot, as the most recently used.
    pub fn insert(&mut self, content: T) -> Result<Index, Exhausted> {
        let index = match self.free {
            NIL => self.grow()?,
            free => free,
        };
        self.free = self.slot(index).older;
        self.slot_mut(index).content = content;
        self.link(index);
        Ok(index)
    }

    /// Takes the value out of a slot that is in use and frees the slot.
    pub fn remove(&mut self, index: Index) -> T {
        self.unlink(index);
        let free = core::mem::replace(&mut self.free, index);
        let slot = self.slot_mut(index);
        slot.older = free;
        core::mem::take(&mut slot.content)
    }

    /// Makes a slot that is in use the most recently used.
    #[inline]
    pub fn touch(&mut self, index: Index) {
        if self.newest != index {
            self.unlink(index);
            self.link(index);
        }
    }

    /// How many slots there are: their numbers are below it. A free slot has an empty value.
    pub fn count(&self) -> Index {
        (self.chunks.len() * CHUNK) as Index
    }

    /// The least recently used slot.
    pub fn oldest(&self) -> Option<Index> {
        (self.oldest != NIL).then_some(self.oldest)
    }

    /// The slot used just before `index` was.
    pub fn newer(&self, index: Index) -> Option<Index> {
        let newer = self.slot(index).newer;
        (newer != NIL).then_some(newer)
    }

    /// What is in a slot.
    #[inline]
    pub fn get(&self, index: Index) -> &T {
        &self.slot(index).content
    }

    /// What is in a slot.
    #[inline]
    pub fn get_mut(&mut self, index: Index) -> &mut T {
        &mut self.slot_mut(index).content
    }

    #[inline]
    fn slot(&self, index: Index) -> &Slot<T> {
        &self.chunks[(index >> CHUNK_SHIFT) as usize][index as usize % CHUNK]
    }

    #[inline]
    fn slot_mut(&mut self, index: Index) -> &mut Slot<T> {
        &mut self.chunks[(index >> CHUNK_SHIFT) as usize][index as usize % CHUNK]
    }

    #[inline]
    fn link(&mut self, index: Index) {
        let newest = core::mem::replace(&mut self.newest, index);
        let slot = self.slot_mut(index);
        (slot.newer, slot.older) = (NIL, newest);
        match newest {
            NIL => self.oldest = index,
            newest => self.slot_mut(newest).newer = index,
        }
    }

    #[inline]
    fn unlink(&mut self, index: Index) {
        let &Slot { newer, older, .. } = self.slot(index);
        match newer {
            NIL => self.newest = older,
            newer => self.slot_mut(newer).older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => self.slot_mut(older).newer = newer,
        }
    }

    /// Adds a chunk of free slots and returns the first.
    fn grow(&mut self) -> Result<Index, Exhausted> {
        let first = self.chunks.len() * CHUNK;
        if first + CHUNK > NIL as usize {
            return Err(Exhausted);
        }
        let mut chunk = Vec::new();
        chunk.try_reserve_exact(CHUNK).map_err(|_| Exhausted)?;
        self.chunks.try_reserve(1).map_err(|_| Exhausted)?;
        for index in first..first + CHUNK {
            let older = if index + 1 < first + CHUNK { index as Index + 1 } else { NIL };
            chunk.push(Slot { content: T::default(), newer: NIL, older });
        }
        let chunk = chunk.into_boxed_slice().try_into().map_err(|_| Exhausted)?;
        self.chunks.push(chunk);
        self.free = first as Index;
        Ok(self.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::{collection::vec, sample::Index as Pick};
    use std::collections::VecDeque;

    fn order(slab: &Slab<u32>) -> Vec<u32> {
        let mut indices = core::iter::successors(slab.oldest(), |&index| slab.newer(index));
        indices.by_ref().map(|index| *slab.get(index)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_order_is_that_of_use(steps in vec((0u8..3, any::<Pick>()), 1..3000)) {
            let mut slab = Slab::new();
            let mut model: VecDeque<(Index, u32)> = VecDeque::new();
            for (number, (step, pick)) in steps.into_iter().enumerate() {
                if step == 0 || model.is_empty() {
                    let index = slab.insert(number as u32).unwrap();
                    prop_assert!(model.iter().all(|&(other, _)| other != index));
                    model.push_back((index, number as u32));
                    continue;
                }
                let (index, value) = model.remove(pick.index(model.len())).unwrap();
                match step {
                    1 => prop_assert_eq!(slab.remove(index), value),
                    _ => {
                        slab.touch(index);
                        model.push_back((index, value));
                    }
                }
            }
            prop_assert_eq!(order(&slab), model.iter().map(|&(_, value)| value).collect::<Vec<_>>());
        }
    }
}
