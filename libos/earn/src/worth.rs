//! What another request of each activity is worth: what a scheduler goes by that serves whoever earns most.
//!
//! Windows are short, a penalty is steep near its objective, and a contract may pay for so much a second and
//! nothing for more. So the last windows are valued as one, the newest most. The values themselves are not
//! averaged: whoever has had what his contract pays for would go on being preferred for what he was worth
//! before.

use crate::contracts::{Contracts, Served};
use alloc::vec::Vec;
use nom_economy::prices::Prices;
use nom_service::Activity;

/// What of all before a window counts beside it: about four windows do.
const KEPT: f64 = 0.75;

/// What requests are worth, by the activities' numbers, in nanodollars; nothing where nobody has asked for
/// anything yet. Who is silent keeps what he was worth last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Worths(Vec<Option<f64>>);

impl Worths {
    /// Says them.
    pub fn tell(&self, tell: &mut dyn FnMut(Activity, f64)) {
        for (number, worth) in self.0.iter().enumerate() {
            worth.iter().for_each(|worth| tell(Activity(number as u32), *worth));
        }
    }
}

/// Reckons them.
#[derive(Debug, Default)]
pub(crate) struct Valuer {
    /// The last windows.
    recent: Served,
    worths: Worths,
}

impl Valuer {
    /// Learns from what a window served.
    pub fn learn(&mut self, contracts: &Contracts, mut served: Served, prices: &Prices) {
        served.follow(&self.recent, KEPT);
        let Worths(worths) = &mut self.worths;
        contracts.worth(&served, prices, |Activity(number), dollars| {
            let number = number as usize;
            if worths.len() <= number {
                worths.resize(number + 1, None);
            }
            worths[number] = Some(dollars * 1e9);
        });
        self.recent = served;
    }

    /// What is known.
    pub fn worths(&self) -> &Worths {
        &self.worths
    }
}
