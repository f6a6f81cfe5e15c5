//! What an application says of itself, to `priced` and whoever else listens.

use nom_abi::priced::Report;
use nom_economy::prices::Refusal;
use nom_serve::{Setting, Window};

/// Whom an application reports to.
pub trait Audience {
    /// Says what was served and earned. May be lost: sums are in every report.
    fn report(&mut self, report: &Report);

    /// Says that a posted price is not believed.
    fn refused(&mut self, refusal: &Refusal) {
        let _ = refusal;
    }
}

/// Windows since the last report, together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stretch {
    pub length_ns: u64,
    pub requests: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Sums over requests, of nanoseconds: latency, its square, and the p99 of the window each was in.
    latency: f64,
    latency_squared: f64,
    p99: f64,
}

impl Stretch {
    pub fn add(&mut self, window: &Window) {
        let requests = window.requests as f64;
        let (mean, jitter) = (window.latency.mean_ns as f64, window.latency.jitter_ns as f64);
        self.length_ns = self.length_ns.saturating_add(window.length_ns());
        self.requests = self.requests.saturating_add(window.requests);
        self.sent_bytes = self.sent_bytes.saturating_add(window.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_add(window.received_bytes);
        self.latency += requests * mean;
        self.latency_squared += requests * (mean * mean + jitter * jitter);
        self.p99 += requests * window.latency.p99_ns as f64;
    }

    /// Puts the stretch into a report. Its 99th percentile is the mean of those of the windows, weighted by
    /// their requests.
    pub fn fill(&self, report: &mut Report) {
        report.window_ns = self.length_ns;
        report.requests = self.requests;
        report.sent_bytes = self.sent_bytes;
        report.received_bytes = self.received_bytes;
        let requests = self.requests.max(1) as f64;
        let mean = self.latency / requests;
        let variance = (self.latency_squared / requests - mean * mean).max(0.0);
        report.latency_mean_ns = libm::round(mean) as u64;
        report.latency_jitter_ns = libm::round(libm::sqrt(variance)) as u64;
        report.latency_p99_ns = libm::round(self.p99 / requests) as u64;
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use nom_serve::governor::Latency;

    const SETTING: Setting = Setting { batching_delay: Duration::from_micros(3), polls: true };

    fn window(requests: u64, mean: u64, jitter: u64, p99: u64) -> Window {
        Window {
            from_ns: 1000,
            to_ns: 2000,
            requests,
            sent_bytes: 10 * requests,
            received_bytes: requests,
            latency: Latency { mean_ns: mean, jitter_ns: jitter, p99_ns: p99 },
            service: Latency::default(),
            setting: SETTING,
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
    fn nothing_served_took_no_time() {
        let mut report = blank(7, SETTING);
        Stretch::default().fill(&mut report);
        assert_eq!(report, blank(7, SETTING));
    }
}
