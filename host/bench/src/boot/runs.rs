//! The runs of the boot bench, and what is read from them.

use super::system::System;
use crate::machine::{self, Guest, Run, Setting};
use crate::record::{Key, Record, Samples, Unit};
use crate::search::smallest;
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use nom_vmm::config::MEMORY_BYTES;
use nom_vmm::{Accelerator, Allocation};
use std::time::Duration;

/// Applications of the records: the one that says hello, and the one that measures costs.
pub const HELLO: &str = "hello";
pub const MEASURE: &str = "measure";

/// Memory of every run but those that search for the smallest: enough for each system.
const ENOUGH_BYTES: u64 = 256 << 20;
/// No run takes longer, even on a slow machine without KVM.
const TIMEOUT: Duration = Duration::from_secs(120);
/// A guest that cannot boot for want of memory mostly hangs; one that can takes about as long as with more.
const SLOWER_IN_LITTLE_MEMORY: u32 = 4;

/// What the time-stamp counter counts in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Time.
    Timed,
    /// Executed instructions.
    Counted,
}

impl Pace {
    fn unit(self) -> Unit {
        match self {
            Pace::Timed => Unit::Cycles,
            Pace::Counted => Unit::Instructions,
        }
    }
}

/// Readings of the counter in one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks {
    /// At the kernel's first instruction.
    kernel: u64,
    /// At the application's first instruction.
    user: u64,
    /// At the application's end.
    exit: u64,
}

impl Marks {
    /// Reads what a guest reported. A kernel that does not say when it began did so when its `probe` did.
    fn read(run: &Run, probe: u64) -> Result<Marks> {
        let kernel = run.number("boot", "kernel_tsc").unwrap_or(probe);
        let marks =
            Marks { kernel, user: run.number("boot", "user_tsc")?, exit: run.number("exited", "tsc")? };
        ensure!(kernel < marks.user && marks.user < marks.exit, "the counter went backwards: {marks:?}");
        Ok(marks)
    }
}

/// All runs so far.
#[derive(Debug)]
pub struct Runs {
    accelerator: Accelerator,
    samples: Samples,
    progress: ProgressBar,
}

impl Runs {
    /// No runs yet.
    pub fn new(accelerator: Accelerator) -> Runs {
        let style =
            ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a well-formed template");
        Runs {
            accelerator,
            samples: Samples::new("boot"),
            progress: ProgressBar::new_spinner().with_style(style),
        }
    }

    /// What was measured.
    pub fn records(self) -> Vec<Record> {
        self.progress.finish_and_clear();
        self.samples.records()
    }

    /// Boots `system` and its probe once.
    pub fn boot(&mut self, system: &System, pace: Pace) -> Result<()> {
        let probe = self.run(&system.probe, pace, "firmware")?.number("probe", "tsc")?;
        let run = self.run(&system.hello, pace, "boot")?;
        let marks = Marks::read(&run, probe)?;
        let metrics = [
            ("to_kernel_entry", marks.kernel),
            ("to_first_user_instruction", marks.user - marks.kernel),
            ("to_exit", marks.exit - marks.kernel),
        ];
        let counted = pace.unit();
        for (metric, value) in metrics {
            self.push(system, HELLO, pace, &format!("{}_{metric}", counted.name()), counted, value as f64);
        }
        if pace == Pace::Timed {
            self.push(system, HELLO, pace, "qemu_run_time", Unit::Seconds, run.wall.as_secs_f64());
        }
        Ok(())
    }

    /// Runs the application that measures costs once, on one processor; with time on two as well, for what
    /// only several can do. Instructions of several together mean nothing.
    pub fn costs(&mut self, system: &System, pace: Pace) -> Result<()> {
        let [one, two] = &system.costs;
        let run = self.run(one, pace, "costs")?;
        let figures = run.figures();
        ensure!(!figures.is_empty(), "the guest printed no `figure name=.. cycles=..`");
        self.push_costs(system, pace, figures);
        if pace == Pace::Timed {
            let frequency = run.number("boot", "tsc_hz").or_else(|_| run.number("clock", "tsc_hz"))?;
            self.push(system, MEASURE, pace, "tsc_frequency", Unit::Hertz, frequency as f64);
            let messages = self.run(two, pace, "messages")?.figures().into_iter();
            self.push_costs(system, pace, messages.filter(|(name, _)| name.starts_with("ipc_")));
        }
        Ok(())
    }

    fn push_costs(&mut self, system: &System, pace: Pace, figures: impl IntoIterator<Item = (String, u64)>) {
        for (name, cycles) in figures {
            self.push(system, MEASURE, pace, &name, pace.unit(), cycles as f64);
        }
    }

    /// Notes the size of the files of `system`, and searches for the smallest memory in which it boots, and
    /// in which the firmware reaches its kernel at all.
    pub fn sizes(&mut self, system: &System) -> Result<()> {
        self.push(system, HELLO, Pace::Timed, "image_size", Unit::Bytes, system.image_bytes as f64);
        let memories =
            [("smallest_memory_to_kernel_entry", &system.probe), ("smallest_memory", &system.hello)];
        for (metric, guest) in memories {
            let bytes = self.smallest_memory(guest, system.memory_step_bytes)?;
            self.push(system, HELLO, Pace::Timed, metric, Unit::Bytes, bytes as f64);
        }
        Ok(())
    }

    fn smallest_memory(&self, guest: &Guest, step_bytes: u64) -> Result<u64> {
        let with_enough = self.run(guest, Pace::Timed, "memory")?;
        let timeout = with_enough.wall * SLOWER_IN_LITTLE_MEMORY + Duration::from_secs(1);
        let too_few = MEMORY_BYTES.start() / step_bytes - 1;
        let steps = smallest(too_few, ENOUGH_BYTES / step_bytes, |steps| {
            let memory_bytes = steps * step_bytes;
            self.say(guest, &format!("{} KiB", memory_bytes / 1024));
            Ok(machine::run(guest, &Setting { memory_bytes, timeout, ..self.setting(Pace::Timed) })?
                .succeeded())
        })?;
        Ok(steps * step_bytes)
    }

    /// Runs `guest` to its orderly end.
    fn run(&self, guest: &Guest, pace: Pace, what: &str) -> Result<Run> {
        self.say(guest, &format!("{what}, {}", self.scenario(pace)));
        machine::run(guest, &self.setting(pace))?
            .checked()
            .with_context(|| guest.kernel.display().to_string())
    }

    fn say(&self, guest: &Guest, what: &str) {
        self.progress.set_message(format!("{}: {what}", guest.kernel.display()));
        self.progress.tick();
    }

    fn setting(&self, pace: Pace) -> Setting {
        let accelerator = match pace {
            Pace::Timed => self.accelerator,
            // Only QEMU's translator can count.
            Pace::Counted => Accelerator::Tcg,
        };
        let counts_instructions = pace == Pace::Counted;
        let (memory_bytes, allocation) = (ENOUGH_BYTES, Allocation::OnDemand);
        Setting { accelerator, counts_instructions, memory_bytes, allocation, timeout: TIMEOUT }
    }

    fn scenario(&self, pace: Pace) -> String {
        match pace {
            Pace::Timed => self.accelerator.name().into(),
            Pace::Counted => "tcg-icount".into(),
        }
    }

    fn push(
        &mut self,
        system: &System,
        application: &'static str,
        pace: Pace,
        metric: &str,
        unit: Unit,
        value: f64,
    ) {
        let (system, scenario, metric) = (system.name.into(), self.scenario(pace), metric.into());
        self.samples.push(Key { system, application, scenario, metric, unit }, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::run_of;

    #[test]
    fn kernel_that_reports_its_beginning_is_believed_before_the_probe() {
        let linux = "boot user_tsc=30\nexited app=init status=0 tsc=50\n";
        assert_eq!(Marks::read(&run_of(linux, ""), 10).unwrap(), Marks { kernel: 10, user: 30, exit: 50 });
        let nom = "boot kernel_tsc=20 user_tsc=30 tsc_hz=1\nexited app=hello status=0 tsc=50\n";
        assert_eq!(Marks::read(&run_of(nom, ""), 10).unwrap(), Marks { kernel: 20, user: 30, exit: 50 });
    }

    #[test]
    fn missing_or_impossible_marks_are_errors() {
        let error = |control| Marks::read(&run_of(control, ""), 10).unwrap_err().to_string();
        assert!(error("panic").contains("boot user_tsc="));
        assert!(error("boot user_tsc=30\nexited status=0").contains("exited tsc="));
        assert!(error("boot user_tsc=5\nexited tsc=50").contains("backwards"));
    }
}
