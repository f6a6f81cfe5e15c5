//! A server whose response to the batching delay follows from queueing.

use super::random::Random;
use nom_economy::response::Response;
use nom_economy::units::{BytesPerOperation, OperationsPerSecond, Seconds};
use nom_economy::utility::Latency;

/// Norm that joins the latency of an idle server to that of a saturated one: the knee is soft.
const KNEE: f64 = 5.0;
/// Iterations of throughput toward its fixed point, each half way.
const ITERATIONS: u32 = 40;

/// The share of its capacity that a server in an open loop serves at most; what comes beyond is refused.
const SATURATION: f64 = 0.97;

/// Who asks a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// So many clients, each of which waits for its answer before it asks again.
    Closed {
        /// How many.
        clients: f64,
    },
    /// Clients that do not wait: requests come at a rate of their own.
    Open {
        /// The rate, as a share of what the server can serve without a batching delay.
        utilisation: f64,
    },
}

/// What a server's requests cost, in seconds.
#[derive(Clone, Debug)]
pub struct Server {
    /// Work of a request by itself.
    pub request: f64,
    /// Work that a batch shares: the kick, the interrupt, the walk through the stack.
    pub batch: f64,
    /// Work that a request has for each other one in its batch: what no longer fits the cache.
    pub crowding: f64,
    /// Latency outside the server.
    pub wire: f64,
    /// Share of the batching delay that a request waits.
    pub waiting: f64,
    /// Jitter as a share of idle latency, and of queueing.
    pub idle_jitter: f64,
    /// See [`Self::idle_jitter`].
    pub queue_jitter: f64,
    /// How much longer the tail is than a normal one.
    pub tail: f64,
    /// Amplitude and phase of ripples along the batching delay: no real curve is smooth.
    pub ripple: (f64, f64),
    /// Bytes sent for a request.
    pub bytes: f64,
    /// Work at a batching delay of 0 in units of what the curve says: packets that are not held take another
    /// path through the stack, without timers and queues, and the host's path differs too.
    pub unheld: f64,
}

impl Server {
    /// One like those of nom (VEE'16), Table 1 and Figures 11 and 12, `slowness` times as slow.
    #[must_use]
    pub fn random(random: &mut Random, slowness: f64) -> Self {
        let request = slowness * random.log_between(4e-6, 25e-6);
        let batch = request * random.log_between(0.05, 2.0);
        // Work for each request, request + batch / b + crowding * b, is least at this batch size b.
        let best_size: f64 = random.log_between(1.2, 30.0);
        Self {
            request,
            batch,
            crowding: batch / (best_size * best_size),
            wire: slowness * random.log_between(20e-6, 80e-6),
            waiting: random.between(0.7, 1.1),
            idle_jitter: random.between(0.03, 0.3),
            queue_jitter: random.between(0.1, 0.35),
            tail: random.between(1.0, 1.4),
            ripple: (random.between(0.0, 0.015), random.between(0.0, core::f64::consts::TAU)),
            bytes: random.log_between(100.0, 4000.0),
            unheld: random.log_between(1.0 / 1.8, 1.8),
        }
    }

    /// What it does for so many clients that each wait for their answer before they ask again, at a batching
    /// delay, if all its work takes `drift` times as long.
    ///
    /// # Panics
    /// If there are no clients.
    #[must_use]
    pub fn response(&self, clients: f64, micros: u32, drift: f64) -> Response {
        let delay = f64::from(micros) * 1e-6;
        let mut throughput = 1.0 / (self.wire + self.request);
        for _ in 0..ITERATIONS {
            throughput = 0.5 * (throughput + clients / self.latency(clients, delay, throughput, drift));
        }
        self.measured(clients / throughput, throughput, delay, drift)
    }

    /// What it does for that load at a batching delay, if all its work takes `drift` times as long.
    #[must_use]
    pub fn respond(&self, load: Load, micros: u32, drift: f64) -> Response {
        match load {
            Load::Closed { clients } => self.response(clients, micros, drift),
            Load::Open { utilisation } => self.unwaited(utilisation, micros, drift),
        }
    }

    /// Requests wait in a queue with one server (Pollaczek and Khinchine, work being nearly constant).
    fn unwaited(&self, utilisation: f64, micros: u32, drift: f64) -> Response {
        let delay = f64::from(micros) * 1e-6;
        let asked = utilisation / (self.request + self.batch + self.crowding);
        let work = |rate: f64| drift * self.work(1.0 + rate * delay, delay);
        let throughput = asked.min(SATURATION / work(asked));
        let busy = throughput * work(throughput);
        let waits = 0.5 * work(throughput) * busy / (1.0 - busy);
        let mean = self.wire * drift + work(throughput) + waits + 0.5 * self.waiting * delay;
        self.measured(mean, throughput, 0.5 * delay, drift)
    }

    /// Work for each request in batches of so many.
    fn work(&self, size: f64, delay: f64) -> f64 {
        let path = if delay == 0.0 { self.unheld } else { 1.0 };
        let (amplitude, phase) = self.ripple;
        let ripple = 1.0 + amplitude * libm::sin(phase + 2.5 * libm::log1p(delay * 1e6));
        path * ripple * (self.request + self.batch / size + self.crowding * size)
    }

    fn measured(&self, mean: f64, throughput: f64, delay: f64, drift: f64) -> Response {
        let queueing = mean - self.idle(drift) - self.waiting * delay;
        let parts =
            [self.idle_jitter * self.idle(drift), self.queue_jitter * queueing.max(0.0), 0.29 * delay];
        let jitter = libm::sqrt(parts.iter().map(|part| part * part).sum());
        let seconds = |value| Seconds::new(value).expect("a sum of times");
        let p99 = mean + 2.33 * self.tail * jitter;
        let latency = Latency::new(seconds(mean), seconds(jitter), seconds(p99)).expect("clients wait");
        let throughput = OperationsPerSecond::new(throughput).expect("positive");
        let data = BytesPerOperation::new(self.bytes).expect("positive").data_rate(throughput);
        Response { throughput, answered: data, sent: data, received: data, latency }
    }

    fn idle(&self, drift: f64) -> f64 {
        (self.wire + self.request + self.batch) * drift
    }

    fn latency(&self, clients: f64, delay: f64, throughput: f64, drift: f64) -> f64 {
        let size = 1.0 + (throughput * delay).min(clients - 1.0);
        let path = if delay == 0.0 { self.unheld } else { 1.0 };
        let work = path * (self.request + self.batch / size + self.crowding * size);
        let (amplitude, phase) = self.ripple;
        let ripple = 1.0 + amplitude * libm::sin(phase + 2.5 * libm::log1p(delay * 1e6));
        let saturated = clients * work * drift * ripple;
        let idle = (self.wire + path * (self.request + self.batch)) * drift * ripple + self.waiting * delay;
        let sum = libm::pow(saturated / idle, KNEE) + 1.0;
        idle * libm::pow(sum, 1.0 / KNEE)
    }
}
