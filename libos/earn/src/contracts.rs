//! Who pays for what: the application's contract, and those of activities that have their own.
//!
//! What was served for an activity with a contract of its own is paid by that; all the rest together by the
//! application's, and what that brings is divided by what it is paid for, answered data or requests. So the
//! revenues of all activities are the application's, to the rounding of a nano-dollar.
//!
//! What a response would bring that nobody has seen yet depends on for whom it would be: it is divided as
//! what was served of late, with latencies in the same proportions.

use crate::report::Stretch;
use crate::window;
use alloc::vec::Vec;
use nom_economy::prices::{Prices, Usage};
use nom_economy::response::Response;
use nom_economy::units::{DollarsPerSecond, GbitPerSecond, OperationsPerSecond, Seconds};
use nom_economy::utility::{Contract, Latency, Term, Utility};
use nom_service::{Activity, Setting, Window};

/// What was served, and for whom, by the activities' numbers; nothing of that, if they are not told apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    pub whole: Stretch,
    pub shares: Vec<Stretch>,
}

impl Served {
    /// Adds another, as if everything in it had happened so many times.
    pub fn join(&mut self, other: &Served, times: f64) {
        self.whole.join(&other.whole, times);
        self.join_shares(&other.shares, times);
    }

    /// The same for what was served for whom alone.
    pub fn join_shares(&mut self, shares: &[Stretch], times: f64) {
        self.first_shares(shares.len()).zip(shares).for_each(|(share, more)| share.join(more, times));
    }

    /// Adds a window of each activity, by its number.
    pub fn add_shares(&mut self, windows: &[Window]) {
        self.first_shares(windows.len()).zip(windows).for_each(|(share, window)| share.add(window));
    }

    /// Those of the first `count` activities.
    fn first_shares(&mut self, count: usize) -> impl Iterator<Item = &mut Stretch> {
        if self.shares.len() < count {
            self.shares.resize_with(count, Stretch::default);
        }
        self.shares.iter_mut().take(count)
    }

    fn share(&self, activity: Activity) -> Stretch {
        let mut share = self.shares.get(activity.0 as usize).copied().unwrap_or_default();
        share.length_ns = self.whole.length_ns;
        share
    }
}

/// What part of a response is for one contract.
#[derive(Clone, Copy, Debug)]
struct Part {
    throughput: f64,
    answered: f64,
    /// By what its mean, jitter and p99 are longer than those of all.
    latency: [f64; 3],
}

impl Part {
    const NOTHING: Part = Part { throughput: 0.0, answered: 0.0, latency: [1.0; 3] };
    const ALL: Part = Part { throughput: 1.0, answered: 1.0, latency: [1.0; 3] };

    fn of(part: &Response, whole: &Response) -> Part {
        let ratio = |part: f64, whole: f64, none: f64| if whole > 0.0 { part / whole } else { none };
        if part.throughput.get() == 0.0 {
            return Part::NOTHING;
        }
        let [own, all] = [part, whole].map(|response| latencies(&response.latency));
        Part {
            throughput: ratio(part.throughput.get(), whole.throughput.get(), 0.0),
            answered: ratio(part.answered.get(), whole.answered.get(), 0.0),
            latency: core::array::from_fn(|index| ratio(own[index], all[index], 1.0)),
        }
    }

    fn apply(&self, whole: &Response) -> Response {
        let [mean, jitter, p99] = latencies(&whole.latency);
        let seconds = |value: f64, ratio: f64| Seconds::new(value * ratio).ok();
        let [of_mean, of_jitter, of_p99] = self.latency;
        let latency = seconds(mean, of_mean)
            .zip(seconds(jitter, of_jitter))
            .zip(seconds(p99, of_p99))
            .and_then(|((mean, jitter), p99)| Latency::new(mean, jitter, p99).ok());
        Response {
            throughput: OperationsPerSecond::new(whole.throughput.get() * self.throughput)
                .unwrap_or(whole.throughput),
            answered: GbitPerSecond::new(whole.answered.get() * self.answered).unwrap_or(whole.answered),
            latency: latency.unwrap_or(whole.latency),
            ..*whole
        }
    }
}

fn latencies(latency: &Latency) -> [f64; 3] {
    [latency.mean(), latency.jitter(), latency.p99()].map(Seconds::get)
}

/// The contracts of an application.
#[derive(Debug)]
pub(crate) struct Contracts {
    /// Whom the application's own is not for, each with what it pays.
    own: Vec<(Activity, Utility)>,
    rest: Utility,
    /// What part of a response each of `own` was of late, and last what the rest was.
    mix: Vec<Part>,
    /// How often a response was valued: that is what choosing costs.
    #[cfg(test)]
    pub valuations: core::cell::Cell<u32>,
}

impl Contracts {
    /// All is paid by `rest` but what is for an activity of `own`.
    pub fn new(rest: Utility, own: Vec<(Activity, Utility)>) -> Contracts {
        let mut mix: Vec<Part> = own.iter().map(|_| Part::NOTHING).collect();
        mix.push(Part::ALL);
        Contracts {
            own,
            rest,
            mix,
            #[cfg(test)]
            valuations: core::cell::Cell::default(),
        }
    }

    /// The shortest latency that a penalty promises, if any does.
    pub fn objective(&self) -> Option<Seconds> {
        let objectives = self.utilities().filter_map(Utility::objective);
        objectives.min_by(|a, b| a.get().total_cmp(&b.get()))
    }

    /// Whether some pay more the sooner they are answered.
    pub fn has_bonus(&self) -> bool {
        self.utilities().flat_map(Utility::terms).any(|term| matches!(term, Term::Bonus { .. }))
    }

    fn utilities(&self) -> impl Iterator<Item = &Utility> {
        self.own.iter().map(|(_, utility)| utility).chain([&self.rest])
    }

    /// What was served for each contract, in their order.
    fn divided<'s>(&'s self, served: &'s Served) -> impl Iterator<Item = Stretch> + 's {
        let own = self.own.iter().map(|(activity, _)| served.share(*activity));
        let rest = own.clone().fold(served.whole, |rest, own| rest.without(&own));
        own.chain([rest])
    }

    /// Whom what was served is for is as in `served` from now on.
    pub fn learn(&mut self, served: &Served) {
        if self.own.is_empty() {
            return;
        }
        let Some(whole) = response(&served.whole) else { return };
        let parts = self.divided(served).map(|part| response(&part).unwrap_or(whole));
        self.mix = parts.map(|part| Part::of(&part, &whole)).collect();
    }

    /// What was served brings in a second at these prices; `tell` hears what of that comes from whom.
    pub fn bring(
        &self,
        served: &Served,
        prices: &Prices,
        mut tell: impl FnMut(Activity, f64),
    ) -> DollarsPerSecond {
        let mut sum = DollarsPerSecond::ZERO;
        let rate = |utility: &Utility, part: &Stretch| {
            response(part).map_or(DollarsPerSecond::ZERO, |response| utility.revenue(&response, prices))
        };
        let mut parts = self.divided(served);
        for ((activity, utility), part) in self.own.iter().zip(&mut parts) {
            let brings = rate(utility, &part);
            tell(*activity, brings.get());
            sum += brings;
        }
        let rest = parts.next().expect("what is left of all comes last");
        let brings = rate(&self.rest, &rest);
        self.divide_rest(served, rest.amount(self.rest.unit()), |activity, part| {
            tell(activity, brings.get() * part);
        });
        sum + brings
    }

    /// What another request of each activity would bring beyond its traffic, in dollars, if it came to those
    /// of `served` and did not have to wait in a queue for others'; `tell` hears of activities that asked for
    /// something. A contract sees all that it pays for: where it pays less for more, all of it counts.
    pub fn worth(&self, served: &Served, prices: &Prices, mut tell: impl FnMut(Activity, f64)) {
        let parts: Vec<Stretch> = self.divided(served).collect();
        for number in 0..served.shares.len() {
            let activity = Activity(number as u32);
            let own = self.own.iter().position(|(own, _)| *own == activity);
            let (utility, whole) = match own {
                Some(place) => (&self.own[place].1, &parts[place]),
                None => (&self.rest, &parts[self.own.len()]),
            };
            let worth = worth(utility, whole, &served.share(activity), prices);
            worth.into_iter().for_each(|worth| tell(activity, worth));
        }
    }

    /// Says what part of the rest, of which there is `all`, is for whom. What nobody was told to be served
    /// for is the infrastructure's.
    fn divide_rest(&self, served: &Served, all: f64, mut tell: impl FnMut(Activity, f64)) {
        let mut left = 1.0;
        for (number, share) in served.shares.iter().enumerate() {
            let activity = Activity(number as u32);
            if activity == nom_service::INFRASTRUCTURE || self.own.iter().any(|(own, _)| *own == activity) {
                continue;
            }
            let part = if all > 0.0 { (share.amount(self.rest.unit()) / all).clamp(0.0, left) } else { 0.0 };
            left -= part;
            tell(activity, part);
        }
        tell(nom_service::INFRASTRUCTURE, left);
    }
}

impl Contract for Contracts {
    fn revenue(&self, response: &Response, prices: &Prices) -> DollarsPerSecond {
        #[cfg(test)]
        self.valuations.set(self.valuations.get() + 1);
        if self.own.is_empty() {
            return self.rest.revenue(response, prices);
        }
        let parts = self.utilities().zip(&self.mix);
        parts.fold(DollarsPerSecond::ZERO, |sum, (utility, part)| {
            sum + utility.revenue(&part.apply(response), prices)
        })
    }
}

/// How much more of a share its worth is reckoned by.
const MORE: f64 = 0.01;

/// What a request more of `share` brings, in dollars, where `utility` pays for `whole`, of which it is a
/// part; nothing, if there was none of it.
fn worth(utility: &Utility, whole: &Stretch, share: &Stretch, prices: &Prices) -> Option<f64> {
    let (whole, own) = (response(whole)?, response(share)?);
    let rate = own.throughput.get();
    if rate <= 0.0 {
        return None;
    }
    let latency = unhindered(&own.latency, share.waited());
    let more = |whole: f64, own: f64| whole + MORE * own;
    let data = |whole: GbitPerSecond, own: GbitPerSecond| {
        GbitPerSecond::new(more(whole.get(), own.get())).unwrap_or(whole)
    };
    let before = Response { latency, ..whole };
    let after = Response {
        throughput: OperationsPerSecond::new(more(whole.throughput.get(), rate)).unwrap_or(whole.throughput),
        answered: data(whole.answered, own.answered),
        sent: data(whole.sent, own.sent),
        received: data(whole.received, own.received),
        ..before
    };
    let [before, after] = [before, after].map(|at| utility.profit(&at, &Usage::default(), prices).get());
    Some((after - before) / (MORE * rate))
}

/// A latency without what was spent on waiting for others, in proportion: what is served sooner is so by its
/// jitter as well.
fn unhindered(latency: &Latency, waited: Seconds) -> Latency {
    let [mean, jitter, p99] = latencies(latency);
    // Nothing is answered before it is asked, whatever two clocks say.
    let left = ((mean - waited.get()) / mean).clamp(LEAST_LEFT, 1.0);
    let seconds = |value: f64| Seconds::new(value * left).ok();
    seconds(mean)
        .zip(seconds(jitter))
        .zip(seconds(p99))
        .and_then(|((mean, jitter), p99)| Latency::new(mean, jitter, p99).ok())
        .unwrap_or(*latency)
}

/// The least part of a latency that is not waiting.
const LEAST_LEFT: f64 = 0.01;

fn response(stretch: &Stretch) -> Option<Response> {
    window::response(&stretch.window(0, stretch.length_ns, Setting::default()))
}

#[cfg(test)]
mod tests;
