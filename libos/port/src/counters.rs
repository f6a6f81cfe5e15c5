//! What drivers count.

/// A `Counters` of these fields, each with its name and, in its documentation, what it counts.
#[macro_export]
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What happened at a queue pair since it was started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Counters {
            /// Every counter with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }

            /// Every counter's name with what it counts.
            pub const ALL: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), concat!($($doc),+))),+];
        }
    };
}
