//! Which core, and which application: numbers that are not to be taken for each other, nor for anything else.

use crate::kernel::Kernel;
use core::ops::{Index, IndexMut};
use nom_abi::board;

macro_rules! define_ids {
    ($($(#[doc = $doc:literal])+ $name:ident)+) => { $(
        $(#[doc = $doc])+
        // A word, not a byte: what is indexed with it all the time would have to be widened each time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(usize);

        impl $name {
            /// The first of all.
            pub const FIRST: $name = $name(0);

            /// The one with this number.
            pub const fn new(number: usize) -> $name {
                $name(number)
            }

            /// The one with this number, if it is in a set.
            pub const fn in_set(number: u64, set: u64) -> Option<$name> {
                if number < 64 && set >> number & 1 == 1 { Some($name(number as usize)) } else { None }
            }

            /// Its number.
            pub const fn index(self) -> usize {
                self.0
            }

            /// The bit that stands for it in a set.
            pub const fn bit(self) -> u64 {
                1 << self.0
            }

            /// The first `count`, in order.
            pub fn first(count: usize) -> impl Iterator<Item = $name> + Clone {
                (0..count).map($name)
            }
        }
    )+ };
}

define_ids! {
    /// A core, by its number on the board.
    CoreId
    /// An application, by its place in the bundle.
    AppId
}

impl<M> Kernel<'_, M> {
    /// Every core.
    pub(crate) fn all_cores(&self) -> impl Iterator<Item = CoreId> + Clone + use<M> {
        CoreId::first(self.cores.len())
    }

    /// Every application of the bundle.
    pub(crate) fn all_applications(&self) -> impl Iterator<Item = AppId> + Clone + use<M> {
        AppId::first(self.applications.len())
    }
}

/// Lets tables with an element for each core or application be indexed by it.
macro_rules! index_by {
    ($($id:ident: $($element:ty),+;)+) => { $($(
        impl Index<$id> for [$element] {
            type Output = $element;
            #[inline(always)]
            fn index(&self, id: $id) -> &$element {
                &self[id.0]
            }
        }

        impl IndexMut<$id> for [$element] {
            #[inline(always)]
            fn index_mut(&mut self, id: $id) -> &mut $element {
                &mut self[id.0]
            }
        }
    )+)+ };
}

index_by! {
    CoreId: crate::cores::Core, board::Core;
    AppId: crate::applications::Application, crate::console::Bucket, crate::iommu::Domain,
        board::Application, board::Usage;
}
