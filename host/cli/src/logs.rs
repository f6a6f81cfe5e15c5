//! `nom logs`.

use crate::numbers::whole;
use crate::store::{Machine, Store, now_ms};
use crate::times::Times;
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

/// How often a followed log is looked at.
const FOLLOW_POLL: Duration = Duration::from_millis(50);
/// A time as RFC 3339 has it, in UTC, to the millisecond.
const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// `nom logs`.
#[derive(Debug, Args)]
#[command(after_help = "A machine that was started again has one log for all of its lives.

Examples:
  nom logs hello-1
  nom logs -f web-1
  nom logs --tail 10 -t web-1
  nom logs --since 90s web-1
  nom logs --since 2026-11-22T09:30:00+01:00 web-1
  nom logs --control web-1")]
pub struct Logs {
    /// Machine, running or ended.
    pub name: String,
    /// Go on until the machine ends.
    #[arg(short, long)]
    pub follow: bool,
    /// Only so many last lines.
    #[arg(short = 'n', long, value_name = "LINES", value_parser = whole::<usize>(0..=u64::from(u32::MAX)))]
    pub tail: Option<usize>,
    /// Only what is not older: a time such as 2026-11-22T09:30:00Z, or how long ago, such as 90s or 2h30m.
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<Since>,
    /// Say when each line was written.
    #[arg(short, long)]
    pub timestamps: bool,
    /// What the kernel reported to programs, in place of the console.
    #[arg(long, conflicts_with_all = ["since", "timestamps"])]
    pub control: bool,
}

/// A time as people type it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So long ago.
    Ago(Duration),
    /// In milliseconds since 1970.
    At(u64),
}

impl Since {
    fn milliseconds(self, now_ms: u64) -> u64 {
        match self {
            Since::Ago(ago) => now_ms.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
            Since::At(time) => time,
        }
    }
}

fn since(text: &str) -> Result<Since, String> {
    if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339) {
        let milliseconds = time.unix_timestamp_nanos() / 1_000_000;
        return Ok(Since::At(u64::try_from(milliseconds).unwrap_or(0)));
    }
    let expected =
        "expected a duration such as 90s or 2h30m, or a time such as 2026-11-22T09:30:00Z (RFC 3339)";
    humantime::parse_duration(text).map(Since::Ago).map_err(|_| expected.to_owned())
}

/// `nom logs`.
///
/// # Errors
/// If there is no such machine, or its log cannot be read.
pub fn logs(options: &Logs) -> Result<u8> {
    let machine = Store::open()?.find(&options.name)?;
    let path = if options.control { machine.control_log() } else { machine.serial_log() };
    let unreadable = || format!("cannot read {}", path.display());
    let mut log = File::open(&path).with_context(unreadable)?;
    let begin = begin(options, &machine, &mut log).with_context(unreadable)?;
    log.seek(SeekFrom::Start(begin)).with_context(unreadable)?;
    let mut printer = Printer { offset: begin, partial: Vec::new(), stamped: options.timestamps };
    loop {
        // Asked before the log is read, so that nothing written before the end is missed.
        let goes_on = options.follow && machine.is_running();
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes).with_context(unreadable)?;
        let text = printer.text(&bytes, !goes_on, &times(options, &machine)?);
        let mut out = std::io::stdout().lock();
        if out.write_all(&text).and_then(|()| out.flush()).is_err() || !goes_on {
            return Ok(0);
        }
        drop(out);
        std::thread::sleep(FOLLOW_POLL);
    }
}

/// When lines were written, if that is asked for.
fn times(options: &Logs, machine: &Machine) -> Result<Times> {
    if options.timestamps { Times::read(&machine.directory) } else { Ok(Times::default()) }
}

/// Where in the log that begins which is asked for.
fn begin(options: &Logs, machine: &Machine, log: &mut File) -> Result<u64> {
    let mut text = Vec::new();
    if options.tail.is_some() {
        log.read_to_end(&mut text)?;
    }
    let by_lines = options.tail.map_or(0, |lines| last_lines(&text, lines));
    let Some(since) = options.since else { return Ok(by_lines) };
    let times = Times::read(&machine.directory)?;
    let length = log.metadata()?.len();
    ensure!(length == 0 || times.at(length).is_some(), "--since: nobody noted when its lines were written");
    let by_time = times.first_since(since.milliseconds(now_ms())).unwrap_or(length);
    Ok(by_lines.max(by_time))
}

/// Where the last `lines` lines of a text begin.
fn last_lines(text: &[u8], lines: usize) -> u64 {
    let Some(lines) = lines.checked_sub(1) else { return text.len() as u64 };
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(end, _)| end as u64 + 1).nth(lines).unwrap_or(0)
}

/// Turns a log's bytes, as they come, into what is printed.
struct Printer {
    /// Of the next byte in the log.
    offset: u64,
    /// A line that has no end yet.
    partial: Vec<u8>,
    stamped: bool,
}

impl Printer {
    /// With times only whole lines are printed, unless this is the `last` text.
    fn text(&mut self, bytes: &[u8], last: bool, times: &Times) -> Vec<u8> {
        if !self.stamped {
            return bytes.to_vec();
        }
        self.partial.extend(bytes);
        let mut text = Vec::new();
        let end = if last {
            self.partial.len()
        } else {
            self.partial.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1)
        };
        for line in self.partial.drain(..end).as_slice().split_inclusive(|byte| *byte == b'\n') {
            let stamp = times.at(self.offset).map_or_else(|| "-".to_owned(), stamp);
            text.extend(stamp.bytes().chain(*b" ").chain(line.iter().copied()));
            self.offset += line.len() as u64;
        }
        text
    }
}

/// A time in milliseconds since 1970, as people read it.
pub fn stamp(time_ms: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(time_ms) * 1_000_000);
    time.ok().and_then(|time| time.format(TIME).ok()).unwrap_or_else(|| time_ms.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_duration_or_rfc_3339() {
        assert_eq!(since("90s"), Ok(Since::Ago(Duration::from_secs(90))));
        assert_eq!(since("2h30m"), Ok(Since::Ago(Duration::from_secs(9000))));
        assert_eq!(since("1970-01-01T01:00:01.5+01:00"), Ok(Since::At(1500)));
        assert_eq!(since("1970-01-01T00:00:01Z").map(|time| time.milliseconds(0)), Ok(1000));
        assert_eq!(Since::Ago(Duration::from_secs(2)).milliseconds(5000), 3000);
        assert_eq!(Since::Ago(Duration::MAX).milliseconds(5000), 0);
        for text in ["", "yesterday", "10", "2026-11-22", "2026-13-01T00:00:00Z", "-5s"] {
            assert!(since(text).expect_err(text).contains("RFC 3339"), "{text}");
        }
    }

    #[test]
    fn last_lines_are_counted_with_an_unfinished_one() {
        let begins = |text: &str| [0, 1, 2, 9].map(|lines| last_lines(text.as_bytes(), lines));
        assert_eq!(begins("a\nb\nc\n"), [6, 4, 2, 0]);
        assert_eq!(begins("a\nb\nc"), [5, 4, 2, 0]);
        assert_eq!(begins(""), [0; 4]);
    }

    #[test]
    fn lines_are_stamped_whole() {
        assert_eq!(stamp(1_795_343_400_007), "2026-11-22T10:30:00.007Z");
        let mut printer = Printer { offset: 0, partial: Vec::new(), stamped: true };
        let times = Times::parse("0 1000\n4 2000\n");
        let mut texts = [("one\ntw", false), ("o", false), ("\nend", true)].map(|(bytes, last)| {
            String::from_utf8(printer.text(bytes.as_bytes(), last, &times)).expect("text")
        });
        assert_eq!(texts[0], "1970-01-01T00:00:01.000Z one\n");
        assert_eq!(texts[1], "");
        texts[2] = texts[2].replace("1970-01-01T00:00:02.000Z ", "@");
        assert_eq!(texts[2], "@two\n@end");
    }
}
