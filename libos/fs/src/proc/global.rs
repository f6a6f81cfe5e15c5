//! Files about the machine.

use super::nodes::{GlobalFile, OS_RELEASE};
use super::{MachineFacts, Text, kibibytes};
use crate::caller::Caller;
use crate::locks::{LOCK_END, LockKind, LockOwner, LockTable};
use crate::vfs::Vfs;
use core::fmt::Write;

/// Nanoseconds of a clock tick, which there are 100 of in a second.
pub(super) const TICK_NS: u64 = 10_000_000;

impl Vfs {
    pub(super) fn write_global(&self, caller: &Caller<'_>, file: GlobalFile, text: &mut Text) {
        let machine = caller.processes.machine();
        let written = match file {
            GlobalFile::CpuInfo => cpu_info(&machine, text),
            GlobalFile::MemInfo => memory_info(&machine, text),
            GlobalFile::Stat => stat(&machine, caller.processes.list().len(), text),
            GlobalFile::LoadAvg => {
                let count = caller.processes.list().len();
                writeln!(text, "0.00 0.00 0.00 1/{count} {}", caller.process)
            }
            GlobalFile::Uptime => {
                let hundredths = |ns: u64| (ns / 1_000_000_000, ns / 10_000_000 % 100);
                let (up, idle) = (hundredths(machine.uptime_ns), hundredths(machine.idle_ns));
                writeln!(text, "{}.{:02} {}.{:02}", up.0, up.1, idle.0, idle.1)
            }
            GlobalFile::Version => writeln!(text, "Linux version {OS_RELEASE} (nom) #1 SMP"),
            GlobalFile::FileSystems => {
                text.write_str("nodev\ttmpfs\nnodev\tproc\nnodev\tsysfs\nnodev\tdevtmpfs\n")
            }
            GlobalFile::CmdLine => text.write_str("\n"),
            GlobalFile::Swaps => text.write_str("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
            GlobalFile::Locks => self.write_locks(caller, text),
        };
        written.expect("memory takes everything");
    }
}

impl Vfs {
    /// A line for each lock (proc(5), "/proc/locks"). Who made a description is not known.
    fn write_locks(&self, caller: &Caller<'_>, text: &mut Text) -> core::fmt::Result {
        for (number, (node, table, lock)) in caller.processes.locks().into_iter().enumerate() {
            let Ok(file) = self.attributes(caller, node) else { continue };
            let (kind, process) = match (table, lock.owner) {
                (LockTable::Whole, _) => ("FLOCK ", -1),
                (LockTable::Records, LockOwner::Process(process)) => ("POSIX ", i64::from(process)),
                (LockTable::Records, LockOwner::Description(_)) => ("OFDLCK", -1),
            };
            let access = if lock.kind == LockKind::Shared { "READ " } else { "WRITE" };
            let (major, minor) = (file.device >> 8 & 0xfff, file.device & 0xff);
            let (number, start) = (number + 1, lock.range.start);
            write!(text, "{number}: {kind} ADVISORY  {access} {process} ")?;
            write!(text, "{major:02x}:{minor:02x}:{} {start} ", file.number)?;
            match lock.range.end {
                LOCK_END => writeln!(text, "EOF")?,
                end => writeln!(text, "{}", end - 1)?,
            }
        }
        Ok(())
    }
}

fn cpu_info(machine: &MachineFacts, text: &mut Text) -> core::fmt::Result {
    for core in 0..machine.cores {
        writeln!(text, "processor\t: {core}")?;
        for (name, value) in [("vendor_id", &machine.vendor), ("model name", &machine.model)] {
            write!(text, "{name}\t: ")?;
            text.bytes(value);
            text.write_str("\n")?;
        }
        let khz = machine.frequency_khz;
        writeln!(text, "cpu MHz\t\t: {}.{:03}", khz / 1000, khz % 1000)?;
        writeln!(
            text,
            "physical id\t: 0\nsiblings\t: {0}\ncore id\t\t: {core}\ncpu cores\t: {0}",
            machine.cores
        )?;
        text.write_str("fpu\t\t: yes\nflags\t\t: ")?;
        text.bytes(&machine.flags);
        text.write_str("\nclflush size\t: 64\ncache_alignment\t: 64\n\n")?;
    }
    Ok(())
}

fn memory_info(machine: &MachineFacts, text: &mut Text) -> core::fmt::Result {
    let (all, free) = (machine.memory_bytes, machine.free_bytes);
    let lines = [
        ("MemTotal", all),
        ("MemFree", free),
        ("MemAvailable", free),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("Active", all - free.min(all)),
        ("Inactive", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("AnonPages", all - free.min(all)),
        ("Mapped", 0),
        ("Shmem", 0),
        ("Slab", 0),
        ("AnonHugePages", machine.large_bytes),
    ];
    for (name, bytes) in lines {
        writeln!(text, "{:<15} {}", alloc::format!("{name}:"), kibibytes(bytes))?;
    }
    text.write_str("HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n")
}

fn stat(machine: &MachineFacts, processes: usize, text: &mut Text) -> core::fmt::Result {
    let cores = u64::from(machine.cores.max(1));
    let idle = machine.idle_ns.min(machine.uptime_ns * cores) / TICK_NS;
    let busy = (machine.uptime_ns * cores / TICK_NS).saturating_sub(idle);
    writeln!(text, "cpu  {busy} 0 0 {idle} 0 0 0 0 0 0")?;
    for core in 0..cores {
        writeln!(text, "cpu{core} {} 0 0 {} 0 0 0 0 0 0", busy / cores, idle / cores)?;
    }
    writeln!(text, "intr 0\nctxt 0\nbtime {}", machine.booted_seconds)?;
    writeln!(text, "processes {processes}\nprocs_running 1\nprocs_blocked 0")
}
