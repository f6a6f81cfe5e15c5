//! The price vector: the last good price of each resource, and its age.
//!
//! A price source can be dead, slow or lying. An absurd price is refused with the reason, and the last good
//! one stays; whoever reads it sees how old it is and decides how long to trust it. The first price has none
//! before it by which it could be judged, and may be the absurd one. So which of two prices that are far
//! apart is the absurd one is not for good: one that is named more often in a row than the other was is
//! believed.

use crate::units::{
    Cores, DollarsPerCoreSecond, DollarsPerGbit, DollarsPerGibSecond, DollarsPerJoule, DollarsPerOperation,
    DollarsPerSecond, GbitPerSecond, Gib, NotAQuantity, OperationsPerSecond, Seconds, Watts,
};
use nom_abi::prices::PricedResource;
use serde::{Deserialize, Serialize};

/// A price that rises or falls by this factor at once is taken for a mistake. Spot prices have jumped "by
/// several orders of magnitude" (nom, VEE'16, section 6.1), so that it must be large; it counts downward too,
/// or one lie close to zero would make every honest price absurd ever after.
pub const ABSURD_FACTOR: f64 = 1e6;

/// A price that was confirmed so often is as sure as any: what is far from it must be named once more in a
/// row.
pub const CONFIRMATIONS_MAX: u32 = 4;

/// What has a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// A core for a second.
    Core,
    /// A GiB of memory for a second.
    Memory,
    /// A Gbit that leaves the machine.
    NetworkOut,
    /// A Gbit that enters the machine.
    NetworkIn,
    /// A storage operation.
    Storage,
    /// A joule.
    Energy,
}

impl Resource {
    /// How many there are.
    pub const COUNT: usize = 6;

    /// All, each at its own index.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Core, Self::Memory, Self::NetworkOut, Self::NetworkIn, Self::Storage, Self::Energy];

    /// The unit of its price.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Core => "$/core-second",
            Self::Memory => "$/GiB-second",
            Self::NetworkOut | Self::NetworkIn => "$/Gbit",
            Self::Storage => "$/operation",
            Self::Energy => "$/joule",
        }
    }

    /// Its name in JSON, in traces and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Memory => "memory",
            Self::NetworkOut => "network_out",
            Self::NetworkIn => "network_in",
            Self::Storage => "storage",
            Self::Energy => "energy",
        }
    }

    /// The unit in which consumption is counted, small enough for whole numbers.
    #[must_use]
    pub const fn counted_in(self) -> &'static str {
        match self {
            Self::Core => "core-nanosecond",
            Self::Memory => "byte-second",
            Self::NetworkOut | Self::NetworkIn => "byte",
            Self::Storage => "operation",
            Self::Energy => "microjoule",
        }
    }

    /// How many of [`Self::counted_in`] make one of the unit that has a price.
    #[must_use]
    pub const fn counts_per_unit(self) -> u64 {
        match self {
            Self::Core => 1_000_000_000,
            Self::Memory => 1 << 30,
            Self::NetworkOut | Self::NetworkIn => 125_000_000,
            Self::Storage => 1,
            Self::Energy => 1_000_000,
        }
    }

    /// The resource of that [name](Self::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.name() == name)
    }
}

/// As the bulletin board names it.
impl From<Resource> for PricedResource {
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Core => Self::Core,
            Resource::Memory => Self::Memory,
            Resource::NetworkOut => Self::NetworkOut,
            Resource::NetworkIn => Self::NetworkIn,
            Resource::Storage => Self::Storage,
            Resource::Energy => Self::Energy,
        }
    }
}

/// Why a price was refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Absurdity {
    /// Not a number, or infinite.
    NotFinite,
    /// Below zero.
    Negative,
    /// Zero: a source that lost its price says so too often to be believed.
    Zero,
    /// At least [`ABSURD_FACTOR`] times the last good price.
    TooHigh {
        /// The last good price.
        last: f64,
    },
    /// At most the last good price over [`ABSURD_FACTOR`].
    TooLow {
        /// The last good price.
        last: f64,
    },
}

impl core::fmt::Display for Absurdity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotFinite => f.write_str("a price is a finite number"),
            Self::Negative => f.write_str("a price is not negative"),
            Self::Zero => f.write_str("nothing is free"),
            Self::TooHigh { last } => write!(f, "the last one was {last}, a million times less or worse"),
            Self::TooLow { last } => write!(f, "the last one was {last}, a million times more or worse"),
        }
    }
}

/// A price that was refused; the last good one stays.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("price of {resource:?} {offered} {} refused: {absurdity}", .resource.unit())]
pub struct Refusal {
    /// Whose price.
    pub resource: Resource,
    /// The price offered.
    pub offered: f64,
    /// What is wrong with it.
    pub absurdity: Absurdity,
}

/// A good price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quote {
    /// Dollars for one unit of the resource.
    pub price: f64,
    /// When it was last confirmed, in nanoseconds of the caller's clock.
    pub confirmed_ns: u64,
}

/// What a machine holds and uses at present.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Cores held.
    pub cores: Cores,
    /// Memory held.
    pub memory: Gib,
    /// Data sent.
    pub network_out: GbitPerSecond,
    /// Data received.
    pub network_in: GbitPerSecond,
    /// Storage operations.
    pub storage: OperationsPerSecond,
    /// Power drawn.
    pub power: Watts,
}

/// A price that was refused since it was far from the last good one, or that one: named so often in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Claim {
    price: f64,
    /// When it was named last.
    named_ns: u64,
    times: u32,
}

impl Claim {
    fn first(price: f64, named_ns: u64) -> Self {
        Self { price, named_ns, times: 1 }
    }

    /// The same, named again. What is read twice was named once.
    fn again(self, price: f64, named_ns: u64) -> Self {
        let is_another = named_ns != self.named_ns;
        let times = (self.times + u32::from(is_another)).min(CONFIRMATIONS_MAX + 1);
        Self { price, named_ns, times }
    }
}

/// The last good price of each resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prices {
    quotes: [Option<Quote>; Resource::COUNT],
    /// How sure each quote is, and what was named since that is far from it.
    confirmed: [u32; Resource::COUNT],
    doubts: [Option<Claim>; Resource::COUNT],
}

/// If they are the same prices, as sure or not.
impl PartialEq for Prices {
    fn eq(&self, other: &Self) -> bool {
        self.quotes == other.quotes
    }
}

impl Prices {
    /// Takes a price that a source names at `now_ns`, and returns whether it differs from the last one.
    ///
    /// # Errors
    /// If it is absurd; the last good price and its age stay as they were. One that is only far from the last
    /// good one is believed once it was named more often in a row, each time at another time, than that one
    /// had been, or than [`CONFIRMATIONS_MAX`] times.
    pub fn offer(&mut self, resource: Resource, offered: f64, now_ns: u64) -> Result<bool, Refusal> {
        let at = resource as usize;
        let last = self.quotes[at].map(|quote| quote.price);
        if let Some(absurdity) = judge(offered, last) {
            let is_far = matches!(absurdity, Absurdity::TooHigh { .. } | Absurdity::TooLow { .. });
            if !is_far || !self.doubt(at, offered, now_ns) {
                return Err(Refusal { resource, offered, absurdity });
            }
        } else {
            let is_another = self.quotes[at].is_none_or(|quote| quote.confirmed_ns != now_ns);
            self.confirmed[at] = (self.confirmed[at] + u32::from(is_another)).min(CONFIRMATIONS_MAX);
        }
        self.quotes[at] = Some(Quote { price: offered, confirmed_ns: now_ns });
        self.doubts[at] = None;
        Ok(last != Some(offered))
    }

    /// Takes note of a price that is far from the last good one. Returns whether it is to be believed.
    fn doubt(&mut self, at: usize, offered: f64, now_ns: u64) -> bool {
        let claim = match self.doubts[at] {
            Some(before) if judge(offered, Some(before.price)).is_none() => before.again(offered, now_ns),
            _ => Claim::first(offered, now_ns),
        };
        self.doubts[at] = Some(claim);
        let is_believed = claim.times > self.confirmed[at];
        if is_believed {
            self.confirmed[at] = claim.times.min(CONFIRMATIONS_MAX);
        }
        is_believed
    }

    /// Doubts what another does, which was offered the same and refused some of it.
    pub fn doubt_as(&mut self, other: &Self) {
        self.doubts = other.doubts;
    }

    /// The last good price.
    #[must_use]
    pub fn quote(&self, resource: Resource) -> Option<Quote> {
        self.quotes[resource as usize]
    }

    /// How long ago the price was last confirmed; nothing if the clock stands before that, for a clock that
    /// jumps back must not make a price older than the machine.
    #[must_use]
    pub fn age_ns(&self, resource: Resource, now_ns: u64) -> Option<u64> {
        self.quote(resource).map(|quote| now_ns.saturating_sub(quote.confirmed_ns))
    }

    /// The age of the oldest price.
    #[must_use]
    pub fn oldest_ns(&self, now_ns: u64) -> Option<u64> {
        Resource::ALL.into_iter().filter_map(|resource| self.age_ns(resource, now_ns)).max()
    }

    /// What the usage costs; a resource without a price costs nothing.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> DollarsPerSecond {
        let price = |resource| self.quote(resource).map_or(0.0, |quote| quote.price);
        let cost = || -> Result<DollarsPerSecond, NotAQuantity> {
            Ok(usage.cores * DollarsPerCoreSecond::new(price(Resource::Core))?
                + usage.memory * DollarsPerGibSecond::new(price(Resource::Memory))?
                + usage.network_out * DollarsPerGbit::new(price(Resource::NetworkOut))?
                + usage.network_in * DollarsPerGbit::new(price(Resource::NetworkIn))?
                + usage.storage * DollarsPerOperation::new(price(Resource::Storage))?
                + usage.power * DollarsPerJoule::new(price(Resource::Energy))?)
        };
        cost().expect("a quote is finite and positive")
    }
}

/// For how long a price may be used after its source fell silent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience(pub Seconds);

impl Patience {
    /// Whether a price of this age should no longer be trusted.
    #[must_use]
    pub fn is_exhausted(self, age_ns: u64) -> bool {
        age_ns as f64 / 1e9 > self.0.get()
    }
}

fn judge(offered: f64, last: Option<f64>) -> Option<Absurdity> {
    if !offered.is_finite() {
        return Some(Absurdity::NotFinite);
    }
    if offered < 0.0 {
        return Some(Absurdity::Negative);
    }
    if offered == 0.0 {
        return Some(Absurdity::Zero);
    }
    let last = last?;
    if offered >= last * ABSURD_FACTOR {
        return Some(Absurdity::TooHigh { last });
    }
    (offered <= last / ABSURD_FACTOR).then_some(Absurdity::TooLow { last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_prices_are_refused_and_the_last_good_one_stays() {
        let mut prices = Prices::default();
        assert_eq!(prices.offer(Resource::NetworkOut, 1.0, 100), Ok(true));
        let absurd = [
            (f64::NAN, Absurdity::NotFinite),
            (f64::INFINITY, Absurdity::NotFinite),
            (-1.0, Absurdity::Negative),
            (0.0, Absurdity::Zero),
            (-0.0, Absurdity::Zero),
            (1e6, Absurdity::TooHigh { last: 1.0 }),
            (1e-6, Absurdity::TooLow { last: 1.0 }),
        ];
        for (offered, absurdity) in absurd {
            let refusal = prices.offer(Resource::NetworkOut, offered, 200).expect_err("absurd");
            assert_eq!(refusal.absurdity, absurdity);
            let quote = prices.quote(Resource::NetworkOut);
            assert_eq!(quote, Some(Quote { price: 1.0, confirmed_ns: 100 }), "{offered}");
        }
        assert_eq!(prices.age_ns(Resource::NetworkOut, 350), Some(250));
        assert_eq!(prices.offer(Resource::NetworkOut, 999_999.0, 400), Ok(true), "dear, but possible");
    }

    #[test]
    fn a_first_price_that_is_absurd_gives_way_to_one_that_is_named_twice() {
        let mut prices = Prices::default();
        assert_eq!(prices.offer(Resource::Core, 1e300, 1), Ok(true));
        assert!(prices.offer(Resource::Core, 0.01, 2).is_err());
        assert!(prices.offer(Resource::Core, 0.01, 2).is_err(), "the same was read once more");
        assert_eq!(prices.offer(Resource::Core, 0.02, 3), Ok(true));
        assert!(prices.offer(Resource::Core, 1e300, 4).is_err());
    }

    /// Prices of two kinds, each within a factor of a hundred, the kinds a million times apart.
    fn offered(is_high: bool, spread: f64) -> f64 {
        if is_high { 1e9 * (1.0 + spread) } else { 1.0 + spread }
    }

    proptest::proptest! {
        /// Whatever was named before, what is named long enough is believed, and stays.
        #[test]
        fn no_price_is_refused_for_good(
            before in proptest::collection::vec((proptest::bool::ANY, 0.0..99.0_f64), 0..20),
            spread in 0.0..99.0_f64,
            is_high in proptest::bool::ANY,
        ) {
            let mut prices = Prices::default();
            for (now_ns, (is_high, spread)) in (0..).zip(&before) {
                let _ = prices.offer(Resource::Core, offered(*is_high, *spread), now_ns);
            }
            let price = offered(is_high, spread);
            for now_ns in 100..=100 + u64::from(CONFIRMATIONS_MAX) {
                let _ = prices.offer(Resource::Core, price, now_ns);
            }
            proptest::prop_assert_eq!(prices.quote(Resource::Core).map(|quote| quote.price), Some(price));
        }

        /// A price that was confirmed withstands as many lies in a row as there were confirmations, at most
        /// so many, however often it is lied, if the truth is said as often in between.
        #[test]
        fn a_confirmed_price_withstands_as_many_lies(
            confirmations in 1..10_u64,
            lies in proptest::collection::vec(proptest::bool::ANY, 1..10),
        ) {
            let mut prices = Prices::default();
            let mut clock = 0..;
            let mut now = || clock.next().expect("without end");
            let most = confirmations.min(CONFIRMATIONS_MAX.into());
            for is_high in lies {
                for _ in 0..confirmations {
                    prices.offer(Resource::Core, 1.0, now()).expect("the truth");
                }
                for _ in 0..most {
                    let lie = if is_high { 1e9 } else { 1e-9 };
                    prices.offer(Resource::Core, lie, now()).expect_err("a lie");
                }
            }
        }
    }

    #[test]
    fn a_refusal_says_what_was_wrong() {
        let refusal = Prices::default().offer(Resource::Core, -2.0, 0).expect_err("negative");
        assert_eq!(refusal.to_string(), "price of Core -2 $/core-second refused: a price is not negative");
    }

    #[test]
    fn a_confirmed_price_is_young_again_but_no_change() {
        let mut prices = Prices::default();
        assert_eq!(prices.oldest_ns(5), None);
        assert_eq!(prices.offer(Resource::Memory, 2.0, 100), Ok(true));
        assert_eq!(prices.offer(Resource::Memory, 2.0, 900), Ok(false));
        assert_eq!(prices.age_ns(Resource::Memory, 1000), Some(100));
        assert_eq!(prices.age_ns(Resource::Memory, 10), Some(0), "the clock jumped back");
        assert!(Patience(Seconds::from_micros(1)).is_exhausted(1001));
        assert!(!Patience(Seconds::from_micros(1)).is_exhausted(1000));
    }

    #[test]
    fn cost_is_the_sum_over_resources() {
        let mut prices = Prices::default();
        for (resource, price) in Resource::ALL.into_iter().zip([1.0, 10.0, 100.0, 1e3, 1e4, 1e5]) {
            assert_eq!(prices.offer(resource, price, 0), Ok(true));
        }
        let usage = Usage {
            cores: Cores::new(1.0).expect("fine"),
            memory: Gib::new(2.0).expect("fine"),
            network_out: GbitPerSecond::new(3.0).expect("fine"),
            network_in: GbitPerSecond::new(4.0).expect("fine"),
            storage: OperationsPerSecond::new(5.0).expect("fine"),
            power: Watts::new(6.0).expect("fine"),
        };
        assert_eq!(prices.cost(&usage).get(), 654_321.0);
        assert_eq!(Prices::default().cost(&usage).get(), 0.0);
    }
}
