//! Who pays for what: the application's contract, and those of activities that have their own.
//!
//! What was served for an activity with a contract of its own is paid by that; all the rest together by the
//! application's, and what that brings is divided by what it is paid for, answered data or requests. So the
//! revenues of all activities are the application's, to the rounding of a nano-dollar.
//!
//! What a response would bring that nobody has seen yet depends on for whom it would be: it is divided as
//! what was served of late, with latencies in the same proportions. Those are others where packets of some
//! are not held: who may be is asked in the order in which contracts hurry.

use crate::report::Stretch;
use crate::window;
use alloc::vec::Vec;
use nom_economy::prices::{Prices, Usage};
use nom_economy::response::Response;
use nom_economy::units::{DollarsPerSecond, GbitPerSecond, OperationsPerSecond, Seconds};
use nom_economy::utility::{Contract, Latency, Term, Utility};
use nom_service::{Activity, Setting, Urgent, Window};

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

    /// What came before counts so much beside it from now on.
    pub fn follow(&mut self, before: &Served, kept: f64) {
        let kept_ns = kept * before.whole.length_ns as f64;
        let length_ns = self.whole.length_ns.saturating_add(kept_ns as u64);
        self.join(before, kept);
        self.whole.length_ns = length_ns;
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

/// What is for whom, where packets are held for so long, and those of so many activities are not.
#[derive(Clone, Debug)]
struct Mix {
    hold: Hold,
    /// What part of a response each of `own` was of late, and last what the rest was.
    parts: Vec<Part>,
    /// What was served of late.
    recent: Served,
}

/// How packets are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The batching delay in microseconds.
    micros: u32,
    /// How many activities' packets are not held.
    urgent: u8,
}

impl Hold {
    /// Where nobody's are, it is all the same whose would not be.
    pub fn new(micros: u32, urgent: u8) -> Hold {
        Hold { micros, urgent: if micros == 0 { 0 } else { urgent } }
    }

    /// As they are by a setting.
    pub fn by(setting: &Setting) -> Hold {
        Hold::new(setting.batching_delay.as_micros() as u32, setting.urgent.count() as u8)
    }

    /// How far another is from it: delays count where the number is the same.
    fn distance(&self, other: &Hold) -> (u8, f64) {
        let octaves = |hold: &Hold| libm::log2(1.0 + f64::from(hold.micros));
        (self.urgent.abs_diff(other.urgent), (octaves(self) - octaves(other)).abs())
    }
}

/// Most activities whose packets may not be held: a controller tries each number with each delay.
const URGENT_MAX: usize = 3;
/// What of all before a window counts beside it, of what was for whom.
const KEPT: f64 = 0.9;
/// A contract hurries that pays less than half of what it would at once after so many doublings of a
/// microsecond.
const DOUBLINGS: core::ops::RangeInclusive<i32> = 1..=20;

/// The contracts of an application.
#[derive(Debug)]
pub(crate) struct Contracts {
    /// Whom the application's own is not for, each with what it pays.
    own: Vec<(Activity, Utility)>,
    rest: Utility,
    /// What is for whom: one for all, unless some packets may not be held; else where it was seen. Never
    /// empty.
    mixes: Vec<Mix>,
    /// Whose packets are not held, by how many are not.
    urgent: Vec<Urgent>,
    /// How often a response was valued: that is what choosing costs.
    #[cfg(test)]
    pub valuations: core::cell::Cell<u32>,
}

impl Contracts {
    /// All is paid by `rest` but what is for an activity of `own`.
    pub fn new(rest: Utility, own: Vec<(Activity, Utility)>) -> Contracts {
        let mut parts: Vec<Part> = own.iter().map(|_| Part::NOTHING).collect();
        parts.push(Part::ALL);
        Contracts {
            own,
            rest,
            mixes: alloc::vec![Mix { hold: Hold::default(), parts, recent: Served::default() }],
            urgent: alloc::vec![Urgent::default()],
            #[cfg(test)]
            valuations: core::cell::Cell::default(),
        }
    }

    /// Packets of activities with a contract of their own may not be held, those first that it hurries most.
    pub fn hurry(mut self) -> Contracts {
        let hurried = self.own.iter().filter_map(|(own, utility)| Some((patience(utility)?, *own)));
        let mut hurried: Vec<(i32, Activity)> = hurried.collect();
        hurried.sort_by_key(|(patience, _)| *patience);
        hurried.truncate(URGENT_MAX);
        let first = |count| hurried.iter().take(count).map(|(_, activity)| *activity).collect();
        self.urgent = (0..=hurried.len()).map(first).collect();
        self
    }

    /// Whose packets are not held, by how many are not.
    pub fn urgent(&self) -> &[Urgent] {
        &self.urgent
    }

    /// What users pay where packets are held so, as far as that was seen; else as in what is most alike.
    #[inline]
    pub fn at(&self, hold: Hold) -> ContractsAt<'_> {
        let parts = if let [only] = &self.mixes[..] { &only.parts } else { &self.most_alike(hold).parts };
        ContractsAt { contracts: self, parts }
    }

    fn most_alike(&self, hold: Hold) -> &Mix {
        let mut best = (&self.mixes[0], self.mixes[0].hold.distance(&hold));
        for mix in &self.mixes[1..] {
            let distance = mix.hold.distance(&hold);
            if distance < best.1 {
                best = (mix, distance);
            }
        }
        best.0
    }

    /// Whether some packets may not be held.
    fn hurries(&self) -> bool {
        self.urgent.len() > 1
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

    /// Whom what was served is for is as in `served` from now on, if all packets are held for as long.
    pub fn learn(&mut self, served: &Served) {
        if !self.own.is_empty()
            && !self.hurries()
            && let Some(parts) = self.parts(served)
        {
            self.mixes[0].parts = parts;
        }
    }

    /// Learns from a window in which so much was for whom: from the first, since nothing else says whose
    /// contract is worth what, and from each where some packets may not be held, since then how long whom
    /// takes is another matter with each delay. What somebody else has set teaches nothing.
    pub fn see(&mut self, window: &Window, shares: &[Stretch]) {
        let is_first = self.mixes[0].recent.whole.length_ns == 0;
        if self.own.is_empty()
            || window.requests == 0
            || window.is_overridden
            || !(self.hurries() || is_first)
        {
            return;
        }
        let hold = Hold::by(&window.setting);
        let mut served = Served { shares: shares.to_vec(), ..Served::default() };
        served.whole.add(window);
        let place = self.mixes.iter().position(|mix| mix.hold == hold);
        place.iter().for_each(|place| served.follow(&self.mixes[*place].recent, KEPT));
        let Some(parts) = self.parts(&served) else { return };
        let mix = Mix { hold, parts, recent: served };
        match place.or(is_first.then_some(0)) {
            Some(place) => self.mixes[place] = mix,
            None => self.mixes.push(mix),
        }
    }

    /// What part of what was served each contract is.
    fn parts(&self, served: &Served) -> Option<Vec<Part>> {
        let whole = response(&served.whole)?;
        let parts = self.divided(served).map(|part| response(&part).unwrap_or(whole));
        Some(parts.map(|part| Part::of(&part, &whole)).collect())
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

/// [`Contracts`] where packets of some activities are not held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContractsAt<'a> {
    pub contracts: &'a Contracts,
    parts: &'a [Part],
}

impl Contract for ContractsAt<'_> {
    fn revenue(&self, response: &Response, prices: &Prices) -> DollarsPerSecond {
        let ContractsAt { contracts, parts } = *self;
        #[cfg(test)]
        contracts.valuations.set(contracts.valuations.get() + 1);
        if contracts.own.is_empty() {
            return contracts.rest.revenue(response, prices);
        }
        let parts = contracts.utilities().zip(parts);
        parts.fold(DollarsPerSecond::ZERO, |sum, (utility, part)| {
            sum + utility.revenue(&part.apply(response), prices)
        })
    }
}

/// After how many doublings of a microsecond a contract pays less than half of what it would at once; never,
/// if it pays for whatever is answered.
fn patience(utility: &Utility) -> Option<i32> {
    let brings = |doublings: i32| {
        let seconds = |micros: f64| Seconds::new(micros * 1e-6).unwrap_or_default();
        let micros = libm::scalbn(1.0, doublings);
        let latency = Latency::new(seconds(micros), seconds(micros / 4.0), seconds(2.0 * micros)).ok()?;
        let rate = OperationsPerSecond::new(1e4).ok()?;
        let data = GbitPerSecond::new(0.1).ok()?;
        let response = Response { throughput: rate, answered: data, sent: data, received: data, latency };
        Some(utility.revenue(&response, &Prices::default()).get())
    };
    let at_once = brings(0)?;
    DOUBLINGS.into_iter().find(|doublings| brings(*doublings).is_some_and(|late| late < at_once / 2.0))
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
