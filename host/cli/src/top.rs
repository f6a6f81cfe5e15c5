//! `nom top`: whom a server works for at present, and what that costs.

use crate::machines::table;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use ratatui::crossterm::{cursor, execute, terminal};
use serde::Serialize;
use signal_hook::consts::SIGINT;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ureq::Agent;

/// Between two lists, and between the two looks that a rate takes.
const PERIOD: Duration = Duration::from_secs(1);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);

/// `nom top`.
#[derive(Debug, Args)]
#[command(
    after_help = "CORES is the time of cores that an activity takes, as a share of one; LATENCY the mean of
its requests; IN and OUT are the bytes of its frames, MEM what its connections hold, if somebody's is bounded,
COST what core and bytes cost at present prices, if the machine knows them, PROFIT what it brings less that,
by its contract or its part of the application's. `(idle)` is the time in which the server's cores looked
for work in vain, or slept, and all that is paid for and held for nobody; `(all)` is what the application
earns, which is the sum of the others. Of a server that tells nobody apart only these two are shown.

Examples:
  nom top                         the list, once a second, until Ctrl-C
  nom top --sort out
  nom top --no-stream --json 10.0.2.15:9999"
)]
pub struct Top {
    /// The server's control port (docs/control.md), as ADDRESS:PORT.
    #[arg(default_value = "127.0.0.1:9999")]
    pub address: String,
    /// What the list is sorted by.
    #[arg(long, value_enum, default_value_t = Column::Cores)]
    pub sort: Column,
    /// Print one list.
    #[arg(long)]
    pub no_stream: bool,
    /// Print JSON, a list in each line.
    #[arg(long)]
    pub json: bool,
}

/// What a list can be sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// The name.
    Activity,
    /// Time of cores, the most first.
    Cores,
    /// Requests, the most first.
    Requests,
    /// Bytes that came, the most first.
    In,
    /// Bytes that left, the most first.
    Out,
    /// Mean latency, the longest first.
    Latency,
    /// Connections, the most first.
    Clients,
    /// Memory that connections hold, the most first.
    Memory,
    /// What it costs, the most first.
    Cost,
    /// What it earns, the most first.
    Profit,
}

/// What an activity takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    activity: String,
    cores: f64,
    requests_per_second: f64,
    latency_mean_seconds: f64,
    received_bytes_per_second: f64,
    sent_bytes_per_second: f64,
    connections: f64,
    memory_bytes: f64,
    dollars_per_hour: f64,
    profit_dollars_per_hour: f64,
}

impl Row {
    fn named(name: &str) -> Row {
        Row {
            activity: name.to_owned(),
            cores: 0.0,
            requests_per_second: 0.0,
            latency_mean_seconds: 0.0,
            received_bytes_per_second: 0.0,
            sent_bytes_per_second: 0.0,
            connections: 0.0,
            memory_bytes: 0.0,
            dollars_per_hour: 0.0,
            profit_dollars_per_hour: 0.0,
        }
    }
}

/// The metrics of each activity at one time, in the order in which they are told, by name without the
/// beginning that all have.
struct Look {
    at: Instant,
    activities: Vec<(String, BTreeMap<String, f64>)>,
    idle_ns: f64,
    /// What was held for nobody, and what the application earned, if it tells that.
    unused: f64,
    profit: Option<f64>,
    /// What it tells of itself as a whole, by name.
    whole: BTreeMap<String, f64>,
}

/// What a server that tells nobody apart takes as a whole: as metrics of an activity, and as its own.
const OF_WHOLE: [(&str, &str); 7] = [
    ("requests_total", "nom_requests_total"),
    ("received_bytes_total", "nom_received_bytes_total"),
    ("sent_bytes_total", "nom_sent_bytes_total"),
    ("connections", "nom_connections"),
    ("cost_dollars_total", "nom_cost_dollars_total"),
    ("profit_dollars", "nom_profit_dollars"),
    ("elapsed_ns", "nom_loop_total{event=\"elapsed_ns\"}"),
];
/// The name of the row that is about all of an application.
const ALL: &str = "(all)";

impl Look {
    fn of(text: &str, at: Instant) -> Look {
        let (activities, whole) = (Vec::new(), BTreeMap::new());
        let mut look = Look { at, activities, idle_ns: 0.0, unused: 0.0, profit: None, whole };
        for line in text.lines() {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            if matches!(
                name,
                r#"nom_loop_total{event="spinning_ns"}"# | r#"nom_loop_total{event="sleeping_ns"}"#
            ) {
                look.idle_ns += value;
            }
            if let Some((metric, _)) = OF_WHOLE.iter().find(|(_, known)| *known == name) {
                look.whole.insert((*metric).to_owned(), value);
            }
            match name {
                "nom_unused_cost_dollars" => look.unused = value,
                "nom_profit_dollars" => look.profit = Some(value),
                _ => {}
            }
            let Some((metric, rest)) =
                name.strip_prefix("nom_activity_").and_then(|name| name.split_once("{activity=\""))
            else {
                continue;
            };
            let activity = rest.trim_end_matches("\"}");
            let place = look.activities.iter().position(|(known, _)| known == activity);
            let place = place.unwrap_or_else(|| {
                look.activities.push((activity.to_owned(), BTreeMap::new()));
                look.activities.len() - 1
            });
            look.activities[place].1.insert(metric.to_owned(), value);
        }
        look.tell_whole();
        look
    }

    /// Has the whole stand for activities that are not told apart.
    fn tell_whole(&mut self) {
        if !self.activities.is_empty() {
            return;
        }
        let elapsed_ns = self.whole.remove("elapsed_ns").unwrap_or_default();
        self.whole.insert("core_nanoseconds_total".to_owned(), elapsed_ns - self.idle_ns);
        self.activities.push((ALL.to_owned(), core::mem::take(&mut self.whole)));
        self.profit = None;
    }

    /// What was taken since `before`.
    fn since(&self, before: &Look) -> Vec<Row> {
        let seconds = (self.at - before.at).as_secs_f64();
        let row = |(activity, now): &(String, BTreeMap<String, f64>)| {
            let value = |metric: &str| now.get(metric).copied().unwrap_or_default();
            let earlier = before.activities.iter().find(|(known, _)| known == activity);
            let change = |metric: &str| {
                let then = earlier.and_then(|(_, then)| then.get(metric)).copied().unwrap_or_default();
                (value(metric) - then) / seconds
            };
            // A server that began anew counts from 0.
            let rate = |metric: &str| change(metric).max(0.0);
            let requests = rate("requests_total");
            let latency_ns = if requests > 0.0 { rate("latency_nanoseconds_total") / requests } else { 0.0 };
            Row {
                activity: activity.clone(),
                cores: rate("core_nanoseconds_total") * 1e-9,
                requests_per_second: requests,
                latency_mean_seconds: latency_ns * 1e-9,
                received_bytes_per_second: rate("received_bytes_total"),
                sent_bytes_per_second: rate("sent_bytes_total"),
                connections: value("connections"),
                memory_bytes: value("memory_bytes"),
                dollars_per_hour: rate("cost_dollars_total") * 3600.0,
                profit_dollars_per_hour: change("profit_dollars") * 3600.0,
            }
        };
        let unused = (self.unused - before.unused) / seconds * 3600.0;
        let all = self.profit.zip(before.profit).map(|(now, then)| Row {
            profit_dollars_per_hour: (now - then) / seconds * 3600.0,
            ..Row::named(ALL)
        });
        let idle = Row {
            cores: (self.idle_ns - before.idle_ns).max(0.0) / seconds * 1e-9,
            dollars_per_hour: unused,
            profit_dollars_per_hour: 0.0 - unused,
            ..Row::named("(idle)")
        };
        self.activities.iter().map(row).chain([idle]).chain(all).collect()
    }
}

/// `nom top`.
///
/// # Errors
/// If there is no such control port, or nobody reads the list.
pub fn top(options: &Top) -> Result<u8> {
    let mut before = look(&options.address)?;
    // Ctrl-C ends the list, and is no failure.
    let is_over = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, is_over.clone())?;
    loop {
        std::thread::sleep(PERIOD);
        if is_over.load(Relaxed) {
            return Ok(0);
        }
        let now = look(&options.address)?;
        let rows = sorted(now.since(&before), options.sort);
        // Whoever reads it has gone if it cannot be written.
        if show(options, &rows).is_err() || options.no_stream {
            return Ok(0);
        }
        before = now;
    }
}

fn look(address: &str) -> Result<Look> {
    let url = format!("http://{address}/metrics");
    let agent: Agent = Agent::config_builder().timeout_global(Some(ANSWER)).build().into();
    let answer = agent.get(&url).call().and_then(|mut answer| answer.body_mut().read_to_string());
    let text = answer.with_context(|| {
        format!(
            "{url}: expected a server's control port: `control = \"9999\"` in its environment, and \
             -p 9999:9999 (docs/control.md)"
        )
    })?;
    Ok(Look::of(&text, Instant::now()))
}

fn sorted(mut rows: Vec<Row>, by: Column) -> Vec<Row> {
    let most = |of: fn(&Row) -> f64| move |one: &Row, other: &Row| of(other).total_cmp(&of(one));
    match by {
        Column::Activity => rows.sort_by(|one, other| one.activity.cmp(&other.activity)),
        Column::Cores => rows.sort_by(most(|row| row.cores)),
        Column::Requests => rows.sort_by(most(|row| row.requests_per_second)),
        Column::In => rows.sort_by(most(|row| row.received_bytes_per_second)),
        Column::Out => rows.sort_by(most(|row| row.sent_bytes_per_second)),
        Column::Latency => rows.sort_by(most(|row| row.latency_mean_seconds)),
        Column::Memory => rows.sort_by(most(|row| row.memory_bytes)),
        Column::Clients => rows.sort_by(most(|row| row.connections)),
        Column::Cost => rows.sort_by(most(|row| row.dollars_per_hour)),
        Column::Profit => rows.sort_by(most(|row| row.profit_dollars_per_hour)),
    }
    rows
}

fn show(options: &Top, rows: &[Row]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string(rows)?).context("nobody reads it")?;
        return Ok(());
    }
    if !options.no_stream && out.is_terminal() {
        execute!(out, cursor::MoveTo(0, 0), terminal::Clear(terminal::ClearType::FromCursorDown))?;
    }
    let cells: Vec<_> = rows.iter().map(cells).collect();
    write!(out, "{}", table(HEADINGS, &cells)).and_then(|()| out.flush()).context("nobody reads it")
}

const HEADINGS: [&str; 10] = [
    "ACTIVITY",
    "CORES",
    "REQUESTS/s",
    "LATENCY",
    "IN kB/s",
    "OUT kB/s",
    "CLIENTS",
    "MEM kB",
    "COST $/h",
    "PROFIT $/h",
];

fn cells(row: &Row) -> [String; 10] {
    let kilobytes = |bytes: f64| format!("{:.1}", bytes / 1000.0);
    [
        row.activity.clone(),
        format!("{:.4}", row.cores),
        format!("{:.0}", row.requests_per_second),
        match row.latency_mean_seconds {
            0.0 => "-".to_owned(),
            seconds => crate::watch::text::latency((seconds * 1e9) as u64),
        },
        kilobytes(row.received_bytes_per_second),
        kilobytes(row.sent_bytes_per_second),
        format!("{:.0}", row.connections),
        kilobytes(row.memory_bytes),
        crate::watch::text::number(row.dollars_per_hour),
        crate::watch::text::number(row.profit_dollars_per_hour),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_server_that_tells_nobody_apart_is_shown_as_a_whole() {
        let begin = Instant::now();
        let text = |scale: u64| {
            format!(
                "nom_requests_total {}\nnom_sent_bytes_total {}\nnom_received_bytes_total {}\n\
                 nom_connections 3\nnom_loop_total{{event=\"elapsed_ns\"}} {}\n\
                 nom_loop_total{{event=\"sleeping_ns\"}} {}\nnom_cost_dollars_total 0.00{scale}\n\
                 nom_profit_dollars -0.00{scale}\n",
                2000 * scale,
                40_000 * scale,
                20_000 * scale,
                2_000_000_000 * scale,
                500_000_000 * scale,
            )
        };
        let look = |scale: u64| Look::of(&text(scale), begin + Duration::from_secs(2 * scale));
        let rows = sorted(look(3).since(&look(2)), Column::Cores);
        expect![[r#"
ACTIVITY   CORES    REQUESTS/s   LATENCY   IN kB/s   OUT kB/s   CLIENTS   MEM kB   COST $/h   PROFIT $/h
(all)      0.7500   1000         -         10.0      20.0       3         0.0      1.80       -1.80
(idle)     0.2500   0            -         0.0       0.0        0         0.0      0          0
"#]]
        .assert_eq(&table(HEADINGS, &rows.iter().map(cells).collect::<Vec<_>>()));
    }

    fn text(scale: u64) -> String {
        let of = |metric: &str, activity: &str, value: u64| {
            format!("nom_activity_{metric}{{activity=\"{activity}\"}} {value}\n")
        };
        let mut text = format!(
            "# HELP nom_activity_requests_total Requests answered.\nnom_requests_total {}\n\
             nom_loop_total{{event=\"spinning_ns\"}} {}\nnom_loop_total{{event=\"sleeping_ns\"}} {}\n",
            7 * scale,
            400_000_000 * scale,
            100_000_000 * scale,
        );
        for (activity, share) in [("infrastructure", 0), ("gold", 2), ("silver", 5)] {
            text += &of("core_nanoseconds_total", activity, 50_000_000 * share * scale);
            text += &of("requests_total", activity, 1000 * share * scale);
            text += &of("received_bytes_total", activity, 80_000 * share * scale);
            text += &of("sent_bytes_total", activity, (900_000 - 100_000 * share) * scale);
            text += &of("connections", activity, share);
            text += &of("latency_nanoseconds_total", activity, 250_000_000 * share * scale);
            text += &of("memory_bytes", activity, 1000 * share);
            let dollars = (share * scale) as f64 / 1000.0;
            text += &format!("nom_activity_cost_dollars_total{{activity=\"{activity}\"}} {dollars}\n");
            let profit = (3.0 - share as f64) * scale as f64 / 1000.0;
            text += &format!("nom_activity_profit_dollars{{activity=\"{activity}\"}} {profit}\n");
        }
        let (unused, profit) = (scale as f64 * 0.001, scale as f64 * 0.001);
        text += &format!("nom_unused_cost_dollars {unused}\nnom_profit_dollars {profit}\n");
        text
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let begin = Instant::now();
        let look = |scale: u64| Look::of(&text(scale), begin + Duration::from_secs(2 * scale));
        let rows = sorted(look(3).since(&look(2)), Column::Cores);
        let printed = table(HEADINGS, &rows.iter().map(cells).collect::<Vec<_>>());
        expect![[r#"
ACTIVITY         CORES    REQUESTS/s   LATENCY   IN kB/s   OUT kB/s   CLIENTS   MEM kB   COST $/h   PROFIT $/h
(idle)           0.2500   0            -         0.0       0.0        0         0.0      1.80       -1.80
silver           0.1250   2500         250 us    200.0     200.0      5         5.0      9.00       -3.60
gold             0.0500   1000         250 us    80.0      350.0      2         2.0      3.60       1.80
infrastructure   0.0000   0            -         0.0       450.0      0         0.0      0          5.40
(all)            0.0000   0            -         0.0       0.0        0         0.0      0          1.80
"#]]
        .assert_eq(&printed);
        let first = |by| sorted(look(3).since(&look(2)), by)[0].activity.clone();
        assert_eq!((first(Column::Out), first(Column::Clients)), ("infrastructure".into(), "silver".into()));
        assert_eq!((first(Column::Activity), first(Column::Cost)), ("(all)".into(), "silver".into()));
        // It was started again meanwhile.
        assert!(look(2).since(&Look { at: begin, ..look(3) }).iter().all(|row| row.cores == 0.0));
    }
}
