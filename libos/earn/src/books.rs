//! What was earned: every window at the prices of its time, in whole nano-dollars.

use crate::market::Tariff;
use alloc::vec::Vec;
use nom_economy::ledger::{Account, Activity, Entry, Interval, Ledger, Money};
use nom_economy::prices::Usage;
use nom_economy::response::Response;
use nom_economy::utility::Utility;

/// The one account of an application's own books.
const SELF: Activity = Activity(0);
/// Price changes remembered within one window; from then on the last one gives way.
const SPANS_MAX: usize = 16;

/// Ledger of one application, and the tariffs since its last window.
#[derive(Debug)]
pub(crate) struct Books {
    ledger: Ledger,
    /// Time served so far: the ledger's own time, which no jump of the clock disturbs.
    served_ns: u64,
    /// Tariffs, each since when, the present one last. Never empty.
    spans: Vec<(u64, Tariff)>,
}

impl Books {
    pub fn new() -> Books {
        let mut ledger = Ledger::default();
        ledger.open(SELF);
        let mut spans = Vec::with_capacity(SPANS_MAX);
        spans.push((0, Tariff::default()));
        Books { ledger, served_ns: 0, spans }
    }

    /// From `since_ns` on the tariff is another one, though not from before the last change.
    pub fn reprice(&mut self, since_ns: u64, tariff: Tariff) {
        if self.spans.len() == SPANS_MAX {
            self.spans.pop();
        }
        let last_ns = self.spans.last().map_or(0, |span| span.0);
        self.spans.push((since_ns.max(last_ns), tariff));
    }

    /// Adds a window in which the application responded like this and held this. Where the tariff changed
    /// within, each part is charged at its own, as if requests had come evenly.
    pub fn close(&mut self, from_ns: u64, to_ns: u64, utility: &Utility, response: &Response, held: &Usage) {
        let usage = Usage { network_out: response.sent, network_in: response.received, ..*held };
        for index in 0..self.spans.len() {
            let (since_ns, tariff) = self.spans[index];
            let start_ns = if index == 0 { from_ns } else { since_ns.clamp(from_ns, to_ns) };
            let end_ns = self.spans.get(index + 1).map_or(to_ns, |next| next.0.clamp(from_ns, to_ns));
            let length_ns = end_ns.saturating_sub(start_ns);
            let Some(interval) = Interval::new(self.served_ns, self.served_ns.saturating_add(length_ns))
            else {
                continue;
            };
            self.served_ns = self.served_ns.saturating_add(length_ns);
            let revenue = utility.revenue(response, &tariff.prices);
            let entry = Entry { activity: SELF, interval, cost: tariff.prices.cost(&usage), revenue };
            // Refused only beyond 10^29 dollars, where the sums stay as they are.
            let _ = self.ledger.post(&entry);
        }
        self.spans.drain(..self.spans.len() - 1);
        // Whatever the clock does next, the present tariff is in force.
        self.spans[0].0 = 0;
    }

    /// Sums so far.
    pub fn account(&self) -> Account {
        self.ledger.account(SELF).unwrap_or_default()
    }

    /// Revenue and cost so far.
    pub fn sums(&self) -> (Money, Money) {
        let account = self.account();
        (account.revenue, account.cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_economy::prices::{Prices, Resource};
    use nom_economy::units::{Cores, GbitPerSecond, OperationsPerSecond, Seconds};
    use nom_economy::utility::Latency;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn tariff(network_out: f64, core: f64) -> Tariff {
        let mut prices = Prices::default();
        prices.offer(Resource::NetworkOut, network_out, 0).expect("good");
        prices.offer(Resource::Core, core, 0).expect("good");
        Tariff { prices, revision: 1 }
    }

    fn response(sent: f64) -> Response {
        let seconds = |micros| Seconds::from_micros(micros);
        let latency = Latency::new(seconds(100), seconds(10), seconds(200)).expect("above 0");
        let data = |value| GbitPerSecond::new(value).expect("data");
        let throughput = OperationsPerSecond::new(1000.0).expect("a rate");
        Response { throughput, sent: data(sent), received: data(0.0), latency }
    }

    fn held() -> Usage {
        Usage { cores: Cores::new(2.0).expect("two"), ..Usage::default() }
    }

    fn utility() -> Utility {
        "Gbit; value 20".parse().expect("good")
    }

    fn dollars(books: &Books) -> (f64, f64) {
        let (revenue, cost) = books.sums();
        (revenue.dollars(), cost.dollars())
    }

    #[test]
    fn without_prices_only_revenue_is_booked() {
        let mut books = Books::new();
        books.close(0, SECOND / 2, &utility(), &response(1.0), &held());
        assert_eq!(dollars(&books), (10.0, 0.0));
    }

    #[test]
    fn a_window_in_which_a_price_changed_is_split() {
        let mut books = Books::new();
        books.reprice(0, tariff(1.0, 0.5));
        books.close(0, SECOND, &utility(), &response(1.0), &held());
        assert_eq!(dollars(&books), (20.0, 2.0));
        // A quarter at the old price, the rest at the new one.
        books.reprice(SECOND + SECOND / 4, tariff(9.0, 0.5));
        books.close(SECOND, 2 * SECOND, &utility(), &response(1.0), &held());
        assert_eq!(dollars(&books), (40.0, 2.0 + 0.25 * 2.0 + 0.75 * 10.0));
        books.close(2 * SECOND, 3 * SECOND, &utility(), &response(1.0), &held());
        assert_eq!(dollars(&books), (60.0, 10.0 + 10.0), "and from then on the new one");
        assert_eq!(books.spans.len(), 1);
    }

    #[test]
    fn a_price_of_before_the_window_holds_for_all_of_it() {
        let mut books = Books::new();
        books.reprice(5, tariff(1.0, 0.5));
        books.close(SECOND, 2 * SECOND, &utility(), &response(1.0), &held());
        assert_eq!(dollars(&books), (20.0, 2.0));
    }

    #[test]
    fn a_clock_that_goes_back_costs_nothing_and_stops_nothing() {
        let mut books = Books::new();
        books.close(10 * SECOND, 9 * SECOND, &utility(), &response(1.0), &held());
        books.close(SECOND, SECOND, &utility(), &response(1.0), &held());
        assert_eq!(books.account().entries, 0);
        books.close(10 * SECOND, 11 * SECOND, &utility(), &response(1.0), &held());
        books.close(SECOND, 2 * SECOND, &utility(), &response(1.0), &held());
        assert_eq!(dollars(&books).0, 40.0);
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
                books.close(at, to, &utility(), &response(1.0), &held());
                (at, sum) = (to, sum + length);
            }
            let expected = sum as f64 / 1e3;
            prop_assert!((dollars(&books).0 - 20.0 * expected).abs() < 1e-6);
            prop_assert!((dollars(&books).1 - 3.0 * expected).abs() < 1e-6);
        }
    }
}
