//! When each line of a machine's console was written: a list beside its log.
//!
//! QEMU writes the log, without times. Whoever attends to the machine sees the same bytes as they come, and
//! notes for each line where it begins in the log and when that was.

use crate::attend::Audience;
use crate::farewell::Cause;
use crate::store::now_ms;
use anyhow::{Context, Result};
use nom_vmm::command::file;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Name of the list, in the machine's directory.
const FILE: &str = "serial.times";

/// An audience whose lines are noted as they come.
pub struct Timed<A> {
    audience: A,
    notes: Notes<File>,
}

impl<A> Timed<A> {
    /// Notes the lines of the machine of this directory, behind those that its log has.
    ///
    /// # Errors
    /// If the list cannot be written.
    pub fn new(audience: A, directory: &Path) -> Result<Timed<A>> {
        let path = directory.join(FILE);
        let list = File::options().create(true).append(true).open(&path);
        let list = list.with_context(|| format!("cannot write {}", path.display()))?;
        let offset = directory.join(file::SERIAL_LOG).metadata().map_or(0, |log| log.len());
        Ok(Timed { audience, notes: Notes { list, offset, begins: true } })
    }
}

impl<A: Audience> Audience for Timed<A> {
    fn serial(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        // Without room on the disk times are lost, but nothing of what the machine says.
        let _ = self.notes.take(bytes, now_ms());
        self.audience.serial(bytes)
    }

    fn look(&mut self) -> Result<Option<Cause>> {
        self.audience.look()
    }

    fn remind(&mut self, text: &str) {
        self.audience.remind(text);
    }

    fn end(&mut self) {
        self.audience.end();
    }
}

struct Notes<W> {
    list: W,
    /// Length of the log so far.
    offset: u64,
    /// Whether the next byte is a line's first.
    begins: bool,
}

impl<W: Write> Notes<W> {
    fn take(&mut self, bytes: &[u8], now_ms: u64) -> std::io::Result<()> {
        let mut notes = String::new();
        for byte in bytes {
            if self.begins {
                notes.push_str(&format!("{} {now_ms}\n", self.offset));
            }
            self.begins = *byte == b'\n';
            self.offset += 1;
        }
        self.list.write_all(notes.as_bytes())
    }
}

/// The times of a log's lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times(Vec<(u64, u64)>);

impl Times {
    /// Reads the list of a machine's directory; empty if nobody noted anything.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(directory: &Path) -> Result<Times> {
        let path = directory.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Times::parse(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Times::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Reads lines of an offset and a time.
    pub fn parse(text: &str) -> Times {
        let note = |line: &str| {
            let (offset, time) = line.split_once(' ')?;
            Some((offset.parse().ok()?, time.parse().ok()?))
        };
        Times(text.lines().filter_map(note).collect())
    }

    /// When the line that has the byte at `offset` began, in milliseconds since 1970.
    pub fn at(&self, offset: u64) -> Option<u64> {
        let after = self.0.partition_point(|(begin, _)| *begin <= offset);
        self.0.get(after.checked_sub(1)?).map(|(_, time)| *time)
    }

    /// Where the first line begins that is not older than `time_ms`; none is.
    pub fn first_since(&self, time_ms: u64) -> Option<u64> {
        self.0.iter().find(|(_, time)| *time >= time_ms).map(|(offset, _)| *offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_noted_once_where_it_begins() {
        let mut notes = Notes { list: Vec::new(), offset: 0, begins: true };
        for (bytes, now_ms) in [("one\ntw", 10), ("o", 20), ("\n", 30), ("three\n\n", 40)] {
            notes.take(bytes.as_bytes(), now_ms).expect("memory");
        }
        let times = Times::parse(&String::from_utf8(notes.list).expect("text"));
        assert_eq!(times, Times(vec![(0, 10), (4, 10), (8, 40), (14, 40)]));
        assert_eq!([0, 3, 6, 8, 100].map(|offset| times.at(offset)), [10, 10, 10, 40, 40].map(Some));
        assert_eq!([5, 11, 41].map(|time| times.first_since(time)), [Some(0), Some(8), None]);
        assert_eq!(Times::default().at(0), None);
    }
}
