//! Clients at work: what they are served, second by second, as they say themselves.
//!
//! memcaslap prints statistics of every second while it runs, wrk of the whole at its end, NPtcp of each size
//! of message; NPtcp ends by itself, and is started again as long as the phase lasts. Each line is stamped
//! with the time and with the bytes that had left the machine when it came.

use super::money::Interval;
use super::progress::Progress;
use super::tap::Meter;
use crate::serve::tools::{self, parse_memcaslap, parse_wrk};
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
/// Before a client that was refused tries again.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a client may be refused in a phase.
const FAILURES_MAX: u32 = 250;

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
    /// NetPIPE's transmitter.
    Nptcp,
}

/// A client at work. What runs is killed when this is dropped.
#[derive(Debug)]
pub struct Client {
    kind: Kind,
    command: Command,
    origin: Instant,
    meter: Meter,
    run: Run,
    /// All lines of all runs so far; each run's begin is an empty one.
    heard: Vec<Line>,
    began: Instant,
    phase: Duration,
    /// How often it failed before it was served anything.
    failures: u32,
}

/// One process.
#[derive(Debug)]
struct Run {
    child: Child,
    lines: Receiver<Line>,
    complaints: Option<JoinHandle<String>>,
}

impl Run {
    fn start(kind: Kind, command: &mut Command, origin: Instant, meter: &Meter) -> Result<Run> {
        let name = command.get_program().to_string_lossy().into_owned();
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot start {name}"))?;
        let output = child.stdout.take().map(|output| Box::new(output) as Box<dyn Read + Send>);
        let errors = child.stderr.take().map(|errors| Box::new(errors) as Box<dyn Read + Send>);
        // NPtcp says what it measured where others complain, and complains where others say it.
        let (output, errors) = if kind == Kind::Nptcp { (errors, output) } else { (output, errors) };
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
            if let Some(mut errors) = errors {
                let _ = errors.read_to_end(&mut text); // What came until then.
            }
            String::from_utf8_lossy(&text).trim().to_owned()
        });
        Ok(Run { child, lines, complaints: Some(complaints) })
    }

    /// Waits for its end: how it ended, and what it complained about.
    fn end(&mut self) -> Result<(ExitStatus, String)> {
        let status = self.child.wait().context("the client vanished")?;
        let complaints = self.complaints.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        Ok((status, complaints))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
        let heard = vec![begin(origin, meter)?];
        let run = Run::start(kind, &mut command, origin, meter)?;
        let (meter, began) = (meter.clone(), Instant::now());
        Ok(Client { kind, command, origin, meter, run, heard, began, phase, failures: 0 })
    }

    /// Waits until the client has stopped to load the machine, which may be before it ends.
    ///
    /// # Errors
    /// If somebody interrupts, or the client takes too long.
    pub fn wait_for_load(&mut self, progress: &Progress) -> Result<()> {
        self.wait_for_seconds(self.phase.as_secs() as usize, progress)
    }

    /// Waits until it has reported so many seconds, or has stopped; of the clients only memcaslap reports
    /// while it runs.
    ///
    /// # Errors
    /// As [`Client::wait_for_load`].
    pub fn wait_for_seconds(&mut self, seconds: usize, progress: &Progress) -> Result<()> {
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
        let (status, complaints) = self.run.end()?;
        let is_stopped = self.kind == Kind::Nptcp;
        ensure!(status.success() || is_stopped, "{:?} failed with {status}: {complaints}", self.kind);
        let intervals = match self.kind {
            Kind::Memcaslap => memcaslap(&self.heard, price)?,
            Kind::Wrk => vec![wrk(&self.heard, price)?],
            Kind::Nptcp => nptcp(&self.heard, price)?,
        };
        ensure!(!intervals.is_empty(), "{:?} reported nothing: {complaints}", self.kind);
        Ok(intervals)
    }

    /// Takes in the next line; `false` once there will be none.
    fn listen(&mut self, progress: &Progress) -> Result<bool> {
        loop {
            progress.tick()?;
            let is_over = self.began.elapsed() >= self.phase;
            match self.run.lines.recv_timeout(TICK) {
                Ok(line) => {
                    self.heard.push(line);
                    return Ok(true);
                }
                Err(RecvTimeoutError::Disconnected) if self.kind != Kind::Nptcp || is_over => {
                    return Ok(false);
                }
                Err(RecvTimeoutError::Disconnected) => self.repeat()?,
                Err(RecvTimeoutError::Timeout) if self.kind == Kind::Nptcp && is_over => {
                    // What it is measuring it does not report, so it does not count.
                    let _ = self.run.child.kill();
                }
                Err(RecvTimeoutError::Timeout) if self.began.elapsed() > self.phase + PATIENCE => {
                    bail!("{:?} did not end within {:?}", self.kind, self.phase + PATIENCE)
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Starts it again. The server that it is for serves one client after the other, and may need a moment.
    fn repeat(&mut self) -> Result<()> {
        let (status, complaints) = self.run.end()?;
        if !status.success() {
            self.failures += 1;
            ensure!(self.failures <= FAILURES_MAX, "{:?} failed with {status}: {complaints}", self.kind);
            std::thread::sleep(PAUSE);
        }
        self.heard.push(begin(self.origin, &self.meter)?);
        self.run = Run::start(self.kind, &mut self.command, self.origin, &self.meter)?;
        Ok(())
    }
}

/// The empty line with which a run begins.
fn begin(origin: Instant, meter: &Meter) -> Result<Line> {
    Ok(Line { at: origin.elapsed(), sent_bytes: meter.sent_bytes()?, text: String::new() })
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
fn memcaslap(lines: &[Line], price: f64) -> Result<Vec<Interval>> {
    let printed: String = lines.iter().flat_map(|line| [line.text.as_str(), "\n"]).collect();
    let totals_of_run = parse_memcaslap(&printed)?;
    let reply_bytes = totals_of_run.read_bytes / totals_of_run.operations.max(1.0);
    // Nobody pays for a value that is not found any more.
    let found = 1.0 - totals_of_run.misses / totals_of_run.operations.max(1.0);
    let mut before = lines.first().context("memcaslap printed nothing")?;
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
fn wrk(lines: &[Line], price: f64) -> Result<Interval> {
    let (began, last) = lines.first().zip(lines.last()).context("wrk printed nothing")?;
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

/// One interval for each size of message that NPtcp reported. It reports the mean of the best of its trials,
/// and no deviation; where both sides send at once (`-2`), the time until both messages are there.
fn nptcp(lines: &[Line], price: f64) -> Result<Vec<Interval>> {
    let mut intervals = Vec::new();
    for (before, line) in lines.iter().zip(lines.iter().skip(1)).filter(|(_, line)| is_size(line)) {
        //   0:    1024 bytes   8172 times -->    372.80 Mbps in      20.96 usec
        let fields: Vec<f64> = line.text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let &[bytes, times, _, both_ways_us] = fields.as_slice() else {
            bail!("NPtcp printed `{}`: expected the figures of a size of message", line.text)
        };
        let operations = tools::NETPIPE_TRIALS as f64 * times;
        let useful_bytes = operations * bytes;
        intervals.push(Interval {
            end_s: line.at.as_secs_f64(),
            seconds: line.at.saturating_sub(before.at).as_secs_f64(),
            operations,
            useful_bytes,
            sent_bytes: sent(before, line).unwrap_or(useful_bytes),
            latency_s: both_ways_us / 1e6,
            jitter_s: 0.0,
            price,
        });
    }
    Ok(intervals)
}

/// Whether a line of NPtcp's has the figures of a size. It writes the end of it when it has measured.
fn is_size(line: &Line) -> bool {
    line.text.contains(" times --> ") && line.text.ends_with(" usec")
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
        let printed = include_str!("captured/memcaslap.txt").lines().map(stamp);
        std::iter::once(line(0, 0, "")).chain(printed).collect()
    }

    #[test]
    fn every_second_of_memcaslap_is_an_interval() {
        let lines = captured();
        let intervals = memcaslap(&lines, 10.0).unwrap();
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
            memcaslap(&lines, 1.0).unwrap_err().to_string()
        };
        assert_eq!(spoilt("verify_failed: 0", "verify_failed: 7"), "memcaslap reports verify_failed: 7");
        assert!(spoilt("102078       102078", "102078       ?").contains("expected the statistics"));
        let mut lines = captured();
        lines.iter_mut().for_each(|line| {
            line.text =
                line.text.replace("get_misses: 0", "get_misses: 146470").replace(": 292939", ": 292940");
        });
        let halved = memcaslap(&lines, 1.0).unwrap()[0];
        assert!((halved.operations / 102_078.0 - 0.5).abs() < 1e-3, "{halved:?}");
    }

    #[test]
    fn a_run_of_wrk_is_one_interval() {
        let text = include_str!("../serve/captured/wrk.txt");
        let printed = text.lines().map(|text| line(2100, 5_000_000, text));
        let lines: Vec<Line> = std::iter::once(line(0, 1_000_000, "")).chain(printed).collect();
        let interval = wrk(&lines, 1.0).unwrap();
        assert_eq!((interval.operations, interval.sent_bytes), (2964.0, 4_000_000.0));
        assert!((interval.latency_s - 3.787e-3).abs() < 1e-6 && interval.useful_bytes > 0.0);
    }

    #[test]
    fn every_size_of_nptcps_is_an_interval() {
        let run = [
            line(100, 0, ""),
            line(130, 1000, "Now starting the main loop"),
            line(930, 9000, "  0:    1024 bytes   2000 times -->    124.27 Mbps in      62.87 usec"),
            line(1930, 30_000, "  1:    1536 bytes    100 times -->    200.00 Mbps in      50.00 usec"),
            line(2000, 31_000, "  2:    2048 bytes    100 times --> "),
        ];
        let intervals = nptcp(&run, 1.0).unwrap();
        let first = intervals[0];
        assert_eq!((intervals.len(), first.seconds, first.operations), (2, 0.8, 6000.0));
        assert_eq!((first.useful_bytes, first.sent_bytes), (6000.0 * 1024.0, 8000.0));
        assert!((first.latency_s - 62.87e-6).abs() < 1e-12);
        assert_eq!((intervals[1].seconds, intervals[1].useful_bytes), (1.0, 300.0 * 1536.0));
        let spoilt = line(5, 5, "  0: 1024 bytes many times --> 1 Mbps in 1 usec");
        assert!(nptcp(&[line(0, 0, ""), spoilt], 1.0).unwrap_err().to_string().contains("many times"));
        assert!(nptcp(&[line(0, 0, "")], 1.0).unwrap().is_empty());
    }

    #[test]
    fn a_transmitter_that_ends_is_started_again_until_the_phase_is_over() {
        let script = "echo '  0: 7 bytes 2 times --> 1.0 Mbps in 3.0 usec' >&2; sleep 0.05";
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let (phase, origin) = (Duration::from_millis(400), Instant::now());
        let mut client = Client::start(Kind::Nptcp, command, phase, origin, &Meter::blind()).unwrap();
        let progress = Progress::new(phase, Default::default());
        client.wait_for_load(&progress).unwrap();
        let intervals = client.finish(&progress, 1.0).unwrap();
        assert!(intervals.len() > 1 && intervals.iter().all(|interval| interval.operations == 6.0));
    }

    #[test]
    fn a_transmitter_that_is_always_refused_is_an_error() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo refused; exit 3"]);
        let (phase, origin) = (Duration::from_secs(600), Instant::now());
        let mut client = Client::start(Kind::Nptcp, command, phase, origin, &Meter::blind()).unwrap();
        client.failures = FAILURES_MAX - 1;
        let error = client.wait_for_load(&Progress::new(phase, Default::default())).unwrap_err();
        assert!(error.to_string().ends_with("exit status: 3: refused"), "{error}");
    }
}
