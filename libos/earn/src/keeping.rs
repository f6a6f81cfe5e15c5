//! How much memory a service takes for what it keeps.

use crate::report::Stretch;
use crate::window;
use nom_economy::memory::{MemoryPolicy, Present};
use nom_economy::prices::{Prices, Usage};
use nom_economy::response::Response;
use nom_economy::utility::Utility;
use nom_service::Demand;
use nom_service::{Setting, Window};

/// What is kept never has less, in MiB: where nearly nothing is asked for now, that tells little of what will
/// be.
const FLOOR_MIB: u32 = 2;

/// The policy, and what it decides by.
#[derive(Debug)]
pub(crate) struct Keeping {
    policy: MemoryPolicy,
    /// Since the service last said what it makes of memory.
    period: Stretch,
    /// Of the last such period in which somebody asked something.
    response: Option<Response>,
    /// Whether the service has said something that was not decided by.
    has_heard: bool,
}

impl Keeping {
    pub fn new() -> Keeping {
        let policy = MemoryPolicy::new(FLOOR_MIB);
        Keeping { policy, period: Stretch::default(), response: None, has_heard: false }
    }

    /// What the service makes of memory.
    pub fn hear(&mut self, demand: &Demand) {
        self.policy.hear(demand);
        let period = core::mem::take(&mut self.period);
        let whole = period.window(0, period.length_ns, Setting::default());
        self.response = window::observation(&whole).map(|seen| seen.response).or(self.response);
        self.has_heard = true;
    }

    /// Takes note of a window. Returns how many MiB the service is to take from now on, if that is to change.
    pub fn observe(
        &mut self,
        window: &Window,
        utility: &Utility,
        prices: &Prices,
        held: &Usage,
    ) -> Option<u32> {
        self.period.add(window);
        let is_due = core::mem::take(&mut self.has_heard);
        is_due.then(|| self.choose(window.to_ns, utility, prices, held))?
    }

    /// Returns the same at other prices.
    pub fn choose(&mut self, now_ns: u64, utility: &Utility, prices: &Prices, held: &Usage) -> Option<u32> {
        let response = self.response.as_ref()?;
        self.policy.choose(now_ns, &Present { response, held, prices, utility })
    }
}
