//! What a request costs in counts: guest instructions, the guest's notifications of its device, the device's
//! interrupts, and exits.
//!
//! Instructions and halts are counted by a plugin of QEMU's translator (`guest/count.rs`, compiled when
//! needed) into a file that can be read while the guest runs. Everything else is counted from QEMU's own
//! trace events.
//!
//! An exit is what would leave a guest that runs on real hardware for its monitor: a notification of a
//! device, another access to a device's registers, ports or the interrupt controller's included, or a halt.

use super::parts::Executed;
use crate::linux::{read, save};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("../../guest/count.rs");
/// QEMU's trace events: the guest notified a queue; the device raised an interrupt; a device's register was
/// read or written.
const NOTIFIED: &str = "virtio_queue_notify";
const INTERRUPTED: &str = "virtio_notify";
const ACCESSED: [&str; 2] = ["memory_region_ops_read", "memory_region_ops_write"];
/// Bytes of one processor's counters in the plugin's file, instructions, halts, and others; and of all.
const SLOT_BYTES: usize = 64;
const SLOTS_BYTES: usize = 64 * SLOT_BYTES;

/// Counters of one guest that runs.
#[derive(Debug)]
pub struct Counters {
    instructions: PathBuf,
    blocks: PathBuf,
    trace: PathBuf,
    /// So much of the trace was read.
    read_bytes: u64,
    /// What was in that.
    traced: Traced,
}

/// How often so many instructions lay between two pauses of a processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pauses(Vec<u64>);

impl Pauses {
    /// What the plugin wrote behind its slots.
    fn read(file: &[u8]) -> Pauses {
        let words = file.get(SLOTS_BYTES..).unwrap_or_default().as_chunks::<8>().0;
        Pauses(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// What was counted since `earlier`.
    pub fn since(mut self, earlier: &Pauses) -> Pauses {
        self.0.iter_mut().zip(&earlier.0).for_each(|(count, before)| *count -= before);
        self
    }

    /// Instructions of turns of a loop that found nothing: each ends with a pause, and takes what most of
    /// them do. A turn that did something ends without, so that it is part of the length up to the next
    /// pause, and what it took is not polling.
    pub fn polling(&self) -> u64 {
        // The last are of any length.
        let told_apart = &self.0[..self.0.len().saturating_sub(1)];
        let most = told_apart.iter().zip(0_u64..).max_by_key(|(count, _)| **count);
        let turn = most.filter(|(count, _)| **count > 0).map_or(0, |(_, length)| length);
        turn * self.0.iter().sum::<u64>()
    }
}

/// Their values at one time, or the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Guest instructions that were executed, by all processors.
    pub instructions: u64,
    /// The guest's notifications of its device.
    pub kicks: u64,
    /// The device's interrupts.
    pub interrupts: u64,
    /// Times that the guest would leave its processors to a monitor.
    pub exits: u64,
}

/// Events in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traced {
    notified: u64,
    interrupted: u64,
    accessed: u64,
}

impl Counters {
    /// Counters that lie in `directory`.
    pub fn new(directory: &Path) -> Counters {
        let [instructions, blocks, trace] =
            ["instructions", "blocks", "trace"].map(|name| directory.join(name));
        Counters { instructions, blocks, trace, read_bytes: 0, traced: Traced::default() }
    }

    /// QEMU's arguments that make it count, by the plugin in the file `plugin`.
    pub fn arguments(&self, plugin: &Path) -> Vec<String> {
        let mut words = vec!["-plugin".into()];
        let files = [&self.instructions, &self.blocks].map(|file| file.display());
        words.push(format!("{},counter={},blocks={}", plugin.display(), files[0], files[1]));
        words.extend(["-D".into(), self.trace.display().to_string()]);
        let events = [NOTIFIED, INTERRUPTED].into_iter().chain(ACCESSED);
        words.extend(events.flat_map(|event| ["-trace".into(), format!("enable={event}")]));
        words
    }

    /// The present values.
    ///
    /// # Errors
    /// If QEMU did not make a counter.
    pub fn now(&mut self) -> Result<Counts> {
        let counters = read(&self.instructions)?;
        let [instructions, halts] = sums(&counters);
        ensure!(!counters.is_empty(), "{} is empty", self.instructions.display());
        self.follow().with_context(|| format!("cannot read {}", self.trace.display()))?;
        let Traced { notified, interrupted, accessed } = self.traced;
        Ok(Counts {
            instructions,
            kicks: notified,
            interrupts: interrupted,
            exits: notified + accessed + halts,
        })
    }

    /// How processors paused so far.
    ///
    /// # Errors
    /// If QEMU did not make a counter.
    pub fn pauses(&self) -> Result<Pauses> {
        Ok(Pauses::read(&read(&self.instructions)?))
    }

    /// How often each instruction was executed so far.
    ///
    /// # Errors
    /// If QEMU did not list any.
    pub fn executed(&self) -> Result<Executed> {
        Ok(Executed::read(&read(&self.blocks)?))
    }

    /// Counts what the trace has more than before: whole lines.
    fn follow(&mut self) -> std::io::Result<()> {
        let mut file = File::open(&self.trace)?;
        file.seek(SeekFrom::Start(self.read_bytes))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.read_bytes += whole as u64;
        String::from_utf8_lossy(&bytes[..whole]).lines().for_each(|line| self.traced.add(line));
        Ok(())
    }
}

impl Counts {
    /// What was counted since `earlier`.
    pub fn since(self, earlier: Counts) -> Counts {
        Counts {
            instructions: self.instructions - earlier.instructions,
            kicks: self.kicks - earlier.kicks,
            interrupts: self.interrupts - earlier.interrupts,
            exits: self.exits - earlier.exits,
        }
    }
}

/// Instructions and halts of all processors, from the plugin's file.
fn sums(file: &[u8]) -> [u64; 2] {
    let number = |slot: &[u8], index: usize| {
        slot[8 * index..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let slots = file[..file.len().min(SLOTS_BYTES)].as_chunks::<SLOT_BYTES>().0;
    [0, 1].map(|index| slots.iter().map(|slot| number(slot, index)).sum())
}

impl Traced {
    /// Adds a line, which begins with the event or, after a time, has it second.
    fn add(&mut self, line: &str) {
        let mut words = line.split(' ').skip_while(|word| !word.starts_with(char::is_alphabetic));
        match words.next() {
            Some(NOTIFIED) => self.notified += 1,
            Some(INTERRUPTED) => self.interrupted += 1,
            // QEMU's own accesses, such as the message of an interrupt, have no processor.
            Some(event)
                if ACCESSED.contains(&event) && line.contains(" cpu ") && !line.contains(" cpu -1 ") =>
            {
                self.accessed += 1;
            }
            _ => {}
        }
    }
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
    fn polling_is_what_most_turns_take_between_pauses() {
        let mut file = vec![0; SLOTS_BYTES];
        // Of lengths 0, 1, 2 and so on; the last are longer.
        for count in [0_u64, 7, 0, 100, 5, 300] {
            file.extend(count.to_le_bytes());
        }
        let pauses = Pauses::read(&file);
        assert_eq!(pauses.polling(), 3 * 412, "a turn with work is not polling, the vain one behind it is");
        assert_eq!(pauses.clone().since(&pauses).polling(), 0);
        assert_eq!(Pauses::read(&[]).polling(), 0);
        file[..8].copy_from_slice(&9_u64.to_le_bytes());
        assert_eq!(sums(&file), [9, 0], "which are no slots");
    }

    #[test]
    fn events_are_told_from_those_they_begin_like() {
        let mut traced = Traced::default();
        include_str!("captured/trace.txt").lines().for_each(|line| traced.add(line));
        assert_eq!((traced.notified, traced.interrupted), (14, 2));
        let before = traced;
        traced.add("virtio_notify_irqfd vdev 0x1");
        traced.add("memory_region_ops_write cpu -1 mr 0x1 addr 0xfee00000 value 0x21 size 4 name 'apic-msi'");
        assert_eq!(traced, before, "neither is the guest's doing");
        traced.add("7@8.9:memory_region_ops_read cpu 0 mr 0x1 addr 0x1 value 0x0 size 4 name 'hpet'");
        traced.add("memory_region_ops_read cpu 1 mr 0x1 addr 0x1 value 0x0 size 4 name 'hpet'");
        assert_eq!(traced.accessed, before.accessed + 1);
    }

    #[test]
    fn counters_are_read_from_their_files() {
        let directory = tempfile::tempdir().unwrap();
        let mut counters = Counters::new(directory.path());
        assert!(counters.now().is_err(), "nothing counts yet");
        let slots = |instructions: u64, halts: u64| {
            let slot = [instructions.to_le_bytes(), halts.to_le_bytes()].concat();
            [&slot[..], &[0; SLOT_BYTES - 16]].concat().repeat(2)
        };
        save(&counters.instructions, &slots(7, 1)).unwrap();
        save(&counters.trace, b"virtio_notify vdev 0x1 vq 0x2\nvirtio_queue_noti").unwrap();
        let earlier = counters.now().unwrap();
        assert_eq!(earlier, Counts { instructions: 14, kicks: 0, interrupts: 1, exits: 2 });
        save(&counters.instructions, &slots(9, 1)).unwrap();
        let trace = b"virtio_notify vdev 0x1 vq 0x2\nvirtio_queue_notify vdev 0x1 n 0 vq 0x2\n";
        save(&counters.trace, trace).unwrap();
        let expected = Counts { instructions: 4, kicks: 1, interrupts: 0, exits: 1 };
        assert_eq!(
            counters.now().unwrap().since(earlier),
            expected,
            "half a line is counted when it is whole"
        );
    }
}
