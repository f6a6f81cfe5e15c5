//! How much memory a service takes for what it keeps.

use crate::report::Stretch;
use crate::solvency::Terms;
use crate::window;
use nom_economy::decision::Proposal;
use nom_economy::memory::{MemoryPolicy, Present};
use nom_economy::response::Response;
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
    proposed_mib: u32,
}

impl Keeping {
    pub fn new() -> Keeping {
        let policy = MemoryPolicy::new(FLOOR_MIB);
        Keeping { policy, period: Stretch::default(), response: None, has_heard: false, proposed_mib: 0 }
    }

    /// What the service makes of memory.
    pub fn hear(&mut self, demand: &Demand) {
        self.policy.hear(demand);
        let period = core::mem::take(&mut self.period);
        let whole = period.window(0, period.length_ns, Setting::default());
        self.response = window::observation(&whole).map(|seen| seen.response).or(self.response);
        self.has_heard = true;
    }

    /// Takes note of a window that says nothing of another knob's move.
    pub fn observe(&mut self, window: &Window) {
        self.period.add(window);
    }

    /// What it is worth to change how many MiB the service takes, if it is to change.
    pub fn propose(&mut self, now_ns: u64, terms: &Terms) -> Option<Proposal> {
        let response = self.response.as_ref().filter(|_| self.has_heard)?;
        let Terms { contracts, prices, held } = *terms;
        let present = Present { response, held, prices, utility: &contracts };
        let proposed = self.policy.propose(now_ns, &present);
        self.has_heard = proposed.is_some();
        let (mib, proposal) = proposed?;
        self.proposed_mib = mib;
        Some(proposal)
    }

    /// Does what was proposed last. Returns how many MiB the service is to take from now on.
    pub fn accept(&mut self, now_ns: u64) -> u32 {
        self.has_heard = false;
        self.policy.accept(now_ns, self.proposed_mib);
        self.proposed_mib
    }

    /// Returns the same at other prices.
    pub fn choose(&mut self, now_ns: u64, terms: &Terms) -> Option<u32> {
        let response = self.response.as_ref()?;
        let Terms { contracts, prices, held } = *terms;
        self.policy.choose(now_ns, &Present { response, held, prices, utility: &contracts })
    }
}
