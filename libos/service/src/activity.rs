//! Who pays.

/// Whom consumption is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Activity(pub u32);

/// Who pays for what nobody else can be charged with.
pub const INFRASTRUCTURE: Activity = Activity(0);
