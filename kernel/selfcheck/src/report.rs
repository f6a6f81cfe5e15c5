//! What the console says: `selfcheck ok PART` or, for each thing that is wrong, `selfcheck FAILED PART`.

use core::fmt::Arguments;
use nom_kernel_pure::machine::Level;
use nom_kernel_x86::log;

/// Most faults of one part that are named: a table that is wrong is wrong in many places.
const NAMED_MAX: u32 = 8;

/// What came of one part.
pub struct Report {
    part: &'static str,
    core: Option<usize>,
    faults: u32,
}

impl Report {
    /// Nothing is wrong with `part` yet.
    pub fn new(part: &'static str) -> Report {
        Report { part, core: None, faults: 0 }
    }

    /// As [`Report::new`], of one processor.
    pub fn of_core(part: &'static str, core: usize) -> Report {
        Report { part, core: Some(core), faults: 0 }
    }

    /// Something must hold, or else is named.
    pub fn require(&mut self, holds: bool, what: Arguments<'_>) {
        if holds {
            return;
        }
        self.faults += 1;
        if self.faults <= NAMED_MAX {
            self.say("FAILED", what);
        }
    }

    /// Two values must be the same.
    pub fn equal(&mut self, what: &str, actual: u64, expected: u64) {
        self.require(actual == expected, format_args!("{what} is {actual:#x}, expected {expected:#x}"));
    }

    /// Says something that is neither right nor wrong.
    pub fn note(&self, what: Arguments<'_>) {
        self.say("note", what);
    }

    /// Says that all is well, if it is.
    pub fn end(&self) {
        if self.faults == 0 {
            self.say("ok", format_args!("as expected"));
        }
    }

    fn say(&self, word: &str, what: Arguments<'_>) {
        let part = self.part;
        match self.core {
            Some(core) => log(Level::Error, format_args!("selfcheck {word} {part} of core {core}: {what}")),
            None => log(Level::Error, format_args!("selfcheck {word} {part}: {what}")),
        }
    }
}
