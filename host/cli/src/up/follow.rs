//! What several machines write, each line behind the name of its machine.

use crate::store::Machine;
use nom_vmm::Ending;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// A machine that is listened to.
pub struct Followed {
    member: String,
    machine: Machine,
    log: Option<File>,
    begin: u64,
    partial: Vec<u8>,
}

impl Followed {
    /// Listens to `machine` from the byte `begin` of its log on.
    pub fn new(member: &str, machine: Machine, begin: u64) -> Followed {
        Followed { member: member.to_owned(), machine, log: None, begin, partial: Vec::new() }
    }

    /// Columns of its name.
    pub fn width(&self) -> usize {
        self.member.len()
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.machine.is_running()
    }

    /// How it ended, if it has.
    pub fn ending(&self) -> Option<Ending> {
        self.machine.ending()
    }

    /// Writes the lines that have come, and an unfinished one if it is the `last`; the member's name takes
    /// `width` columns.
    ///
    /// # Errors
    /// If nobody reads them, or the log cannot be read.
    pub fn pass_on(&mut self, width: usize, last: bool, out: &mut impl Write) -> io::Result<()> {
        let log = match &mut self.log {
            Some(log) => log,
            none => {
                // QEMU makes it with its first byte.
                let Ok(mut log) = File::open(self.machine.serial_log()) else { return Ok(()) };
                log.seek(SeekFrom::Start(self.begin))?;
                none.insert(log)
            }
        };
        log.read_to_end(&mut self.partial)?;
        let lines = self.partial.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let end = if last { self.partial.len() } else { lines };
        let text: Vec<u8> = self.partial.drain(..end).collect();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            write!(out, "{:width$} | ", self.member)?;
            out.write_all(line)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }
}
