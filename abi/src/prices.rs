//! The prices on the bulletin board: what resources cost, since when, and how sure that is.
//!
//! They lie on pages of their own, which the kernel maps writable for the one application whose manifest says
//! `publishes_prices`, and read-only for all others; it never looks at them itself. So whoever reads them
//! trusts that application with prices and with nothing else: whatever it writes, a reader neither waits for
//! ever nor sees a price that cannot be ([`Prices::read`]).

use crate::seqlock::Sequence;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use zerocopy::FromZeros;

/// Most prices that the board holds.
pub const PRICES_MAX: usize = 16;
/// How often a reader tries to read while the publisher writes.
const ATTEMPTS: u32 = 64;

/// What a price is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PricedResource {
    /// Nothing: an empty entry.
    None = 0,
    /// A core-second.
    Core = 1,
    /// A GiB-second of memory.
    Memory = 2,
    /// An outgoing gigabit.
    NetworkOut = 3,
    /// An incoming gigabit.
    NetworkIn = 4,
    /// A storage operation.
    Storage = 5,
    /// A joule.
    Energy = 6,
}

impl PricedResource {
    /// All that can have a price.
    pub const ALL: [PricedResource; 6] =
        [Self::Core, Self::Memory, Self::NetworkOut, Self::NetworkIn, Self::Storage, Self::Energy];

    /// The resource with this code; `None` for an empty entry, too.
    pub fn from_code(code: u32) -> Option<PricedResource> {
        Self::ALL.into_iter().find(|resource| *resource as u32 == code)
    }
}

/// Who said that a resource costs so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PriceSource {
    /// It is not known.
    Unknown = 0,
    /// The provider of the machine.
    Provider = 1,
    /// A schedule that the machine was given when it was started.
    Fixed = 2,
}

impl PriceSource {
    /// The source with this code.
    pub fn from_code(code: u32) -> PriceSource {
        [Self::Provider, Self::Fixed]
            .into_iter()
            .find(|source| *source as u32 == code)
            .unwrap_or(Self::Unknown)
    }
}

/// One price, as it stands on the board.
#[derive(Debug, FromZeros)]
#[repr(C)]
pub struct Price {
    /// A [`PricedResource`].
    pub resource: AtomicU32,
    /// A [`PriceSource`].
    pub source: AtomicU32,
    /// Dollars for one unit of the resource: the bits of an IEEE 754 double.
    pub dollars: AtomicU64,
    /// Board time at which it was first published, in nanoseconds.
    pub since_ns: AtomicU64,
    /// Board time at which its source last confirmed it, in nanoseconds.
    pub confirmed_ns: AtomicU64,
}

/// Present prices, on pages of their own.
#[derive(Debug, FromZeros)]
#[repr(C, align(4096))]
pub struct Prices {
    /// Guards the section.
    pub sequence: Sequence,
    /// Entries in use.
    pub count: AtomicU32,
    /// The provider's revision of the prices; it changes whenever one of them does.
    pub revision: AtomicU64,
    /// Board time at which this revision was published, in nanoseconds.
    pub published_ns: AtomicU64,
    /// The prices.
    pub entries: [Price; PRICES_MAX],
}

/// One price, as it is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PriceEntry {
    /// What it is for.
    pub resource: PricedResource,
    /// Who said so.
    pub source: PriceSource,
    /// Dollars for one unit of the resource: a finite number above 0.
    pub dollars: f64,
    /// Board time at which it was first published, in nanoseconds.
    pub since_ns: u64,
    /// Board time at which its source last confirmed it, in nanoseconds; `u64::MAX` if it needs no
    /// confirmation.
    pub confirmed_ns: u64,
}

impl PriceEntry {
    /// How long ago its source last confirmed it, in nanoseconds.
    pub fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.confirmed_ns)
    }
}

/// All prices at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PriceList {
    /// The provider's revision of the prices; 0 before there are any.
    pub revision: u64,
    /// Board time at which this revision was published, in nanoseconds.
    pub published_ns: u64,
    entries: [Option<PriceEntry>; PRICES_MAX],
}

impl PriceList {
    /// No prices yet, of a revision that is published at `published_ns` of the board's time.
    pub fn new(revision: u64, published_ns: u64) -> PriceList {
        PriceList { revision, published_ns, ..PriceList::default() }
    }

    /// The price of a resource, if it has one.
    pub fn get(&self, resource: PricedResource) -> Option<PriceEntry> {
        self.iter().find(|entry| entry.resource == resource)
    }

    /// Sets the price of a resource.
    pub fn set(&mut self, entry: PriceEntry) {
        let slots = &mut self.entries;
        let same = slots.iter().position(|slot| slot.is_some_and(|old| old.resource == entry.resource));
        let free = || slots.iter().position(Option::is_none);
        let slot = same.or_else(free).expect("there is room for every resource");
        slots[slot] = Some(entry);
    }

    /// The prices.
    pub fn iter(&self) -> impl Iterator<Item = PriceEntry> {
        self.entries.iter().flatten().copied()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl Prices {
    /// Present prices. Entries that name no resource, or a price that is no finite number above 0, are left
    /// out. `None` while they are being written: whoever had prices keeps them, and looks again later, for
    /// the publisher may have lost its core, or ended, in the middle.
    pub fn read(&self) -> Option<PriceList> {
        self.sequence.read_within(ATTEMPTS, || {
            let mut list = PriceList::new(self.revision.load(Relaxed), self.published_ns.load(Relaxed));
            let count = self.count.load(Relaxed) as usize;
            self.entries.iter().take(count).filter_map(Price::read).for_each(|entry| list.set(entry));
            list
        })
    }

    /// Puts `list` on the board. Only the one application that publishes prices may: for others the memory is
    /// read-only, and the write ends them. It has one core at a time do it.
    pub fn publish(&self, list: &PriceList) {
        self.sequence.write(|| {
            self.revision.store(list.revision, Relaxed);
            self.published_ns.store(list.published_ns, Relaxed);
            self.count.store(list.iter().count() as u32, Relaxed);
            self.entries.iter().zip(list.iter()).for_each(|(price, entry)| price.write(&entry));
        });
    }
}

impl Price {
    fn read(&self) -> Option<PriceEntry> {
        let dollars = f64::from_bits(self.dollars.load(Relaxed));
        Some(PriceEntry {
            resource: PricedResource::from_code(self.resource.load(Relaxed))?,
            source: PriceSource::from_code(self.source.load(Relaxed)),
            dollars: Some(dollars).filter(|dollars| dollars.is_finite() && *dollars > 0.0)?,
            since_ns: self.since_ns.load(Relaxed),
            confirmed_ns: self.confirmed_ns.load(Relaxed),
        })
    }

    fn write(&self, entry: &PriceEntry) {
        self.resource.store(entry.resource as u32, Relaxed);
        self.source.store(entry.source as u32, Relaxed);
        self.dollars.store(entry.dollars.to_bits(), Relaxed);
        self.since_ns.store(entry.since_ns, Relaxed);
        self.confirmed_ns.store(entry.confirmed_ns, Relaxed);
    }
}

const _: () = assert!(size_of::<Prices>() == 4096 && size_of::<Price>() == 32);
const _: () = assert!(PricedResource::ALL.len() <= PRICES_MAX);

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    fn entry(resource: PricedResource, dollars: f64) -> PriceEntry {
        PriceEntry { resource, source: PriceSource::Provider, dollars, since_ns: 5, confirmed_ns: 7 }
    }

    fn board(list: &PriceList) -> std::boxed::Box<Prices> {
        let prices = std::boxed::Box::new(Prices::new_zeroed());
        prices.publish(list);
        prices
    }

    #[test]
    fn what_is_published_is_read() {
        let mut list = PriceList::new(3, 9);
        for (resource, dollars) in PricedResource::ALL.into_iter().zip([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) {
            list.set(entry(resource, 0.5));
            list.set(entry(resource, dollars));
        }
        let read = board(&list).read().expect("nobody writes");
        assert_eq!(read, list);
        assert_eq!(read.iter().count(), 6);
        let price = read.get(PricedResource::NetworkOut).expect("it was published");
        assert_eq!((price.dollars, price.age_ns(17), price.age_ns(2)), (3.0, 10, 0));
    }

    #[test]
    fn nothing_is_published_at_first_and_less_can_be_later() {
        let prices = board(&PriceList::default());
        assert!(prices.read().expect("nobody writes").is_empty());
        let mut list = PriceList::default();
        list.set(entry(PricedResource::Core, 1.0));
        prices.publish(&list);
        prices.publish(&PriceList::default());
        assert!(prices.read().expect("nobody writes").is_empty());
    }

    #[test]
    fn prices_that_cannot_be_are_left_out() {
        for dollars in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            let mut list = PriceList::default();
            list.set(entry(PricedResource::Memory, dollars));
            assert!(board(&list).read().expect("nobody writes").is_empty(), "{dollars}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }))]

        #[test]
        fn a_publisher_that_lies_stops_nobody(words in prop::collection::vec(any::<u64>(), 67)) {
            let prices = std::boxed::Box::new(Prices::new_zeroed());
            let mut words = words.into_iter();
            let mut next = || words.next().expect("enough of them");
            prices.count.store(next() as u32, Relaxed);
            prices.revision.store(next(), Relaxed);
            for price in &prices.entries {
                price.resource.store((next() % 9) as u32, Relaxed);
                price.source.store(next() as u32, Relaxed);
                price.dollars.store(next(), Relaxed);
                price.confirmed_ns.store(next(), Relaxed);
            }
            let list = prices.read().expect("nobody writes");
            prop_assert!(list.iter().all(|entry| entry.dollars.is_finite() && entry.dollars > 0.0));
            prop_assert!(list.iter().count() <= PricedResource::ALL.len());
        }
    }
}
