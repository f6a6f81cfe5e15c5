//! A machine in the foreground: from its start to its end, whoever ends it.

use crate::store;
use anyhow::Result;
use nom_vmm::{Ending, Event, Exit, Machine};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a machine may take to end after a signal.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// How often a signal is looked for.
pub const SIGNAL_POLL: Duration = Duration::from_millis(50);
/// Signals that end the machine.
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// From now on a signal does not end this process, but is what the result holds; 0 until then.
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

/// Whoever a machine is run for.
pub trait Audience {
    /// Takes what the machine wrote.
    ///
    /// # Errors
    /// If nobody reads it any more: the machine has no purpose left then.
    fn serial(&mut self, bytes: &[u8]) -> std::io::Result<()>;

    /// Is called every now and then; may say that the machine is to end.
    ///
    /// # Errors
    /// If nothing can be shown any more.
    fn look(&mut self) -> Result<Option<Wish>> {
        Ok(None)
    }

    /// The machine has ended.
    fn end(&mut self) {}
}

impl Audience for Box<dyn Audience> {
    fn serial(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        (**self).serial(bytes)
    }

    fn look(&mut self) -> Result<Option<Wish>> {
        (**self).look()
    }

    fn end(&mut self) {
        (**self).end();
    }
}

/// How somebody wants a machine to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// In order.
    Quit,
    /// As Ctrl-C ends it.
    Interrupt,
}

/// Standard output, for a machine that is only run.
pub struct Console;

impl Audience for Console {
    fn serial(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush())
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
    let mut deadline = None;
    let mut wish = None;
    let exit = loop {
        match machine.next_event(SIGNAL_POLL)? {
            Some(Event::Serial(bytes)) if audience.serial(&bytes).is_err() => machine.stop()?,
            Some(Event::Serial(_)) | None => {}
            Some(Event::Control(line)) => control.push(line),
            Some(Event::Ended(exit)) => break exit,
        }
        wish = wish.or(audience.look()?);
        let ends = wish.is_some() || signal.load(Ordering::Relaxed) != 0;
        match deadline {
            None if ends => {
                machine.stop()?;
                deadline = Some(Instant::now() + STOP_PATIENCE);
            }
            Some(deadline) if Instant::now() > deadline => machine.kill(),
            _ => {}
        }
    };
    audience.end();
    let ending = Ending::of(&with_request(exit, directory), &control);
    Ok(conclude(&ending, name, stopped(wish, signal.load(Ordering::Relaxed))))
}

/// Exit status if the machine was asked to end: a shell's for a process that a signal ended.
fn stopped(wish: Option<Wish>, signal: usize) -> u8 {
    match (wish, signal) {
        (Some(Wish::Quit), _) => 0,
        (Some(Wish::Interrupt), _) => 128 + SIGINT as u8,
        (None, 0) => 128 + SIGTERM as u8,
        (None, signal) => 128 + signal as u8,
    }
}

/// An exit that `nom stop` asked for in another process.
fn with_request(exit: Exit, directory: &Path) -> Exit {
    Exit { requested: exit.requested || store::was_stopped(directory), ..exit }
}

/// Says how it ended, if that is not plain; returns the exit status, which is `stopped` if it was asked to.
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
        let status = |ending, wish, signal| conclude(&ending, "x", stopped(wish, signal));
        assert_eq!(status(Ending::Halted(3), None, 0), 3);
        assert_eq!(status(Ending::Halted(3), Some(Wish::Quit), 0), 3, "it was quicker");
        assert_eq!(status(Ending::Stopped, None, SIGINT as usize), 130);
        assert_eq!(status(Ending::Stopped, None, SIGTERM as usize), 143);
        assert_eq!(status(Ending::Stopped, None, 0), 143, "`nom stop`");
        assert_eq!(status(Ending::Stopped, Some(Wish::Quit), 0), 0);
        assert_eq!(status(Ending::Stopped, Some(Wish::Interrupt), 0), 130);
        assert_eq!(status(Ending::Panicked, None, 0), 125);
    }
}
