//! A machine together with everything it has said so far.

use crate::control::ControlLine;
use crate::machine::{Ending, Event, Exit, Machine};
use anyhow::Result;
use std::time::{Duration, Instant};

/// A running machine whose output is kept.
pub struct Session {
    machine: Box<dyn Machine>,
    serial: Vec<u8>,
    control: Vec<ControlLine>,
    exit: Option<Exit>,
}

/// A machine's whole life.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Whether it was killed because its time was over.
    pub timed_out: bool,
    /// All that it wrote to its serial line.
    pub serial: String,
    /// All that the kernel reported.
    pub control: Vec<ControlLine>,
    /// How its monitor ended.
    pub exit: Exit,
}

impl Session {
    /// Begins to listen to `machine`.
    pub fn new(machine: Box<dyn Machine>) -> Session {
        Session { machine, serial: Vec::new(), control: Vec::new(), exit: None }
    }

    /// The machine, to stop it or to plug devices.
    pub fn machine(&mut self) -> &mut dyn Machine {
        self.machine.as_mut()
    }

    /// Takes in what happens next; `false` if nothing happened within `timeout` or the machine has ended.
    ///
    /// # Errors
    /// If the monitor's end cannot be learned.
    pub fn advance(&mut self, timeout: Duration) -> Result<bool> {
        match self.machine.next_event(timeout)? {
            None => return Ok(false),
            Some(Event::Serial(bytes)) => self.serial.extend(bytes),
            Some(Event::Control(line)) => self.control.push(line),
            Some(Event::Ended(exit)) => {
                self.exit = Some(exit);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Listens until `reached` holds; `false` if the machine ends or `timeout` passes before.
    ///
    /// # Errors
    /// See [`Session::advance`].
    pub fn wait_until(&mut self, timeout: Duration, reached: impl Fn(&Session) -> bool) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        while !reached(self) {
            if !self.advance(deadline.saturating_duration_since(Instant::now()))? {
                return Ok(reached(self));
            }
        }
        Ok(true)
    }

    /// Whether the machine's end has been taken in.
    pub fn has_ended(&self) -> bool {
        self.exit.is_some()
    }

    /// What the machine has written to its serial line so far.
    pub fn serial(&self) -> String {
        String::from_utf8_lossy(&self.serial).into_owned()
    }

    /// What the kernel has reported so far.
    pub fn control(&self) -> &[ControlLine] {
        &self.control
    }

    /// Listens until the machine ends, or kills it after `timeout`.
    ///
    /// # Errors
    /// See [`Session::advance`].
    pub fn finish(mut self, timeout: Duration) -> Result<Outcome> {
        let ended = self.wait_until(timeout, |session| session.exit.is_some())?;
        if !ended {
            self.machine.kill();
            self.wait_until(Duration::from_secs(5), |session| session.exit.is_some())?;
        }
        let exit = self.exit.clone().unwrap_or_default();
        let ending = Ending::of(&exit, &self.control);
        Ok(Outcome { ending, timed_out: !ended, serial: self.serial(), control: self.control, exit })
    }
}
