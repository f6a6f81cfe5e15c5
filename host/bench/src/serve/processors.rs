//! Processor time that a load takes: of the guest, of its monitor, and of the client.
//!
//! From the scheduler's statistics (Linux, `Documentation/scheduler/sched-stats.rst`): it knows
//! nanoseconds, and what the computer's other programs take does not count.

use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;

/// Processor time at one moment, or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    /// The guest's processors: QEMU's threads but the first.
    pub guest: Duration,
    /// QEMU's main loop, its first thread, which moves packets between the guest's device and the TAP device.
    pub monitor: Duration,
    /// The calling thread.
    pub client: Duration,
}

impl Processors {
    /// What was used until now by the QEMU of this process id, and by the calling thread.
    ///
    /// # Errors
    /// If QEMU has ended, or Linux keeps no such statistics.
    pub fn now(qemu: u32) -> Result<Processors> {
        let threads = format!("/proc/{qemu}/task");
        let mut now = Processors { client: used(Path::new("/proc/thread-self"))?, ..Processors::default() };
        for thread in std::fs::read_dir(&threads).with_context(|| format!("cannot read {threads}"))? {
            let thread = thread?.path();
            let is_first = thread.ends_with(qemu.to_string());
            // One that has ended since is of no account: QEMU's that matter live as long as it.
            let used = used(&thread).unwrap_or_default();
            *(if is_first { &mut now.monitor } else { &mut now.guest }) += used;
        }
        Ok(now)
    }

    /// What was used since `earlier`.
    pub fn since(self, earlier: Processors) -> Processors {
        Processors {
            guest: self.guest.saturating_sub(earlier.guest),
            monitor: self.monitor.saturating_sub(earlier.monitor),
            client: self.client.saturating_sub(earlier.client),
        }
    }
}

/// Time that the thread whose directory this is was on a processor.
fn used(thread: &Path) -> Result<Duration> {
    let path = thread.join("schedstat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
    nanoseconds.map(Duration::from_nanos).with_context(|| format!("{} says `{text}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_charged_to_whom_it_belongs() {
        let begin = std::time::Instant::now();
        let now = || Processors::now(std::process::id()).unwrap();
        let first = now().client;
        while now().client < first + Duration::from_millis(2) {
            assert!(begin.elapsed() < Duration::from_secs(60), "work takes processor time");
        }
        let before = now().client;
        assert!(now().guest >= before, "this thread is not the process's first");
        assert!(Processors::now(u32::MAX).is_err(), "there is no such process");
    }
}
