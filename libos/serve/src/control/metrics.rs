//! A snapshot in Prometheus' text format, version 0.0.4.

use super::snapshot::{Account, Snapshot};
use crate::payers::Consumption;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Display, Write as _};
use nom_elastic::ForwardCounts;
use nom_net::batch::{Tallies, Tally};
use nom_rt::histogram::Histogram;
use nom_service::Earned;

/// The format's media type.
pub(super) const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Ranks that summaries tell, with their names.
const QUANTILES: [(f64, &str); 3] = [(0.5, "0.5"), (0.99, "0.99"), (0.999, "0.999")];

/// Nanoseconds, written as seconds. Nothing here is printed from floating point, whose printing would be half
/// of this page's code.
struct Seconds(u128);

impl Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Billionths of a dollar, written as dollars.
struct Dollars(i64);

impl Display for Dollars {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", if self.0 < 0 { "-" } else { "" }, seconds(self.0.unsigned_abs()))
    }
}

fn seconds(nanoseconds: u64) -> Seconds {
    Seconds(nanoseconds.into())
}

/// Writes metrics one after the other.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: impl Display) {
        writeln!(self.0, "{line}").expect("a string takes everything");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.line(format_args!("{name} {value}"));
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.one(name, "gauge", help, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.one(name, "counter", help, value);
    }

    /// Counts of one family, told apart by `label`.
    fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counts: impl Iterator<Item = (&'a str, u64)>,
    ) {
        self.family(name, "counter", help);
        counts.for_each(|(value, count)| self.line(format_args!("{name}{{{label}=\"{value}\"}} {count}")));
    }

    /// A histogram of nanoseconds as a summary in seconds, with its mean and deviation.
    fn latency(&mut self, name: &str, help: &str, values: &Histogram) {
        self.family(name, "summary", help);
        for (rank, rank_name) in QUANTILES {
            let value = seconds(values.quantile(rank).unwrap_or_default());
            self.line(format_args!("{name}{{quantile=\"{rank_name}\"}} {value}"));
        }
        self.line(format_args!("{name}_sum {}", Seconds(values.sum())));
        self.line(format_args!("{name}_count {}", values.count()));
        for (what, value_ns) in [("mean", values.mean()), ("jitter", values.standard_deviation())] {
            let value = seconds(value_ns.unwrap_or_default() as u64);
            self.gauge(&alloc::format!("{name}_{what}"), "Of all so far.", value);
        }
    }

    /// A metric of each activity.
    fn of_each<V: Display>(
        &mut self,
        accounts: &[Account],
        name: &str,
        kind: &str,
        help: &str,
        of: impl Fn(&Consumption) -> V,
    ) {
        let name = alloc::format!("nom_activity_{name}");
        self.family(&name, kind, help);
        for Account { name: activity, consumption, .. } in accounts {
            let value = of(consumption);
            self.line(format_args!("{name}{{activity=\"{activity}\"}} {value}"));
        }
    }

    fn batches(&mut self, name: &str, help: &str, of: fn(&Tally) -> u64, [received, sent]: &[Tallies; 2]) {
        self.family(name, "counter", help);
        for (direction, tallies) in [("received", received), ("sent", sent)] {
            for (reason, tally) in tallies.named() {
                let count = of(&tally);
                self.line(format_args!("{name}{{direction=\"{direction}\",reason=\"{reason}\"}} {count}"));
            }
        }
    }
}

/// The prefix of counters of frames that the stack dropped.
const DROPPED: &str = "dropped_";

/// Everything that `snapshot` knows.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut page = Page::default();
    page.counter("nom_requests_total", "Requests answered.", snapshot.requests);
    page.latency(
        "nom_latency_seconds",
        "Latency as clients see it, as far as a server can tell.",
        &snapshot.latencies.latency,
    );
    page.latency("nom_service_latency_seconds", "Latency in the machine.", &snapshot.latencies.service);
    window(&mut page, snapshot);
    traffic(&mut page, snapshot);
    let governing = snapshot.governing_ns;
    page.counter(
        "nom_governing_nanoseconds_total",
        "Time that the governor of the working point took.",
        governing,
    );
    page.gauge("nom_connections", "Connections, TIME-WAIT included.", snapshot.connections);
    page.gauge("nom_batching_delay_seconds", "The batching delay W.", seconds(snapshot.delay_ns));
    page.gauge("nom_cores", "Cores that the server has.", snapshot.servers);
    page.gauge("nom_cores_serving", "Those of them that serve.", snapshot.serving);
    page.gauge("nom_polling_cores", "Those of them that poll.", snapshot.polling);
    forwards(&mut page, &snapshot.forwards);
    let batches = &snapshot.batches;
    page.batches("nom_batch_flushes_total", "Batches that were flushed.", |tally| tally.flushes, batches);
    page.batches("nom_batch_packets_total", "Packets in them.", |tally| tally.packets, batches);
    let (dropped, done): (Vec<_>, Vec<_>) =
        snapshot.stack.iter().copied().partition(|(name, _)| name.starts_with(DROPPED));
    let dropped = dropped.into_iter().map(|(name, count)| (&name[DROPPED.len()..], count));
    page.counters("nom_dropped_total", "Frames and packets that the stack dropped.", "reason", dropped);
    page.counters("nom_stack_total", "What the stack did.", "event", done.into_iter());
    page.counters("nom_driver_total", "What the driver did.", "event", snapshot.driver.iter().copied());
    page.counters("nom_loop_total", "What the event loop did.", "event", snapshot.event_loop.iter().copied());
    activities(&mut page, snapshot);
    earned(&mut page, snapshot.earned);
    snapshot.own.iter().for_each(|own| page.one(own.name, own.kind, own.help, own.value));
    page.0
}

fn window(page: &mut Page, snapshot: &Snapshot) {
    let window = snapshot.window.unwrap_or_default();
    page.gauge("nom_window_seconds", "Length of the last window.", seconds(window.length_ns()));
    page.gauge("nom_window_requests_per_second", "Throughput in it.", snapshot.requests_per_second);
    page.gauge("nom_window_sent_bits_per_second", "Bandwidth used in it.", snapshot.sent_bits_per_second);
    for (name, latency) in [("latency", window.latency), ("service_latency", window.service)] {
        let values = [("mean", latency.mean_ns), ("jitter", latency.jitter_ns), ("p99", latency.p99_ns)];
        for (what, value_ns) in values {
            let name = alloc::format!("nom_window_{name}_{what}_seconds");
            page.gauge(&name, "In the last window.", seconds(value_ns));
        }
    }
}

fn forwards(page: &mut Page, forwards: &ForwardCounts) {
    page.counter("nom_flows_moved_total", "Connections that went on on another core.", forwards.adopted);
    page.counter("nom_flows_refused_total", "Connections that no other core took.", forwards.refused);
    page.counter("nom_frames_passed_total", "Frames passed on from core to core.", forwards.forwarded);
}

/// A metric of each activity: its name, what it says, and how much that is.
type OfActivity = (&'static str, &'static str, fn(&Account) -> u64);

const OF_ACTIVITIES: [OfActivity; 11] = [
    ("core_nanoseconds_total", "Time of cores that it took.", |account| account.core_ns),
    ("requests_total", "Requests answered.", |account| account.consumption.requests),
    ("latency_nanoseconds_total", "Time that they took, as clients see it, all together.", |account| {
        account.latency_ns
    }),
    ("answered_bytes_total", "Bytes of answers.", |account| account.consumption.traffic.answered_bytes),
    ("received_bytes_total", "Bytes of frames that came.", |account| {
        account.consumption.traffic.received_bytes
    }),
    ("sent_bytes_total", "Bytes of frames that left.", |account| account.consumption.traffic.sent_bytes),
    ("received_frames_total", "Frames that came.", |account| account.consumption.traffic.received_frames),
    ("sent_frames_total", "Frames that left.", |account| account.consumption.traffic.sent_frames),
    ("lost_frames_total", "Frames that were lost since too many waited.", |account| {
        account.consumption.lost_frames
    }),
    ("refused_total", "Connections that were turned away since all held too much memory.", |account| {
        account.consumption.refused
    }),
    ("queued_nanoseconds_total", "Time that frames waited for their turn.", |account| {
        account.consumption.queued_ns
    }),
];

fn earned(page: &mut Page, earned: Option<Earned>) {
    let Some(Earned { revenue, cost }) = earned else { return };
    page.one(
        "nom_cost_dollars_total",
        "counter",
        "What all cost so far that it held and moved.",
        Dollars(cost),
    );
    let profit = Dollars(revenue.saturating_sub(cost));
    page.gauge("nom_profit_dollars", "What all has brought so far, less all costs.", profit);
}

fn activities(page: &mut Page, snapshot: &Snapshot) {
    let Snapshot { activities: accounts, earned, delay_ns, .. } = snapshot;
    if accounts.is_empty() {
        return;
    }
    for (name, help, of) in OF_ACTIVITIES {
        let counts = accounts.iter().map(|account| (&*account.name, of(account)));
        page.counters(&alloc::format!("nom_activity_{name}"), help, "activity", counts);
    }
    // Dollars by their billionths, as seconds by theirs.
    let cost = |own: &Consumption| seconds(own.cost_nanodollars);
    page.of_each(
        accounts,
        "cost_dollars_total",
        "counter",
        "What that cost, at the prices of its time.",
        cost,
    );
    let profit =
        |own: &Consumption| Dollars(own.revenue_nanodollars.saturating_sub_unsigned(own.cost_nanodollars));
    page.of_each(accounts, "profit_dollars", "gauge", "What it has brought so far, less that cost.", profit);
    let costs = accounts.iter().map(|account| account.consumption.cost_nanodollars).sum::<u64>();
    let unused = earned.unwrap_or_default().cost.saturating_sub_unsigned(costs).max(0);
    page.gauge("nom_unused_cost_dollars", "What that cost which was held for nobody.", Dollars(unused));
    page.of_each(accounts, "connections", "gauge", "Clients that are connected.", |own| own.connections);
    let held = "What they hold, if somebody's memory is bounded.";
    page.of_each(accounts, "memory_bytes", "gauge", held, |own| own.memory_bytes);
    let delay =
        |own: &Consumption| seconds(own.held_at_most_ns.map_or(*delay_ns, |most_ns| most_ns.min(*delay_ns)));
    page.of_each(accounts, "batching_delay_seconds", "gauge", "How long its packets may be held.", delay);
}

fn traffic(page: &mut Page, snapshot: &Snapshot) {
    let traffic = &snapshot.traffic;
    page.counter("nom_received_bytes_total", "Bytes of frames that came.", traffic.received_bytes);
    page.counter("nom_sent_bytes_total", "Bytes of frames that left.", traffic.sent_bytes);
    page.counter("nom_received_frames_total", "Frames that came.", traffic.received_frames);
    page.counter("nom_sent_frames_total", "Frames that left.", traffic.sent_frames);
}
