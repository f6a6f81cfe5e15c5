//! Files about one process.

use super::global::TICK_NS;
use super::nodes::ProcessFile;
use super::{DescriptorFacts, LIMITS, Pid, ProcessFacts, Text, kibibytes};
use crate::caller::Caller;
use crate::contents::PAGE;
use crate::errno::Errno;
use crate::vfs::Vfs;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{Result as Written, Write};

/// Where the path of a mapping's file begins in its line.
const PATH_COLUMN: usize = 73;

impl Vfs {
    pub(super) fn write_process(
        &self,
        caller: &Caller<'_>,
        process: Pid,
        file: ProcessFile,
        text: &mut Text,
    ) -> Result<(), Errno> {
        let facts = caller.processes.facts(process).ok_or(Errno::ESRCH)?;
        let written = match file {
            ProcessFile::Maps => self.maps(caller, process, text),
            ProcessFile::Smaps => self.maps(caller, process, text),
            ProcessFile::Status => status(process, &facts, text),
            ProcessFile::Stat => stat(process, &facts, text),
            ProcessFile::Statm => {
                let (all, resident) = (facts.virtual_bytes / PAGE, facts.resident_bytes / PAGE);
                writeln!(text, "{all} {resident} 0 0 0 {all} 0")
            }
            ProcessFile::Comm => {
                text.bytes(&facts.name);
                text.write_str("\n")
            }
            ProcessFile::CmdLine => bytes(&caller.processes.command_line(process), text),
            ProcessFile::Environ => bytes(&caller.processes.environment(process), text),
            ProcessFile::Auxv => bytes(&caller.processes.auxiliary(process), text),
            ProcessFile::Limits => limits(&facts, text),
            ProcessFile::Mounts => self.mounts(text),
            ProcessFile::MountInfo => self.mount_info(text),
            ProcessFile::Cgroup => text.write_str("0::/\n"),
            ProcessFile::OomScoreAdj => text.write_str("0\n"),
        };
        written.expect("memory takes everything");
        Ok(())
    }

    fn maps(&self, caller: &Caller<'_>, process: Pid, text: &mut Text) -> Written {
        for mapped in caller.processes.mapped(process) {
            let start = text.0.len();
            write!(text, "{:08x}-{:08x} ", mapped.start, mapped.end)?;
            text.bytes(&mapped.permissions);
            let known = mapped.node.and_then(|node| self.attributes(caller, node).ok());
            let (device, number) = known.map_or((0, 0), |known| (known.device, known.number));
            let (major, minor) = (device >> 8, device & 0xff);
            write!(text, " {:08x} {major:02x}:{minor:02x} {number} ", mapped.offset)?;
            let path = match mapped.node {
                Some(node) => self.path_of(caller.root, node),
                None => mapped.label,
            };
            if !path.is_empty() {
                while text.0.len() - start < PATH_COLUMN {
                    text.bytes(b" ");
                }
                text.bytes(&path);
            }
            text.bytes(b"\n");
        }
        Ok(())
    }

    fn mounts(&self, text: &mut Text) -> Written {
        for (mount, path) in self.mounted() {
            let kind = mount.kind;
            write!(text, "{kind} ")?;
            text.bytes(&path);
            writeln!(text, " {kind} {},relatime 0 0", mount.access.name())?;
        }
        Ok(())
    }

    fn mount_info(&self, text: &mut Text) -> Written {
        for (index, (mount, path)) in self.mounted().enumerate() {
            let (kind, access) = (mount.kind, mount.access.name());
            let parent = if index == 0 { 1 } else { 20 };
            write!(text, "{} {parent} 0:{} / ", 20 + index, self.device_of(index))?;
            text.bytes(&path);
            writeln!(text, " {access},relatime - {kind} {kind} {access}")?;
        }
        Ok(())
    }
}

fn bytes(bytes: &[u8], text: &mut Text) -> Written {
    text.bytes(bytes);
    Ok(())
}

fn state_name(state: char) -> &'static str {
    match state {
        'R' => "running",
        'T' => "stopped",
        'Z' => "zombie",
        'D' => "disk sleep",
        _ => "sleeping",
    }
}

fn status(process: Pid, facts: &ProcessFacts, text: &mut Text) -> Written {
    text.write_str("Name:\t")?;
    text.bytes(&facts.name);
    writeln!(text, "\nUmask:\t0{:03o}", facts.umask)?;
    writeln!(text, "State:\t{} ({})", facts.state, state_name(facts.state))?;
    writeln!(text, "Tgid:\t{process}\nNgid:\t0\nPid:\t{process}\nPPid:\t{}\nTracerPid:\t0", facts.parent)?;
    for (name, ids) in [("Uid", facts.users), ("Gid", facts.user_groups)] {
        writeln!(text, "{name}:\t{}\t{}\t{}\t{}", ids[0], ids[1], ids[2], ids[3])?;
    }
    write!(text, "FDSize:\t256\nGroups:\t")?;
    for group in &facts.groups {
        write!(text, "{group} ")?;
    }
    let sizes = [
        ("VmPeak", facts.virtual_bytes),
        ("VmSize", facts.virtual_bytes),
        ("VmHWM", facts.resident_bytes),
        ("VmRSS", facts.resident_bytes),
        ("VmData", facts.virtual_bytes),
        ("VmSwap", 0),
    ];
    text.write_str("\n")?;
    for (name, size) in sizes {
        writeln!(text, "{name}:\t{}", kibibytes(size))?;
    }
    writeln!(text, "Threads:\t{}\nSigQ:\t0/32768", facts.threads.len())?;
    let [pending, blocked, ignored, caught] = facts.signals;
    writeln!(text, "SigPnd:\t{pending:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{blocked:016x}", 0)?;
    writeln!(text, "SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}")?;
    let capabilities: u64 = if facts.users[1] == 0 { 0x1ff_ffff_ffff } else { 0 };
    for (name, set) in
        [("CapInh", 0), ("CapPrm", capabilities), ("CapEff", capabilities), ("CapBnd", 0x1ff_ffff_ffff)]
    {
        writeln!(text, "{name}:\t{set:016x}")?;
    }
    writeln!(text, "NoNewPrivs:\t0\nSeccomp:\t0")?;
    writeln!(text, "Cpus_allowed:\t{:x}\nCpus_allowed_list:\t{}", facts.affinity, list(facts.affinity))?;
    writeln!(text, "Mems_allowed:\t00000000,00000001\nMems_allowed_list:\t0")?;
    writeln!(text, "voluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0")
}

/// The numbers of the bits that are set, as Linux writes lists of them: `0-3,8`.
fn list(bits: u64) -> String {
    let is_set = |bit: &u32| bits >> bit & 1 != 0;
    let follows = |bit: &u32| bit.checked_sub(1).is_some_and(|before| is_set(&before));
    let starts = (0..u64::BITS).filter(|bit| is_set(bit) && !follows(bit));
    let ranges = starts.map(|start| {
        let last = (start..u64::BITS).take_while(is_set).last().unwrap_or(start);
        if last == start { format!("{start}") } else { format!("{start}-{last}") }
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// proc_pid_stat(5), all 52 fields.
fn stat(process: Pid, facts: &ProcessFacts, text: &mut Text) -> Written {
    write!(text, "{process} (")?;
    text.bytes(&facts.name);
    write!(text, ") {} {} {} {} 0 -1 0 0 0 0 0 ", facts.state, facts.parent, facts.group, facts.session)?;
    let (ran, started) = (facts.ran_ns / TICK_NS, facts.started_ns / TICK_NS);
    write!(text, "{ran} 0 0 0 20 0 {} 0 {started} ", facts.threads.len())?;
    write!(text, "{} {} 18446744073709551615 ", facts.virtual_bytes, facts.resident_bytes / PAGE)?;
    // Addresses of code and stack, which are nobody's business.
    text.write_str("0 0 0 0 0 ")?;
    let [pending, blocked, ignored, caught] = facts.signals;
    write!(text, "{pending} {blocked} {ignored} {caught} 0 0 0 17 0 0 0 0 0 0 ")?;
    writeln!(text, "0 0 0 0 0 0 0 0")
}

/// Names and units of limits, in the order of `RLIMIT_*` (Linux's fs/proc/base.c).
const LIMIT_NAMES: [(&str, &str); LIMITS] = [
    ("Max cpu time", "seconds"),
    ("Max file size", "bytes"),
    ("Max data size", "bytes"),
    ("Max stack size", "bytes"),
    ("Max core file size", "bytes"),
    ("Max resident set", "bytes"),
    ("Max processes", "processes"),
    ("Max open files", "files"),
    ("Max locked memory", "bytes"),
    ("Max address space", "bytes"),
    ("Max file locks", "locks"),
    ("Max pending signals", "signals"),
    ("Max msgqueue size", "bytes"),
    ("Max nice priority", ""),
    ("Max realtime priority", ""),
    ("Max realtime timeout", "us"),
];

fn limits(facts: &ProcessFacts, text: &mut Text) -> Written {
    let shown = |limit: u64| if limit == u64::MAX { "unlimited".into() } else { format!("{limit}") };
    writeln!(text, "{:<26}{:<21}{:<21}{:<10}", "Limit", "Soft Limit", "Hard Limit", "Units")?;
    for ((name, unit), [soft, hard]) in LIMIT_NAMES.into_iter().zip(facts.limits) {
        write!(text, "{name:<26}{:<21}{:<21}", shown(soft), shown(hard))?;
        match unit {
            "" => text.write_str("\n")?,
            unit => writeln!(text, "{unit:<10}")?,
        }
    }
    Ok(())
}

/// A file of `fdinfo`.
pub(super) fn write_descriptor(facts: &DescriptorFacts, text: &mut Text) {
    let (position, flags) = (facts.position, facts.flags);
    writeln!(text, "pos:\t{position}\nflags:\t0{flags:o}\nmnt_id:\t20").expect("memory takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_listed_as_linux_does() {
        for (bits, listed) in
            [(0, ""), (1, "0"), (0b11, "0-1"), (0b1101_0111, "0-2,4,6-7"), (u64::MAX, "0-63")]
        {
            assert_eq!(list(bits), listed, "{bits:b}");
        }
    }
}
