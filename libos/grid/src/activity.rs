//! Who pays.

/// Whom consumption is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Activity(pub u32);
