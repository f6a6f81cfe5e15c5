//! Being told to stop, and saying how far one is.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Somebody asked for an end, by the signal of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted(pub usize);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// How far the whole is: time that was planned, and what happens now.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    signal: Arc<AtomicUsize>,
    /// Planned time of all steps that are over.
    over: Duration,
    /// Planned time of the present step.
    step: Duration,
    began: Instant,
}

const TEMPLATE: &str = "{spinner} {elapsed_precise} [{bar:30}] {percent:>3}%, {prefix} left: {msg}";

impl Progress {
    /// Of steps that take `planned` in all; `signal` is not 0 once somebody asks for an end.
    pub fn new(planned: Duration, signal: Arc<AtomicUsize>) -> Progress {
        let style = ProgressStyle::with_template(TEMPLATE).expect("a well-formed template");
        let bar = ProgressBar::new(planned.as_millis() as u64).with_style(style.progress_chars("=> "));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar, signal, over: Duration::ZERO, step: Duration::ZERO, began: Instant::now() }
    }

    /// Ends the present step and begins one that is to take `planned`.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn step(&mut self, what: &str, planned: Duration) -> Result<(), Interrupted> {
        self.over += self.step;
        (self.step, self.began) = (planned, Instant::now());
        self.bar.set_message(what.to_owned());
        if self.bar.is_hidden() {
            eprintln!("{what}");
        }
        self.tick()
    }

    /// Shows the present step while somebody else is busy with it, and each line that they say.
    pub fn teller(&self, what: &str) -> impl Fn(&str) + Send + Sync + use<> {
        let (bar, what) = (self.bar.clone(), what.to_owned());
        let (over, step, began) = (self.over, self.step, self.began);
        move |line| {
            bar.set_message(format!("{what}: {line}"));
            bar.set_position((over + began.elapsed().min(step)).as_millis() as u64);
        }
    }

    /// Shows how far the present step is; to be called while waiting.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn tick(&self) -> Result<(), Interrupted> {
        let done = self.over + self.began.elapsed().min(self.step);
        self.bar.set_position(done.as_millis() as u64);
        let left = self.bar.length().unwrap_or_default().saturating_sub(done.as_millis() as u64);
        self.bar.set_prefix(humantime::format_duration(Duration::from_secs(left / 1000)).to_string());
        match self.signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Interrupted(signal)),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_next_step() {
        let signal = Arc::new(AtomicUsize::new(0));
        let mut progress = Progress::new(Duration::from_secs(10), signal.clone());
        assert_eq!(progress.step("first", Duration::from_secs(4)), Ok(()));
        assert_eq!(progress.step("second", Duration::from_secs(6)), Ok(()));
        assert!((4000..6000).contains(&progress.bar.position()));
        progress.teller("second")("Compiling a");
        assert_eq!(progress.bar.message(), "second: Compiling a");
        signal.store(2, Ordering::Relaxed);
        assert_eq!(progress.tick(), Err(Interrupted(2)));
    }
}
