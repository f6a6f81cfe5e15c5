//! How long requests take: in the machine, and as clients see it.

use crate::metered::Traffic;
use crate::path::{self, Path};
use crate::shares::Shares;
use alloc::vec::Vec;
use nom_net::Answer;
use nom_rt::histogram::Histogram;
use nom_rt::latency::{self, Recorder};
use nom_service::{Activity, Latency, Setting, Window};

/// Latencies since the start.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// In the machine.
    pub service: Histogram,
    /// With the path.
    pub latency: Histogram,
}

/// One kind of latency, of the present window and of all before.
#[derive(Debug)]
struct Series {
    recorder: Recorder,
    /// The last window; kept for its memory.
    last: latency::Recording,
    before: Histogram,
}

impl Series {
    fn new(now_ns: u64) -> Series {
        let mut recorder = Recorder::new(now_ns);
        Series { last: recorder.window(now_ns), recorder, before: Histogram::new() }
    }

    /// Ends the window.
    fn close(&mut self, now_ns: u64) -> Latency {
        self.recorder.window_into(now_ns, &mut self.last);
        self.before.merge(&self.last.histogram);
        Latency {
            mean_ns: self.last.mean_ns().unwrap_or_default() as u64,
            jitter_ns: self.last.jitter_ns().unwrap_or_default() as u64,
            p99_ns: self.last.histogram.quantile(0.99).unwrap_or_default(),
        }
    }

    /// Everything so far.
    fn all(&self) -> Histogram {
        let mut all = self.before.clone();
        all.merge(self.recorder.histogram());
        all
    }
}

/// The times of one core's requests.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    /// Replies that the device was not told of, and whom they are for.
    queued: Vec<(Answer, Activity)>,
    /// By the connections' numbers.
    paths: Vec<Path>,
    /// What paths add as a rule: for a client of whose own nothing is known yet, or by datagrams never is.
    common_ns: u64,
    /// Since when frames may have lain in the ring unseen.
    unseen_ns: u64,
    service: Series,
    latency: Series,
    from_ns: u64,
    /// Requests so far, and what had passed when the window began.
    requests: u64,
    begun: (u64, Traffic),
    /// If somebody wants to hear for whom what was served.
    shares: Option<Shares>,
    /// How long requests took so far, all of an activity together, by the activities' numbers.
    taken_ns: Vec<u64>,
}

impl Stopwatch {
    pub fn new(now_ns: u64) -> Stopwatch {
        Stopwatch {
            queued: Vec::new(),
            paths: Vec::new(),
            common_ns: 0,
            unseen_ns: now_ns,
            service: Series::new(now_ns),
            latency: Series::new(now_ns),
            from_ns: now_ns,
            requests: 0,
            begun: (0, Traffic::default()),
            shares: None,
            taken_ns: Vec::new(),
        }
    }

    /// Whether replies wait for the device to be told.
    #[inline]
    pub fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// A reply for somebody was queued for the device.
    #[inline]
    pub fn queue(&mut self, answer: Answer, activity: Activity) {
        self.queued.push((answer, activity));
    }

    /// Activities' parts of windows, which are kept apart from now on.
    pub fn shares(&mut self) -> &mut Shares {
        self.shares.get_or_insert_default()
    }

    /// Everything queued departs.
    pub fn depart(&mut self, now_ns: u64) {
        for (answer, activity) in self.queued.drain(..) {
            let path = answer.flow.map(|flow| flow as usize);
            if let Some(index) = path.filter(|index| *index >= self.paths.len()) {
                self.paths.resize_with(index + 1, Path::default);
            }
            let mut path = path.map(|index| &mut self.paths[index]);
            if answer.requests > 0 {
                let service_ns = now_ns.saturating_sub(answer.arrived_ns);
                let path_ns = match path.as_ref().map_or(0, |path| path.estimate_ns()) {
                    0 => self.common_ns,
                    own_ns => {
                        self.common_ns = path::smoothed(self.common_ns, own_ns);
                        own_ns
                    }
                };
                let count = u64::from(answer.requests);
                self.service.recorder.record_many(service_ns, count);
                let latency_ns = service_ns.saturating_add(path_ns);
                self.latency.recorder.record_many(latency_ns, count);
                self.requests += count;
                add(&mut self.taken_ns, activity, count * latency_ns);
                if let Some(shares) = &mut self.shares {
                    shares.record(activity, latency_ns, count);
                }
            } else if let Some(path) = &mut path {
                **path = Path::default();
            }
            if let Some(path) = path {
                path.depart(now_ns);
            }
        }
    }

    /// Bytes of a connection came, or the end of its handshake, in a frame that was first seen at `at_ns`.
    #[inline]
    pub fn arrive(&mut self, flow: usize, at_ns: u64) {
        if let Some(path) = self.paths.get_mut(flow) {
            path.arrive(at_ns, at_ns.saturating_sub(self.unseen_ns));
        }
    }

    /// A number stands for another connection from now on, of whose path nothing is known.
    pub fn forget(&mut self, flow: usize) {
        if let Some(path) = self.paths.get_mut(flow) {
            *path = Path::default();
        }
    }

    /// Frames may lie in the ring unseen since `since_ns`.
    #[inline]
    pub fn look(&mut self, since_ns: u64) {
        self.unseen_ns = since_ns;
    }

    /// When the present window began.
    pub fn began_ns(&self) -> u64 {
        self.from_ns
    }

    /// Whether a request of the present window was answered.
    pub fn has_answered(&self) -> bool {
        self.requests > self.begun.0
    }

    /// Requests answered so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Ends the window; the next one begins.
    pub fn close(&mut self, now_ns: u64, traffic: Traffic, setting: Setting) -> Window {
        let (requests, before) = core::mem::replace(&mut self.begun, (self.requests, traffic));
        Window {
            from_ns: core::mem::replace(&mut self.from_ns, now_ns),
            to_ns: now_ns,
            requests: self.requests - requests,
            answered_bytes: traffic.answered_bytes - before.answered_bytes,
            sent_bytes: traffic.sent_bytes - before.sent_bytes,
            received_bytes: traffic.received_bytes - before.received_bytes,
            clients: 0,
            service: self.service.close(now_ns),
            latency: self.latency.close(now_ns),
            waited_ns: 0,
            setting,
            is_overridden: false,
        }
    }

    /// How long requests of an activity took so far, in nanoseconds all together.
    pub fn taken_ns(&self, Activity(number): Activity) -> u64 {
        self.taken_ns.get(number as usize).copied().unwrap_or_default()
    }

    /// Latencies so far.
    pub fn latencies(&self) -> Latencies {
        Latencies { service: self.service.all(), latency: self.latency.all() }
    }
}

/// Adds to an activity's sum.
#[inline]
fn add(sums: &mut Vec<u64>, Activity(number): Activity, ns: u64) {
    let number = number as usize;
    if number >= sums.len() {
        sums.resize(number + 1, 0);
    }
    if let Some(sum) = sums.get_mut(number) {
        *sum = sum.wrapping_add(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_service::OTHERS;

    fn answer(arrived_ns: u64, requests: u32) -> Answer {
        Answer { arrived_ns, requests, flow: Some(3) }
    }

    #[test]
    fn a_request_takes_from_its_arrival_to_its_departure_and_the_way() {
        let mut stopwatch = Stopwatch::new(0);
        stopwatch.queue(answer(10, 0), OTHERS);
        stopwatch.depart(20);
        stopwatch.arrive(3, 120);
        stopwatch.queue(answer(130, 1), OTHERS);
        stopwatch.queue(answer(150, 2), OTHERS);
        stopwatch.depart(160);
        let traffic =
            Traffic { answered_bytes: 600, sent_bytes: 700, received_bytes: 300, ..Traffic::default() };
        let window = stopwatch.close(1_000, traffic, Setting::default());
        assert_eq!((window.from_ns, window.to_ns, window.requests), (0, 1_000, 3));
        assert_eq!((window.answered_bytes, window.sent_bytes, window.received_bytes), (600, 700, 300));
        assert_eq!((window.service.mean_ns, window.latency.mean_ns), ((30 + 10 + 10) / 3, (50 + 300) / 3));
        assert!(!stopwatch.has_answered());
        assert_eq!((stopwatch.taken_ns(OTHERS), stopwatch.taken_ns(Activity(7))), (50 + 300, 0));
        let next = stopwatch.close(2_000, traffic, Setting::default());
        let nothing = Window { from_ns: 1_000, to_ns: 2_000, ..Window::default() };
        assert_eq!(next, nothing, "nothing is in two windows");
        assert_eq!(stopwatch.latencies().latency.count(), 3);
    }

    #[test]
    fn a_new_connection_forgets_the_path_of_the_one_before() {
        let mut stopwatch = Stopwatch::new(0);
        for (opened_ns, way_ns) in [(1_000, 5), (2_000, 900)] {
            stopwatch.queue(answer(opened_ns, 0), OTHERS);
            stopwatch.depart(opened_ns);
            stopwatch.arrive(3, opened_ns + way_ns);
            assert_eq!(stopwatch.paths[3].estimate_ns(), way_ns);
        }
    }

    #[test]
    fn whose_path_nobody_knows_has_the_path_of_others() {
        let mut stopwatch = Stopwatch::new(0);
        stopwatch.queue(answer(10, 0), OTHERS);
        stopwatch.depart(20);
        stopwatch.arrive(3, 120);
        stopwatch.queue(answer(130, 1), OTHERS);
        stopwatch.depart(160);
        stopwatch.queue(Answer { flow: Some(7), ..answer(170, 1) }, OTHERS);
        stopwatch.queue(Answer { flow: None, ..answer(170, 1) }, OTHERS);
        stopwatch.depart(180);
        let window = stopwatch.close(1_000, Traffic::default(), Setting::default());
        assert_eq!((window.requests, window.latency.mean_ns), (3, (30 + 10 + 10) / 3 + 100));
    }

    #[test]
    fn a_datagram_has_no_path() {
        let mut stopwatch = Stopwatch::new(0);
        stopwatch.queue(Answer { arrived_ns: 5, requests: 1, flow: None }, OTHERS);
        stopwatch.depart(25);
        let window = stopwatch.close(30, Traffic::default(), Setting::default());
        assert_eq!((window.service.mean_ns, window.latency.mean_ns), (20, 20));
    }
}
