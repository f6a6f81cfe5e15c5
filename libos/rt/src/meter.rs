//! Who pays for the core's time: every nanosecond is charged to an activity, to polling in vain, or to sleep.
//!
//! The clock is read when the payer changes and once a turn of the loop, not once an event: while events of
//! one activity follow each other, metering is a comparison and an addition, and the sums are exact all the
//! same.

use alloc::vec::Vec;
use core::mem;
use nom_service::ByActivity;
pub use nom_service::{Activity, INFRASTRUCTURE};

/// What was consumed of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Events, or pieces of work that a poller counted.
    pub events: u64,
    /// Nanoseconds.
    pub ns: u64,
}

impl Record {
    fn add(&mut self, other: Self) {
        self.events += other.events;
        self.ns += other.ns;
    }
}

/// Where a core's time went. Activities, `spinning_ns` and `sleeping_ns` add up to all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What each activity consumed, by activity.
    pub activities: Vec<(Activity, Record)>,
    /// Time in which the loop looked for work and found none.
    pub spinning_ns: u64,
    /// Time asleep.
    pub sleeping_ns: u64,
    /// All time since the metering began, by the clock alone.
    pub elapsed_ns: u64,
}

/// Charges time.
#[derive(Debug)]
pub struct Meter {
    started_ns: u64,
    since_ns: u64,
    /// Who has worked since then.
    payer: Option<Activity>,
    /// What `of` consumed and is not yet in `records`, so that these are searched only when the payer
    /// changes.
    pending: Record,
    of: Activity,
    records: ByActivity<Record>,
    spinning_ns: u64,
    sleeping_ns: u64,
}

impl Meter {
    /// Meters from `now_ns` on.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self {
            started_ns: now_ns,
            since_ns: now_ns,
            payer: None,
            pending: Record::default(),
            of: INFRASTRUCTURE,
            records: ByActivity::default(),
            spinning_ns: 0,
            sleeping_ns: 0,
        }
    }

    /// Charges the time until `now_ns` to who worked in it; if nobody did, it was spinning.
    #[inline]
    pub fn close(&mut self, now_ns: u64) {
        let ns = self.advance(now_ns);
        match self.payer.take() {
            Some(activity) => self.charge(activity, Record { events: 0, ns }),
            None => self.spinning_ns += ns,
        }
    }

    /// The time until `now_ns` was sleep.
    pub fn slept(&mut self, now_ns: u64) {
        self.sleeping_ns += self.advance(now_ns);
    }

    /// If somebody has worked, his work is over now, when `now_ns` is asked: who works next pays from here
    /// on.
    #[inline]
    pub fn part(&mut self, now_ns: impl FnOnce() -> u64) {
        if self.payer.is_some() {
            self.close(now_ns());
        }
    }

    /// Has a place for each of the first `count` activities, so that none is searched for.
    pub fn expect(&mut self, count: u32) {
        for number in 0..count {
            self.records.get_or_insert_with(Activity(number), Record::default);
        }
    }

    /// Divides the time until `now_ns` among activities by what each counts, and counts that as their events:
    /// work for several that was done in one go.
    pub fn divide(&mut self, now_ns: u64, counts: impl Iterator<Item = (Activity, u64)> + Clone) {
        let mut left: u64 = counts.clone().map(|(_, count)| count).sum();
        if left == 0 {
            return self.close(now_ns);
        }
        let mut left_ns = self.advance(now_ns);
        for (activity, count) in counts.filter(|(_, count)| *count > 0) {
            // Of what is left: so that it adds up whatever is rounded.
            let ns = (u128::from(left_ns) * u128::from(count) / u128::from(left)) as u64;
            (left, left_ns) = (left - count, left_ns - ns);
            self.charge(activity, Record { events: count, ns });
        }
        self.payer = None;
    }

    /// If somebody else has worked, the work of `activity` begins now; `now_ns` is asked only then.
    #[inline]
    pub fn separate(&mut self, activity: Activity, now_ns: impl FnOnce() -> u64) {
        if self.payer.is_some_and(|payer| payer != activity) {
            self.close(now_ns());
        }
    }

    /// Counts `events` of `activity`, which pays for the time since the last reading.
    #[inline]
    pub fn worked(&mut self, activity: Activity, events: u64) {
        self.payer = Some(activity);
        self.charge(activity, Record { events, ns: 0 });
    }

    /// What `activity` was charged until the last reading of the clock.
    #[must_use]
    pub fn record(&self, activity: Activity) -> Record {
        let mut record = self.records.get(activity).copied().unwrap_or_default();
        if activity == self.of {
            record.add(self.pending);
        }
        record
    }

    /// All that was charged until the last reading of the clock.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut records = self.records.clone();
        records.get_or_insert_with(self.of, Record::default).add(self.pending);
        let activities = records.iter().map(|(activity, record)| (activity, *record));
        let activities = activities.filter(|(_, record)| *record != Record::default()).collect();
        let (spinning_ns, sleeping_ns) = (self.spinning_ns, self.sleeping_ns);
        let elapsed_ns = self.since_ns - self.started_ns;
        Usage { activities, spinning_ns, sleeping_ns, elapsed_ns }
    }

    fn advance(&mut self, now_ns: u64) -> u64 {
        let ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns += ns;
        ns
    }

    #[inline]
    fn charge(&mut self, activity: Activity, record: Record) {
        if activity != self.of {
            let before = mem::take(&mut self.pending);
            let of = mem::replace(&mut self.of, activity);
            self.records.get_or_insert_with(of, Record::default).add(before);
        }
        self.pending.add(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Activity = Activity(1);
    const B: Activity = Activity(2);

    fn unread() -> u64 {
        panic!("the clock was read without need")
    }

    #[test]
    fn time_goes_to_who_worked_in_it() {
        let mut meter = Meter::new(100);
        meter.close(110);
        meter.separate(A, unread);
        meter.worked(A, 1);
        meter.separate(A, unread);
        meter.worked(A, 1);
        meter.separate(B, || 140);
        meter.worked(B, 5);
        meter.close(200);
        meter.slept(1_000);
        let usage = meter.usage();
        assert_eq!(usage.activities, [(A, Record { events: 2, ns: 30 }), (B, Record { events: 5, ns: 60 })]);
        assert_eq!((usage.spinning_ns, usage.sleeping_ns), (10, 800));
    }

    #[test]
    fn work_whose_payer_is_known_late_is_paid_for_from_its_beginning() {
        let mut meter = Meter::new(100);
        meter.worked(A, 1);
        meter.part(|| 130);
        meter.part(unread);
        meter.separate(B, unread);
        meter.worked(B, 1);
        meter.close(200);
        let usage = meter.usage();
        assert_eq!(usage.activities, [(A, Record { events: 1, ns: 30 }), (B, Record { events: 1, ns: 70 })]);
        assert_eq!(usage.elapsed_ns, 100);
    }

    #[test]
    fn what_was_done_in_one_go_is_divided_and_adds_up() {
        let mut meter = Meter::new(100);
        meter.expect(3);
        meter.divide(110, [(A, 2), (B, 0), (INFRASTRUCTURE, 1)].into_iter());
        meter.divide(112, [(B, 0)].into_iter());
        let usage = meter.usage();
        let of = |activity, events, ns| (activity, Record { events, ns });
        assert_eq!(usage.activities, [of(INFRASTRUCTURE, 1, 4), of(A, 2, 6)]);
        assert_eq!((usage.spinning_ns, usage.elapsed_ns), (2, 12), "for nobody");
    }

    #[test]
    fn a_clock_that_goes_back_charges_nothing_twice() {
        let mut meter = Meter::new(100);
        meter.slept(200);
        meter.slept(150);
        meter.slept(210);
        assert_eq!(meter.usage().sleeping_ns, 110);
    }
}
