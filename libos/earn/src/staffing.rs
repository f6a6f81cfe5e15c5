//! How many cores serve: a knob that turns slowly.
//!
//! To give a core back moves its clients to others, and to take one moves some of them there. So a number
//! of cores is not tried for a window, as a batching delay is, but for a period, and what is served while
//! clients move says nothing about it.

use crate::contracts::Hold;
use crate::report::Stretch;
use crate::window;
use alloc::vec::Vec;
use nom_abi::priced::Solvency;
use nom_economy::controller::{BatchingDelays, Controller, KnobGrid, Notice, Search};
use nom_economy::decision::Proposal;
use nom_economy::response::Response;
use nom_economy::units::{DollarsPerSecond, Seconds};
use nom_service::Window;

/// A number of cores is judged by so much time.
const PERIOD_NS: u64 = 200_000_000;
/// After each change so much does not count: clients move, and the device learns where they are.
const SETTLING_NS: u64 = 60_000_000;
/// Up to four cores every number is a choice; beyond, each is about this part of the next.
const STEP: f64 = 0.8;

/// Where a response is valued; as it is at present, of what is not said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// How many cores serve.
    pub cores: Option<u16>,
    /// How packets are held.
    pub hold: Option<Hold>,
}

impl Place {
    /// With the cores that serve, and packets held so.
    pub fn held(hold: Hold) -> Place {
        Place { cores: None, hold: Some(hold) }
    }
}

/// What it brings that the server responds so at a place.
pub(crate) type Value<'a> = dyn Fn(Place, &Response) -> DollarsPerSecond + 'a;

/// Why a response does not pay, if it does not, as [`Solvency`] has it.
pub(crate) type State<'a> = dyn Fn(&Response) -> u64 + 'a;

/// Numbers of cores to choose from, and who chooses.
#[derive(Debug)]
pub(crate) struct Staffing {
    points: KnobGrid,
    controller: Controller,
    period: Stretch,
    /// How much longer clients move.
    settling_ns: u64,
    /// Whether nobody asked anything in the last window: then one core waits for those who will.
    is_idle: bool,
    proposal: Option<Proposal>,
}

/// Whom a window teaches something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teaches {
    /// Every knob.
    All,
    /// One whose move settles, or nobody.
    Another,
}

impl Staffing {
    /// From 1 core to `most`, of which all serve at first; nothing if there is nothing to choose.
    pub fn new(most: u16) -> Option<Staffing> {
        let points = KnobGrid::new(BatchingDelays::up_to(0), &[Notice::Interrupt], &choices(most)).ok()?;
        let mut controller = Controller::new(&points, 0);
        controller.search = Search::Nowhere;
        let period = Stretch::default();
        let staffing =
            Staffing { points, controller, period, settling_ns: 0, is_idle: false, proposal: None };
        (most > 1).then_some(staffing)
    }

    /// How many numbers there are to choose from.
    pub fn choices(&self) -> usize {
        self.controller.points()
    }

    /// Which of them is chosen for when somebody asks something.
    pub fn choice(&self) -> usize {
        self.controller.point()
    }

    /// How many cores are to serve.
    pub fn cores(&self) -> u16 {
        if self.is_idle { 1 } else { self.points.setting(self.choice()).cores }
    }

    /// Whether what is measured says nothing yet about the cores that serve.
    pub fn is_settling(&self) -> bool {
        self.settling_ns > 0
    }

    /// Whether a number is tried, or clients move to it: what is measured says nothing of other knobs.
    pub fn is_trying(&self) -> bool {
        self.is_settling() || self.controller.is_trying()
    }

    /// What it is worth to have another number serve.
    pub fn proposal(&self) -> Option<Proposal> {
        self.proposal
    }

    /// Has the number serve that was proposed.
    pub fn accept(&mut self) {
        let before = self.cores();
        self.proposal = None;
        self.controller.accept();
        self.turn(before);
    }

    /// Learns from a window that was as it should be, if no other knob's move settles in it. Where a loss is
    /// made, another number is only searched for if what is served is late: else what a core costs is known,
    /// and each trial moves clients.
    pub fn observe(&mut self, window: &Window, value: &Value, teaches: Teaches, state: &State) {
        let before = self.cores();
        self.settling_ns = self.settling_ns.saturating_sub(window.length_ns());
        self.is_idle = window.requests == 0;
        if teaches == Teaches::All && !self.is_settling() && !self.is_idle {
            self.period.add(window);
            if self.period.length_ns >= PERIOD_NS {
                self.judge(value, state);
            }
        }
        self.turn(before);
    }

    fn judge(&mut self, value: &Value, state: &State) {
        let period = core::mem::take(&mut self.period);
        let whole = period.window(0, period.length_ns, nom_service::Setting::default());
        let Some(observation) = window::observation(&whole) else { return };
        let is_late = state(&observation.response) == Solvency::LATE;
        self.controller.search = if is_late { Search::Everywhere } else { Search::Nowhere };
        let worth = self.controller.propose(&observation, &value_of_choices(&self.points, value));
        let seconds = Seconds::new(PERIOD_NS as f64 / 1e9).unwrap_or_default();
        self.proposal = worth.map(|worth| worth.proposal(seconds));
    }

    /// Chooses anew at other prices.
    pub fn reconsider(&mut self, value: &Value) {
        let before = self.cores();
        self.proposal = None;
        self.controller.reconsider(&value_of_choices(&self.points, value));
        self.turn(before);
    }

    /// Begins the period anew: what was measured in it was another load.
    pub fn begin_period(&mut self) {
        self.period = Stretch::default();
    }

    fn turn(&mut self, before: u16) {
        if self.cores() != before {
            self.settling_ns = SETTLING_NS;
            self.begin_period();
        }
    }
}

/// What it brings that the server responds so at one of the choices.
fn value_of_choices<'a>(
    choices: &'a KnobGrid,
    value: &'a Value,
) -> impl Fn(usize, &Response) -> DollarsPerSecond + 'a {
    |choice, response| {
        let cores = Some(choices.setting(choice).cores);
        value(Place { cores, ..Place::default() }, response)
    }
}

/// From `most` down to 1.
fn choices(most: u16) -> Vec<u16> {
    let fewer = |cores: &u16| {
        let next = libm::round(f64::from(*cores) * STEP) as u16;
        Some(next.min(cores - 1)).filter(|next| *next > 0)
    };
    core::iter::successors(Some(most.max(1)), fewer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_cores_are_all_choices_and_many_are_not() {
        assert_eq!(choices(0), [1]);
        assert_eq!(choices(5), [5, 4, 3, 2, 1]);
        assert_eq!(choices(64), [64, 51, 41, 33, 26, 21, 17, 14, 11, 9, 7, 6, 5, 4, 3, 2, 1]);
        assert!(Staffing::new(1).is_none());
        assert!(choices(u16::MAX).len() < 60);
    }
}
