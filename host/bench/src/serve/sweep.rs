//! What the batching delay W does: throughput over latency for every delay and load, and the Pareto frontier.
//!
//! A closed loop of so many connections has one product of throughput and latency (Little's law), whatever
//! the delay: only over several loads is there anything to trade for the other.

use super::guests::NOM;
use super::runs::{SWEPT, delayed};
use crate::figure::{Line, Lines, Scale};
use crate::record::{Record, Unit};

/// What came of one batching delay under one load.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    delay_us: u32,
    connections: usize,
    /// Mean, in seconds.
    latency: f64,
    throughput: f64,
}

/// The batching delay, in microseconds, that a record was taken with.
pub fn delay(record: &Record) -> Option<u32> {
    let (_, after) = record.scenario.split_once("-w-")?;
    after.parse().ok()
}

/// Every delay under every load that was measured, by delay and then by load.
fn points(records: &[Record]) -> Vec<Point> {
    let mut delays: Vec<u32> = records.iter().filter_map(delay).collect();
    delays.sort_unstable();
    delays.dedup();
    let all = delays.into_iter().flat_map(|us| SWEPT.iter().map(move |load| (us, load)));
    let point = |(delay_us, load): (u32, &super::runs::Scenario)| {
        let scenario = scenario(load.name, delay_us);
        let find = |metric| {
            let is_it = |record: &&Record| {
                record.scenario == scenario && record.metric == metric && record.system == NOM
            };
            records.iter().find(is_it).map(|record| record.value)
        };
        let (latency, throughput) = (find("latency_mean")?, find("throughput")?);
        Some(Point { delay_us, connections: load.connections, latency, throughput })
    };
    all.filter_map(point).collect()
}

fn scenario(load: &str, delay_us: u32) -> String {
    format!("{load}{}", delayed(delay_us))
}

impl Point {
    /// Whether it is as good in latency and in throughput, and better in one of them.
    fn beats(&self, other: &Point) -> bool {
        let is_as_good = self.latency <= other.latency && self.throughput >= other.throughput;
        is_as_good && (self.latency, self.throughput) != (other.latency, other.throughput)
    }
}

/// Those of `points` that no other beats.
fn frontier(points: &[Point]) -> Vec<Point> {
    points.iter().filter(|point| !points.iter().any(|other| other.beats(point))).copied().collect()
}

/// Says of each delay and load whether it is on the frontier: 1, or 0.
pub fn efficient(records: &[Record]) -> Vec<Record> {
    let points = points(records);
    let best = frontier(&points);
    let record = |point: &Point| {
        let load = SWEPT.iter().find(|load| load.connections == point.connections)?;
        let scenario = scenario(load.name, point.delay_us);
        let is_throughput = |record: &&Record| record.scenario == scenario && record.metric == "throughput";
        let throughput = records.iter().find(is_throughput)?.clone();
        let value = f64::from(u8::from(best.contains(point)));
        let metric = "is_on_pareto_frontier".into();
        Some(Record { metric, unit: Unit::Count, value, deviation: None, ..throughput })
    };
    points.iter().filter_map(record).collect()
}

/// A line for each delay, from one connection to many, and the frontier with what each of its points is.
pub fn figure(records: &[Record]) -> Lines {
    let points = points(records);
    let place = |point: &Point| (point.latency, point.throughput);
    let of_delay =
        |same: &[Point]| Line::plain(format!("W={}", same[0].delay_us), same.iter().map(place).collect());
    let mut lines: Vec<Line> =
        points.chunk_by(|one, next| one.delay_us == next.delay_us).map(of_delay).collect();
    let mut best = frontier(&points);
    best.sort_by(|a, b| a.latency.total_cmp(&b.latency));
    let label = |point: &Point| format!("W={}, {}", point.delay_us, point.connections);
    lines.push(Line {
        name: "Pareto frontier: W, connections".into(),
        points: best.iter().map(place).collect(),
        labels: best.iter().map(label).collect(),
        is_joined: true,
    });
    Lines {
        name: "batching_delay".into(),
        title: "Batching delay W: throughput over latency of memcached, 1 to 64 connections".into(),
        axes: ["mean latency, seconds".into(), "replies a second".into()],
        scale: Scale::Logarithmic,
        lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Key, Samples};

    /// Records of `load`, delay in microseconds, latency and throughput.
    fn measured(rows: &[(&str, u32, f64, f64)]) -> Vec<Record> {
        let mut samples = Samples::new("serve");
        for &(load, us, latency, throughput) in rows {
            let mut push = |metric: &str, unit, value| {
                let (system, metric) = (NOM.into(), metric.into());
                let scenario = scenario(load, us);
                samples.push(Key { system, application: "memcached", scenario, metric, unit }, value);
            };
            push("latency_mean", Unit::Seconds, latency);
            push("throughput", Unit::PerSecond, throughput);
        }
        samples.records()
    }

    #[test]
    fn frontier_is_what_nobody_beats() {
        let records = measured(&[
            ("tcp-single", 0, 1.0, 10.0),
            ("tcp-many", 0, 3.0, 20.0),
            ("tcp-single", 5, 2.0, 9.0),
            ("tcp-many", 5, 3.0, 19.0),
            ("tcp-single", 10, 1.0, 10.0),
        ]);
        let best: Vec<_> =
            frontier(&points(&records)).iter().map(|point| (point.delay_us, point.connections)).collect();
        assert_eq!(best, [(0, 1), (0, 16), (10, 1)], "as good as another is no worse");
        let said: Vec<_> =
            efficient(&records).into_iter().map(|record| (record.scenario, record.value)).collect();
        assert_eq!(said[2], ("tcp-single-w-5".into(), 0.0));
        assert_eq!(said.iter().map(|(_, value)| value).sum::<f64>(), 3.0);
    }

    #[test]
    fn figure_has_a_line_for_each_delay_and_one_for_the_frontier() {
        let records =
            measured(&[("tcp-single", 0, 1.0, 10.0), ("tcp-4", 0, 2.0, 20.0), ("tcp-4", 40, 2.5, 21.0)]);
        let figure = figure(&records);
        let lengths: Vec<_> =
            figure.lines.iter().map(|line| (line.name.as_str(), line.points.len())).collect();
        assert_eq!(lengths, [("W=0", 2), ("W=40", 1), ("Pareto frontier: W, connections", 3)]);
        assert_eq!(figure.lines[2].labels, ["W=0, 1", "W=0, 4", "W=40, 4"]);
        assert!(super::figure(&[]).is_empty());
    }
}
