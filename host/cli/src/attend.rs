//! A machine in the foreground: from its start to its end, whoever ends it.

use crate::farewell::{Cause, Farewell, Step};
use crate::store::{self, Request};
use anyhow::Result;
use nom_vmm::{Ending, Event, Exit, Machine};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often a signal is looked for.
pub const SIGNAL_POLL: Duration = Duration::from_millis(50);
/// Signals that end the machine.
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// From now on a signal does not end this process, but is what the result holds; 0 until then. Whoever takes
/// it leaves 0.
///
/// # Errors
/// If Linux does not allow it.
pub fn watch_signals() -> Result<Arc<AtomicUsize>> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in SIGNALS {
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)?;
    }
    Ok(signal)
}

/// The signal that came since the last call, if one did.
pub fn take_signal(signal: &AtomicUsize) -> Option<Cause> {
    match signal.swap(0, Ordering::Relaxed) {
        0 => None,
        number => Some(Cause::Signal(number as i32)),
    }
}

/// Whoever a machine is run for.
pub trait Audience {
    /// Takes what the machine wrote.
    ///
    /// # Errors
    /// If nobody reads it any more: the machine has no purpose left then.
    fn serial(&mut self, bytes: &[u8]) -> std::io::Result<()>;

    /// Is called every now and then; may say that the machine is to end, and again, that at once.
    ///
    /// # Errors
    /// If nothing can be shown any more.
    fn look(&mut self) -> Result<Option<Cause>> {
        Ok(None)
    }

    /// Hears that the machine takes its time to end.
    fn remind(&mut self, text: &str) {
        let _ = text;
    }

    /// The machine has ended.
    fn end(&mut self) {}
}

impl Audience for Box<dyn Audience> {
    fn serial(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        (**self).serial(bytes)
    }

    fn look(&mut self) -> Result<Option<Cause>> {
        (**self).look()
    }

    fn remind(&mut self, text: &str) {
        (**self).remind(text);
    }

    fn end(&mut self) {
        (**self).end();
    }
}

/// Standard output, for a machine that is only run.
pub struct Console;

impl Audience for Console {
    fn serial(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush())
    }

    fn remind(&mut self, text: &str) {
        eprintln!("nom: {text}");
    }
}

/// Attends to a machine until it ends, or the audience or a `signal` ends it; returns the exit status.
///
/// # Errors
/// If the machine's end cannot be learned, or the audience fails.
pub fn attend(
    mut machine: Box<dyn Machine>,
    name: &str,
    directory: &Path,
    signal: &AtomicUsize,
    audience: &mut dyn Audience,
) -> Result<u8> {
    let mut control = Vec::new();
    let mut farewell = Farewell::default();
    let exit = loop {
        match machine.next_event(SIGNAL_POLL)? {
            Some(Event::Serial(bytes)) if audience.serial(&bytes).is_err() => machine.stop()?,
            Some(Event::Serial(_)) | None => {}
            Some(Event::Control(line)) => control.push(line),
            Some(Event::Ended(exit)) => break exit,
        }
        let asked = audience.look()?.or_else(|| take_signal(signal));
        match farewell.step(asked, Instant::now()) {
            Step::Wait => {}
            Step::Ask(cause) => {
                store::note(directory, cause.request())?;
                machine.shut_down();
            }
            Step::Remind => audience.remind(&format!("{name} is still ending; Ctrl-C ends it at once")),
            Step::Kill => {
                store::note(directory, Request::Killed)?;
                machine.kill();
            }
        }
    };
    audience.end();
    let exit = Exit { requested: exit.requested || Request::of(directory).is_some(), ..exit };
    Ok(conclude(&Ending::of(&exit, &control), name, farewell.status(exit.code.is_none())))
}

/// Says how it ended, if that is not plain; returns the exit status, which is `stopped` if it was asked to
/// end and did not do so itself.
fn conclude(ending: &Ending, name: &str, stopped: u8) -> u8 {
    match ending {
        Ending::Halted(status) => *status,
        Ending::Stopped => stopped,
        other => {
            eprintln!("nom: {name}: {other}");
            other.status()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_the_applications_or_a_shells() {
        let status = |ending, stopped| conclude(&ending, "x", stopped);
        assert_eq!(status(Ending::Halted(3), 143), 3, "it ended by itself");
        assert_eq!(status(Ending::Stopped, 130), 130);
        assert_eq!(status(Ending::Panicked, 130), 125);
        assert_eq!(status(Ending::Failed("x".to_owned()), 0), 125);
    }

    #[test]
    fn a_signal_is_taken_once() {
        let signal = AtomicUsize::new(SIGTERM as usize);
        assert_eq!(take_signal(&signal), Some(Cause::Signal(SIGTERM)));
        assert_eq!(take_signal(&signal), None);
    }
}
