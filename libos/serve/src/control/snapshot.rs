//! What a server says of itself at one time; what several say is added up.

use crate::clients::Measured;
use crate::metered::Traffic;
use crate::payers::Consumption;
use crate::stopwatch::Latencies;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use nom_elastic::ForwardCounts;
use nom_net::batch::Tallies;
use nom_net::counters::Counters;
use nom_port::nic::Nic;
use nom_port::world::Clock;
use nom_rt::event_loop::Statistics;
use nom_rt::handle::Handle;
use nom_rt::rest::Mode;
use nom_service::Activity;
use nom_service::Earned;
use nom_service::Metrics;
use nom_service::Service;
use nom_service::Window;

/// Named counts.
pub(super) type Counts = Vec<(&'static str, u64)>;

/// What an activity has consumed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub name: String,
    pub core_ns: u64,
    /// How long its requests took, all together.
    pub latency_ns: u64,
    pub consumption: Consumption,
}

/// A server, or several of them, at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// How many servers.
    pub servers: u64,
    /// How many of them serve.
    pub serving: u64,
    /// What went from core to core.
    pub forwards: ForwardCounts,
    pub stack: Counts,
    pub driver: Counts,
    pub event_loop: Counts,
    /// Flushes of received frames and of those to send.
    pub batches: [Tallies; 2],
    pub traffic: Traffic,
    pub requests: u64,
    pub governing_ns: u64,
    pub connections: u64,
    pub latencies: Latencies,
    /// The longest, if they differ.
    pub delay_ns: u64,
    /// Servers whose cores poll.
    pub polling: u64,
    /// The last windows: rates are sums, times those of the slowest.
    pub window: Option<Window>,
    pub requests_per_second: u64,
    pub sent_bits_per_second: u64,
    /// What the service counts by itself.
    pub own: Metrics,
    /// What all that was served brought and cost, if somebody reckons.
    pub earned: Option<Earned>,
    /// By number, if activities are told apart.
    pub activities: Vec<Account>,
}

impl Snapshot {
    /// Of one server.
    pub fn of<N: Nic, C: Clock>(
        stack: &mut Measured<N, C>,
        forwards: ForwardCounts,
        service: &impl Service<N::Buffer>,
    ) -> Snapshot {
        let mut own = Metrics::default();
        service.metrics(&mut own);
        Snapshot { forwards, own, ..Snapshot::of_stack(stack) }
    }

    /// Of one stack, and whoever serves on it.
    pub fn of_stack<N: Nic, C: Clock>(stack: &mut Measured<N, C>) -> Snapshot {
        let (received, sent) = stack.tallies();
        let mut driver = Vec::new();
        stack.nic().nic().counters(&mut |name, count| driver.push((name, count)));
        let payers = stack.nic().payers().cloned();
        let stopwatch = stack.nic().stopwatch();
        let activities = payers.map_or_else(Vec::new, |payers| {
            let accounts = (0..).map(Activity).zip(payers.rules().names().zip(payers.records()));
            let account = |(activity, (name, consumption)): (_, (&str, _))| Account {
                name: name.to_owned(),
                core_ns: 0,
                latency_ns: stopwatch.as_ref().map_or(0, |stopwatch| stopwatch.taken_ns(activity)),
                consumption,
            };
            accounts.map(account).collect()
        });
        let (requests, latencies) =
            stopwatch.map(|stopwatch| (stopwatch.requests(), stopwatch.latencies())).unwrap_or_default();
        Snapshot {
            servers: 1,
            activities,
            stack: Counters::iter(stack.counters()).collect(),
            driver,
            batches: [received, sent],
            traffic: stack.nic().traffic(),
            requests,
            governing_ns: stack.nic().governing_ns(),
            connections: stack.flow_count() as u64,
            latencies,
            delay_ns: stack.delay().as_nanos() as u64,
            ..Snapshot::default()
        }
    }

    /// What its event loop did.
    pub fn add_loop(&mut self, handle: &Handle) {
        let Statistics { turns, vain_turns, sleeps, aborted_sleeps, interrupts, .. } = handle.statistics();
        let Statistics { to_polling, to_interrupts, timers, messages, rings, .. } = handle.statistics();
        let usage = handle.usage();
        self.polling = u64::from(handle.mode() == Mode::Polling);
        self.event_loop = [
            ("turns", turns),
            ("vain_turns", vain_turns),
            ("sleeps", sleeps),
            ("aborted_sleeps", aborted_sleeps),
            ("interrupts", interrupts),
            ("to_polling", to_polling),
            ("to_interrupts", to_interrupts),
            ("timers", timers),
            ("messages", messages),
            ("rings", rings),
            ("spinning_ns", usage.spinning_ns),
            ("sleeping_ns", usage.sleeping_ns),
            ("elapsed_ns", usage.elapsed_ns),
        ]
        .into();
        for (activity, record) in usage.activities {
            // Whatever else has an activity in this program is the infrastructure's.
            let place = if (activity.0 as usize) < self.activities.len() { activity.0 as usize } else { 0 };
            if let Some(account) = self.activities.get_mut(place) {
                account.core_ns += record.ns;
            }
        }
    }

    /// It does not serve any more.
    pub fn set_away(&mut self) {
        self.polling = 0;
        self.delay_ns = 0;
        (self.window, self.requests_per_second, self.sent_bits_per_second) = (None, 0, 0);
    }

    /// How its last window was.
    pub fn add_window(&mut self, window: &Window) {
        let per_second = |count: u64| match window.length_ns() {
            0 => 0,
            length_ns => (u128::from(count) * 1_000_000_000 / u128::from(length_ns)) as u64,
        };
        self.requests_per_second = per_second(window.requests);
        self.sent_bits_per_second = per_second(8 * window.sent_bytes);
        self.window = Some(*window);
    }

    /// W.
    pub fn delay_micros(&self) -> u64 {
        self.delay_ns / 1000
    }

    /// Adds another server.
    pub fn merge(&mut self, other: &Snapshot) {
        self.servers += other.servers;
        self.forwards += other.forwards;
        add(&mut self.stack, &other.stack);
        add(&mut self.driver, &other.driver);
        add(&mut self.event_loop, &other.event_loop);
        for (tallies, more) in self.batches.iter_mut().zip(&other.batches) {
            *tallies += *more;
        }
        self.traffic += other.traffic;
        self.requests += other.requests;
        self.governing_ns += other.governing_ns;
        self.connections += other.connections;
        self.latencies.service.merge(&other.latencies.service);
        self.latencies.latency.merge(&other.latencies.latency);
        self.delay_ns = self.delay_ns.max(other.delay_ns);
        self.polling += other.polling;
        self.requests_per_second += other.requests_per_second;
        self.sent_bits_per_second += other.sent_bits_per_second;
        self.own.merge(&other.own);
        if let Some(more) = other.earned {
            let earned = self.earned.get_or_insert_default();
            earned.revenue += more.revenue;
            earned.cost += more.cost;
        }
        if self.activities.is_empty() {
            self.activities.clone_from(&other.activities);
        } else {
            for (account, more) in self.activities.iter_mut().zip(&other.activities) {
                account.core_ns += more.core_ns;
                account.latency_ns += more.latency_ns;
                account.consumption += more.consumption;
            }
        }
        let slowest = |window: &Window| window.latency.mean_ns;
        self.window = self.window.into_iter().chain(other.window).max_by_key(slowest);
    }
}

/// Adds counts by name: all servers have the same.
fn add(counts: &mut Counts, more: &Counts) {
    if counts.is_empty() {
        counts.clone_from(more);
        return;
    }
    for ((_, count), (_, more)) in counts.iter_mut().zip(more) {
        *count += more;
    }
}
