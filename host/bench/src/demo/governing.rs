//! What choosing the working point costs, as the application says at its control port.

use super::place::Machine;
use anyhow::{Context, Result};
use nom_vmm::namespace::GUEST;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The control port of an adaptive application.
pub const PORT: u16 = 9100;
const REQUEST: &str = "GET /metrics HTTP/1.1\r\nHost: nom\r\nConnection: close\r\n\r\n";
const COUNTER: &str = "nom_governing_nanoseconds_total ";
const PATIENCE: Duration = Duration::from_secs(5);

/// The time that the governor had taken, at one time.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    at: Instant,
    governing_ns: u64,
}

impl Reading {
    /// Of a machine that runs.
    ///
    /// # Errors
    /// If it does not answer, or says nothing of that.
    pub fn of(machine: &Machine) -> Result<Reading> {
        let answer = machine.place().inside(ask).context("the control port does not answer")?;
        let governing_ns = parse(&answer).with_context(|| format!("no {COUNTER}in what it says"))?;
        Ok(Reading { at: Instant::now(), governing_ns })
    }

    /// The share of one processor's time that it took since `before`.
    pub fn share_since(&self, before: &Reading) -> f64 {
        let passed_ns = self.at.duration_since(before.at).as_nanos().max(1) as f64;
        self.governing_ns.saturating_sub(before.governing_ns) as f64 / passed_ns
    }
}

fn ask() -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&(GUEST, PORT).into(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(REQUEST.as_bytes())?;
    let mut answer = Vec::new();
    // All of the page has come once the counter's line has: nobody need close the connection.
    while parse(&String::from_utf8_lossy(&answer)).is_none() {
        let mut piece = [0; 4096];
        match stream.read(&mut piece)? {
            0 => break,
            len => answer.extend_from_slice(&piece[..len]),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The counter, if its line has come to its end.
fn parse(answer: &str) -> Option<u64> {
    let whole = answer.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let mut lines = whole.filter_map(|line| line.strip_prefix(COUNTER));
    lines.next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_line_counts() {
        let answer = "HTTP/1.1 200 OK\r\n\r\n# TYPE x counter\nnom_governing_nanoseconds_total 1234\n";
        assert_eq!(parse(answer), Some(1234));
        assert_eq!(parse(&answer[..answer.len() - 1]), None);
        assert_eq!(parse("nom_governing_nanoseconds_total x\n"), None);
    }

    #[test]
    fn share_is_of_the_time_between() {
        let before = Reading { at: Instant::now(), governing_ns: 1_000_000 };
        let after = Reading { at: before.at + Duration::from_secs(2), governing_ns: 11_000_000 };
        assert_eq!(after.share_since(&before), 0.005);
        assert_eq!(before.share_since(&after), 0.0);
    }
}
