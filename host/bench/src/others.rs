//! What else the computer did while something was measured.

use crate::record::{Record, Unit};
use procfs::process::Process;
use procfs::{CurrentSI, KernelStats};
use std::time::Instant;

/// Name of the whole computer as a system in records.
const COMPUTER: &str = "computer";
/// Its metric: the share of its processors' time that others took.
const METRIC: &str = "others_share";
/// What others may take before whatever depends on time is no longer judged. A desktop that nobody uses
/// takes a hundredth.
const SHARE_MAX: f64 = 0.05;

/// Watches from its making on.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    began: Instant,
    before: Ticks,
}

/// Time of processors, in ticks of the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    /// That somebody used, or another machine on the same hardware.
    busy: u64,
    /// That this process used, and everything that it started and that has ended.
    own: u64,
}

impl Ticks {
    /// Up to now; none where the kernel does not say.
    fn now() -> Option<Ticks> {
        let total = KernelStats::current().ok()?.total;
        let interrupts = total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
        let busy = total.user + total.nice + total.system + interrupts + total.steal.unwrap_or(0);
        let stat = Process::myself().and_then(|process| process.stat()).ok()?;
        let children = u64::try_from(stat.cutime + stat.cstime).ok()?;
        Some(Ticks { busy, own: stat.utime + stat.stime + children })
    }

    /// The share of `capacity` ticks that others took between `before` and these.
    fn share_of_others(self, before: Ticks, capacity: f64) -> f64 {
        let busy = self.busy.saturating_sub(before.busy);
        let own = self.own.saturating_sub(before.own);
        busy.saturating_sub(own) as f64 / capacity
    }
}

impl Watch {
    /// Begins; none where the kernel does not say what it does.
    pub fn begin() -> Option<Watch> {
        Some(Watch { began: Instant::now(), before: Ticks::now()? })
    }

    /// What others took of all processors since then, as a record of `experiment`. Whatever was started
    /// meanwhile must have ended: until then it passes for somebody else's.
    pub fn record(&self, experiment: &str) -> Option<Record> {
        let processors = std::thread::available_parallelism().ok()?.get();
        let seconds = self.began.elapsed().as_secs_f64() * processors as f64;
        let value = Ticks::now()?.share_of_others(self.before, seconds * procfs::ticks_per_second() as f64);
        Some(Record {
            experiment: experiment.into(),
            system: COMPUTER.into(),
            application: "all".into(),
            scenario: "all".into(),
            metric: METRIC.into(),
            unit: Unit::Ratio,
            value,
            repetitions: 1,
            deviation: None,
        })
    }
}

/// Whether `records` were measured beside so much else that what depends on time cannot be judged by them.
pub fn disturbed(records: &[Record]) -> bool {
    let is_it = |record: &&Record| record.system == COMPUTER && record.metric == METRIC;
    records.iter().find(is_it).is_some_and(|record| record.value > SHARE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn own_work_is_not_that_of_others() {
        let before = Ticks { busy: 1000, own: 400 };
        assert_eq!(Ticks { busy: 1100, own: 480 }.share_of_others(before, 200.0), 0.1);
        assert_eq!(Ticks { busy: 1100, own: 500 }.share_of_others(before, 200.0), 0.0);
        // The kernel counts the two at different moments.
        assert_eq!(Ticks { busy: 1100, own: 501 }.share_of_others(before, 200.0), 0.0);
    }

    #[test]
    fn children_that_ended_are_ones_own() {
        let before = Ticks::now().unwrap();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        let now = Ticks::now().unwrap();
        assert!(now.own > before.own, "{now:?} {before:?}");
        assert!(now.busy > before.busy, "{now:?} {before:?}");
    }

    #[test]
    fn a_computer_with_much_else_to_do_is_disturbed() {
        let record = Watch::begin().unwrap().record("demo").unwrap();
        let of = |value| [Record { value, ..record.clone() }];
        assert!(disturbed(&of(0.06)) && !disturbed(&of(0.05)) && !disturbed(&[]));
    }
}
