//! What an application says of itself, to `priced` and whoever else listens.

use alloc::vec::Vec;
use nom_abi::priced::{ActivityReport, Report, Solvency};
use nom_economy::prices::Refusal;
use nom_economy::units::Seconds;
use nom_economy::utility::Unit;
use nom_service::{Consumed, Latency};
use nom_service::{Setting, Window};

/// Whom an application reports to.
pub trait Audience {
    /// Says what was served and earned, and whether that pays. May be lost: sums are in every report.
    fn report(&mut self, report: &Report, solvency: &Solvency);

    /// Says what each activity has consumed, where they are told apart. May be lost as well.
    fn activities(&mut self, activities: &[ActivityReport]) {
        let _ = activities;
    }

    /// Says that a posted price is not believed.
    fn refused(&mut self, refusal: &Refusal) {
        let _ = refusal;
    }
}

/// Windows together: since the last report, or of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stretch {
    pub length_ns: u64,
    requests: f64,
    answered_bytes: f64,
    sent_bytes: f64,
    received_bytes: f64,
    /// Sums over requests, of nanoseconds: latency, its square, and the p99 of the window each was in.
    latency: f64,
    latency_squared: f64,
    p99: f64,
    /// The same of what frames waited.
    waited: f64,
    /// The most of any window.
    clients: u32,
    /// Whether any of them was.
    is_overridden: bool,
}

impl Stretch {
    pub fn add(&mut self, window: &Window) {
        let requests = window.requests as f64;
        let (mean, jitter) = (window.latency.mean_ns as f64, window.latency.jitter_ns as f64);
        let other = Stretch {
            length_ns: window.length_ns(),
            requests,
            answered_bytes: window.answered_bytes as f64,
            sent_bytes: window.sent_bytes as f64,
            received_bytes: window.received_bytes as f64,
            latency: requests * mean,
            latency_squared: requests * (mean * mean + jitter * jitter),
            p99: requests * window.latency.p99_ns as f64,
            waited: requests * window.waited_ns as f64,
            clients: window.clients,
            is_overridden: window.is_overridden,
        };
        self.join(&other, 1.0);
    }

    /// Adds another, as if everything in it had happened so many times.
    pub fn join(&mut self, other: &Stretch, times: f64) {
        self.length_ns = self.length_ns.saturating_add(other.length_ns);
        self.requests += times * other.requests;
        self.answered_bytes += times * other.answered_bytes;
        self.sent_bytes += times * other.sent_bytes;
        self.received_bytes += times * other.received_bytes;
        self.latency += times * other.latency;
        self.latency_squared += times * other.latency_squared;
        self.p99 += times * other.p99;
        self.waited += times * other.waited;
        self.clients = self.clients.max(other.clients);
        self.is_overridden |= other.is_overridden;
    }

    /// What of it is not in `part`, which happened in the same time. Its 99th percentile may be a little off:
    /// it is that of all, where the part's is longer.
    pub fn without(&self, part: &Stretch) -> Stretch {
        let less = |whole: f64, part: f64| (whole - part).max(0.0);
        Stretch {
            requests: less(self.requests, part.requests),
            answered_bytes: less(self.answered_bytes, part.answered_bytes),
            sent_bytes: less(self.sent_bytes, part.sent_bytes),
            received_bytes: less(self.received_bytes, part.received_bytes),
            latency: less(self.latency, part.latency),
            latency_squared: less(self.latency_squared, part.latency_squared),
            p99: less(self.p99, part.p99),
            waited: less(self.waited, part.waited),
            ..*self
        }
    }

    /// How long a request's frame waited for others, in the mean.
    pub fn waited(&self) -> Seconds {
        let mean_ns = if self.requests > 0.0 { self.waited / self.requests } else { 0.0 };
        Seconds::new(mean_ns * 1e-9).unwrap_or(Seconds::ZERO)
    }

    /// How much of what is paid for there was in it.
    pub fn amount(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Gbit => self.answered_bytes,
            Unit::Operation => self.requests,
        }
    }

    /// All as one window. Its 99th percentile is the mean of those of its windows, weighted by their
    /// requests.
    pub fn window(&self, from_ns: u64, to_ns: u64, setting: Setting) -> Window {
        let whole = |sum: f64| libm::round(sum) as u64;
        let requests = if self.requests > 0.0 { self.requests } else { 1.0 };
        let mean = self.latency / requests;
        let variance = (self.latency_squared / requests - mean * mean).max(0.0);
        let latency = Latency {
            mean_ns: whole(mean),
            jitter_ns: whole(libm::sqrt(variance)),
            p99_ns: whole(self.p99 / requests),
        };
        Window {
            from_ns,
            to_ns,
            requests: whole(self.requests),
            answered_bytes: whole(self.answered_bytes),
            sent_bytes: whole(self.sent_bytes),
            received_bytes: whole(self.received_bytes),
            clients: self.clients,
            latency,
            waited_ns: whole(self.waited / requests),
            setting,
            is_overridden: self.is_overridden,
            ..Window::default()
        }
    }

    /// Puts the stretch into a report.
    pub fn fill(&self, report: &mut Report) {
        let window = self.window(0, 0, Setting::default());
        report.window_ns = self.length_ns;
        report.requests = window.requests;
        report.sent_bytes = window.sent_bytes;
        report.received_bytes = window.received_bytes;
        report.latency_mean_ns = window.latency.mean_ns;
        report.latency_jitter_ns = window.latency.jitter_ns;
        report.latency_p99_ns = window.latency.p99_ns;
    }
}

/// A report of which nothing but the setting is said.
pub(crate) fn blank(at_ns: u64, setting: Setting) -> Report {
    Report {
        kind: Report::KIND,
        at_ns,
        window_ns: 0,
        batching_delay_us: setting.batching_delay.as_micros() as u64,
        polls: setting.polls.into(),
        requests: 0,
        sent_bytes: 0,
        received_bytes: 0,
        latency_mean_ns: 0,
        latency_jitter_ns: 0,
        latency_p99_ns: 0,
        price_revision: 0,
        price_network_out: 0,
        revenue_per_second: 0,
        cost_per_second: 0,
        profit: 0,
    }
}

/// Says of latencies and rates what was said before: nothing was measured since.
pub(crate) fn repeat(report: &mut Report, last: &Report) {
    report.latency_mean_ns = last.latency_mean_ns;
    report.latency_jitter_ns = last.latency_jitter_ns;
    report.latency_p99_ns = last.latency_p99_ns;
    report.revenue_per_second = last.revenue_per_second;
    report.cost_per_second = last.cost_per_second;
}

/// Most messages of which each is of one activity.
const ACTIVITIES_MAX: usize = ActivityReport::COUNT_MAX as usize;
/// Who has what all others have that there is no room for.
const REST: &str = "(rest)";

/// What each activity has consumed until `at_ns`, as messages: so many of them at most, of which the last is
/// for all that there is no room for.
pub(crate) fn of_activities(at_ns: u64, mut consumed: Vec<Consumed>) -> Vec<ActivityReport> {
    if consumed.len() > ACTIVITIES_MAX {
        let rest = consumed.split_off(ACTIVITIES_MAX - 1);
        let mut sum = Consumed { name: REST.into(), ..Consumed::default() };
        rest.iter().for_each(|own| sum.add(own));
        consumed.push(sum);
    }
    let count = consumed.len() as u32;
    let numbered = consumed.iter().zip(0..);
    numbered.map(|(own, number)| of_activity(at_ns, own, number, count)).collect()
}

fn of_activity(at_ns: u64, own: &Consumed, number: u32, count: u32) -> ActivityReport {
    let mut name = [0; 64];
    let end = own.name.floor_char_boundary(name.len());
    name[..end].copy_from_slice(&own.name.as_bytes()[..end]);
    let dollars = |nanos: i128| nanos as f64 * 1e-9;
    let cost = i128::from(own.cost_nanodollars);
    ActivityReport {
        kind: ActivityReport::KIND,
        at_ns,
        number,
        count,
        name,
        core_ns: own.core_ns,
        requests: own.requests,
        latency_ns: own.latency_ns,
        received_bytes: own.received_bytes,
        sent_bytes: own.sent_bytes,
        connections: own.connections,
        memory_bytes: own.memory_bytes,
        cost: dollars(cost).to_bits(),
        profit: dollars(i128::from(own.revenue_nanodollars) - cost).to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const SETTING: Setting = Setting {
        batching_delay: Duration::from_micros(3),
        polls: true,
        cores: 0,
        memory_mib: 0,
        clients_max: None,
        urgent: nom_service::Urgent::from_bits(0),
    };

    fn window(requests: u64, mean: u64, jitter: u64, p99: u64) -> Window {
        Window {
            from_ns: 1000,
            to_ns: 2000,
            requests,
            answered_bytes: 9 * requests,
            sent_bytes: 10 * requests,
            received_bytes: requests,
            clients: 0,
            latency: Latency { mean_ns: mean, jitter_ns: jitter, p99_ns: p99 },
            service: Latency::default(),
            setting: SETTING,
            ..Window::default()
        }
    }

    #[test]
    fn windows_are_pooled_by_their_requests() {
        let mut stretch = Stretch::default();
        for window in [window(30, 100, 0, 100), window(0, 0, 0, 0), window(10, 500, 0, 900)] {
            stretch.add(&window);
        }
        let mut report = blank(7, SETTING);
        stretch.fill(&mut report);
        assert_eq!((report.window_ns, report.requests, report.sent_bytes), (3000, 40, 400));
        // Of 30 requests at 100 and 10 at 500: mean 200, variance 3/4 * 100^2 + 1/4 * 300^2.
        assert_eq!((report.latency_mean_ns, report.latency_jitter_ns), (200, 173));
        assert_eq!(report.latency_p99_ns, 300);
        assert_eq!((report.batching_delay_us, report.polls), (3, 1));
    }

    #[test]
    fn activities_beyond_the_table_share_its_last_row_which_says_so() {
        let own = |number: usize| Consumed {
            name: format!("tenant-{number}"),
            requests: 1,
            cost_nanodollars: 2_000_000_000,
            revenue_nanodollars: 500_000_000,
            ..Consumed::default()
        };
        let told = of_activities(7, (0..3).map(own).collect());
        assert_eq!(
            told.iter().map(|one| (one.number, one.count)).collect::<Vec<_>>(),
            [(0, 3), (1, 3), (2, 3)]
        );
        assert!(told[1].name.starts_with(b"tenant-1\0"));
        assert_eq!([told[1].cost, told[1].profit].map(f64::from_bits), [2.0, -1.5]);
        let told = of_activities(7, (0..67).map(own).collect());
        assert_eq!((told.len(), told[31].requests), (32, 36), "31 have rows of their own");
        assert!(told[31].name.starts_with(b"(rest)\0"));
        assert_eq!(told.iter().map(|one| one.requests).sum::<u64>(), 67);
        let long = Consumed { name: "é".repeat(40), ..Consumed::default() };
        let name = of_activities(7, vec![long])[0].name;
        assert_eq!(core::str::from_utf8(&name), Ok(&*"é".repeat(32)), "cut between letters");
    }

    #[test]
    fn nothing_served_took_no_time() {
        let mut report = blank(7, SETTING);
        Stretch::default().fill(&mut report);
        assert_eq!(report, blank(7, SETTING));
    }
}
