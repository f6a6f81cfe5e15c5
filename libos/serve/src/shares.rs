//! For whom what a window served was: the part of each activity, for a governor that wants to hear it.

use crate::payers::Consumption;
use alloc::vec::Vec;
use nom_rt::histogram::Histogram;
use nom_service::{Activity, Latency, Window};

/// The activities' parts of the present window.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Latencies as clients see them, by the activities' numbers.
    latencies: Vec<Histogram>,
    /// What each had consumed when the window began.
    begun: Vec<Consumption>,
    windows: Vec<Window>,
}

impl Shares {
    /// So many requests of an activity took so long.
    #[inline]
    pub fn record(&mut self, Activity(number): Activity, latency_ns: u64, requests: u64) {
        let number = number as usize;
        if number >= self.latencies.len() {
            self.latencies.resize_with(number + 1, Histogram::new);
        }
        self.latencies[number].record_many(latency_ns, requests);
    }

    /// Ends the window, which was `whole`, when each had consumed so much. Returns its part of each.
    pub fn close(&mut self, whole: &Window, consumed: Vec<Consumption>) -> &[Window] {
        self.begun.resize_with(consumed.len(), Consumption::default);
        self.latencies.resize_with(self.latencies.len().max(consumed.len()), Histogram::new);
        self.windows.clear();
        for ((now, before), latencies) in consumed.iter().zip(&self.begun).zip(&mut self.latencies) {
            let (traffic, then) = (now.traffic, before.traffic);
            let latency = Latency {
                mean_ns: latencies.mean().unwrap_or_default() as u64,
                jitter_ns: latencies.standard_deviation().unwrap_or_default() as u64,
                p99_ns: latencies.quantile(0.99).unwrap_or_default(),
            };
            let frames = traffic.received_frames - then.received_frames;
            let waited_ns = (now.queued_ns - before.queued_ns).checked_div(frames).unwrap_or_default();
            if latencies.count() > 0 {
                latencies.clear();
            }
            self.windows.push(Window {
                requests: now.requests - before.requests,
                answered_bytes: traffic.answered_bytes - then.answered_bytes,
                sent_bytes: traffic.sent_bytes - then.sent_bytes,
                received_bytes: traffic.received_bytes - then.received_bytes,
                clients: u32::try_from(now.connections).unwrap_or(u32::MAX),
                service: Latency::default(),
                latency,
                waited_ns,
                ..*whole
            });
        }
        self.begun = consumed;
        &self.windows
    }
}
