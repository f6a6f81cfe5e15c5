//! Whether what is served pays, and whom to refuse while it does not.
//!
//! The controller finds the working point that loses least, but no working point makes requests pay that
//! cost more than they bring, or that come back too late. Then to serve fewer is best (nom, VEE'16,
//! section 4): half as many clients each second that loses, some more each second that pays, as TCP finds
//! its share of a path (additive increase, multiplicative decrease: Chiu and Jain, 1989).

use crate::report::Stretch;
use crate::window;
use nom_abi::priced::Solvency;
use nom_economy::prices::{Prices, Usage};
use nom_economy::response::Response;
use nom_economy::units::{DollarsPerSecond, Seconds};
use nom_economy::utility::{Latency, Term, Utility};
use nom_service::{Setting, Window};

/// What was served is judged by so much time, as revenue is.
const PERIOD_NS: u64 = 1_000_000_000;
/// Losing periods in a row before it is said that nothing pays: a controller that still searches loses, too.
const LOSSES: u32 = 3;
/// Periods after which somebody is admitted again, to see whether that pays by now.
const PROBE: u32 = 10;
/// A limit beyond is none.
const LIMIT_MAX: u32 = u16::MAX as u32;
/// Of an estimate that forgets, the part that the newest window makes up.
const MEMORY: u64 = 8;

/// What a window is judged by.
pub(crate) struct Terms<'a> {
    pub utility: &'a Utility,
    pub prices: &'a Prices,
    pub held: &'a Usage,
}

/// Looks at what was served.
#[derive(Debug)]
pub(crate) struct Judge {
    solvency: Solvency,
    /// Whether clients are refused that cost more than they bring.
    refuses: bool,
    clients_max: Option<u32>,
    period: Stretch,
    /// Of the last period in which somebody was served.
    response: Option<Response>,
    /// Periods in a row that lost, or in which nobody was served.
    losses: u32,
    idle: u32,
}

impl Judge {
    pub fn new(has_contract: bool, refuses: bool, utility: &Utility) -> Judge {
        let objective_ns = utility.objective().map_or(0, |objective| (objective.get() * 1e9) as u64);
        let state = if has_contract { Solvency::PAYS } else { Solvency::NO_CONTRACT };
        let solvency = Solvency {
            state,
            objective_ns,
            soonest_p99_ns: 0,
            soonest_delay_us: 0,
            clients_max: Solvency::NO_LIMIT,
        };
        let period = Stretch::default();
        Judge { solvency, refuses, clients_max: None, period, response: None, losses: 0, idle: 0 }
    }

    /// What there is to say.
    pub fn solvency(&self) -> Solvency {
        let clients_max = self.clients_max.map_or(Solvency::NO_LIMIT, u64::from);
        Solvency { clients_max, ..self.solvency }
    }

    /// Most clients of each core; all, if there is no number.
    pub fn clients_max(&self) -> Option<u32> {
        self.clients_max
    }

    /// Takes note of a window.
    pub fn observe(&mut self, window: &Window, terms: &Terms) {
        if self.solvency.state == Solvency::NO_CONTRACT {
            return;
        }
        self.note_soonest(window);
        self.period.add(window);
        if self.period.length_ns < PERIOD_NS {
            return;
        }
        let period = core::mem::take(&mut self.period);
        let whole = period.window(0, period.length_ns, Setting::default());
        match window::observation(&whole) {
            Some(seen) => self.judge(&seen.response, whole.clients, terms),
            None => self.wait(),
        }
    }

    /// What was served is judged anew at other prices, so that nobody is refused who pays again.
    pub fn reconsider(&mut self, terms: &Terms) {
        let is_loss = |response: &Response| margin(response, terms).get() < 0.0;
        if self.losses > 0 && !self.response.as_ref().is_some_and(is_loss) {
            (self.solvency.state, self.losses, self.clients_max) = (Solvency::PAYS, 0, None);
        }
    }

    /// Keeps in mind how late requests are at the shortest batching delay.
    fn note_soonest(&mut self, window: &Window) {
        let delay_us = window.setting.batching_delay.as_micros() as u64;
        let Solvency { soonest_p99_ns, soonest_delay_us, .. } = &mut self.solvency;
        if window.requests == 0 || *soonest_p99_ns > 0 && delay_us > *soonest_delay_us {
            return;
        }
        let p99_ns = window.latency.p99_ns;
        let is_first = *soonest_p99_ns == 0 || delay_us < *soonest_delay_us;
        let kept_ns = *soonest_p99_ns - *soonest_p99_ns / MEMORY;
        *soonest_p99_ns = if is_first { p99_ns } else { kept_ns.saturating_add(p99_ns / MEMORY) };
        *soonest_delay_us = delay_us;
    }

    fn judge(&mut self, response: &Response, clients: u32, terms: &Terms) {
        (self.response, self.idle) = (Some(*response), 0);
        let state = state(response, terms);
        if !is_loss(state) {
            (self.solvency.state, self.losses) = (state, 0);
            let more = |limit: u32| limit + (limit / 4).max(1);
            self.clients_max = self.clients_max.map(more).filter(|limit| *limit <= LIMIT_MAX);
            return;
        }
        self.losses += 1;
        if self.losses >= LOSSES || is_loss(self.solvency.state) {
            self.solvency.state = state;
            if self.refuses {
                self.clients_max = Some(self.clients_max.unwrap_or(clients).min(clients) / 2);
            }
        }
    }

    /// Nobody was served; maybe since nobody may.
    fn wait(&mut self) {
        self.idle += 1;
        if self.clients_max == Some(0) && self.idle >= PROBE {
            (self.clients_max, self.idle) = (Some(1), 0);
        }
    }
}

/// Whether fewer requests would lose less.
fn is_loss(state: u64) -> bool {
    matches!(state, Solvency::COSTS_MORE | Solvency::LATE)
}

/// What requests bring less what they cost, whatever is held.
fn margin(response: &Response, terms: &Terms) -> DollarsPerSecond {
    terms.utility.profit(response, &Usage::default(), terms.prices)
}

fn state(response: &Response, terms: &Terms) -> u64 {
    let brings = margin(response, terms).get();
    let in_time = in_time(response, terms.utility);
    let would_bring = in_time.map_or(brings, |response| margin(&response, terms).get());
    if brings < 0.0 || brings == 0.0 && would_bring > 0.0 {
        if would_bring > 0.0 { Solvency::LATE } else { Solvency::COSTS_MORE }
    } else if terms.utility.profit(response, terms.held, terms.prices).get() < 0.0 {
        Solvency::HELD_COSTS_MORE
    } else {
        Solvency::PAYS
    }
}

/// The same served at once. Nobody promised that where it earns a bonus without an end.
fn in_time(response: &Response, utility: &Utility) -> Option<Response> {
    let has_bonus = utility.terms().iter().any(|term| matches!(term, Term::Bonus { .. }));
    let seconds = |value| Seconds::new(value).ok();
    let latency = Latency::new(seconds(1e-6)?, seconds(0.0)?, seconds(1e-6)?).ok()?;
    (!has_bonus).then_some(Response { latency, ..*response })
}
