//! Clients at work: what they are served, second by second, as they say themselves.
//!
//! memcaslap prints statistics of every second while it runs, wrk of the whole at its end. Each line is
//! stamped with the time and with the bytes that had left the machine when it came.

use super::money::Interval;
use super::progress::Progress;
use super::tap::Meter;
use crate::serve::tools::{parse_memcaslap, parse_wrk};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a waiting demo shows that it lives.
const TICK: Duration = Duration::from_millis(100);
/// How much longer than planned a client may take: it starts, and a busy computer is slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// A line that a client wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When it came, since the begin of the run.
    pub at: Duration,
    /// Bytes that had left the machine.
    pub sent_bytes: Option<u64>,
    /// The line.
    pub text: String,
}

/// Which program loads the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// memcached's.
    Memcaslap,
    /// For web servers.
    Wrk,
}

/// A client that runs; it is killed when dropped.
#[derive(Debug)]
pub struct Client {
    kind: Kind,
    child: Child,
    lines: Receiver<Line>,
    heard: Vec<Line>,
    complaints: Option<JoinHandle<String>>,
    began: Line,
    phase: Duration,
    deadline: Instant,
}

impl Client {
    /// Starts `command`, a client of this kind, which is to load the machine for `phase`. Lines are stamped
    /// with the time since `origin` and with what `meter` says.
    ///
    /// # Errors
    /// If it cannot be started, or the machine's meter not be read.
    pub fn start(
        kind: Kind,
        mut command: Command,
        phase: Duration,
        origin: Instant,
        meter: &Meter,
    ) -> Result<Client> {
        let began = Line { at: origin.elapsed(), sent_bytes: meter.sent_bytes()?, text: String::new() };
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = spawned.with_context(|| format!("cannot start {name}"))?;
        let (output, mut errors) = (child.stdout.take(), child.stderr.take());
        let (sender, lines) = channel();
        let meter = meter.clone();
        std::thread::spawn(move || {
            for text in
                output.into_iter().flat_map(|output| BufReader::new(output).lines()).map_while(Result::ok)
            {
                let sent_bytes = meter.sent_bytes().ok().flatten();
                if sender.send(Line { at: origin.elapsed(), sent_bytes, text }).is_err() {
                    return;
                }
            }
        });
        let complaints = std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(errors) = &mut errors {
                let _ = errors.read_to_end(&mut text); // What came until then.
            }
            String::from_utf8_lossy(&text).trim().to_owned()
        });
        let deadline = Instant::now() + phase + PATIENCE;
        let (heard, complaints) = (Vec::new(), Some(complaints));
        Ok(Client { kind, child, lines, heard, complaints, began, phase, deadline })
    }

    /// Waits until the client has stopped to load the machine, which may be before it ends.
    ///
    /// # Errors
    /// If somebody interrupts, or the client takes too long.
    pub fn wait_for_load(&mut self, progress: &Progress) -> Result<()> {
        let seconds = self.phase.as_secs() as usize;
        while self.kind != Kind::Memcaslap || totals(&self.heard).count() < seconds {
            if !self.listen(progress)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for the client's end; all intervals that it reported, at `price`.
    ///
    /// # Errors
    /// If somebody interrupts, or the client takes too long, fails, or saw a wrong reply.
    pub fn finish(mut self, progress: &Progress, price: f64) -> Result<Vec<Interval>> {
        while self.listen(progress)? {}
        let status: ExitStatus = self.child.wait().context("the client vanished")?;
        let complaints = self.complaints.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        ensure!(status.success(), "{:?} failed with {status}: {complaints}", self.kind);
        let intervals = match self.kind {
            Kind::Memcaslap => memcaslap(&self.began, &self.heard, price)?,
            Kind::Wrk => vec![wrk(&self.began, &self.heard, price)?],
        };
        ensure!(!intervals.is_empty(), "{:?} reported nothing: {complaints}", self.kind);
        Ok(intervals)
    }

    /// Takes in the next line; `false` once there will be none.
    fn listen(&mut self, progress: &Progress) -> Result<bool> {
        loop {
            progress.tick()?;
            match self.lines.recv_timeout(TICK) {
                Ok(line) => {
                    self.heard.push(line);
                    return Ok(true);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
                Err(RecvTimeoutError::Timeout) if Instant::now() > self.deadline => {
                    bail!("{:?} did not end within {:?}", self.kind, self.phase + PATIENCE)
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The line of each second in which memcaslap sums up its gets and sets.
fn totals(lines: &[Line]) -> impl Iterator<Item = &Line> {
    let pairs = lines.iter().scan("", |heading, line| {
        if line.text.ends_with("Statistics") {
            *heading = &line.text;
        }
        Some((*heading, line))
    });
    let in_total = pairs.filter(|(heading, _)| *heading == "Total Statistics");
    in_total.map(|(_, line)| line).filter(|line| line.text.starts_with("Period"))
}

/// One interval for each second that memcaslap reported.
fn memcaslap(began: &Line, lines: &[Line], price: f64) -> Result<Vec<Interval>> {
    let printed: String = lines.iter().flat_map(|line| [line.text.as_str(), "\n"]).collect();
    let totals_of_run = parse_memcaslap(&printed)?;
    let reply_bytes = totals_of_run.read_bytes / totals_of_run.operations.max(1.0);
    // Nobody pays for a value that is not found any more.
    let found = 1.0 - totals_of_run.misses / totals_of_run.operations.max(1.0);
    let mut before = began;
    let mut intervals = Vec::new();
    for line in totals(lines) {
        // Period, Time(s), Ops, TPS(ops/s), Net(M/s), Get_miss, Min(us), Max(us), Avg(us), Std_dev, Geo_dist
        let fields: Option<Vec<f64>> =
            line.text.split_whitespace().skip(1).map(|field| field.parse().ok()).collect();
        let Some(&[nominal_s, operations, _, _, _, _, _, mean_us, deviation_us, ..]) = fields.as_deref()
        else {
            bail!("memcaslap printed `{}`: expected the statistics of a second", line.text)
        };
        // The first second begins when memcaslap is ready, which it does not say.
        let seconds =
            if intervals.is_empty() { nominal_s } else { line.at.saturating_sub(before.at).as_secs_f64() };
        let operations = operations * found;
        let useful_bytes = operations * reply_bytes;
        intervals.push(Interval {
            end_s: line.at.as_secs_f64(),
            seconds,
            operations,
            useful_bytes,
            sent_bytes: sent(before, line).unwrap_or(useful_bytes),
            latency_s: mean_us / 1e6,
            jitter_s: deviation_us / 1e6,
            price,
        });
        before = line;
    }
    Ok(intervals)
}

/// The one interval that wrk reports, at its end.
fn wrk(began: &Line, lines: &[Line], price: f64) -> Result<Interval> {
    let last = lines.last().context("wrk printed nothing")?;
    let printed: String = lines.iter().flat_map(|line| [line.text.as_str(), "\n"]).collect();
    let figures = parse_wrk(&printed)?;
    let [latency_s, jitter_s, ..] = figures.latency;
    let (operations, useful_bytes) = (figures.requests as f64, figures.bytes as f64);
    Ok(Interval {
        end_s: last.at.as_secs_f64(),
        seconds: operations / figures.throughput,
        operations,
        useful_bytes,
        sent_bytes: sent(began, last).unwrap_or(useful_bytes),
        latency_s,
        jitter_s,
        price,
    })
}

/// Bytes that left the machine between two lines, if somebody metered.
fn sent(before: &Line, after: &Line) -> Option<f64> {
    Some(after.sent_bytes?.checked_sub(before.sent_bytes?)? as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at_ms: u64, sent_bytes: u64, text: &str) -> Line {
        Line { at: Duration::from_millis(at_ms), sent_bytes: Some(sent_bytes), text: text.into() }
    }

    /// What memcaslap wrote in three seconds: a line every millisecond, and 100 MB sent in each second.
    fn captured() -> Vec<Line> {
        let mut second = 0;
        let stamp = |text: &str| {
            second += u64::from(text == "Get Statistics");
            line(240 + 1000 * second, 100_000_000 * second, text)
        };
        include_str!("captured/memcaslap.txt").lines().map(stamp).collect()
    }

    #[test]
    fn every_second_of_memcaslap_is_an_interval() {
        let lines = captured();
        let intervals = memcaslap(&line(0, 0, ""), &lines, 10.0).unwrap();
        assert_eq!(intervals.len(), 3);
        let first = intervals[0];
        assert_eq!((first.end_s, first.seconds, first.operations), (1.24, 1.0, 102_078.0));
        assert_eq!((first.latency_s, first.jitter_s, first.price), (156e-6, 216.41e-6, 10.0));
        assert_eq!(first.sent_bytes, 100_000_000.0);
        let reply = 292_854_828.0 / 292_939.0;
        assert!((first.useful_bytes - 102_078.0 * reply).abs() < 1.0);
        assert_eq!(intervals[2].operations, 87_562.0);
    }

    #[test]
    fn wrong_replies_end_a_run_and_lost_ones_earn_nothing() {
        let spoilt = |from: &str, to: &str| {
            let mut lines = captured();
            lines.iter_mut().for_each(|line| line.text = line.text.replace(from, to));
            memcaslap(&line(0, 0, ""), &lines, 1.0).unwrap_err().to_string()
        };
        assert_eq!(spoilt("verify_failed: 0", "verify_failed: 7"), "memcaslap reports verify_failed: 7");
        assert!(spoilt("102078       102078", "102078       ?").contains("expected the statistics"));
        let mut lines = captured();
        lines.iter_mut().for_each(|line| {
            line.text =
                line.text.replace("get_misses: 0", "get_misses: 146470").replace(": 292939", ": 292940");
        });
        let halved = memcaslap(&line(0, 0, ""), &lines, 1.0).unwrap()[0];
        assert!((halved.operations / 102_078.0 - 0.5).abs() < 1e-3, "{halved:?}");
    }

    #[test]
    fn a_run_of_wrk_is_one_interval() {
        let text = include_str!("../serve/captured/wrk.txt");
        let lines: Vec<Line> = text.lines().map(|text| line(2100, 5_000_000, text)).collect();
        let interval = wrk(&line(0, 1_000_000, ""), &lines, 1.0).unwrap();
        assert_eq!((interval.operations, interval.sent_bytes), (2964.0, 4_000_000.0));
        assert!((interval.latency_s - 3.787e-3).abs() < 1e-6 && interval.useful_bytes > 0.0);
    }
}
