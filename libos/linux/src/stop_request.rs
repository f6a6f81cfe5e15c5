//! The machine is asked to end: its power button was pressed (`nom stop`, Ctrl-C). The first process is told
//! by a signal, as whoever stops a container tells it, and ends as it likes: the machine ends with it.

use crate::family::ProcessFamily;
use crate::signals::{Info, Signal};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use nom_rt::poller::{Poller, Progress};
use nom_sys::shutdown;

/// Looks whether the machine is asked to end, and tells the first process once.
#[derive(Debug)]
pub struct StopRequest {
    family: Rc<ProcessFamily>,
    signal: Signal,
    is_passed_on: bool,
}

impl StopRequest {
    /// From now on this application is asked to end, and not ended. Without it the kernel would end it at
    /// once: nothing would be saved, and nobody who is connected told.
    pub fn new(family: Rc<ProcessFamily>, signal: Signal) -> StopRequest {
        shutdown::handle();
        StopRequest { family, signal, is_passed_on: false }
    }

    fn is_new(&self) -> bool {
        !self.is_passed_on && shutdown::is_requested()
    }
}

impl Poller for StopRequest {
    fn poll(&mut self, _: u64) -> Progress {
        if !self.is_new() {
            return Progress::default();
        }
        self.is_passed_on = true;
        if let Some(first) = self.family.first() {
            first.send(&self.family, Info::by_kernel(self.signal));
        }
        Progress { worked: 1, deadline_ns: None }
    }

    /// The event ends the first core's sleep by itself.
    fn arm(&mut self) -> bool {
        !self.is_new()
    }

    fn disarm(&mut self) {}
}

/// Which signal that is: the number in the environment's `stop_signal`, or SIGTERM.
///
/// # Errors
/// If it is no signal's.
pub fn signal(text: Option<&str>) -> Result<Signal, String> {
    let Some(text) = text else { return Ok(Signal::TERM) };
    let signal = text.parse().ok().and_then(|number| Signal::new(number).ok());
    signal.ok_or_else(|| format!("the environment's stop_signal=`{text}`: expected a number from 1 to 64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sigterm_unless_the_environment_names_another() {
        assert_eq!(signal(None), Ok(Signal::TERM));
        assert_eq!(signal(Some("3")).map(Signal::number), Ok(3));
        assert_eq!(signal(Some("37")).map(Signal::number), Ok(37));
        for wrong in ["0", "65", "-1", "TERM", ""] {
            assert!(signal(Some(wrong)).is_err_and(|error| error.contains(wrong)), "{wrong}");
        }
    }
}
