//! What the serve bench's records say together: ratios, targets, figures.

use super::guests::{LINUX, NOM};
use super::runs::delayed;
use super::service::Service;
use crate::figure::{Bars, Figure, Line, Lines, Scale};
use crate::record::{Record, Unit, distinct};
use crate::target::{Limit, Target};

const RATIO: &str = "nom/linux";

/// A target for nom beside Linux.
const fn beside(claim: &'static str, of: [&'static str; 2], metric: &'static str, limit: Limit) -> Target {
    Target { claim, system: RATIO, of: Some(of), metric, unit: Unit::Ratio, limit }
}

/// A target for nom's memcached alone.
const fn alone(claim: &'static str, metric: &'static str, unit: Unit, at_most: f64) -> Target {
    Target {
        claim,
        system: NOM,
        of: Some(["memcached", "start"]),
        metric,
        unit,
        limit: Limit::AtMost(at_most),
    }
}

/// What nom must reach with `services`.
pub fn targets(services: &[&Service]) -> Vec<Target> {
    let is_measured = |target: &&Target| {
        target.of.is_none_or(|[application, _]| services.iter().any(|service| service.name == application))
    };
    TARGETS.iter().filter(is_measured).copied().collect()
}

const TARGETS: &[Target] = &[
    beside(
        "memcached by TCP serves many clients at least 8 times what Linux does",
        ["memcached", "tcp-many"],
        "throughput",
        Limit::AtLeast(8.0),
    ),
    beside(
        "memcached by TCP answers one client in at most 1/2.5 of Linux's time",
        ["memcached", "tcp-single"],
        "latency_mean",
        Limit::AtMost(1.0 / 2.5),
    ),
    beside(
        "memcached by UDP and the packet API serves many clients at least 25 times what Linux does",
        ["packet-api", "udp-many"],
        "throughput",
        Limit::AtLeast(25.0),
    ),
    beside(
        "nhttpd serves many clients at least 7 times what nginx does",
        ["http", "tcp-many"],
        "throughput",
        Limit::AtLeast(7.0),
    ),
    beside(
        "nhttpd answers each of many clients in at most 1/9.1 of nginx's time",
        ["http", "tcp-many"],
        "latency_mean",
        Limit::AtMost(1.0 / 9.1),
    ),
    beside(
        "NetPIPE is at least 1.42 times as fast at every message size up to 64 KiB",
        ["netpipe", LEAST],
        "throughput",
        Limit::AtLeast(1.42),
    ),
    alone("memcached gives its first reply within 0.15 s", "time_to_first_reply", Unit::Seconds, 0.15),
    alone("the memcached image takes at most 400 KB", "image_size", Unit::Bytes, 400_000.0),
    alone("memcached serves in 6 MiB of memory", "smallest_memory", Unit::Bytes, 6.0 * 1024.0 * 1024.0),
];

/// Scenario of the ratio at the message size where it is worst.
const LEAST: &str = "bytes-worst";

/// `measured` with nom's ratio to Linux for whatever both have, and NetPIPE's worst.
pub fn complete(mut measured: Vec<Record>) -> Vec<Record> {
    let (nom, linux): (Vec<_>, Vec<_>) = measured.iter().partition(|record| record.system == NOM);
    let ratio =
        |record: &&Record| record.ratio_to(linux.iter().find(|other| record.is_comparable_to(other))?);
    let ratios: Vec<Record> = nom.iter().filter_map(ratio).collect();
    let sizes = ratios.iter().filter(|record| bytes(record).is_some() && record.metric == "throughput");
    let worst = sizes.min_by(|a, b| a.value.total_cmp(&b.value)).cloned();
    measured.extend(ratios);
    measured.extend(efficient(&measured));
    measured.extend(worst.map(|record| Record { scenario: LEAST.into(), ..record }));
    measured
}

/// Whether any system served anything.
pub fn served(records: &[Record]) -> bool {
    records.iter().any(|record| record.metric == "time_to_first_reply")
}

/// The message size of one of NetPIPE's records.
fn bytes(record: &Record) -> Option<f64> {
    record.scenario.strip_prefix("bytes-")?.parse().ok()
}

/// The figures: throughput, latency, instructions, message sizes, and the batching delay's frontier.
pub fn figures(records: &[Record]) -> Vec<Figure> {
    let bars = [
        groups(["throughput", "Throughput", "replies a second"], records, "throughput", Unit::PerSecond),
        groups(["latency_mean", "Latency, mean", "seconds"], records, "latency_mean", Unit::Seconds),
        groups(["latency_p99", "Latency, 99th percentile", "seconds"], records, "latency_p99", Unit::Seconds),
        groups(
            ["jitter", "Jitter: standard deviation of latency", "seconds"],
            records,
            "jitter",
            Unit::Seconds,
        ),
        groups(
            ["instructions", "Guest instructions per request", "instructions"],
            records,
            "instructions_per_request",
            Unit::Instructions,
        ),
        groups(["exits", "Exits per request", "exits"], records, "exits_per_request", Unit::Count),
        groups(
            ["guest_time", "Time of the guest's processors per request", "seconds"],
            records,
            "guest_time_per_request",
            Unit::Seconds,
        ),
    ];
    let throughput = ["netpipe", "NetPIPE: throughput over message size", "bit/s"];
    let instructions =
        ["netpipe_instructions", "NetPIPE: guest instructions, there and back", "instructions"];
    let messages = [
        messages(records, throughput, "throughput"),
        messages(records, instructions, "instructions_per_request"),
    ];
    let delays = DELAYED.map(|scenario| delays(records, scenario));
    let lines = messages.into_iter().chain(delays).map(Figure::Lines);
    let figures = bars.map(Figure::Bars).into_iter().chain(lines);
    figures.filter(|figure| !figure.is_empty()).collect()
}

/// Bars of one metric: a group for each application and scenario, a series for each system. Message sizes and
/// batching delays have figures of their own.
fn groups(texts: [&str; 3], records: &[Record], metric: &str, unit: Unit) -> Bars {
    let fits = |record: &&Record| {
        let own_figure = bytes(record).is_some() || delay(record).is_some();
        record.metric == metric && record.unit == unit && !own_figure
    };
    let shown: Vec<&Record> = records.iter().filter(fits).collect();
    let series = distinct(shown.iter().map(|record| &record.system));
    let label = |record: &Record| format!("{} {}", record.application, record.scenario);
    let labels: Vec<String> = shown.iter().map(|record| label(record)).collect();
    let value = |group: &String, system: &String| {
        let found = shown.iter().find(|record| label(record) == *group && record.system == *system);
        found.map(|record| record.value)
    };
    let values = |group: &String| series.iter().map(|system| value(group, system)).collect();
    let groups = distinct(labels.iter()).into_iter().map(|group| (group.clone(), values(group))).collect();
    let [name, title, axis] = texts.map(String::from);
    let series = series.into_iter().cloned().collect();
    Bars { name, title, axis, scale: Scale::Logarithmic, series, groups }
}

/// One of NetPIPE's metrics over the size of its messages.
fn messages(records: &[Record], [name, title, axis]: [&str; 3], metric: &str) -> Lines {
    let line = |system: &str| {
        let shown = records.iter().filter(|record| record.system == system && record.metric == metric);
        let points = shown.filter_map(|record| Some((bytes(record)?, record.value))).collect();
        Line::plain(system, points)
    };
    Lines {
        name: name.into(),
        title: title.into(),
        axes: ["bytes".into(), axis.into()],
        scale: Scale::Logarithmic,
        lines: [LINUX, NOM].map(line).into(),
    }
}

/// The batching delay, in microseconds, that a record was taken with.
fn delay(record: &Record) -> Option<u32> {
    let (_, after) = record.scenario.split_once("-w-")?;
    after.parse().ok()
}

/// A batching delay in microseconds, with its mean latency and throughput.
type Point = (u32, (f64, f64));

/// The batching delays that were tried in a scenario, with what came of each.
fn delayed_points(records: &[Record], scenario: &str) -> Vec<Point> {
    let find = |scenario: &str, metric| {
        let same =
            |record: &&Record| record.scenario == scenario && record.metric == metric && record.system == NOM;
        records.iter().find(same).map(|record| record.value)
    };
    let point = |us: u32| {
        let scenario = format!("{scenario}{}", delayed(us));
        Some((us, (find(&scenario, "latency_mean")?, find(&scenario, "throughput")?)))
    };
    distinct_delays(records).into_iter().filter_map(point).collect()
}

/// Those of `points` that no other beats: the Pareto frontier.
fn frontier(points: &[Point]) -> Vec<Point> {
    points.iter().copied().filter(|(_, point)| !is_beaten(*point, points)).collect()
}

/// Says of each batching delay whether it is on the frontier: 1, or 0.
fn efficient(records: &[Record]) -> Vec<Record> {
    let of = |scenario: &str| {
        let points = delayed_points(records, scenario);
        let best = frontier(&points);
        let record = |(us, point): &Point| {
            let scenario = format!("{scenario}{}", delayed(*us));
            let same = |record: &&Record| record.scenario == scenario && record.metric == "throughput";
            let value = f64::from(u8::from(best.contains(&(*us, *point))));
            let throughput = records.iter().find(same)?.clone();
            let metric = "is_on_pareto_frontier".into();
            Some(Record { metric, unit: Unit::Count, value, deviation: None, ..throughput })
        };
        points.iter().filter_map(record).collect::<Vec<_>>()
    };
    DELAYED.iter().flat_map(|(scenario, _)| of(scenario)).collect()
}

/// Scenarios in which batching delays are tried, and their clients.
const DELAYED: [(&str, &str); 2] = [("tcp-many", "many clients"), ("tcp-single", "one client")];

/// Throughput over mean latency, a point for each batching delay, and the points of them that no other beats.
fn delays(records: &[Record], (scenario, clients): (&str, &str)) -> Lines {
    let all = delayed_points(records, scenario);
    let best = sorted(frontier(&all));
    Lines {
        name: format!("batching_delay_{}", scenario.replace('-', "_")),
        title: format!("Batching delay W: throughput over latency, memcached, {clients}"),
        axes: ["mean latency, seconds".into(), "replies a second".into()],
        scale: Scale::Logarithmic,
        lines: [line("every W", all), line("Pareto frontier", best)].into(),
    }
}

fn distinct_delays(records: &[Record]) -> Vec<u32> {
    let mut delays: Vec<u32> = records.iter().filter_map(delay).collect();
    delays.sort_unstable();
    delays.dedup();
    delays
}

/// Whether another point is as good in latency and in throughput, and better in one of them.
fn is_beaten((latency, throughput): (f64, f64), points: &[Point]) -> bool {
    let beats = |&(_, (other_latency, other)): &Point| {
        let is_as_good = other_latency <= latency && other >= throughput;
        is_as_good && (other_latency, other) != (latency, throughput)
    };
    points.iter().any(beats)
}

fn sorted(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|(_, a), (_, b)| a.0.total_cmp(&b.0));
    points
}

fn line(name: &str, points: Vec<Point>) -> Line {
    let (delays, points): (Vec<u32>, Vec<_>) = points.into_iter().unzip();
    let labels = delays.iter().map(|us| format!("W={us}")).collect();
    Line { name: name.into(), points, labels, is_joined: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Key, Samples};
    use crate::target::Verdict;

    fn measured(rows: &[(&str, &'static str, &str, &str, Unit, f64)]) -> Vec<Record> {
        let mut samples = Samples::new("serve");
        for &(system, application, scenario, metric, unit, value) in rows {
            let (system, scenario, metric) = (system.into(), scenario.into(), metric.into());
            samples.push(Key { system, application, scenario, metric, unit }, value);
        }
        samples.records()
    }

    fn verdicts(records: &[Record]) -> Vec<Verdict> {
        TARGETS.iter().map(|target| target.judge(records)).collect()
    }

    #[test]
    fn linux_alone_reaches_nothing_and_misses_nothing() {
        let rows = [("linux", "memcached", "tcp-many", "throughput", Unit::PerSecond, 4700.0)];
        let records = complete(measured(&rows));
        assert_eq!(records.len(), 1);
        assert!(verdicts(&records).iter().all(|verdict| *verdict == Verdict::NotMeasured));
        assert!(!served(&records));
    }

    #[test]
    fn targets_find_their_records() {
        let mut rows = vec![("nom", "memcached", "start", "image_size", Unit::Bytes, 400_000.0)];
        for (system, factor) in [("linux", 1.0), ("nom", 10.0)] {
            for (application, scenario) in
                [("memcached", "tcp-many"), ("packet-api", "udp-many"), ("http", "tcp-many")]
            {
                rows.push((system, application, scenario, "throughput", Unit::PerSecond, 5e3 * factor));
                rows.push((system, application, scenario, "latency_mean", Unit::Seconds, 1e-3 / factor));
            }
            rows.push((system, "netpipe", "bytes-1", "throughput", Unit::BitsPerSecond, 1e6 * factor));
            rows.push((system, "netpipe", "bytes-64", "throughput", Unit::BitsPerSecond, 1e7));
        }
        use Verdict::*;
        let expected =
            [Reached, NotMeasured, Missed, Reached, Reached, Missed, NotMeasured, Reached, NotMeasured];
        assert_eq!(verdicts(&complete(measured(&rows))), expected);
    }

    #[test]
    fn sizes_and_delays_have_figures_of_their_own() {
        let rows = [
            ("linux", "memcached", "tcp-many", "throughput", Unit::PerSecond, 4700.0),
            ("linux", "netpipe", "bytes-8", "throughput", Unit::BitsPerSecond, 1e6),
            ("nom", "memcached", "tcp-many-w-5", "throughput", Unit::PerSecond, 9e3),
            ("nom", "memcached", "tcp-many-w-5", "latency_mean", Unit::Seconds, 1e-3),
        ];
        let figures = figures(&measured(&rows));
        let names: Vec<_> = figures.iter().map(Figure::name).collect();
        assert_eq!(names, ["throughput", "netpipe", "batching_delay_tcp_many"]);
        let Figure::Bars(bars) = &figures[0] else { panic!("bars come first") };
        assert_eq!(bars.groups, [("memcached tcp-many".to_owned(), vec![Some(4700.0)])]);
    }

    #[test]
    fn frontier_is_what_nobody_beats() {
        let points =
            [(0, (1.0, 10.0)), (5, (2.0, 9.0)), (10, (3.0, 20.0)), (20, (3.0, 19.0)), (30, (1.0, 10.0))];
        let best: Vec<_> = frontier(&points).iter().map(|(us, _)| *us).collect();
        assert_eq!(best, [0, 10, 30], "20 is as late as 10 and serves less; 30 is as good as 0");
    }

    #[test]
    fn each_batching_delay_says_whether_it_is_efficient() {
        let mut rows = Vec::new();
        for (scenario, latency, throughput) in [("tcp-single-w-0", 1e-3, 1e3), ("tcp-single-w-5", 2e-3, 9e2)]
        {
            rows.push(("nom", "memcached", scenario, "latency_mean", Unit::Seconds, latency));
            rows.push(("nom", "memcached", scenario, "throughput", Unit::PerSecond, throughput));
        }
        let records = complete(measured(&rows));
        let said: Vec<_> = records.iter().filter(|record| record.metric == "is_on_pareto_frontier").collect();
        assert_eq!(said.iter().map(|record| record.value).collect::<Vec<_>>(), [1.0, 0.0]);
        assert_eq!(said[1].scenario, "tcp-single-w-5");
    }

    #[test]
    fn only_targets_of_what_was_measured_are_judged() {
        let claims = |service: &Service| targets(&[service]).len();
        assert_eq!(claims(&crate::serve::service::HTTP), 2);
        assert_eq!(targets(&crate::serve::service::ALL).len(), TARGETS.len());
    }
}
