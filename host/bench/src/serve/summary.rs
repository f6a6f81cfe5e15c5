//! What the serve bench's records say together: ratios, targets, figures.

use super::guests::NOM;
use super::parts;
use super::service::Service;
use super::sweep::{self, delay};
use crate::figure::{Bars, Figure, Line, Lines, Scale, Stacks};
use crate::linux::Tuning;
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
    alone("the memcached image takes at most 500 KB", "image_size", Unit::Bytes, 500_000.0),
    alone("memcached serves in 6 MiB of memory", "smallest_memory", Unit::Bytes, 6.0 * 1024.0 * 1024.0),
];

/// Name of the bench in records.
pub const EXPERIMENT: &str = "serve";

/// Scenario of the ratio at the message size where it is worst.
const LEAST: &str = "bytes-worst";

/// `measured` with nom's ratio to Linux for whatever both have, and NetPIPE's worst.
pub fn complete(mut measured: Vec<Record>) -> Vec<Record> {
    let (nom, linux): (Vec<_>, Vec<_>) = measured.iter().partition(|record| record.system == NOM);
    let beside = |record: &&Record, tuning: Tuning| {
        let of = linux.iter().filter(|other| other.system == tuning.name());
        record.ratio_to(of.into_iter().find(|other| record.is_comparable_to(other))?)
    };
    let over = |tuning| nom.iter().filter_map(move |record| beside(record, tuning));
    let tuned: Vec<Record> = over(Tuning::Tuned).collect();
    let ratios: Vec<Record> = over(Tuning::Shipped).collect();
    let sizes = ratios.iter().filter(|record| bytes(record).is_some() && record.metric == "throughput");
    let worst = sizes.min_by(|a, b| a.value.total_cmp(&b.value)).cloned();
    measured.extend(ratios);
    measured.extend(tuned);
    measured.extend(sweep::efficient(&measured));
    measured.extend(worst.map(|record| Record { scenario: LEAST.into(), ..record }));
    measured
}

/// Whether any system served anything.
pub fn served(records: &[Record]) -> bool {
    records
        .iter()
        .any(|record| ["time_to_first_reply", "instructions_per_request"].contains(&&*record.metric))
}

/// The message size of one of NetPIPE's records.
fn bytes(record: &Record) -> Option<f64> {
    record.scenario.strip_prefix("bytes-")?.parse().ok()
}

/// The figures: throughput, latency, instructions, message sizes, and the batching delay's frontier.
pub fn figures(records: &[Record]) -> Vec<Figure> {
    let applications = distinct(records.iter().map(|record| &record.application));
    let bars = applications.into_iter().flat_map(|application| {
        METRICS.iter().map(move |metric| Figure::Bars(groups(metric, records, application)))
    });
    let throughput = ["netpipe", "NetPIPE: throughput over message size", "bit/s"];
    let instructions =
        ["netpipe_instructions", "NetPIPE: guest instructions, there and back", "instructions"];
    let messages = [
        messages(records, throughput, "throughput"),
        messages(records, instructions, "instructions_per_request"),
    ];
    let lines = messages.into_iter().chain([sweep::figure(records)]).map(Figure::Lines);
    let figures = bars.chain([Figure::Stacks(parts_of_requests(records))]).chain(lines);
    figures.filter(|figure| !figure.is_empty()).collect()
}

/// Metrics with figures: their names, what the figures say, and what their axes count.
const METRICS: [(&str, &str, Unit); 8] = [
    ("throughput", "replies a second", Unit::PerSecond),
    ("latency_mean", "mean latency, seconds", Unit::Seconds),
    ("latency_p99", "99th percentile of latency, seconds", Unit::Seconds),
    ("latency_p99_9", "99.9th percentile of latency, seconds", Unit::Seconds),
    ("jitter", "jitter: standard deviation of latency, seconds", Unit::Seconds),
    ("instructions_per_request", "guest instructions a request", Unit::Instructions),
    ("exits_per_request", "exits a request", Unit::Count),
    ("guest_time_per_request", "time of the guest's processors a request, seconds", Unit::Seconds),
];

/// Bars of one metric of one application: a group for each scenario, a series for each system. Message
/// sizes and batching delays have figures of their own.
fn groups((metric, says, unit): &(&str, &str, Unit), records: &[Record], application: &str) -> Bars {
    let fits = |record: &&Record| {
        let own_figure = bytes(record).is_some() || delay(record).is_some();
        record.application == application && record.metric == *metric && record.unit == *unit && !own_figure
    };
    let shown: Vec<&Record> = records.iter().filter(fits).collect();
    let series = distinct(shown.iter().map(|record| &record.system));
    let value = |scenario: &String, system: &String| {
        let found = shown.iter().find(|record| record.scenario == *scenario && record.system == *system);
        found.map(|record| record.value)
    };
    let values = |scenario: &String| series.iter().map(|system| value(scenario, system)).collect();
    let scenarios = distinct(shown.iter().map(|record| &record.scenario));
    let groups = scenarios.into_iter().map(|scenario| (scenario.clone(), values(scenario))).collect();
    let (name, title) = (format!("{application}_{metric}"), format!("{application}: {says}"));
    let axis = unit.name().to_owned();
    let series = series.into_iter().cloned().collect();
    Bars { name, title, axis, scale: Scale::Logarithmic, series, groups }
}

/// Where the instructions of a request of many clients are spent: a bar for each server.
fn parts_of_requests(records: &[Record]) -> Stacks {
    let of_many =
        |record: &&Record| record.system == NOM && ["tcp-many", "udp-many"].contains(&&*record.scenario);
    let value = |application: &str, part: &str| {
        let metric = parts::metric(part);
        let found = records.iter().filter(of_many).find(|record| {
            let is_its_own = record.scenario == "tcp-many" || application != "memcached";
            record.application == application && record.metric == metric && is_its_own
        });
        found.map(|record| record.value)
    };
    let applications = distinct(records.iter().map(|record| &record.application));
    let bars = applications.into_iter().filter_map(|application| {
        let values: Option<Vec<f64>> = parts::names().map(|part| value(application, part)).collect();
        Some((application.to_string(), values?))
    });
    Stacks {
        name: "parts_of_requests".into(),
        title: "Guest instructions of a request by part, many clients".into(),
        axis: "instructions".into(),
        parts: parts::names().map(|part| part.replace('_', " ")).collect(),
        bars: bars.collect(),
    }
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
        lines: [Tuning::Shipped.name(), Tuning::Tuned.name(), NOM].map(line).into(),
    }
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
        let mut rows = vec![("nom", "memcached", "start", "image_size", Unit::Bytes, 500_000.0)];
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
        assert_eq!(names, ["memcached_throughput", "netpipe", "batching_delay"]);
        let Figure::Bars(bars) = &figures[0] else { panic!("bars come first") };
        assert_eq!(bars.groups, [("tcp-many".to_owned(), vec![Some(4700.0)])]);
    }

    #[test]
    fn parts_of_a_request_are_a_bar_of_each_server() {
        let metrics: Vec<String> = parts::names().map(parts::metric).collect();
        let scenarios = [("memcached", "tcp-many"), ("memcached", "udp-many"), ("packet-api", "udp-many")];
        let rows: Vec<_> = (1..)
            .zip(scenarios)
            .flat_map(|(value, (application, scenario))| {
                let row = move |metric| {
                    ("nom", application, scenario, metric, Unit::Instructions, f64::from(value))
                };
                metrics.iter().map(String::as_str).map(row)
            })
            .collect();
        let stacks = parts_of_requests(&measured(&rows));
        let expected = [("memcached", 1.0), ("packet-api", 3.0)];
        let expected = expected.map(|(name, value)| (name.to_owned(), vec![value; metrics.len()]));
        assert_eq!(stacks.bars, expected);
        assert_eq!(
            parts_of_requests(&measured(&rows[1..])).bars.len(),
            1,
            "one with a part unknown has no bar"
        );
    }

    #[test]
    fn only_targets_of_what_was_measured_are_judged() {
        let claims = |service: &Service| targets(&[service]).len();
        assert_eq!(claims(&crate::serve::service::HTTP), 2);
        assert_eq!(targets(&crate::serve::service::ALL).len(), TARGETS.len());
    }
}
