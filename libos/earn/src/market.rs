//! What resources cost, as the board says and as far as that can be believed.

use nom_economy::prices::{Prices, Refusal, Resource};

/// Where prices are posted: the bulletin board, or a test's idea of it.
pub trait PriceBoard {
    /// Differs whenever something was posted since. Asked all the time: one load from memory.
    fn sequence(&self) -> u32;

    /// What is posted; nothing while it is being written.
    fn read(&self) -> Option<Posted>;
}

/// Prices as they are posted: nobody has checked them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Posted {
    /// Changes whenever a price does.
    pub revision: u64,
    /// By resource.
    pub prices: [Option<Posting>; Resource::COUNT],
}

/// One price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Posting {
    /// Dollars for one unit of the resource.
    pub dollars: f64,
    /// Since when.
    pub since_ns: u64,
    /// When its source last confirmed it.
    pub confirmed_ns: u64,
}

/// Prices that are reckoned with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tariff {
    /// The last good price of each resource.
    pub prices: Prices,
    /// The provider's revision of them; 0 before there are any.
    pub revision: u64,
}

impl Tariff {
    /// A price, in dollars for a unit; 0 if there is none.
    #[must_use]
    pub fn price(&self, resource: Resource) -> f64 {
        self.prices.quote(resource).map_or(0.0, |quote| quote.price)
    }

    /// Whether any resource has a price.
    #[must_use]
    pub fn is_known(&self) -> bool {
        Resource::ALL.into_iter().any(|resource| self.prices.quote(resource).is_some())
    }
}

/// The tariff, and what of the board is in it.
#[derive(Debug, Default)]
pub(crate) struct Market {
    /// The board's sequence that was read last; at first none.
    seen: Option<u32>,
    tariff: Tariff,
    /// What was refused last of each resource, so that it is told once. Compared bit by bit: a NaN is equal
    /// to itself.
    refused: [Option<u64>; Resource::COUNT],
}

impl Market {
    /// The prices to reckon with.
    pub fn tariff(&self) -> &Tariff {
        &self.tariff
    }

    /// Takes over what is new on the board. Returns since when prices are others than before, if they are.
    /// What is not to be believed is told `refuse`, and the last good price stays.
    pub fn look(
        &mut self,
        board: &impl PriceBoard,
        now_ns: u64,
        mut refuse: impl FnMut(&Refusal),
    ) -> Option<u64> {
        let sequence = board.sequence();
        if self.seen == Some(sequence) {
            return None;
        }
        let posted = board.read()?;
        self.seen = Some(sequence);
        let mut since_ns = None;
        for (resource, posting) in Resource::ALL.into_iter().zip(posted.prices) {
            let Some(posting) = posting else { continue };
            match self.tariff.prices.offer(resource, posting.dollars, posting.confirmed_ns) {
                Ok(is_new) => {
                    self.refused[resource as usize] = None;
                    since_ns = since_ns.max(is_new.then(|| posting.since_ns.min(now_ns)));
                }
                Err(refusal) => {
                    let bits = Some(refusal.offered.to_bits());
                    if core::mem::replace(&mut self.refused[resource as usize], bits) != bits {
                        refuse(&refusal);
                    }
                }
            }
        }
        if self.tariff.is_known() {
            self.tariff.revision = posted.revision;
        }
        since_ns
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use core::cell::Cell;

    /// A board that a test writes.
    #[derive(Default)]
    pub(crate) struct Board {
        pub sequence: Cell<u32>,
        pub posted: Cell<Posted>,
        pub is_being_written: Cell<bool>,
    }

    impl Board {
        pub fn post(&self, resource: Resource, dollars: f64, since_ns: u64) {
            let mut posted = self.posted.get();
            posted.revision += 1;
            posted.prices[resource as usize] = Some(Posting { dollars, since_ns, confirmed_ns: since_ns });
            self.posted.set(posted);
            self.sequence.set(self.sequence.get() + 1);
        }
    }

    impl PriceBoard for &Board {
        fn sequence(&self) -> u32 {
            self.sequence.get()
        }

        fn read(&self) -> Option<Posted> {
            (!self.is_being_written.get()).then(|| self.posted.get())
        }
    }

    fn look(market: &mut Market, board: &Board, now_ns: u64) -> (Option<u64>, u32) {
        let mut refusals = 0;
        (market.look(&board, now_ns, |_| refusals += 1), refusals)
    }

    #[test]
    fn a_price_counts_since_it_took_effect_and_not_from_the_future() {
        let (board, mut market) = (Board::default(), Market::default());
        assert_eq!(look(&mut market, &board, 5), (None, 0));
        assert!(!market.tariff().is_known());
        board.post(Resource::NetworkOut, 1.0, 10);
        assert_eq!(look(&mut market, &board, 30), (Some(10), 0));
        assert_eq!(look(&mut market, &board, 31), (None, 0), "nothing is new");
        board.post(Resource::NetworkOut, 1.0, 40);
        assert_eq!(look(&mut market, &board, 50), (None, 0), "confirmed");
        assert_eq!(market.tariff().prices.age_ns(Resource::NetworkOut, 50), Some(10));
        board.post(Resource::NetworkOut, 2.0, u64::MAX);
        assert_eq!(look(&mut market, &board, 60), (Some(60), 0));
        assert_eq!((market.tariff().price(Resource::NetworkOut), market.tariff().revision), (2.0, 3));
    }

    #[test]
    fn lies_are_told_once_and_leave_the_last_good_price() {
        let (board, mut market) = (Board::default(), Market::default());
        board.post(Resource::Core, 3.0, 1);
        look(&mut market, &board, 1);
        for (lie, refusals) in
            [(f64::NAN, 1), (f64::NAN, 0), (0.0, 1), (-1.0, 1), (f64::INFINITY, 1), (9e9, 1)]
        {
            board.post(Resource::Core, lie, 2);
            assert_eq!(look(&mut market, &board, 3), (None, refusals), "{lie}");
            assert_eq!(market.tariff().price(Resource::Core), 3.0);
            assert_eq!(market.tariff().prices.age_ns(Resource::Core, 101), Some(100), "it grows old");
        }
    }

    #[test]
    fn what_is_being_written_is_read_later() {
        let (board, mut market) = (Board::default(), Market::default());
        board.post(Resource::Memory, 3.0, 1);
        board.is_being_written.set(true);
        assert_eq!(look(&mut market, &board, 1), (None, 0));
        board.is_being_written.set(false);
        assert_eq!(look(&mut market, &board, 2), (Some(1), 0));
    }
}
