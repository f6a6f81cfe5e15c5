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

/// Activities whose packets are not held to batch them. Those with numbers above 63 always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Urgent(u64);

impl Urgent {
    /// The set of these bits, by the activities' numbers.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Urgent {
        Urgent(bits)
    }

    /// Its bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether an activity is in it.
    #[inline]
    #[must_use]
    pub fn has(self, Activity(number): Activity) -> bool {
        number < u64::BITS && self.0 >> number & 1 == 1
    }

    /// How many are.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }
}

impl FromIterator<Activity> for Urgent {
    fn from_iter<I: IntoIterator<Item = Activity>>(activities: I) -> Urgent {
        let bit = |Activity(number): Activity| 1_u64.checked_shl(number).unwrap_or(0);
        Urgent(activities.into_iter().fold(0, |bits, activity| bits | bit(activity)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_urgent_is_by_number() {
        let some: Urgent = [3, 63, 64, 70].map(Activity).into_iter().collect();
        assert_eq!(some.count(), 2, "of others none is");
        let known: Vec<u32> = (0..200).filter(|number| some.has(Activity(*number))).collect();
        assert_eq!(known, [3, 63]);
        assert_eq!(Urgent::from_bits(some.bits()), some);
    }
}
