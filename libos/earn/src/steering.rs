//! Who sets the working point: controllers that learn, or the owner once and for all.

use crate::contracts::{Contracts, Hold};
use crate::settings::{Batching, Settings};
use crate::staffing::{Place, Staffing, State, Teaches, Value};
use alloc::vec::Vec;
use core::time::Duration;
use nom_abi::priced::Solvency;
use nom_economy::controller::{
    BatchingDelays, Controller, KnobGrid, KnobValues, Notice, Search, WorkingPoints as _,
};
use nom_economy::decision::{Knob, Proposal};
use nom_economy::response::{Observation, Response};
use nom_economy::table::Row;
use nom_economy::units::Seconds;
use nom_service::{Setting, Urgent, Window};

/// Windows this many times as long as was asked say nothing: the core slept, the machine was stopped, or the
/// clock jumped.
const TOO_LONG: u64 = 2;

/// The working points, the controllers among them, and what is set.
#[derive(Debug)]
pub(crate) struct Steering {
    /// Of the knobs that turn quickly.
    points: KnobGrid,
    /// Whose packets are not held, by how many are not.
    urgent: Vec<Urgent>,
    /// How packets are held at each point: asked whenever one is valued.
    holds: Vec<Hold>,
    /// Nothing if the owner decides.
    controller: Option<Controller>,
    /// Nothing if there is one core, or the owner decides.
    staffing: Option<Staffing>,
    /// What `controller` was when each other number of cores served last.
    others: Vec<Option<Controller>>,
    setting: Setting,
    /// Whether the setting is another one than when the present window began.
    has_turned: bool,
    proposals: Proposals,
    /// What was measured last.
    last: Option<Observation>,
}

/// Moves that knobs would make next.
pub(crate) type Proposals = Vec<(Knob, Proposal)>;

impl Steering {
    /// Begins with no batching delay and interrupts, or as the owner says, on all of `cores`.
    pub fn new(settings: &Settings, contracts: &Contracts, cores: u16) -> Steering {
        let longest_micros = match settings.batching {
            Batching::Adaptive { longest_micros } => Some(longest_micros),
            Batching::Fixed { .. } => None,
        };
        let notices = [Notice::Interrupt, Notice::Poll];
        let notices = if settings.knobs.notice { &notices[..] } else { &notices[..1] };
        // How many cores serve is decided apart: that knob turns slowly.
        let delays = BatchingDelays::up_to(longest_micros.unwrap_or(0));
        let points = KnobGrid::new(delays.clone(), notices, &[1]).expect("each knob has a value");
        let urgent = contracts.urgent().to_vec();
        let points = points.with_urgent((urgent.len() - 1) as u8);
        let hold = |values: KnobValues| Hold::new(values.batching_micros, values.urgent);
        let holds = (0..points.count()).map(|point| hold(points.setting(point))).collect();
        let mut controller = longest_micros.map(|_| Controller::new(&points, 0));
        controller.iter_mut().for_each(|controller| teach(controller, &delays, settings));
        let staffing = Staffing::new(cores).filter(|_| settings.knobs.cores);
        let others = (0..staffing.as_ref().map_or(0, Staffing::choices)).map(|_| None).collect();
        let setting = Setting { batching_delay: settings.first_delay(), ..Setting::default() };
        let (has_turned, proposals, last) = (false, Proposals::new(), None);
        let mut steering = Steering {
            points,
            urgent,
            holds,
            controller,
            staffing,
            others,
            setting,
            has_turned,
            proposals,
            last,
        };
        steering.take_cores();
        steering
    }

    /// Whether how many cores serve is decided here.
    pub fn chooses_cores(&self) -> bool {
        self.staffing.is_some()
    }

    /// What is to be set.
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// Learns from a window that was to last `asked_ns`, if it can teach anything, and chooses the next
    /// setting.
    pub fn observe(
        &mut self,
        window: &Window,
        asked_ns: u64,
        observation: Option<&Observation>,
        value: &Value,
        holder: Option<Knob>,
        state: &State,
    ) -> Proposals {
        self.proposals = Proposals::new();
        let has_turned = core::mem::take(&mut self.has_turned);
        if has_turned || window.is_overridden || window.setting != self.setting {
            return Proposals::new();
        }
        let is_whole = window.length_ns() < TOO_LONG * asked_ns;
        if let Some(observation) = observation.filter(|_| is_whole && !self.is_settling()) {
            self.learn(observation, value, window, holder, state);
        }
        if is_whole || window.requests == 0 {
            let is_ours = holder.is_none_or(|holder| holder == Knob::Staff);
            let teaches = if is_ours { Teaches::All } else { Teaches::Another };
            self.staff(|staffing| staffing.observe(window, value, teaches, state));
        }
        // Only within a window a turn disturbs it; the next one has not begun.
        self.has_turned = false;
        let staff = self.staffing.as_ref().and_then(Staffing::proposal);
        self.proposals.extend(staff.map(|proposal| (Knob::Staff, proposal)));
        core::mem::take(&mut self.proposals)
    }

    /// Makes the move that one of these knobs has proposed.
    pub fn accept(&mut self, knob: Knob) {
        match knob {
            Knob::Point => {
                self.controller.iter_mut().for_each(|controller| _ = controller.accept());
                self.turn();
            }
            Knob::Staff => self.staff(Staffing::accept),
            Knob::Store | Knob::Admission => {}
        }
        self.has_turned = false;
    }

    /// Whose trial is on its way.
    pub fn trying(&self) -> Option<Knob> {
        let staff = self.staffing.as_ref().filter(|staffing| staffing.is_trying());
        let point = self.controller.as_ref().filter(|controller| controller.is_trying());
        staff.map(|_| Knob::Staff).or(point.map(|_| Knob::Point))
    }

    /// Has the service take so many MiB from now on; as before, if nothing is said. What it does then changes
    /// over seconds, as it does when the host slows: no window is disturbed. Returns whether it is another
    /// setting.
    pub fn keep(&mut self, memory_mib: Option<u32>) -> bool {
        let before = self.setting;
        self.setting.memory_mib = memory_mib.unwrap_or(before.memory_mib);
        self.setting != before
    }

    /// Has each core admit so many clients, or all, from now on. Returns whether it is another setting.
    pub fn admit(&mut self, clients_max: Option<u32>) -> bool {
        core::mem::replace(&mut self.setting.clients_max, clients_max) != clients_max
    }

    /// Takes over what others have set.
    pub fn follow(&mut self, setting: Setting) {
        self.setting = setting;
    }

    fn is_settling(&self) -> bool {
        self.staffing.as_ref().is_some_and(Staffing::is_settling)
    }

    fn learn(
        &mut self,
        observation: &Observation,
        value: &Value,
        window: &Window,
        holder: Option<Knob>,
        state: &State,
    ) {
        let Some(controller) = &mut self.controller else { return };
        self.last = Some(*observation);
        let load = controller.load();
        let value = |point: usize, response: &Response| value(Place::held(self.holds[point]), response);
        if holder.is_none_or(|holder| holder == Knob::Point) {
            let interval = Seconds::new(window.length_ns() as f64 / 1e9).unwrap_or_default();
            // Where what is held costs more than it brings, no working point mends that.
            let is_dear =
                self.staffing.is_some() && state(&observation.response) == Solvency::HELD_COSTS_MORE;
            controller.search = if is_dear { Search::Nowhere } else { Search::Everywhere };
            let worth = controller.propose(observation, &value);
            self.proposals.extend(worth.map(|worth| (Knob::Point, worth.proposal(interval))));
        } else {
            controller.learn(observation, &value);
        }
        if controller.load() != load {
            self.staffing.iter_mut().for_each(Staffing::begin_period);
        }
        self.turn();
    }

    /// Chooses anew at other prices. Returns whether the setting is another one.
    pub fn reconsider(&mut self, value: &Value) -> bool {
        let before = self.setting;
        self.staff(|staffing| staffing.reconsider(value));
        if let Some(controller) = &mut self.controller {
            controller.reconsider(&|point, response| value(Place::held(self.holds[point]), response));
            self.turn();
        }
        self.setting != before
    }

    /// Has another number of cores serve, if `decide` says so. With another number the other knobs' best
    /// points are others; where that number was never set under the present load, what is known is a prior.
    fn staff(&mut self, decide: impl FnOnce(&mut Staffing)) {
        let Some(staffing) = &mut self.staffing else { return };
        let before = staffing.choice();
        decide(staffing);
        let now = staffing.choice();
        if now != before {
            let mut known = self.others[now].take();
            if let (Some(other), Some(last)) = (&mut known, &self.last)
                && !other.recall(last)
            {
                known = None;
            }
            self.others[before] = self.controller.clone();
            self.controller = known.or_else(|| {
                let mut heir = self.controller.take();
                heir.iter_mut().for_each(Controller::transfer);
                heir
            });
        }
        self.take_cores();
        self.turn();
    }

    fn take_cores(&mut self) {
        let cores = self.staffing.as_ref().map_or(0, Staffing::cores);
        self.has_turned |= cores != self.setting.cores;
        self.setting.cores = cores;
    }

    /// Takes over the controller's point.
    fn turn(&mut self) {
        let Some(controller) = &self.controller else { return };
        let chosen = self.points.setting(controller.point());
        let setting = Setting {
            batching_delay: Duration::from_micros(chosen.batching_micros.into()),
            polls: chosen.notice == Notice::Poll,
            urgent: self.urgent[usize::from(chosen.urgent)],
            ..self.setting
        };
        self.has_turned |= setting != self.setting;
        self.setting = setting;
    }
}

/// Teaches what was measured beforehand. It was with interrupts, and their points come first.
fn teach(controller: &mut Controller, delays: &BatchingDelays, settings: &Settings) {
    for load in &settings.responses.load {
        let row = |row: &Row| Some((delays.nearest(row.batching_delay), row.response()?));
        controller.teach(&load.response.iter().filter_map(row).collect::<Vec<_>>());
    }
}
