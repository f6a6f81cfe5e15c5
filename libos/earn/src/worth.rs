//! What another request of each activity is worth: what a scheduler goes by that serves whoever earns most.

use crate::contracts::{Contracts, Served};
use alloc::vec::Vec;
use nom_economy::prices::Prices;
use nom_service::Activity;

/// What a window counts against all before it: a penalty is steep near its objective, and a window is short.
const NEWEST: f64 = 0.25;

/// By the activities' numbers, in nanodollars; nothing where nobody has asked for anything yet. Who is silent
/// keeps what he was worth.
#[derive(Clone, Debug, Default)]
pub(crate) struct Worths(Vec<Option<f64>>);

impl Worths {
    /// Learns from what a window served.
    pub fn learn(&mut self, contracts: &Contracts, served: &Served, prices: &Prices) {
        contracts.worth(served, prices, |Activity(number), dollars| {
            let (number, now) = (number as usize, dollars * 1e9);
            if self.0.len() <= number {
                self.0.resize(number + 1, None);
            }
            let before = self.0[number].unwrap_or(now);
            self.0[number] = Some(before + NEWEST * (now - before));
        });
    }

    /// What is known.
    pub fn tell(&self, tell: &mut dyn FnMut(Activity, f64)) {
        for (number, worth) in self.0.iter().enumerate() {
            worth.iter().for_each(|worth| tell(Activity(number as u32), *worth));
        }
    }
}
