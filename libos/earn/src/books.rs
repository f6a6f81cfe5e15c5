//! What was earned, in whole nano-dollars: every window's cost at the prices of its time, and every period's
//! revenue by what users saw in it.
//!
//! Users pay by their mean latency, and what they pay is no straight line of it: the mean of what short
//! windows would have brought is not what their mean brings. With a bonus that grows without limit, one
//! window of a lucky moment would bring more than a second of work. So latencies are pooled over a second,
//! weighted by requests, as a client does who reports every second.

use crate::contracts::{Contracts, Served};
use crate::market::Tariff;
use crate::report::Stretch;
use crate::window;
use alloc::vec::Vec;
use nom_economy::ledger::{Account, Entry, Interval, Ledger, Money};
use nom_economy::prices::Usage;
use nom_economy::units::DollarsPerSecond;
use nom_service::{Activity, Window};

/// The accounts of an application's own books: what it owes, and what it is paid.
const OWED: Activity = Activity(0);
const PAID: Activity = Activity(1);
/// Over how long what users saw is pooled.
const PERIOD_NS: u64 = 1_000_000_000;
/// Price changes remembered within one window or period; from then on the last one gives way.
const SPANS_MAX: usize = 16;
/// Sums beyond are told as this, so that their difference can be.
const NANOS_MAX: i128 = i128::MAX / 2;

/// Ledger of one application, and the tariffs since its last window.
#[derive(Debug)]
pub(crate) struct Books {
    ledger: Ledger,
    /// Time served so far: the ledger's own time, which no jump of the clock disturbs.
    served_ns: u64,
    /// Tariffs, each since when, the present one last. Never empty.
    spans: Vec<(u64, Tariff)>,
    /// The present period, and for how long each tariff was in force in it.
    period: Served,
    tariffs: Vec<(u64, Tariff)>,
    /// Time served before the period.
    settled_ns: u64,
    /// What activities have brought in earlier periods, by their numbers.
    paid: Vec<i128>,
}

impl Books {
    pub fn new() -> Books {
        let mut ledger = Ledger::default();
        ledger.open(OWED);
        ledger.open(PAID);
        let mut spans = Vec::with_capacity(SPANS_MAX);
        spans.push((0, Tariff::default()));
        let tariffs = Vec::with_capacity(SPANS_MAX);
        let period = Served::default();
        Books { ledger, served_ns: 0, spans, period, tariffs, settled_ns: 0, paid: Vec::new() }
    }

    /// From `since_ns` on the tariff is another one, though not from before the last change.
    pub fn reprice(&mut self, since_ns: u64, tariff: Tariff) {
        if self.spans.len() == SPANS_MAX {
            self.spans.pop();
        }
        let last_ns = self.spans.last().map_or(0, |span| span.0);
        self.spans.push((since_ns.max(last_ns), tariff));
    }

    /// Adds a window in which the application held this, and `shares` of which were for whom. Where the
    /// tariff changed within, each part is charged at its own, as if requests had come evenly.
    pub fn close(&mut self, window: &Window, shares: &[Stretch], contracts: &mut Contracts, held: &Usage) {
        let Some(response) = window::response(window) else { return };
        let usage = Usage { network_out: response.sent, network_in: response.received, ..*held };
        for index in 0..self.spans.len() {
            let (since_ns, tariff) = self.spans[index];
            let (from_ns, to_ns) = (window.from_ns, window.to_ns);
            let start_ns = if index == 0 { from_ns } else { since_ns.clamp(from_ns, to_ns) };
            let end_ns = self.spans.get(index + 1).map_or(to_ns, |next| next.0.clamp(from_ns, to_ns));
            self.owe(end_ns.saturating_sub(start_ns), &tariff, tariff.prices.cost(&usage));
        }
        self.spans.drain(..self.spans.len() - 1);
        // Whatever the clock does next, the present tariff is in force.
        self.spans[0].0 = 0;
        self.period.whole.add(window);
        self.period.join_shares(shares, 1.0);
        if self.period.whole.length_ns >= PERIOD_NS {
            contracts.learn(&self.period);
            self.settle(contracts);
        }
    }

    /// For so long something was owed under a tariff.
    fn owe(&mut self, length_ns: u64, tariff: &Tariff, cost: DollarsPerSecond) {
        let until_ns = self.served_ns.saturating_add(length_ns);
        let Some(interval) = Interval::new(self.served_ns, until_ns) else { return };
        self.served_ns = until_ns;
        post(&mut self.ledger, &Entry { activity: OWED, interval, cost, revenue: DollarsPerSecond::ZERO });
        let is_full = self.tariffs.len() == SPANS_MAX;
        match self.tariffs.last_mut() {
            Some((known_ns, known)) if is_full || known == tariff => {
                *known_ns = known_ns.saturating_add(length_ns);
                *known = *tariff;
            }
            _ => self.tariffs.push((length_ns, *tariff)),
        }
    }

    /// What users pay for the present period, if it ended now: each part under its tariff.
    fn revenue(
        &self,
        contracts: &Contracts,
        mut tell: impl FnMut(Activity, i128),
    ) -> impl Iterator<Item = (u64, DollarsPerSecond)> {
        self.tariffs.iter().map(move |(length_ns, tariff)| {
            let rate = contracts.bring(&self.period, &tariff.prices, |activity, rate| {
                // Dollars a second are nano-dollars a nanosecond.
                tell(activity, libm::round(rate * *length_ns as f64) as i128);
            });
            (*length_ns, rate)
        })
    }

    /// Says what each activity has brought so far, the present period as if it ended now.
    pub fn shares(&self, contracts: &Contracts, mut tell: impl FnMut(Activity, Money)) {
        let mut paid = self.paid.clone();
        self.revenue(contracts, |activity, nanos| add(&mut paid, activity, nanos)).for_each(drop);
        for (number, nanos) in paid.into_iter().enumerate() {
            tell(Activity(number as u32), Money::from_nanos(nanos));
        }
    }

    /// Ends the period.
    fn settle(&mut self, contracts: &Contracts) {
        let mut paid = core::mem::take(&mut self.paid);
        let parts: Vec<_> =
            self.revenue(contracts, |activity, nanos| add(&mut paid, activity, nanos)).collect();
        self.paid = paid;
        for (length_ns, revenue) in parts {
            let until_ns = self.settled_ns.saturating_add(length_ns);
            if let Some(interval) = Interval::new(self.settled_ns, until_ns) {
                let cost = DollarsPerSecond::ZERO;
                post(&mut self.ledger, &Entry { activity: PAID, interval, cost, revenue });
            }
            self.settled_ns = until_ns;
        }
        self.tariffs.clear();
        self.period = Served::default();
    }

    /// Sums so far, the present period as if it ended now.
    pub fn account(&self, contracts: &Contracts) -> Account {
        let of = |activity| self.ledger.account(activity).unwrap_or_default();
        let money = |(length_ns, rate): (u64, DollarsPerSecond)| {
            Interval::new(0, length_ns).map_or(0, |interval| Money::from(rate * interval.length()).nanos())
        };
        let open = self.revenue(contracts, |_, _| {}).map(money).fold(0, i128::saturating_add);
        let bounded = |nanos: i128| Money::from_nanos(nanos.clamp(-NANOS_MAX, NANOS_MAX));
        let mut account = of(OWED);
        account.revenue = bounded(of(PAID).revenue.nanos().saturating_add(open));
        account.cost = bounded(account.cost.nanos());
        account
    }
}

fn add(paid: &mut Vec<i128>, Activity(number): Activity, nanos: i128) {
    let number = number as usize;
    if paid.len() <= number {
        paid.resize(number + 1, 0);
    }
    paid[number] = paid[number].saturating_add(nanos);
}

/// Refused only beyond 10^29 dollars, where the sums stay as they are.
fn post(ledger: &mut Ledger, entry: &Entry) {
    let _ = ledger.post(entry);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_economy::prices::{Prices, Resource};
    use nom_economy::units::Cores;
    use nom_economy::utility::Utility;
    use nom_service::Latency;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn tariff(network_out: f64, core: f64) -> Tariff {
        let mut prices = Prices::default();
        prices.offer(Resource::NetworkOut, network_out, 0).expect("good");
        prices.offer(Resource::Core, core, 0).expect("good");
        Tariff { prices, revision: 1 }
    }

    /// In which so many Gbit a second were sent.
    fn window(from_ns: u64, to_ns: u64, sent: f64) -> Window {
        let length_s = to_ns.saturating_sub(from_ns) as f64 / 1e9;
        let latency = Latency { mean_ns: 100_000, jitter_ns: 10_000, p99_ns: 200_000 };
        let sent_bytes = (sent * length_s * 1e9 / 8.0).round() as u64;
        Window {
            from_ns,
            to_ns,
            requests: 1000,
            answered_bytes: sent_bytes,
            sent_bytes,
            latency,
            ..Window::default()
        }
    }

    fn held() -> Usage {
        Usage { cores: Cores::new(2.0).expect("two"), ..Usage::default() }
    }

    fn contract(line: &str) -> Contracts {
        Contracts::new(line.parse::<Utility>().expect("good"), Vec::new())
    }

    fn value() -> Contracts {
        contract("Gbit; value 20")
    }

    fn dollars(books: &Books) -> (f64, f64) {
        let account = books.account(&value());
        (account.revenue.dollars(), account.cost.dollars())
    }

    #[test]
    fn without_prices_only_revenue_is_booked() {
        let mut books = Books::new();
        books.close(&window(0, SECOND / 2, 1.0), &[], &mut value(), &held());
        assert_eq!(dollars(&books), (10.0, 0.0));
    }

    #[test]
    fn users_pay_for_answers_and_the_provider_is_paid_for_frames() {
        let mut books = Books::new();
        books.reprice(0, tariff(1.0, 0.5));
        let sent = window(0, SECOND, 1.0);
        let retransmitted = Window { answered_bytes: sent.sent_bytes / 2, ..sent };
        books.close(&retransmitted, &[], &mut value(), &held());
        assert_eq!(dollars(&books), (10.0, 1.0 + 1.0));
    }

    #[test]
    fn a_window_in_which_a_price_changed_is_split() {
        let mut books = Books::new();
        books.reprice(0, tariff(1.0, 0.5));
        books.close(&window(0, SECOND, 1.0), &[], &mut value(), &held());
        assert_eq!(dollars(&books), (20.0, 2.0));
        // A quarter at the old price, the rest at the new one.
        books.reprice(SECOND + SECOND / 4, tariff(9.0, 0.5));
        books.close(&window(SECOND, 2 * SECOND, 1.0), &[], &mut value(), &held());
        assert_eq!(dollars(&books), (40.0, 2.0 + 0.25 * 2.0 + 0.75 * 10.0));
        books.close(&window(2 * SECOND, 3 * SECOND, 1.0), &[], &mut value(), &held());
        assert_eq!(dollars(&books), (60.0, 10.0 + 10.0), "and from then on the new one");
        assert_eq!(books.spans.len(), 1);
    }

    #[test]
    fn a_price_of_before_the_window_holds_for_all_of_it() {
        let mut books = Books::new();
        books.reprice(5, tariff(1.0, 0.5));
        books.close(&window(SECOND, 2 * SECOND, 1.0), &[], &mut value(), &held());
        assert_eq!(dollars(&books), (20.0, 2.0));
    }

    #[test]
    fn a_clock_that_goes_back_costs_nothing_and_stops_nothing() {
        let mut books = Books::new();
        books.close(&window(10 * SECOND, 9 * SECOND, 1.0), &[], &mut value(), &held());
        books.close(&window(SECOND, SECOND, 1.0), &[], &mut value(), &held());
        assert_eq!(books.account(&value()).entries, 0);
        books.close(&window(10 * SECOND, 11 * SECOND, 1.0), &[], &mut value(), &held());
        books.close(&window(SECOND, 2 * SECOND, 1.0), &[], &mut value(), &held());
        assert_eq!(dollars(&books).0, 40.0);
    }

    /// A second in windows of 20 ms, each with so many requests of 1000 bytes at so many microseconds: what
    /// was paid, and what a client would pay who pools the second.
    fn paid(windows: impl Fn(u64) -> (u64, u64), line: &str) -> (f64, f64) {
        let mut contract = self::contract(line);
        let (mut books, mut requests, mut sum) = (Books::new(), 0.0, 0.0);
        for number in 0..50 {
            let (count, micros) = windows(number);
            let (from_ns, to_ns) = (number * SECOND / 50, (number + 1) * SECOND / 50);
            let latency = Latency { mean_ns: micros * 1000, jitter_ns: 0, p99_ns: micros * 1000 };
            let window = Window {
                from_ns,
                to_ns,
                requests: count,
                answered_bytes: 1000 * count,
                latency,
                ..Window::default()
            };
            books.close(&window, &[], &mut contract, &held());
            (requests, sum) = (requests + count as f64, sum + count as f64 * micros as f64);
        }
        let gbit = requests * 8000.0 / 1e9;
        (books.account(&contract).revenue.dollars(), gbit * (20.0 + 0.01 / (sum / requests / 1e6)))
    }

    #[test]
    fn a_lucky_moment_mints_no_bonus() {
        const BONUS: &str = "Gbit; bonus 20 0.01";
        // Now and then a window has a few requests that took next to no time.
        for lucky_micros in [0, 1, 5] {
            let (paid, pooled) =
                paid(|number| if number % 5 == 0 { (20, lucky_micros) } else { (300, 400) }, BONUS);
            assert!((paid / pooled - 1.0).abs() < 1e-3, "{lucky_micros} us: {paid} {pooled}");
        }
        let even = |_| (300, 400);
        let (earned, pooled) = paid(even, BONUS);
        assert!(
            (earned / pooled - 1.0).abs() < 1e-3,
            "and what is even is worth the same: {earned} {pooled}"
        );
    }

    #[test]
    fn no_time_at_all_earns_no_more_than_a_microsecond() {
        let (nothing, one) =
            (paid(|_| (10, 0), "Gbit; bonus 20 0.01"), paid(|_| (10, 1), "Gbit; bonus 20 0.01"));
        assert_eq!(nothing.0, one.0);
    }

    #[test]
    fn what_is_late_by_turns_is_late_as_users_see_it() {
        // Half of the windows keep the promise by far, half break it: as one second, half of it is late.
        let mut contract = contract("Gbit; penalty 20 100 0.00075");
        let mut books = Books::new();
        for number in 0..50 {
            let mut window = window(number * SECOND / 50, (number + 1) * SECOND / 50, 1.0);
            window.latency.mean_ns = if number % 2 == 0 { 250_000 } else { 1_250_000 };
            books.close(&window, &[], &mut contract, &held());
        }
        assert_eq!(books.account(&contract).revenue.dollars().round(), 0.0, "all is compensated");
    }

    #[test]
    fn the_present_period_counts_as_if_it_had_ended() {
        let mut books = Books::new();
        for number in 0..75 {
            books.close(
                &window(number * SECOND / 50, (number + 1) * SECOND / 50, 1.0),
                &[],
                &mut value(),
                &held(),
            );
            let earned = 20.0 * (number + 1) as f64 / 50.0;
            assert!((dollars(&books).0 - earned).abs() < 1e-6, "{number}");
        }
    }

    proptest! {
        /// However prices change within windows, no time is left out and none is charged twice.
        #[test]
        fn all_time_is_charged_once(
            windows in prop::collection::vec((1_u64..50, prop::collection::vec(0_u64..4000, 0..20)), 1..20),
        ) {
            let (mut books, mut at, mut sum) = (Books::new(), 0, 0);
            books.reprice(0, tariff(1.0, 1.0));
            for (length, mut changes) in windows {
                let to = at + length * 1_000_000;
                changes.sort_unstable();
                for change in changes {
                    books.reprice(change * 1_000_000, tariff(1.0, 1.0));
                }
                books.close(&window(at, to, 1.0), &[], &mut value(), &held());
                (at, sum) = (to, sum + length);
            }
            let expected = sum as f64 / 1e3;
            prop_assert!((dollars(&books).0 - 20.0 * expected).abs() < 1e-6);
            prop_assert!((dollars(&books).1 - 3.0 * expected).abs() < 1e-6);
        }
    }
}
