//! The prices that are believed, as they go to the board.

use alloc::vec::Vec;
use nom_abi::prices::{PriceEntry, PriceList, PriceSource};
use nom_economy::prices as economy;
use nom_proto::prices::{Prices, Resource};

/// Why a price is not believed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Disbelief {
    /// It is absurd; the last good one stays.
    #[error("{0}")]
    Absurd(economy::Refusal),
    /// There are two; the first holds.
    #[error("a second price of {resource:?}, {dollars}, refused")]
    Twice {
        /// Whose.
        resource: Resource,
        /// The second one.
        dollars: f64,
    },
}

/// The last good price of each resource.
#[derive(Debug)]
pub struct Book {
    good: economy::Prices,
    list: PriceList,
    source: PriceSource,
    /// How old the prices were when the source named them last.
    age_ns: u64,
    /// What it named then, believed or not.
    named: Vec<(Resource, f64)>,
}

impl Book {
    /// An empty one, of prices from `source`.
    pub fn new(source: PriceSource) -> Book {
        let (good, list) = (economy::Prices::default(), PriceList::default());
        Book { good, list, source, age_ns: 0, named: Vec::new() }
    }

    /// Takes the prices that can be. Returns whether one differs from the last good one, or the revision
    /// does, and what was refused.
    pub fn take(&mut self, prices: &Prices, now_ns: u64) -> (bool, Vec<Disbelief>) {
        self.age_ns = (prices.age_seconds * 1e9) as u64; // Below zero, or no number: zero.
        let (mut differs, mut refused) = (prices.revision != self.list.revision, Vec::new());
        self.named.clear();
        for (index, price) in prices.prices.iter().enumerate() {
            let (resource, dollars) = (price.resource, price.dollars);
            if prices.prices[..index].iter().any(|earlier| earlier.resource == resource) {
                refused.push(Disbelief::Twice { resource, dollars });
                continue;
            }
            self.named.push((resource, dollars));
            match self.offer(resource, dollars, now_ns) {
                Ok(changed) => differs |= changed,
                Err(refusal) => refused.push(Disbelief::Absurd(refusal)),
            }
        }
        if differs {
            (self.list.revision, self.list.published_ns) = (prices.revision, now_ns);
        }
        (differs, refused)
    }

    fn offer(&mut self, resource: Resource, dollars: f64, now_ns: u64) -> Result<bool, economy::Refusal> {
        let confirmed_ns = self.confirmed_ns(now_ns);
        let differs = self.good.offer(resource, dollars, confirmed_ns)?;
        let resource = resource.into();
        let since_ns = self.list.get(resource).filter(|_| !differs).map_or(now_ns, |old| old.since_ns);
        self.list.set(PriceEntry { resource, source: self.source, dollars, since_ns, confirmed_ns });
        Ok(differs)
    }

    /// The source is alive, and had nothing else to say: it still says what it said last. Those prices hold,
    /// and are as old as they were when it named them; those that it named before, and not the last time, are
    /// not confirmed. Returns whether one is believed only now that it has been named so often.
    pub fn confirm(&mut self, now_ns: u64) -> bool {
        let named = core::mem::take(&mut self.named);
        let mut differs = false;
        for &(resource, dollars) in &named {
            differs |= self.offer(resource, dollars, now_ns) == Ok(true);
        }
        self.named = named;
        if differs {
            self.list.published_ns = now_ns;
        }
        differs
    }

    fn confirmed_ns(&self, now_ns: u64) -> u64 {
        if self.source == PriceSource::Fixed { u64::MAX } else { now_ns.saturating_sub(self.age_ns) }
    }

    /// What is to stand on the board.
    pub fn list(&self) -> &PriceList {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_abi::prices::PricedResource;
    use nom_proto::prices::Price;

    fn prices(revision: u64, named: &[(Resource, f64)]) -> Prices {
        let price = |&(resource, dollars)| Price { resource, dollars, since_unix_ns: 0 };
        Prices {
            revision,
            source: "test".into(),
            age_seconds: 2.0,
            prices: named.iter().map(price).collect(),
            next: Vec::new(),
        }
    }

    #[test]
    fn good_prices_stay_and_age_when_absurd_ones_come() {
        let mut book = Book::new(PriceSource::Provider);
        let first = [(Resource::NetworkOut, 1.0), (Resource::Core, 5.0)];
        assert_eq!(book.take(&prices(1, &first), 10_000_000_000), (true, vec![]));
        let second = [(Resource::NetworkOut, -1.0), (Resource::Core, 6.0), (Resource::Core, 7.0)];
        let (differs, refused) = book.take(&prices(2, &second), 20_000_000_000);
        let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
        assert!(differs);
        assert_eq!(
            refused,
            [
                "price of NetworkOut -1 $/Gbit refused: a price is not negative",
                "a second price of Core, 7, refused"
            ]
        );
        let entry = |resource| book.list().get(resource).expect("it has a price");
        let (out, core) = (entry(PricedResource::NetworkOut), entry(PricedResource::Core));
        assert_eq!((out.dollars, out.since_ns, out.confirmed_ns), (1.0, 10_000_000_000, 8_000_000_000));
        assert_eq!((core.dollars, core.since_ns, core.confirmed_ns), (6.0, 20_000_000_000, 18_000_000_000));
        assert_eq!((book.list().revision, book.list().published_ns), (2, 20_000_000_000));
    }

    #[test]
    fn a_heartbeat_confirms_what_was_named_last() {
        let mut book = Book::new(PriceSource::Provider);
        book.take(&prices(1, &[(Resource::NetworkOut, 1.0), (Resource::Core, 5.0)]), 10_000_000_000);
        let again = book.take(&prices(1, &[(Resource::Core, 5.0)]), 20_000_000_000);
        assert_eq!(again, (false, vec![]), "nothing has changed");
        book.confirm(30_000_000_000);
        let ages: Vec<u64> =
            book.list().iter().map(|entry| entry.age_ns(30_000_000_000) / 1_000_000_000).collect();
        assert_eq!(ages, [22, 2]);
    }

    #[test]
    fn an_absurd_first_price_gives_way_to_one_that_stays() {
        let mut book = Book::new(PriceSource::Provider);
        book.take(&prices(1, &[(Resource::Core, 1e12)]), 10_000_000_000);
        let (_, refused) = book.take(&prices(2, &[(Resource::Core, 5.0)]), 20_000_000_000);
        assert_eq!(refused.len(), 1);
        let core = |book: &Book| book.list().get(PricedResource::Core).expect("a price");
        assert_eq!(core(&book).dollars, 1e12);
        assert!(book.confirm(30_000_000_000), "it still says so");
        assert_eq!((core(&book).dollars, core(&book).since_ns), (5.0, 30_000_000_000));
        assert!(!book.confirm(40_000_000_000));
    }

    #[test]
    fn a_schedule_needs_no_confirmation() {
        let mut book = Book::new(PriceSource::Fixed);
        book.take(&prices(1, &[(Resource::Core, 5.0)]), 10);
        let entry = book.list().get(PricedResource::Core).expect("a price");
        assert_eq!((entry.age_ns(u64::MAX), entry.source), (0, PriceSource::Fixed));
    }
}
