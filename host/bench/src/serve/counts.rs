//! What a request costs in counts: guest instructions, the guest's notifications of its device, and the
//! device's interrupts.
//!
//! Instructions are counted by a plugin of QEMU's translator (`guest/count.rs`, compiled when needed) into
//! a file that can be read while the guest runs. Notifications and interrupts are QEMU's own trace events.

use crate::linux::{read, save};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("../../guest/count.rs");
/// QEMU's trace events: the guest notified a queue; the device raised an interrupt.
const EVENTS: [&str; 2] = ["virtio_queue_notify", "virtio_notify"];

/// Counters of one guest that runs.
#[derive(Debug)]
pub struct Counters {
    instructions: PathBuf,
    trace: PathBuf,
}

/// Their values at one time, or the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Guest instructions that were executed.
    pub instructions: u64,
    /// The guest's notifications of its device: each would be an exit of a guest that KVM runs.
    pub kicks: u64,
    /// The device's interrupts.
    pub interrupts: u64,
}

impl Counters {
    /// Counters that lie in `directory`.
    pub fn new(directory: &Path) -> Counters {
        Counters { instructions: directory.join("instructions"), trace: directory.join("trace") }
    }

    /// QEMU's arguments that make it count, by the plugin in the file `plugin`.
    pub fn arguments(&self, plugin: &Path) -> Vec<String> {
        let mut words = vec!["-plugin".into()];
        words.push(format!("{},counter={}", plugin.display(), self.instructions.display()));
        words.extend(["-D".into(), self.trace.display().to_string()]);
        words.extend(EVENTS.iter().flat_map(|event| ["-trace".into(), format!("enable={event}")]));
        words
    }

    /// The present values.
    ///
    /// # Errors
    /// If QEMU did not make a counter.
    pub fn now(&self) -> Result<Counts> {
        let counter = read(&self.instructions)?;
        let counter = counter.first_chunk().context("the counter of instructions has 8 bytes")?;
        let [kicks, interrupts] = occurrences(&String::from_utf8_lossy(&read(&self.trace)?));
        Ok(Counts { instructions: u64::from_le_bytes(*counter), kicks, interrupts })
    }
}

impl Counts {
    /// What was counted since `earlier`.
    pub fn since(self, earlier: Counts) -> Counts {
        Counts {
            instructions: self.instructions - earlier.instructions,
            kicks: self.kicks - earlier.kicks,
            interrupts: self.interrupts - earlier.interrupts,
        }
    }
}

/// How often each of [`EVENTS`] is in a trace, whose lines begin with the event or, after a time, have it
/// second.
fn occurrences(trace: &str) -> [u64; 2] {
    let words = || trace.lines().filter_map(|line| line.split(' ').find(|word| word.starts_with("virtio_")));
    EVENTS.map(|event| words().filter(|word| *word == event).count() as u64)
}

/// Compiles the plugin in `directory` and returns its file.
///
/// # Errors
/// If rustc is missing or refuses it.
pub fn plugin(directory: &Path) -> Result<PathBuf> {
    let (source, plugin) = (directory.join("count.rs"), directory.join("count.so"));
    save(&source, SOURCE.as_bytes())?;
    let output = Command::new("rustc")
        .args(["--edition", "2024", "-O", "-Cpanic=abort", "--crate-type", "cdylib", "-Dwarnings", "-o"])
        .args([&plugin, &source])
        .output()
        .context("cannot run rustc, which compiles QEMU's plugin")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "rustc cannot compile {}:\n{complaint}", source.display());
    Ok(plugin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_compiles() {
        let directory = tempfile::tempdir().unwrap();
        assert!(plugin(directory.path()).unwrap().metadata().unwrap().len() > 0);
    }

    #[test]
    fn events_are_told_from_those_they_begin_like() {
        let trace = include_str!("captured/trace.txt");
        assert_eq!(occurrences(trace), [14, 2]);
        assert_eq!(occurrences("virtio_notify_irqfd vdev 0x1\n"), [0, 0]);
    }

    #[test]
    fn counters_are_read_from_their_files() {
        let directory = tempfile::tempdir().unwrap();
        let counters = Counters::new(directory.path());
        assert!(counters.now().is_err(), "nothing counts yet");
        save(&counters.instructions, &7u64.to_le_bytes()).unwrap();
        save(&counters.trace, b"virtio_notify vdev 0x1 vq 0x2\n").unwrap();
        let earlier = counters.now().unwrap();
        assert_eq!(earlier, Counts { instructions: 7, kicks: 0, interrupts: 1 });
        save(&counters.instructions, &9u64.to_le_bytes()).unwrap();
        assert_eq!(counters.now().unwrap().since(earlier), Counts { instructions: 2, ..Counts::default() });
    }
}
