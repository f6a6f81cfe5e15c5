//! What the seed says of prices, what stands on the board, and what was reported: all that is compared.

use super::{LONGEST_US, WORTH};
use crate::random::Random;
use nom_abi::prices::{PriceList, PricedResource};
use nom_earn::{Audience, PriceBoard, Report, Solvency};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// How long a price holds.
const PHASE_NS: u64 = 600_000_000;
/// Whole phases, of which every other is dear.
const PHASES: u64 = 8;

/// A price that the provider names.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// Since when, from the beginning on.
    pub at_ns: u64,
    pub dollars: f64,
    is_good: bool,
}

/// The prices of what is sent, by revision, the first of which is 1. Now and then one cannot be.
#[derive(Debug)]
pub struct Script(Vec<Posted>);

impl Script {
    pub fn new(random: &mut Random) -> Script {
        let mut all = Vec::new();
        for phase in 0..PHASES {
            let is_dear = phase % 2 == 1;
            let dollars = random.choose(if is_dear { &[40.0, 80.0, 170.5] } else { &[0.5, 1.25, 3.0] });
            let at_ns = phase * PHASE_NS;
            all.push(Posted { at_ns, dollars, is_good: true });
            // The last word is one that can be.
            if phase + 1 < PHASES && random.happens(400_000) {
                let dollars = random.choose(&[-1.0, 0.0]);
                let at_ns = at_ns + random.within(0..PHASE_NS);
                all.push(Posted { at_ns, dollars, is_good: false });
            }
        }
        Script(all)
    }

    /// How long prices move.
    pub fn length_ns(&self) -> u64 {
        PHASES * PHASE_NS
    }

    /// The revision that is in force.
    pub fn revision(&self, passed_ns: u64) -> u64 {
        self.0.iter().take_while(|posted| posted.at_ns <= passed_ns).count() as u64
    }

    /// The price of a revision, whatever it is.
    pub fn posted(&self, revision: u64) -> f64 {
        self.0[revision as usize - 1].dollars
    }

    /// The revision after which there is none.
    pub fn last(&self) -> u64 {
        self.0.len() as u64
    }

    /// What one may believe that is told this revision, and whichever of those before it.
    fn believable(&self, revision: u64) -> impl Iterator<Item = f64> {
        self.0[..revision as usize].iter().filter(|posted| posted.is_good).map(|posted| posted.dollars)
    }
}

/// The machine's board, which `priced` writes and the governor reads.
#[derive(Clone, Default)]
pub struct Board(Rc<(Cell<u32>, Cell<PriceList>)>);

impl Board {
    /// Puts prices on it.
    ///
    /// # Panics
    /// If the provider never named them.
    pub fn post(&self, script: &Script, list: PriceList) {
        let (before, dollars) = (self.revision(), price(&list));
        assert!(list.revision >= before, "revision {} follows {before}", list.revision);
        // What cannot be is told as a revision, too, but the last good price stays.
        let is_known = dollars.is_none_or(|dollars| {
            script.believable(list.revision).any(|good| good.to_bits() == dollars.to_bits())
        });
        assert!(is_known, "{dollars:?} stands on the board as revision {}", list.revision);
        self.0.1.set(list);
        self.0.0.set(self.sequence() + 1);
    }

    /// The revision that stands on it.
    pub fn revision(&self) -> u64 {
        self.0.1.get().revision
    }
}

fn price(list: &PriceList) -> Option<f64> {
    list.get(PricedResource::NetworkOut).map(|entry| entry.dollars)
}

impl PriceBoard for Board {
    fn sequence(&self) -> u32 {
        self.0.0.get()
    }

    fn read(&self) -> Option<PriceList> {
        Some(self.0.1.get())
    }
}

/// What was reported, and what of it the provider has.
#[derive(Clone, Default)]
pub struct Books(Rc<RefCell<Entries>>);

#[derive(Default)]
struct Entries {
    made: Vec<Report>,
    /// On the way to `priced`.
    waiting: VecDeque<(Report, Solvency)>,
    /// End of the stretch, revision and profit, as the provider read them.
    taken: Vec<(u64, u64, f64)>,
}

impl Books {
    /// The next report that `priced` has not seen.
    pub fn next(&self) -> Option<(Report, Solvency)> {
        self.0.borrow_mut().waiting.pop_front()
    }

    /// The provider took a report.
    pub fn take(&self, at_ns: u64, revision: u64, profit: f64) {
        self.0.borrow_mut().taken.push((at_ns, revision, profit));
    }

    /// Whether the provider was told of a working point under the last prices.
    pub fn is_told(&self, last: u64) -> bool {
        self.0.borrow().taken.iter().any(|(_, revision, _)| *revision == last)
    }

    /// Whether all of it was as it must be.
    ///
    /// # Panics
    /// If it was not.
    pub fn check(&self, script: &Script, board: &Board) {
        let Entries { made, taken, .. } = &*self.0.borrow();
        assert_eq!(board.revision(), script.last(), "the last prices are not on the board");
        let posted = price(&board.0.1.get()).map(f64::to_bits);
        assert_eq!(posted, Some(script.posted(script.last()).to_bits()), "the last price");
        made.iter().for_each(|report| check_report(script, report));
        made.windows(2).for_each(|two| check_profit(&two[0], &two[1]));
        for (at_ns, revision, profit) in taken {
            let is_made = made.iter().any(|report| {
                (report.at_ns, report.price_revision, report.profit) == (*at_ns, *revision, profit.to_bits())
            });
            assert!(is_made, "the provider was told of {profit} $ at {at_ns} ns, which nobody reported");
        }
        check_delays(made);
    }
}

/// The governor reckoned with a price that the provider named, and set a W that it may.
fn check_report(script: &Script, report: &Report) {
    let (revision, dollars) = (report.price_revision, f64::from_bits(report.price_network_out));
    let is_known = if revision == 0 {
        dollars == 0.0
    } else {
        script.believable(revision).any(|good| good.to_bits() == dollars.to_bits())
    };
    assert!(is_known, "the governor reckons with {dollars} of revision {revision}");
    assert!(report.batching_delay_us <= LONGEST_US, "{report:?}");
}

/// Profit grows by what was earned since the report before.
fn check_profit(before: &Report, report: &Report) {
    let [rate, cost] = [report.revenue_per_second, report.cost_per_second].map(f64::from_bits);
    let earned = (rate - cost) * report.window_ns as f64 / 1e9;
    let grown = f64::from_bits(report.profit) - f64::from_bits(before.profit);
    let most = 1e-6 * (rate + cost) + 1e-9;
    assert!(
        (grown - earned).abs() <= most,
        "profit grew by {grown} $, but {earned} $ were earned: {report:?}"
    );
}

/// Where what is sent costs more than it brings, little is sent, once the governor has had the time to learn
/// how W tells. If the provider was out of reach for too long, there is not enough to compare.
fn check_delays(made: &[Report]) {
    const ENOUGH: usize = 6;
    const LEARNING: usize = 30;
    let delays = |of: fn(f64) -> bool| -> Vec<u64> {
        let is_of = |report: &&Report| of(f64::from_bits(report.price_network_out));
        let served = made.iter().filter(|report| report.requests > 0 && report.price_revision > 0);
        served.skip(LEARNING).filter(is_of).map(|report| report.batching_delay_us).collect()
    };
    let (cheap, dear) = (delays(|price| price < WORTH), delays(|price| price > WORTH));
    if cheap.len() < ENOUGH || dear.len() < ENOUGH {
        return;
    }
    let mean = |delays: &[u64]| delays.iter().sum::<u64>() as f64 / delays.len() as f64;
    let (cheap, dear) = (mean(&cheap), mean(&dear));
    assert!(
        cheap < 0.5 * dear,
        "where sending pays W was {cheap} us on average, where it does not {dear} us"
    );
}

/// Hears what the governor reports, as the channel to `priced`.
pub struct Ear(pub Books);

impl Audience for Ear {
    fn report(&mut self, report: &Report, solvency: &Solvency) {
        let entries = &mut *self.0.0.borrow_mut();
        entries.made.push(*report);
        entries.waiting.push_back((*report, *solvency));
    }
}
