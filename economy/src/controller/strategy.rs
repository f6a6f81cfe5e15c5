//! What a controller's way of searching has to do.

use super::model::Prediction;
use super::space::Space;
use super::tally::Tally;
use crate::response::{Logs, Response};
use crate::units::DollarsPerSecond;

/// Profit at a working point that responds like this, at present prices.
pub type Profit<'a> = dyn Fn(usize, &Response) -> DollarsPerSecond + 'a;

/// Where to go next, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The point.
    pub(super) point: usize,
    /// Whether to learn of it rather than to earn by it.
    pub(super) explores: bool,
}

/// What is expected of the time to come.
#[derive(Clone, Copy, Debug)]
pub struct Outlook {
    /// Intervals to go under this load, as far as can be guessed.
    pub(super) horizon: f64,
    /// What is to be added to the logarithms that were learned.
    pub(super) level: Logs,
    /// Deviation of logarithms by which everything will be better at times and worse at others.
    pub(super) deviation: f64,
}

/// A way of learning one load's response and of searching the best point under it. Sealed: its arguments are
/// private to the controller.
pub trait Strategy {
    /// Knowing nothing.
    fn new(space: &Space) -> Self;

    /// What was measured.
    fn tally(&self) -> &Tally;

    /// See [`Self::tally`].
    fn tally_mut(&mut self) -> &mut Tally;

    /// Adds an observation that counts `share` of a whole one.
    fn learn(&mut self, space: &Space, point: usize, logs: &Logs, share: f64);

    /// What the point should do; nothing if there is no ground to say.
    fn predict(&mut self, space: &Space, point: usize) -> Option<Prediction>;

    /// Where to go from `present`.
    fn choose(&mut self, space: &Space, present: usize, outlook: &Outlook, profit: &Profit) -> Choice;
}

/// Profit at a point of which only the likeliest logarithms are considered.
pub(super) fn profit_of(profit: &Profit, point: usize, logs: &Logs, outlook: &Outlook) -> f64 {
    profit(point, &Response::from_logs(&outlook.present(logs))).get()
}

impl Outlook {
    /// Logarithms as they were learned, as they are expected to be.
    pub(super) fn present(&self, logs: &Logs) -> Logs {
        core::array::from_fn(|channel| logs[channel] + self.level[channel])
    }
}
