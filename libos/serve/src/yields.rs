//! What activities earn by what a scheduler shares out, where that is for their contracts to say.
//!
//! A governor knows what another request of an activity would bring. How many requests a million units of the
//! scheduler's metric serve, nanoseconds of the core, bytes or frames, is measured here, of each activity by
//! itself: whose requests take longer earns less by the same time.

use crate::payers::Consumption;
use alloc::vec::Vec;
use nom_grid::SharedMetric;
use nom_rt::handle::Handle;
use nom_service::Activity;

/// Requests after which what is measured counts by half: some windows of a busy server, as what requests take
/// changes with what is asked.
const HALF: f64 = 1000.0;

/// What was served for an activity, the newest most.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    requests: f64,
    units: f64,
    /// All requests, and all units, when it was looked at last.
    seen: (u64, u64),
}

impl Pace {
    /// So many requests have been served by so many units, in all.
    fn learn(&mut self, requests: u64, units: u64) {
        let (requests_before, units_before) = core::mem::replace(&mut self.seen, (requests, units));
        let served = requests.saturating_sub(requests_before) as f64;
        let left = HALF / (HALF + served);
        self.requests = self.requests * left + served;
        self.units = self.units * left + units.saturating_sub(units_before) as f64;
    }

    /// Requests that a unit serves; nothing, if none was served.
    fn requests_a_unit(&self) -> Option<f64> {
        (self.requests > 0.0 && self.units > 0.0).then(|| self.requests / self.units)
    }
}

/// What units of a metric earn, by the activities' numbers.
#[derive(Debug)]
pub(crate) struct Yields {
    metric: SharedMetric,
    paces: Vec<Pace>,
}

impl Yields {
    /// Of units of `metric`, of nobody yet.
    pub fn new(metric: SharedMetric) -> Yields {
        Yields { metric, paces: Vec::new() }
    }

    /// Learns from what was served so far, of the loop of `handle`.
    pub fn learn(&mut self, consumed: &[Consumption], handle: &Handle) {
        self.paces.resize_with(consumed.len().max(self.paces.len()), Pace::default);
        for (number, (pace, consumed)) in self.paces.iter_mut().zip(consumed).enumerate() {
            let units = match self.metric {
                SharedMetric::Messages => consumed.traffic.received_frames,
                SharedMetric::Bytes => consumed.traffic.received_bytes,
                SharedMetric::SentBytes => consumed.traffic.sent_bytes,
                SharedMetric::CoreTime | SharedMetric::DeviceTime => {
                    handle.record(Activity(number as u32)).ns
                }
            };
            pace.learn(consumed.requests, units);
        }
    }

    /// What a million units earn for an activity of which another request is worth `nanodollars`, in
    /// nanodollars.
    pub fn of_million(&self, Activity(number): Activity, nanodollars: f64) -> Option<i64> {
        let requests = self.paces.get(number as usize)?.requests_a_unit()?;
        Some((nanodollars * requests * 1e6) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_requests_take_longer_earns_less_by_the_same_time() {
        let mut yields = Yields::new(SharedMetric::CoreTime);
        yields.paces = alloc::vec![Pace::default(); 3];
        yields.paces[0].learn(100, 1_000_000);
        yields.paces[1].learn(100, 4_000_000);
        let of = |yields: &Yields, number| yields.of_million(Activity(number), 500.0);
        assert_eq!([0, 1, 2, 3].map(|number| of(&yields, number)), [Some(50_000), Some(12_500), None, None]);
        assert_eq!(yields.of_million(Activity(0), -2.0), Some(-200), "it costs more than it brings");
        // What is new counts most, and what was long ago hardly.
        yields.paces[0].learn(100_100, 1_000_000 + 4_000_000_000);
        let now = of(&yields, 0).expect("it was served");
        assert!((12_400..12_600).contains(&now), "{now}");
    }
}
