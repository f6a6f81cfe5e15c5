//! The governor of a server that earns.

use crate::books::Books;
use crate::contracts::{Contracts, Hold, Served};
use crate::keeping::Keeping;
use crate::market::{Market, PriceBoard, Tariff};
use crate::report::{Audience, Stretch, blank, of_activities, repeat};
use crate::settings::{Paying, Settings};
use crate::solvency::{Judge, Terms};
use crate::staffing::{Place, Teaches};
use crate::steering::{Proposals, Steering};
use crate::window;
use crate::worth::{Valuer, Worths};
use alloc::vec::Vec;
use nom_abi::priced::Report;
use nom_economy::decision::{Decision, Knob};
use nom_economy::ledger::{Account, Money};
use nom_economy::prices::{Resource, Usage};
use nom_economy::response::Response;
use nom_economy::units::{Cores, Gib};
use nom_economy::utility::Contract as _;
use nom_service::Demand;
use nom_service::{Activity, Consumed, CostRates, Earned, Governor, Setting, Window};

/// How often it reports.
const REPORT_NS: u64 = 100_000_000;
/// How often it reports that nobody asks anything: whoever watches can tell an idle server from one that is
/// gone, and what it holds costs meanwhile.
pub(crate) const IDLE_NS: u64 = 1_000_000_000;
/// How often it reports what activities have consumed.
pub(crate) const CONSUMED_NS: u64 = 1_000_000_000;
/// The shortest and the longest window. Deciding takes its time, so windows are no shorter; a change of load
/// shows after some of them, so they are no longer.
const WINDOW_NS: core::ops::RangeInclusive<u64> = 20_000_000..=50_000_000;
/// Networks are paid by the Gbit.
const GBIT_PER_BYTE: f64 = 8e-9;
/// Requests that make a window worth looking at, if they come soon enough.
const REQUESTS: u64 = 200;

/// What an application holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Cores.
    pub cores: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// Reckons what a server earns, and sets its working point so that it earns most.
///
/// The policy has no machine: time comes with what it is asked, prices from a board, and what it says goes to
/// an audience.
#[derive(Debug)]
pub struct Earner<B, A> {
    settings: Settings,
    board: B,
    audience: A,
    held: fn() -> Held,
    market: Market,
    contracts: Contracts,
    books: Books,
    steering: Steering,
    /// If memory is a knob.
    keeping: Option<Keeping>,
    judge: Judge,
    /// Whose turn it is to move, and whose move settles in the present window.
    decision: Decision,
    holder: Option<Knob>,
    window_ns: u64,
    stretch: Stretch,
    /// For whom what was served that the next window is about.
    shares: Vec<Stretch>,
    /// What another request of each activity is worth.
    valuer: Valuer,
    /// Sums at the last report, and the report.
    reported: (Money, Money),
    last: Report,
    /// When it was last told what activities have consumed.
    consumed_ns: Option<u64>,
}

impl<B: PriceBoard, A: Audience> Earner<B, A> {
    /// Begins without prices, for a server on one core; `held` says what the application holds at the time it
    /// is called.
    pub fn new(settings: Settings, board: B, audience: A, held: fn() -> Held) -> Self {
        let contracts = contracts(&settings);
        let steering = Steering::new(&settings, &contracts, 1);
        let last = blank(0, steering.setting());
        let keeping = settings.knobs.memory.then(Keeping::new);
        let judge = Judge::new(settings.has_contract, settings.knobs.admission, &contracts);
        Self {
            settings,
            board,
            audience,
            held,
            market: Market::default(),
            contracts,
            books: Books::new(),
            steering,
            keeping,
            judge,
            decision: Decision::default(),
            holder: None,
            window_ns: *WINDOW_NS.start(),
            stretch: Stretch::default(),
            shares: Vec::new(),
            valuer: Valuer::default(),
            reported: (Money::ZERO, Money::ZERO),
            last,
            consumed_ns: None,
        }
    }

    /// The same for a server on so many cores, all of which serve at first.
    pub(crate) fn on(self, cores: usize) -> Self {
        let cores = u16::try_from(cores).unwrap_or(u16::MAX);
        let steering = Steering::new(&self.settings, &self.contracts, cores);
        Self { steering, ..self }
    }

    /// For whom what was served that the next window is about.
    pub(crate) fn share(&mut self, shares: Vec<Stretch>) {
        self.shares = shares;
    }

    /// Whose users pay.
    pub(crate) fn paying(&self) -> Paying {
        self.settings.paying()
    }

    /// What another request of each activity is worth, as far as that is known.
    pub(crate) fn worths(&self) -> &Worths {
        self.valuer.worths()
    }

    /// What is set at present.
    #[must_use]
    pub fn setting(&self) -> Setting {
        self.steering.setting()
    }

    /// Revenue and cost so far.
    #[must_use]
    pub fn account(&self) -> Account {
        self.books.account(&self.contracts)
    }

    /// The prices that are reckoned with, each with its age.
    #[must_use]
    pub fn tariff(&self) -> &Tariff {
        self.market.tariff()
    }

    /// The board's sequence up to which it knows prices; nothing before it has read any.
    pub(crate) fn seen(&self) -> Option<u32> {
        self.market.seen()
    }

    /// Whom it reports to.
    pub fn audience(&self) -> &A {
        &self.audience
    }

    /// Takes over new prices. Returns whether they call for another setting.
    fn trade(&mut self, now_ns: u64) -> bool {
        let (board, audience) = (&self.board, &mut self.audience);
        let Some(since_ns) = self.market.look(board, now_ns, |refusal| audience.refused(refusal)) else {
            return false;
        };
        self.books.reprice(since_ns, *self.market.tariff());
        let (contracts, tariff, held) = (&self.contracts, self.market.tariff(), usage((self.held)()));
        let prices = &tariff.prices;
        let hold = Hold::by(&self.steering.setting());
        let terms = Terms { contracts: contracts.at(hold), prices, held: &held };
        let keeping = self.keeping.as_mut();
        let memory = keeping.and_then(|keeping| keeping.choose(now_ns, &terms));
        self.judge.reconsider(&terms);
        let keeps = self.steering.keep(memory) | self.steering.admit(self.judge.clients_max());
        let value = |place: Place, response: &Response| {
            let contracts = contracts.at(place.hold.unwrap_or(hold));
            contracts.profit(response, &with(&held, place.cores), prices)
        };
        self.steering.reconsider(&value) || keeps
    }

    /// Tells each knob what was measured, as far as that is about it, and lets one of them move.
    fn decide(&mut self, window: &Window, asked_ns: u64, held: &Usage) {
        let (tariff, now_ns) = (self.market.tariff(), window.to_ns);
        let hold = Hold::by(&window.setting);
        let terms = Terms { contracts: self.contracts.at(hold), prices: &tariff.prices, held };
        let teaches = if self.holder.is_none() { Teaches::All } else { Teaches::Another };
        self.judge.observe(window, &terms, teaches);
        let mut proposals = Proposals::new();
        if tariff.is_known() {
            let observation = window::observation(window);
            let served = observation.map_or(0.0, |seen| seen.response.throughput.get());
            let value = |place: Place, response: &Response| {
                let contracts = self.contracts.at(place.hold.unwrap_or(hold));
                let held = &with(held, place.cores);
                self.judge.value(response, served, &Terms { contracts, held, ..terms })
            };
            let state = |response: &Response| Judge::state(response, &terms);
            let (seen, holder) = (observation.as_ref(), self.holder);
            proposals = self.steering.observe(window, asked_ns, seen, &value, holder, &state);
            if let Some(keeping) = &mut self.keeping {
                if teaches == Teaches::All {
                    keeping.observe(window);
                }
                let proposal = if self.judge.loses() { None } else { keeping.propose(now_ns, &terms) };
                proposals.extend(proposal.map(|proposal| (Knob::Store, proposal)));
            }
        }
        proposals.extend(self.judge.proposal().map(|proposal| (Knob::Admission, proposal)));
        if let Some(knob) = self.steering.trying() {
            // What is on its way goes on by itself, and nothing else begins.
            self.holder = Some(knob);
        } else {
            if let Some(knob) = self.decision.choose(now_ns, &proposals) {
                self.make(knob, now_ns);
            }
            self.holder = self.steering.trying().or(self.decision.holder(now_ns));
        }
        self.steering.admit(self.judge.clients_max());
    }

    /// Makes the move that the knob has proposed.
    fn make(&mut self, knob: Knob, now_ns: u64) {
        match knob {
            Knob::Point | Knob::Staff => {
                self.steering.accept(knob);
                // A trial ends when it has come back, and its knob knows when.
                self.decision.release();
            }
            Knob::Store => {
                let memory = self.keeping.as_mut().map(|keeping| keeping.accept(now_ns));
                self.steering.keep(memory);
            }
            Knob::Admission => self.judge.accept(now_ns),
        }
    }

    fn report(&mut self, now_ns: u64) {
        let (setting, tariff, account) = (self.steering.setting(), self.market.tariff(), self.account());
        let sums = (account.revenue, account.cost);
        let mut report = blank(now_ns, setting);
        if self.stretch.length_ns > 0 {
            let rate = |now: Money, before: Money| {
                let earned = Money::from_nanos(now.nanos() - before.nanos()).dollars();
                (earned * 1e9 / self.stretch.length_ns as f64).to_bits()
            };
            self.stretch.fill(&mut report);
            report.revenue_per_second = rate(sums.0, self.reported.0);
            report.cost_per_second = rate(sums.1, self.reported.1);
        } else {
            repeat(&mut report, &self.last);
        }
        report.price_revision = tariff.revision;
        report.price_network_out = tariff.price(Resource::NetworkOut).to_bits();
        report.profit = account.profit().dollars().to_bits();
        self.audience.report(&report, &self.judge.solvency());
        (self.reported, self.last, self.stretch) = (sums, report, Stretch::default());
    }

    /// Learns what requests are worth from a window, of which `shares` were for whom.
    fn value(&mut self, window: &Window, shares: Vec<Stretch>) {
        if shares.is_empty() || !self.settings.has_contract {
            return;
        }
        let mut served = Served { shares, ..Served::default() };
        served.whole.add(window);
        self.valuer.learn(&self.contracts, served, &self.market.tariff().prices);
    }

    /// So long that enough requests come, as far as one window tells.
    fn set_window(&mut self, window: &Window) {
        if !self.governs() {
            self.window_ns = REPORT_NS;
            return;
        }
        let enough_ns = window.length_ns().saturating_mul(REQUESTS) / window.requests.max(1);
        self.window_ns = enough_ns.clamp(*WINDOW_NS.start(), *WINDOW_NS.end());
    }
}

impl<B: PriceBoard, A: Audience> Governor for Earner<B, A> {
    /// With a contract.
    fn governs(&self) -> bool {
        self.settings.has_contract
    }

    fn chooses_cores(&self) -> bool {
        self.steering.chooses_cores()
    }

    fn window_ns(&self) -> u64 {
        self.window_ns
    }

    fn idle_ns(&self) -> Option<u64> {
        Some(IDLE_NS)
    }

    fn rates(&self) -> CostRates {
        let price = |resource| self.market.tariff().price(resource);
        let of_byte = |resource| price(resource) * GBIT_PER_BYTE;
        CostRates {
            core_second: price(Resource::Core),
            sent_byte: of_byte(Resource::NetworkOut),
            received_byte: of_byte(Resource::NetworkIn),
        }
    }

    fn wants_demand(&self) -> bool {
        self.keeping.is_some()
    }

    fn hear(&mut self, demand: &Demand) {
        self.keeping.iter_mut().for_each(|keeping| keeping.hear(demand));
    }

    fn wants_shares(&self) -> bool {
        self.settings.has_contract
    }

    fn divide(&mut self, shares: &[Window]) {
        let mut served = Served { shares: core::mem::take(&mut self.shares), ..Served::default() };
        served.add_shares(shares);
        self.shares = served.shares;
    }

    fn is_paid(&self, activity: Activity) -> bool {
        self.settings.is_paid(activity)
    }

    fn worth(&self, tell: &mut dyn FnMut(Activity, f64)) {
        self.worths().tell(tell);
    }

    fn earned(&mut self, tell: &mut dyn FnMut(Activity, i64)) -> Option<Earned> {
        let nanos = |money: Money| money.nanos().clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let account = self.books.account(&self.contracts);
        self.books.shares(&self.contracts, |activity, money| tell(activity, nanos(money)));
        Some(Earned { revenue: nanos(account.revenue), cost: nanos(account.cost) })
    }

    fn wants_consumed(&self, now_ns: u64) -> bool {
        self.consumed_ns.is_none_or(|last_ns| has_passed(CONSUMED_NS, last_ns, now_ns))
    }

    fn consumed(&mut self, now_ns: u64, consumed: Vec<Consumed>) {
        self.consumed_ns = Some(now_ns);
        self.audience.activities(&of_activities(now_ns, consumed));
    }

    fn observe(&mut self, window: &Window) -> Setting {
        // Prices that came within the window count in it, though nobody had looked.
        let has_turned = self.trade(window.to_ns);
        let (held, asked_ns) = (usage((self.held)()), self.window_ns);
        if !self.governs() {
            self.steering.follow(window.setting);
        }
        let shares = core::mem::take(&mut self.shares);
        if window.length_ns() > 0 {
            self.books.close(window, &shares, &mut self.contracts, &held);
            self.contracts.see(window, &shares);
            self.value(window, shares);
            self.stretch.add(window);
            self.set_window(window);
        }
        self.decide(window, asked_ns, &held);
        if has_turned || has_passed(REPORT_NS, self.last.at_ns, window.to_ns) {
            self.report(window.to_ns);
        }
        self.steering.setting()
    }

    fn look(&mut self, now_ns: u64) -> Option<Setting> {
        let revision = self.market.tariff().revision;
        let has_turned = self.trade(now_ns);
        // Whoever set the price sees that it is reckoned with, also where it changes nothing.
        if has_turned || self.market.tariff().revision != revision {
            self.report(now_ns);
        }
        has_turned.then(|| self.steering.setting())
    }
}

/// Whether so long has passed since `since_ns`. A clock that went back must not silence whoever waits.
pub(crate) fn has_passed(length_ns: u64, since_ns: u64, now_ns: u64) -> bool {
    now_ns < since_ns || now_ns - since_ns >= length_ns
}

/// Who pays for what.
fn contracts(settings: &Settings) -> Contracts {
    let contracts = Contracts::new(settings.utility.clone(), settings.contracts.clone());
    if settings.knobs.activities { contracts.hurry() } else { contracts }
}

fn usage(held: Held) -> Usage {
    let cores = Cores::new(f64::from(held.cores)).expect("an integer is finite and not negative");
    let gib = held.memory_bytes as f64 / f64::from(1 << 30);
    let memory = Gib::new(gib).expect("an integer is finite and not negative");
    Usage { cores, memory, ..Usage::default() }
}

/// The same with another number of cores.
fn with(held: &Usage, cores: Option<u16>) -> Usage {
    let cores = cores.and_then(|cores| Cores::new(f64::from(cores)).ok());
    Usage { cores: cores.unwrap_or(held.cores), ..*held }
}
