//! Whether what is served pays, and whom to refuse while it does not.
//!
//! The controller finds the working point that loses least, but no working point makes requests pay that
//! cost more than they bring, or that come back too late. Then to serve fewer is best (nom, VEE'16,
//! section 4): as many as are foretold to bring most, judged by what was served while no other knob tried
//! anything, since what a trial loses is not the clients' fault.

use crate::contracts::{Contracts, ContractsAt};
use crate::report::Stretch;
use crate::staffing::Teaches;
use crate::window;
use nom_abi::priced::Solvency;
use nom_economy::decision::Proposal;
use nom_economy::prices::{Prices, Usage};
use nom_economy::response::Response;
use nom_economy::units::{Dollars, DollarsPerSecond, GbitPerSecond, OperationsPerSecond, Seconds};
use nom_economy::utility::{Contract as _, Latency};
use nom_service::{Setting, Window};

/// What was served is judged by so much time, as revenue is.
const PERIOD_NS: u64 = 1_000_000_000;
/// Whom to refuse is decided by so much time in which no other knob tried anything.
const SETTLED_NS: u64 = 200_000_000;
/// For how long a limit is of use, in seconds.
const HORIZON: f64 = 10.0;
/// By what the limit is multiplied where clients cost more than they bring, and where they pay.
const FEWER: [f64; 4] = [0.75, 0.5, 0.25, 0.125];
const MORE: [f64; 2] = [1.25, 2.0];
/// Losing periods in a row before it is said that nothing pays: a controller that still searches loses, too.
const LOSSES: u32 = 3;
/// Periods after which somebody is admitted again, to see whether that pays by now.
const PROBE: u32 = 10;
/// A limit beyond is none.
const LIMIT_MAX: u32 = u16::MAX as u32;
/// Of an estimate that forgets, the part that the newest window makes up.
const MEMORY: u64 = 8;

/// What a window is judged by.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub contracts: ContractsAt<'a>,
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
    /// The part of what was served in which no other knob tried anything: by that it is decided whom to
    /// refuse.
    settled: Stretch,
    /// Of the last period in which somebody was served.
    response: Option<Response>,
    /// Periods in a row that lost, or in which nobody was served.
    losses: u32,
    idle: u32,
    /// When the limit changed last, and what it would be next.
    moved_ns: u64,
    proposed: Option<(u32, Proposal)>,
}

impl Judge {
    pub fn new(has_contract: bool, refuses: bool, contracts: &Contracts) -> Judge {
        let objective_ns = contracts.objective().map_or(0, |objective| (objective.get() * 1e9) as u64);
        let state = if has_contract { Solvency::PAYS } else { Solvency::NO_CONTRACT };
        let solvency = Solvency {
            state,
            objective_ns,
            soonest_p99_ns: 0,
            soonest_delay_us: 0,
            clients_max: Solvency::NO_LIMIT,
        };
        Judge {
            solvency,
            refuses,
            clients_max: None,
            period: Stretch::default(),
            settled: Stretch::default(),
            response: None,
            losses: 0,
            idle: 0,
            moved_ns: 0,
            proposed: None,
        }
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

    /// Takes note of a window, and of whether another knob's move settles in it.
    pub fn observe(&mut self, window: &Window, terms: &Terms, teaches: Teaches) {
        if self.solvency.state == Solvency::NO_CONTRACT {
            return;
        }
        self.note_soonest(window);
        if teaches == Teaches::All && window.requests > 0 {
            self.settled.add(window);
            if self.settled.length_ns >= SETTLED_NS {
                self.weigh(window.to_ns, terms);
            }
        }
        self.period.add(window);
        if self.period.length_ns < PERIOD_NS {
            return;
        }
        let period = core::mem::take(&mut self.period);
        let whole = period.window(0, period.length_ns, Setting::default());
        match window::observation(&whole) {
            Some(seen) => self.judge(&seen.response, terms),
            None => self.wait(),
        }
    }

    /// What a response brings in a second. Where clients can be refused, how many are served is decided by
    /// that: of responses that lose, the one is better that loses less for each request, and not the one that
    /// serves fewer; as if so many were `served` with all of them.
    pub fn value(&self, response: &Response, served: f64, terms: &Terms) -> DollarsPerSecond {
        let profit = terms.contracts.profit(response, terms.held, terms.prices);
        // Asked before the margin, which values the response a second time: a controller asks hundreds of
        // times whenever it chooses.
        if !self.refuses || served <= 0.0 {
            return profit;
        }
        let margin = margin(response, terms).get();
        if margin >= 0.0 {
            return profit;
        }
        let more = served / response.throughput.get().max(f64::MIN_POSITIVE) - 1.0;
        DollarsPerSecond::new(profit.get() + margin * more).unwrap_or(profit)
    }

    /// Why a response does not pay, if it does not, as [`Solvency`] has it.
    pub fn state(response: &Response, terms: &Terms) -> u64 {
        state(response, terms)
    }

    /// Whether what is served now loses: then it says nothing of what more of it would bring.
    pub fn loses(&self) -> bool {
        is_loss(self.solvency.state)
    }

    /// What it is worth to admit more clients, or fewer.
    pub fn proposal(&self) -> Option<Proposal> {
        self.proposed.map(|(_, proposal)| proposal)
    }

    /// Admits as many as was proposed.
    pub fn accept(&mut self, now_ns: u64) {
        if let Some((limit, _)) = self.proposed.take() {
            self.clients_max = Some(limit).filter(|limit| *limit <= LIMIT_MAX);
            (self.moved_ns, self.settled) = (now_ns, Stretch::default());
        }
    }

    /// What the limit should be next, by what was served while no other knob tried anything.
    fn weigh(&mut self, now_ns: u64, terms: &Terms) {
        let settled = core::mem::take(&mut self.settled);
        let whole = settled.window(0, settled.length_ns, Setting::default());
        self.proposed = None;
        // A clock that went back must not stop it.
        let is_young = (self.moved_ns..self.moved_ns.saturating_add(PERIOD_NS)).contains(&now_ns);
        let Some(seen) = window::observation(&whole).filter(|_| self.refuses && !is_young) else { return };
        let (state, now) = (state(&seen.response, terms), margin(&seen.response, terms).get());
        let limit = if is_loss(state) {
            if self.losses < LOSSES {
                return;
            }
            let present = self.clients_max.unwrap_or(whole.clients).min(whole.clients);
            (f64::from(present) * best(&FEWER, &seen.response, terms)) as u32
        } else {
            let Some(limit) = self.clients_max else { return };
            // Nobody is refused where there are not so many.
            let limit = if limit / 2 > whole.clients { LIMIT_MAX } else { limit };
            let one_more = 1.0 + 1.0 / f64::from(limit.max(1));
            let times = best(&[1.0, one_more, MORE[0], MORE[1]], &seen.response, terms);
            let most = libm::round(f64::from(limit) * times) as u32;
            if most <= limit {
                return;
            }
            most
        };
        let present = f64::from(self.clients_max.unwrap_or(whole.clients).max(1));
        let seconds = |value| Seconds::new(value).unwrap_or_default();
        let gain = now * (f64::from(limit) / present - 1.0);
        let proposal = Proposal {
            gain: DollarsPerSecond::new(gain).unwrap_or_default(),
            cost: Dollars::ZERO,
            horizon: seconds(HORIZON),
            settling: seconds(SETTLED_NS as f64 / 1e9),
        };
        self.proposed = Some((limit, proposal));
    }

    /// What was served is judged anew at other prices, so that nobody is refused who pays again.
    pub fn reconsider(&mut self, terms: &Terms) {
        let is_loss = |response: &Response| margin(response, terms).get() < 0.0;
        if self.losses > 0 && !self.response.as_ref().is_some_and(is_loss) {
            (self.solvency.state, self.losses, self.clients_max) = (Solvency::PAYS, 0, None);
            self.proposed = None;
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

    fn judge(&mut self, response: &Response, terms: &Terms) {
        (self.response, self.idle) = (Some(*response), 0);
        let state = state(response, terms);
        if !is_loss(state) {
            (self.solvency.state, self.losses) = (state, 0);
            return;
        }
        self.losses += 1;
        if self.losses >= LOSSES || is_loss(self.solvency.state) {
            self.solvency.state = state;
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

/// How many times as many clients bring most, as far as can be foretold: they are served as much more, and as
/// much later as there are more who wait (Little's law), the worse of what may come of either.
fn best(times: &[f64], response: &Response, terms: &Terms) -> f64 {
    let brings = |times: f64| scaled(response, times).map_or(f64::MIN, |one| margin(&one, terms).get());
    times.iter().copied().max_by(|one, other| brings(*one).total_cmp(&brings(*other))).unwrap_or(1.0)
}

/// The response of so many times as many clients.
fn scaled(response: &Response, times: f64) -> Option<Response> {
    let data = |data: GbitPerSecond| GbitPerSecond::new(data.get() * times).ok();
    let seconds = |time: Seconds| Seconds::new(time.get() * times).ok();
    let Response { throughput, answered, sent, received, latency } = response;
    let latency =
        Latency::new(seconds(latency.mean())?, seconds(latency.jitter())?, seconds(latency.p99())?).ok()?;
    Some(Response {
        throughput: OperationsPerSecond::new(throughput.get() * times).ok()?,
        answered: data(*answered)?,
        sent: data(*sent)?,
        received: data(*received)?,
        latency,
    })
}

/// Whether fewer requests would lose less.
fn is_loss(state: u64) -> bool {
    matches!(state, Solvency::COSTS_MORE | Solvency::LATE)
}

/// What requests bring less what they cost, whatever is held.
fn margin(response: &Response, terms: &Terms) -> DollarsPerSecond {
    terms.contracts.profit(response, &Usage::default(), terms.prices)
}

fn state(response: &Response, terms: &Terms) -> u64 {
    let brings = margin(response, terms).get();
    let in_time = in_time(response, terms.contracts.contracts);
    let would_bring = in_time.map_or(brings, |response| margin(&response, terms).get());
    if brings < 0.0 || brings == 0.0 && would_bring > 0.0 {
        if would_bring > 0.0 { Solvency::LATE } else { Solvency::COSTS_MORE }
    } else if terms.contracts.profit(response, terms.held, terms.prices).get() < 0.0 {
        Solvency::HELD_COSTS_MORE
    } else {
        Solvency::PAYS
    }
}

/// The same served at once. Nobody promised that where it earns a bonus without an end.
fn in_time(response: &Response, contracts: &Contracts) -> Option<Response> {
    let seconds = |value| Seconds::new(value).ok();
    let latency = Latency::new(seconds(1e-6)?, seconds(0.0)?, seconds(1e-6)?).ok()?;
    (!contracts.has_bonus()).then_some(Response { latency, ..*response })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::Hold;
    use alloc::vec::Vec;

    /// How often the contract is asked for what one response is worth.
    fn valuations(refuses: bool) -> u32 {
        let contracts = Contracts::new("Gbit; value 20".parse().expect("good"), Vec::new());
        let judge = Judge::new(true, refuses, &contracts);
        let (prices, held) = (Prices::default(), Usage::default());
        let terms = Terms { contracts: contracts.at(Hold::default()), prices: &prices, held: &held };
        let whole = Window { to_ns: PERIOD_NS, requests: 1000, answered_bytes: 1000, ..Window::default() };
        let response = window::response(&whole).expect("it took time");
        judge.value(&response, 1000.0, &terms);
        contracts.valuations.get()
    }

    #[test]
    fn a_response_is_valued_once_unless_clients_may_be_refused() {
        assert_eq!(valuations(false), 1);
        assert_eq!(valuations(true), 2, "and once more whatever is held");
    }
}
