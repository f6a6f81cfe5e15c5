//! Who sets the working point: a controller that learns, or the owner once and for all.

use crate::settings::{Batching, Settings};
use alloc::vec::Vec;
use core::time::Duration;
use nom_economy::controller::{BatchingDelays, Controller, Knobs, Notice, Profit};
use nom_economy::response::Observation;
use nom_economy::table::Row;
use nom_serve::{Setting, Window};

/// Windows this many times as long as was asked say nothing: the core slept, the machine was stopped, or the
/// clock jumped.
const TOO_LONG: u64 = 2;

/// The working points, the controller among them, and what is set.
#[derive(Debug)]
pub(crate) struct Steering {
    points: Knobs,
    /// Nothing if the owner decides.
    controller: Option<Controller>,
    setting: Setting,
    /// Whether the setting is another one than when the present window began.
    has_turned: bool,
}

impl Steering {
    /// Begins with no batching delay and interrupts, or as the owner says.
    pub fn new(settings: &Settings) -> Steering {
        let longest_micros = match settings.batching {
            Batching::Adaptive { longest_micros } => Some(longest_micros),
            Batching::Fixed { .. } => None,
        };
        let notices = [Notice::Interrupt, Notice::Poll];
        let notices = if settings.has_notice { &notices[..] } else { &notices[..1] };
        // Cores and memory are the application's to change, not the controller's: one value each.
        let delays = BatchingDelays::up_to(longest_micros.unwrap_or(0));
        let points = Knobs::new(delays.clone(), notices, &[1], &[1]).expect("each knob has a value");
        let mut controller = longest_micros.map(|_| Controller::new(&points, 0));
        controller.iter_mut().for_each(|controller| teach(controller, &delays, settings));
        let setting = Setting { batching_delay: settings.first_delay(), ..Setting::default() };
        Steering { points, controller, setting, has_turned: false }
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
        profit: &Profit,
    ) {
        let has_turned = core::mem::take(&mut self.has_turned);
        let is_whole = !has_turned && window.setting == self.setting;
        let (Some(controller), Some(observation)) = (&mut self.controller, observation) else { return };
        if is_whole && window.length_ns() < TOO_LONG * asked_ns {
            controller.observe(observation, profit);
            self.turn();
            // Only within a window a turn disturbs it; the next one has not begun.
            self.has_turned = false;
        }
    }

    /// Chooses anew at other prices. Returns whether the setting is another one.
    pub fn reconsider(&mut self, profit: &Profit) -> bool {
        let Some(controller) = &mut self.controller else { return false };
        controller.reconsider(profit);
        self.turn()
    }

    /// Takes over the controller's point. Returns whether it is another one.
    fn turn(&mut self) -> bool {
        let Some(controller) = &self.controller else { return false };
        let chosen = self.points.setting(controller.point());
        let setting = Setting {
            batching_delay: Duration::from_micros(chosen.batching_micros.into()),
            polls: chosen.notice == Notice::Poll,
            ..self.setting
        };
        let has_turned = setting != self.setting;
        self.setting = setting;
        self.has_turned |= has_turned;
        has_turned
    }
}

/// Teaches what was measured beforehand. It was with interrupts, and their points come first.
fn teach(controller: &mut Controller, delays: &BatchingDelays, settings: &Settings) {
    for load in &settings.responses.load {
        let row = |row: &Row| Some((delays.nearest(row.batching_delay), row.response()?));
        controller.teach(&load.response.iter().filter_map(row).collect::<Vec<_>>());
    }
}
