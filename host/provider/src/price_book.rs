//! The present prices, who named them, and everybody who wants to hear of changes.

use crate::clock::Moment;
use crate::pace::{Course, Pace};
use nom_economy::prices as economy;
use nom_proto::prices::{Price, Prices, Resource};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

const RESOURCES: usize = Resource::ALL.len();

/// For how long a price is good after it was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Until whoever named it names another, as an operator or a schedule does: its age is always 0.
    Lasting,
    /// As long as its source confirms it; this many nanoseconds ago the source itself learned it.
    Observed {
        /// Age at the source.
        age_ns: u64,
    },
}

/// A price that was refused; the last good one stays.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{refusal}")]
pub struct Refused {
    /// Which of the prices offered, from 0.
    pub index: usize,
    /// Why.
    pub refusal: economy::Refusal,
}

/// What to do with the good ones of several offered prices when others are absurd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    AllOrNone,
    Each,
}

#[derive(Clone, Debug, Default)]
struct State {
    good: economy::Prices,
    since_unix_ns: [u64; RESOURCES],
    lasting: [bool; RESOURCES],
    revision: u64,
    courses: [Course; RESOURCES],
    /// What a price is on its way to, if it may not go there at once.
    wanted: [Option<f64>; RESOURCES],
    /// What is announced.
    next: Vec<Price>,
}

impl State {
    fn offer(
        &mut self,
        resource: Resource,
        dollars: f64,
        standing: Standing,
        now: Moment,
        pace: Pace,
    ) -> Result<bool, economy::Refusal> {
        let age_ns = match standing {
            Standing::Lasting => 0,
            Standing::Observed { age_ns } => age_ns,
        };
        let confirmed_ns = now.steady_ns.saturating_sub(age_ns);
        // What is absurd is so by itself, and not by what becomes of it.
        let mut judged = self.good;
        if let Err(refusal) = judged.offer(resource, dollars, confirmed_ns) {
            self.good = judged; // Where only its doubts are others.
            return Err(refusal);
        }
        let near = self.courses[resource as usize].limit(pace, dollars, now.steady_ns);
        self.wanted[resource as usize] = (near != dollars).then_some(dollars);
        let differs = self.good.offer(resource, near, confirmed_ns)?;
        if differs {
            self.moved(resource, near, now);
        }
        self.lasting[resource as usize] = standing == Standing::Lasting;
        Ok(differs)
    }

    fn moved(&mut self, resource: Resource, dollars: f64, now: Moment) {
        self.since_unix_ns[resource as usize] = now.unix_ns;
        self.courses[resource as usize].note(dollars, now.steady_ns);
    }

    /// Goes on toward what is wanted; whether anything moved.
    fn approach(&mut self, now: Moment, pace: Pace) -> bool {
        let mut differs = false;
        for resource in Resource::ALL {
            let Some(wanted) = self.wanted[resource as usize] else { continue };
            let near = self.courses[resource as usize].limit(pace, wanted, now.steady_ns);
            // A price that moves is as old as before: nobody has confirmed it anew.
            let confirmed_ns = self.good.quote(resource).map_or(now.steady_ns, |quote| quote.confirmed_ns);
            if self.good.offer(resource, near, confirmed_ns) == Ok(true) {
                self.moved(resource, near, now);
                differs = true;
            }
            self.wanted[resource as usize] = (near != wanted).then_some(wanted);
        }
        self.revision += u64::from(differs);
        differs
    }

    fn age_ns(&self, resource: Resource, now: Moment) -> Option<u64> {
        let age = self.good.age_ns(resource, now.steady_ns)?;
        Some(if self.lasting[resource as usize] { 0 } else { age })
    }

    fn price(&self, resource: Resource) -> Option<Price> {
        let dollars = self.good.quote(resource)?.price;
        Some(Price { resource, dollars, since_unix_ns: self.since_unix_ns[resource as usize] })
    }
}

/// Present prices.
#[derive(Debug)]
pub(crate) struct PriceBook {
    source: String,
    pace: Pace,
    state: watch::Sender<State>,
    refused: [AtomicU64; RESOURCES],
}

impl PriceBook {
    /// An empty one, whose prices come from `source` (for people), and move at that pace.
    pub fn new(source: String, pace: Pace) -> PriceBook {
        PriceBook { source, pace, state: watch::Sender::new(State::default()), refused: Default::default() }
    }

    /// Takes prices; however many change, it is one revision. Returns the revision in force, and what was
    /// refused.
    pub fn offer(
        &self,
        offers: &[(Resource, f64)],
        standing: Standing,
        taking: Taking,
        now: Moment,
    ) -> (u64, Vec<Refused>) {
        let mut refused = Vec::new();
        let mut revision = 0;
        self.state.send_if_modified(|state| {
            let mut next = state.clone();
            let mut differs = false;
            for (index, &(resource, dollars)) in offers.iter().enumerate() {
                match next.offer(resource, dollars, standing, now, self.pace) {
                    Ok(changed) => differs |= changed,
                    Err(refusal) => refused.push(Refused { index, refusal }),
                }
            }
            let taken = taking == Taking::Each || refused.is_empty();
            if taken {
                next.revision += u64::from(differs);
                *state = next;
            } else {
                state.good.doubt_as(&next.good);
            }
            revision = state.revision;
            taken && differs
        });
        for refused in &refused {
            let (resource, _) = offers[refused.index];
            self.refused[resource as usize].fetch_add(1, Ordering::Relaxed);
        }
        (revision, refused)
    }

    /// Whether prices may move at a certain pace only, so that [`PriceBook::approach`] has something to do.
    pub fn is_paced(&self) -> bool {
        self.pace.is_limited()
    }

    /// Lets prices go on toward what their sources want; to be called every second or so.
    pub fn approach(&self, now: Moment) {
        self.state.send_if_modified(|state| state.approach(now, self.pace));
    }

    /// Takes what a source announces, in place of all that it announced of the same resources.
    pub fn announce(&self, next: &[Price]) {
        self.state.send_if_modified(|state| {
            let others = state.next.iter().filter(|old| next.iter().all(|new| new.resource != old.resource));
            let all: Vec<Price> = others.chain(next).copied().collect();
            let differs = all != state.next;
            state.next = all;
            differs
        });
    }

    /// The present prices.
    pub fn prices(&self, now: Moment) -> Prices {
        self.describe(&self.state.borrow(), now)
    }

    /// How long ago the price of a resource was last confirmed, in nanoseconds.
    pub fn age_ns(&self, resource: Resource, now: Moment) -> Option<u64> {
        self.state.borrow().age_ns(resource, now)
    }

    /// How many prices of a resource were refused so far.
    pub fn refused(&self, resource: Resource) -> u64 {
        self.refused[resource as usize].load(Ordering::Relaxed)
    }

    /// Hears of every change; changes that follow closely upon another may come as one.
    pub fn follow(&self) -> Follower {
        Follower(self.state.subscribe())
    }

    /// What a follower has heard of.
    pub fn heard(&self, follower: &mut Follower, now: Moment) -> Prices {
        self.describe(&follower.0.borrow_and_update(), now)
    }

    fn describe(&self, state: &State, now: Moment) -> Prices {
        let oldest_ns = Resource::ALL.iter().filter_map(|&resource| state.age_ns(resource, now)).max();
        Prices {
            revision: state.revision,
            source: self.source.clone(),
            age_seconds: oldest_ns.unwrap_or(0) as f64 / 1e9,
            prices: Resource::ALL.iter().filter_map(|&resource| state.price(resource)).collect(),
            next: state.next.iter().filter(|next| next.since_unix_ns > now.unix_ns).copied().collect(),
        }
    }
}

/// Somebody who hears of changes of prices.
#[derive(Debug)]
pub(crate) struct Follower(watch::Receiver<State>);

impl Follower {
    /// Waits until prices differ from the last ones heard of; `false` if there will be no more.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: Resource = Resource::NetworkOut;
    const OBSERVED: Standing = Standing::Observed { age_ns: 0 };

    fn at(seconds: u64) -> Moment {
        Moment { unix_ns: seconds * 1_000_000_000, steady_ns: (1000 + seconds) * 1_000_000_000 }
    }

    fn book() -> PriceBook {
        PriceBook::new("test".into(), Pace::default())
    }

    #[test]
    fn the_revision_grows_with_changes_and_with_nothing_else() {
        let book = book();
        let offer = |dollars, seconds| book.offer(&[(OUT, dollars)], OBSERVED, Taking::Each, at(seconds)).0;
        assert_eq!(book.prices(at(0)).revision, 0);
        assert_eq!((offer(1.0, 1), offer(1.0, 2), offer(10.0, 3), offer(-1.0, 4)), (1, 1, 2, 2));
        let prices = book.prices(at(5));
        assert_eq!((prices.revision, prices.age_seconds), (2, 2.0), "refused prices confirm nothing");
        assert_eq!(prices.prices, [Price { resource: OUT, dollars: 10.0, since_unix_ns: 3_000_000_000 }]);
        assert_eq!(book.refused(OUT), 1);
    }

    #[test]
    fn a_price_goes_on_toward_what_is_wanted_and_no_faster_than_it_may() {
        let pace = Pace::new(Some(2.0), None).expect("a factor");
        let book = PriceBook::new("test".into(), pace);
        let price = |seconds| book.prices(at(seconds)).prices[0].dollars;
        book.offer(&[(OUT, 1.0)], OBSERVED, Taking::Each, at(1));
        book.offer(&[(OUT, 5.0)], OBSERVED, Taking::Each, at(2));
        let mut seen = vec![price(2)];
        for seconds in 3..6 {
            book.approach(at(seconds));
            seen.push(price(seconds));
        }
        assert_eq!(seen, [2.0, 4.0, 5.0, 5.0]);
        assert_eq!((book.prices(at(6)).revision, book.prices(at(6)).age_seconds), (4, 4.0));
        let (_, refused) = book.offer(&[(OUT, f64::NAN)], OBSERVED, Taking::Each, at(7));
        assert_eq!((refused.len(), price(7)), (1, 5.0));
    }

    #[test]
    fn what_is_announced_is_told_until_it_is_due() {
        let book = book();
        let next = |seconds| book.prices(at(seconds)).next.len();
        let announced = Price { resource: OUT, dollars: 2.0, since_unix_ns: at(10).unix_ns };
        book.announce(&[announced]);
        book.announce(&[Price { resource: Resource::Core, ..announced }]);
        assert_eq!((next(1), next(9), next(10)), (2, 2, 0));
        book.announce(&[Price { since_unix_ns: at(20).unix_ns, ..announced }]);
        assert_eq!(next(15), 1);
    }

    #[test]
    fn an_operators_prices_are_taken_together_or_not_at_all() {
        let book = book();
        let offers = [(Resource::Core, 1.0), (OUT, 0.0)];
        let (revision, refused) = book.offer(&offers, Standing::Lasting, Taking::AllOrNone, at(1));
        assert_eq!((revision, refused.len(), refused[0].index), (0, 1, 1));
        assert!(book.prices(at(1)).prices.is_empty());
        let (revision, _) = book.offer(&offers, Standing::Lasting, Taking::Each, at(1));
        assert_eq!((revision, book.prices(at(1)).prices.len()), (1, 1));
    }

    #[test]
    fn what_lasts_does_not_age_and_what_is_observed_does() {
        let book = book();
        book.offer(&[(OUT, 1.0)], Standing::Lasting, Taking::Each, at(1));
        assert_eq!(book.prices(at(100)).age_seconds, 0.0);
        let old = Standing::Observed { age_ns: 7_000_000_000 };
        book.offer(&[(Resource::Core, 1.0)], old, Taking::Each, at(100));
        assert_eq!(book.prices(at(103)).age_seconds, 10.0);
        assert_eq!(book.age_ns(OUT, at(103)), Some(0));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_follower_hears_of_changes_alone() {
        let book = book();
        let mut follower = book.follower_at_present();
        book.offer(&[(OUT, 1.0)], OBSERVED, Taking::Each, at(1));
        assert!(follower.changed().await);
        assert_eq!(book.heard(&mut follower, at(1)).revision, 1);
        book.offer(&[(OUT, 1.0)], OBSERVED, Taking::Each, at(2));
        assert!(follower.0.has_changed().is_ok_and(|changed| !changed));
    }

    impl PriceBook {
        fn follower_at_present(&self) -> Follower {
            let mut follower = self.follow();
            self.heard(&mut follower, at(0));
            follower
        }
    }
}
