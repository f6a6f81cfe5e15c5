//! How a machine or process in the foreground is brought to its end: it is asked, given time, and killed.

use crate::store::Request;
use signal_hook::consts::{SIGINT, SIGKILL, SIGTERM};
use std::time::{Duration, Instant};

/// How long it may take after it was asked: as long as `nom stop` waits.
pub const GRACE: Duration = Duration::from_secs(10);
/// When whoever waits hears that it still runs.
const REMIND: Duration = Duration::from_secs(1);

/// Why it is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Somebody has seen enough.
    Quit,
    /// A signal came, or the key that stands for it.
    Signal(i32),
}

impl Cause {
    /// Ctrl-C.
    pub const INTERRUPT: Cause = Cause::Signal(SIGINT);

    /// What is written down of it.
    pub fn request(self) -> Request {
        if self == Cause::INTERRUPT { Request::Interrupted } else { Request::Stopped }
    }

    /// Exit status of the command: a shell's for a process that the signal ended.
    pub fn status(self) -> u8 {
        match self {
            Cause::Quit => 0,
            Cause::Signal(number) => 128 + number as u8,
        }
    }
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// Ask it to end.
    Ask(Cause),
    /// Say that it still runs.
    Remind,
    /// Kill it.
    Kill,
}

/// How far it is.
#[derive(Debug, Default)]
pub struct Farewell {
    /// Why it was asked, and when.
    asked: Option<(Cause, Instant)>,
    reminded: bool,
    killed: bool,
    /// Whether it was killed because its time was over.
    late: bool,
}

impl Farewell {
    /// Decides by what was `asked` since the last call. Who asks twice does not want to wait.
    pub fn step(&mut self, asked: Option<Cause>, now: Instant) -> Step {
        let Some((_, since)) = self.asked else {
            let Some(cause) = asked else { return Step::Wait };
            self.asked = Some((cause, now));
            return Step::Ask(cause);
        };
        let waited = now.saturating_duration_since(since);
        if !self.killed && (asked.is_some() || waited >= GRACE) {
            self.late = asked.is_none();
            self.killed = true;
            return Step::Kill;
        }
        if !self.killed && !self.reminded && waited >= REMIND {
            self.reminded = true;
            return Step::Remind;
        }
        Step::Wait
    }

    /// Whether anybody asked.
    pub fn was_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Exit status of the command if it did not end by itself, but perhaps `was_killed`. Where nobody asked
    /// here, `nom stop` did in another process.
    pub fn status(&self, was_killed: bool) -> u8 {
        match self.asked {
            Some(_) if self.late => 128 + SIGKILL as u8,
            Some((cause, _)) => cause.status(),
            None if was_killed => 128 + SIGKILL as u8,
            None => 128 + SIGTERM as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_reminded_of_and_killed() {
        let (mut farewell, start) = (Farewell::default(), Instant::now());
        assert_eq!(farewell.step(None, start), Step::Wait);
        assert_eq!(farewell.step(Some(Cause::INTERRUPT), start), Step::Ask(Cause::INTERRUPT));
        assert_eq!(farewell.step(None, start + REMIND / 2), Step::Wait);
        assert_eq!(farewell.step(None, start + REMIND), Step::Remind);
        assert_eq!(farewell.step(None, start + REMIND * 2), Step::Wait, "once");
        assert_eq!(farewell.status(false), 130, "it has ended, if not by itself");
        assert_eq!(farewell.step(None, start + GRACE), Step::Kill);
        assert_eq!(farewell.step(Some(Cause::Quit), start + GRACE), Step::Wait, "it is dead");
        assert_eq!(farewell.status(true), 137);
    }

    #[test]
    fn who_asks_twice_does_not_wait() {
        for (cause, status) in [(Cause::INTERRUPT, 130), (Cause::Signal(SIGTERM), 143), (Cause::Quit, 0)] {
            let (mut farewell, start) = (Farewell::default(), Instant::now());
            farewell.step(Some(cause), start);
            assert_eq!(farewell.step(Some(Cause::INTERRUPT), start), Step::Kill);
            assert_eq!(farewell.status(true), status);
        }
    }

    #[test]
    fn nom_stop_in_another_process_is_as_sigterm() {
        let farewell = Farewell::default();
        assert_eq!((farewell.status(false), farewell.status(true)), (143, 137));
    }
}
