//! The profit ledger: what every activity consumed, cost and earned so far, exactly.
//!
//! Money is counted in whole nano-dollars. An entry is rounded once, when it is posted; sums of entries are
//! integers and never drift, in whatever order and however many they are.

use crate::units::{Dollars, DollarsPerSecond, Seconds};
use core::fmt;
use nom_service::{Activity, ByActivity};

const NANOS_PER_DOLLAR: i128 = 1_000_000_000;

/// Money in whole nano-dollars; negative is a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(i128);

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// So many nano-dollars.
    #[must_use]
    pub const fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }

    /// In nano-dollars.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// In dollars, to the precision of a double: for showing, not for summing.
    #[must_use]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / NANOS_PER_DOLLAR as f64
    }

    fn plus(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    fn minus(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }
}

/// To the nearest nano-dollar.
impl From<Dollars> for Money {
    fn from(dollars: Dollars) -> Self {
        Self(libm::round(dollars.get() * NANOS_PER_DOLLAR as f64) as i128)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, nanos) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let per_dollar = NANOS_PER_DOLLAR.unsigned_abs();
        write!(f, "{sign}${}.{:09}", nanos / per_dollar, nanos % per_dollar)
    }
}

/// A stretch of time on the caller's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    start_ns: u64,
    end_ns: u64,
}

impl Interval {
    /// From `start_ns` to `end_ns`; nothing if that is no time at all, as after a clock jumped back.
    #[must_use]
    pub fn new(start_ns: u64, end_ns: u64) -> Option<Self> {
        (start_ns < end_ns).then_some(Self { start_ns, end_ns })
    }

    /// How long it is.
    #[must_use]
    pub fn length(self) -> Seconds {
        Seconds::new((self.end_ns - self.start_ns) as f64 / 1e9).expect("it ends after it starts")
    }
}

/// One line of the ledger: an activity's cost and revenue over an interval in which both were constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Who.
    pub activity: Activity,
    /// When.
    pub interval: Interval,
    /// Consumption times price, as [`Prices::cost`](crate::prices::Prices::cost) says.
    pub cost: DollarsPerSecond,
    /// What its users pay.
    pub revenue: DollarsPerSecond,
}

/// An activity's sums so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// What it consumed, in money.
    pub cost: Money,
    /// What its users paid.
    pub revenue: Money,
    /// Entries posted.
    pub entries: u64,
    posted_until_ns: u64,
}

impl Account {
    /// Revenue less cost.
    #[must_use]
    pub fn profit(&self) -> Money {
        // Posting refuses what would make this overflow.
        Money(self.revenue.0 - self.cost.0)
    }

    fn after(&self, entry: &Entry) -> Result<Self, PostError> {
        let (activity, start_ns) = (entry.activity, entry.interval.start_ns);
        if start_ns < self.posted_until_ns {
            return Err(PostError::Overlap { activity, start_ns, posted_until_ns: self.posted_until_ns });
        }
        let length = entry.interval.length();
        let sums = || {
            let cost = self.cost.plus(Money::from(entry.cost * length))?;
            let revenue = self.revenue.plus(Money::from(entry.revenue * length))?;
            revenue.minus(cost).map(|_| (cost, revenue))
        };
        let (cost, revenue) = sums().ok_or(PostError::Overflow { activity })?;
        Ok(Self { cost, revenue, entries: self.entries + 1, posted_until_ns: entry.interval.end_ns })
    }
}

/// Why an entry was not posted; the ledger is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The interval begins before the activity's last one ended: no time is charged twice.
    #[error("activity {activity:?}: entry from {start_ns} ns on, but posted until {posted_until_ns} ns")]
    Overlap {
        /// Whose entry.
        activity: Activity,
        /// Where its interval begins.
        start_ns: u64,
        /// Until when the activity is posted.
        posted_until_ns: u64,
    },
    /// The sum would not fit.
    #[error("activity {activity:?}: the sum does not fit 128 bits of nano-dollars")]
    Overflow {
        /// Whose entry.
        activity: Activity,
    },
}

/// Sums of each activity.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    accounts: ByActivity<Account>,
}

impl Ledger {
    /// Opens an account, so that posting to it never allocates.
    pub fn open(&mut self, activity: Activity) {
        self.accounts.get_or_insert_with(activity, Account::default);
    }

    /// Adds an entry, and returns the activity's sums with it.
    ///
    /// # Errors
    /// If the entry overlaps the activity's last one, or a sum would not fit. Nothing has changed then.
    pub fn post(&mut self, entry: &Entry) -> Result<Account, PostError> {
        let before = self.accounts.get(entry.activity).copied().unwrap_or_default();
        let after = before.after(entry)?;
        *self.accounts.get_or_insert_with(entry.activity, Account::default) = after;
        Ok(after)
    }

    /// An activity's sums so far; nothing if it has no account.
    #[must_use]
    pub fn account(&self, activity: Activity) -> Option<Account> {
        self.accounts.get(activity).copied()
    }

    /// All accounts, by activity.
    pub fn accounts(&self) -> impl Iterator<Item = (Activity, Account)> + '_ {
        self.accounts.iter().map(|(activity, account)| (activity, *account))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(start_ns: u64, end_ns: u64, cost: f64, revenue: f64) -> Entry {
        let money = |value| DollarsPerSecond::new(value).expect("finite");
        let interval = Interval::new(start_ns, end_ns).expect("some time");
        Entry { activity: Activity(7), interval, cost: money(cost), revenue: money(revenue) }
    }

    #[test]
    fn a_hundred_thousand_tenths_are_ten_thousand() {
        let mut ledger = Ledger::default();
        let tenth = |at: u64| entry(at * 1_000_000_000, (at + 1) * 1_000_000_000, 0.1, 0.3);
        for at in 0..100_000 {
            ledger.post(&tenth(at)).expect("in order");
        }
        let account = ledger.account(Activity(7)).expect("posted to");
        assert_eq!(account.cost, Money::from_nanos(10_000 * NANOS_PER_DOLLAR));
        assert_eq!(account.profit().to_string(), "$20000.000000000");
        let drifting: f64 = core::iter::repeat_n(0.1, 100_000).sum();
        assert_ne!(drifting, 10_000.0, "what doubles would have said");
    }

    #[test]
    fn no_time_is_charged_twice() {
        let mut ledger = Ledger::default();
        ledger.post(&entry(0, 100, 1.0, 2.0)).expect("the first");
        let before = ledger.account(Activity(7));
        let refusal = ledger.post(&entry(99, 200, 1.0, 2.0)).expect_err("overlaps");
        assert_eq!(refusal, PostError::Overlap { activity: Activity(7), start_ns: 99, posted_until_ns: 100 });
        assert_eq!(ledger.account(Activity(7)), before);
        ledger.post(&entry(150, 200, 1.0, 2.0)).expect("a gap is no overlap");
        assert_eq!(Interval::new(5, 5), None);
        assert_eq!(Interval::new(6, 5), None);
    }

    #[test]
    fn a_sum_that_does_not_fit_is_refused() {
        let mut ledger = Ledger::default();
        let refusal = ledger.post(&entry(0, 1_000_000_000, f64::MAX, -f64::MAX)).expect_err("too much");
        assert_eq!(refusal, PostError::Overflow { activity: Activity(7) });
        assert_eq!(ledger.account(Activity(7)), None);
    }

    #[test]
    fn money_reads_as_money() {
        assert_eq!(Money::from_nanos(-1_500_000_001).to_string(), "-$1.500000001");
        assert_eq!(Money::from(Dollars::new(-0.5).expect("finite")).nanos(), -500_000_000);
        assert_eq!(Money::ZERO.to_string(), "$0.000000000");
    }

    proptest! {
        #[test]
        fn profit_is_the_sum_of_the_entries(rates in prop::collection::vec((-1e6..1e6, -1e6..1e6), 1..50)) {
            let mut ledger = Ledger::default();
            let (mut at, mut expected) = (0, 0);
            for (cost, revenue) in rates {
                let entry = entry(at, at + 12_345_678, cost, revenue);
                let length = entry.interval.length();
                let nanos = |rate: DollarsPerSecond| Money::from(rate * length).nanos();
                expected += nanos(entry.revenue) - nanos(entry.cost);
                at += 12_345_678;
                prop_assert_eq!(ledger.post(&entry).expect("in order").profit().nanos(), expected);
            }
        }
    }
}
