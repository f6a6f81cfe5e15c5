//! Who pays.

pub use nom_grid::{Activity, ByActivity};

/// Who pays for what nobody else can be charged with.
pub const INFRASTRUCTURE: Activity = Activity(0);

/// Who pays for measuring and for choosing the working point.
pub const GOVERNING: Activity = Activity(1);

/// Who pays for clients and requests that no rule of [`Rules`](crate::Rules) names.
pub const OTHERS: Activity = Activity(2);

/// The first that a rule names.
pub(crate) const FIRST_NAMED: u32 = 3;

/// The names of those that every program has, by number.
pub(crate) const RESERVED: [&str; FIRST_NAMED as usize] = ["infrastructure", "governing", "others"];
