//! `nom strace -c`: how many of each call there were, how many failed, and how long they took.

use super::lines::WholeLines;
use std::collections::BTreeMap;
use std::fmt;

/// Calls that were counted.
#[derive(Debug, Default)]
pub struct Summary {
    rows: BTreeMap<String, Row>,
    lines: WholeLines,
}

/// Calls of one name.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    calls: u64,
    errors: u64,
    took_ns: u64,
}

impl Summary {
    /// Takes lines: name, error if there was one, nanoseconds, with tabs between.
    pub fn take(&mut self, bytes: &[u8]) {
        for line in self.lines.take(bytes).lines() {
            let mut fields = line.split('\t');
            let (Some(name), Some(error), Some(took)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let row = self.rows.entry(name.to_owned()).or_default();
            row.calls += 1;
            row.errors += u64::from(!error.is_empty());
            row.took_ns += took.parse::<u64>().unwrap_or(0);
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RULE: &str = "------ ----------- ----------- --------- --------- ----------------";
        let mut rows: Vec<(&str, Row)> = self.rows.iter().map(|(name, row)| (name.as_str(), *row)).collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.took_ns));
        let all = rows.iter().fold(Row::default(), |all, (_, row)| Row {
            calls: all.calls + row.calls,
            errors: all.errors + row.errors,
            took_ns: all.took_ns + row.took_ns,
        });
        writeln!(out, "% time     seconds  usecs/call     calls    errors syscall\n{RULE}")?;
        for (name, row) in rows.iter().copied().chain([("total", all)]) {
            if name == "total" {
                writeln!(out, "{RULE}")?;
            }
            let part = 100.0 * row.took_ns as f64 / all.took_ns.max(1) as f64;
            let seconds = row.took_ns as f64 / 1e9;
            let each_us = row.took_ns / 1000 / row.calls.max(1);
            let errors = if row.errors == 0 { String::new() } else { row.errors.to_string() };
            let calls = row.calls;
            writeln!(out, "{part:6.2} {seconds:11.6} {each_us:11} {calls:9} {errors:>9} {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed_whatever_pieces_they_come_in() {
        let mut summary = Summary::default();
        for piece in ["read\t\t2000\nread\tEAG", "AIN\t1000\nwrite\t\t1000000\n", "half"] {
            summary.take(piece.as_bytes());
        }
        let text = summary.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], " 99.70    0.001000        1000         1           write");
        assert_eq!(lines[3], "  0.30    0.000003           1         2         1 read");
        assert_eq!(lines[5], "100.00    0.001003         334         3         1 total");
        assert_eq!(lines.len(), 6);
    }
}
