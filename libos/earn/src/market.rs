//! What resources cost, as the board says and as far as that can be believed.

use nom_abi::board;
use nom_abi::prices::PriceList;
use nom_economy::prices::{Prices, Refusal, Resource};

/// Where prices are posted: the bulletin board, or a test's idea of it.
pub trait PriceBoard {
    /// Differs whenever something was posted since. Asked all the time: one load from memory.
    fn sequence(&self) -> u32;

    /// What is posted; nothing while it is being written. Nobody has checked that it can be.
    fn read(&self) -> Option<PriceList>;
}

impl PriceBoard for &board::Prices {
    fn sequence(&self) -> u32 {
        self.sequence.generation()
    }

    fn read(&self) -> Option<PriceList> {
        board::Prices::read(self)
    }
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

    /// The board's sequence that was read last.
    pub fn seen(&self) -> Option<u32> {
        self.seen
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
        for resource in Resource::ALL {
            let Some(posting) = posted.get(resource.into()) else { continue };
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
mod tests {
    use super::*;
    use core::cell::Cell;
    use nom_abi::prices::{PriceEntry, PriceSource};
    use zerocopy::FromZeros;

    /// A board that a test writes, lies too.
    #[derive(Default)]
    struct Board {
        sequence: Cell<u32>,
        posted: Cell<PriceList>,
        is_being_written: Cell<bool>,
    }

    impl Board {
        fn post(&self, resource: Resource, dollars: f64, since_ns: u64) {
            let mut posted = self.posted.get();
            posted.revision += 1;
            let (resource, source) = (resource.into(), PriceSource::Provider);
            posted.set(PriceEntry { resource, source, dollars, since_ns, confirmed_ns: since_ns });
            self.posted.set(posted);
            self.sequence.set(self.sequence.get() + 1);
        }
    }

    impl PriceBoard for &Board {
        fn sequence(&self) -> u32 {
            self.sequence.get()
        }

        fn read(&self) -> Option<PriceList> {
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
    fn the_bulletin_board_is_a_board() {
        let (page, mut market) = (Box::new(board::Prices::new_zeroed()), Market::default());
        assert_eq!(market.look(&&*page, 1, |_| {}), None);
        let mut list = PriceList::new(7, 20);
        let source = PriceSource::Provider;
        for (resource, dollars) in Resource::ALL.into_iter().zip([1.0, f64::NAN, 3.0, 4.0, 5.0, 6.0]) {
            let resource = resource.into();
            list.set(PriceEntry { resource, source, dollars, since_ns: 20, confirmed_ns: u64::MAX });
        }
        page.publish(&list);
        assert_eq!(market.look(&&*page, 30, |_| {}), Some(20));
        assert_eq!(market.look(&&*page, 31, |_| {}), None);
        let tariff = market.tariff();
        assert_eq!(Resource::ALL.map(|resource| tariff.price(resource)), [1.0, 0.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(tariff.revision, 7);
        assert_eq!(tariff.prices.age_ns(Resource::Core, 99), Some(0), "it needs no confirmation");
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
