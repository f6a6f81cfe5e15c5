//! What `/proc` tells of the processes and of the machine (proc(5)).
//!
//! The tree of files asks while it is lent to somebody, so nothing here may ask the tree.

use crate::calls::identities::{Identities, Whose};
use crate::calls::system::memory_bytes;
use crate::descriptors::Descriptors;
use crate::family::ProcessFamily;
use crate::memory::{Backing, MappedRegion, Purpose, Rights, Sharing};
use crate::process::Process;
use crate::runners::{Affinity, processors};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::arch::x86_64::__cpuid;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use nom_fs::proc::{DescriptorFacts, MachineFacts, Mapped, Pid, ProcessFacts, Processes};
use nom_fs::{Lock, LockTable, NodeId};

/// What the machine is called.
pub(crate) const HOST: &str = "nom";

/// The bits of CPUID that have names in `/proc/cpuinfo` (Linux's arch/x86/include/asm/cpufeatures.h): leaf,
/// register (0 is EAX), bit, name.
const FEATURES: [(u32, usize, u32, &str); 44] = [
    (1, 3, 0, "fpu"),
    (1, 3, 4, "tsc"),
    (1, 3, 8, "cx8"),
    (1, 3, 15, "cmov"),
    (1, 3, 19, "clflush"),
    (1, 3, 23, "mmx"),
    (1, 3, 24, "fxsr"),
    (1, 3, 25, "sse"),
    (1, 3, 26, "sse2"),
    (1, 3, 28, "ht"),
    (0x8000_0001, 3, 11, "syscall"),
    (0x8000_0001, 3, 20, "nx"),
    (0x8000_0001, 3, 26, "pdpe1gb"),
    (0x8000_0001, 3, 27, "rdtscp"),
    (0x8000_0001, 3, 29, "lm"),
    (1, 2, 0, "pni"),
    (1, 2, 1, "pclmulqdq"),
    (1, 2, 9, "ssse3"),
    (1, 2, 12, "fma"),
    (1, 2, 13, "cx16"),
    (1, 2, 19, "sse4_1"),
    (1, 2, 20, "sse4_2"),
    (1, 2, 22, "movbe"),
    (1, 2, 23, "popcnt"),
    (1, 2, 25, "aes"),
    (1, 2, 26, "xsave"),
    (1, 2, 28, "avx"),
    (1, 2, 29, "f16c"),
    (1, 2, 30, "rdrand"),
    (1, 2, 31, "hypervisor"),
    (0x8000_0001, 2, 0, "lahf_lm"),
    (0x8000_0001, 2, 5, "abm"),
    (7, 1, 0, "fsgsbase"),
    (7, 1, 3, "bmi1"),
    (7, 1, 5, "avx2"),
    (7, 1, 8, "bmi2"),
    (7, 1, 9, "erms"),
    (7, 1, 16, "avx512f"),
    (7, 1, 18, "rdseed"),
    (7, 1, 19, "adx"),
    (7, 1, 29, "sha_ni"),
    (7, 2, 9, "vaes"),
    (7, 2, 10, "vpclmulqdq"),
    (7, 2, 22, "rdpid"),
];

impl Processes for ProcessFamily {
    fn list(&self) -> Vec<Pid> {
        self.processes().iter().map(|process| process.id).collect()
    }

    fn facts(&self, process: Pid) -> Option<ProcessFacts> {
        self.process(process).map(|process| facts(&process))
    }

    fn command_line(&self, process: Pid) -> Vec<u8> {
        self.process(process).map_or_else(Vec::new, |process| strings(&process.program.borrow().arguments))
    }

    fn environment(&self, process: Pid) -> Vec<u8> {
        self.process(process).map_or_else(Vec::new, |process| strings(&process.program.borrow().environment))
    }

    fn auxiliary(&self, process: Pid) -> Vec<u8> {
        self.process(process).map_or_else(Vec::new, |process| process.program.borrow().auxiliary.clone())
    }

    fn mapped(&self, process: Pid) -> Vec<Mapped> {
        let Some(process) = self.process(process).filter(|process| !process.has_ended()) else {
            return Vec::new();
        };
        process.memory().regions().into_iter().map(|(range, region)| mapped(range, &region)).collect()
    }

    fn program(&self, process: Pid) -> Option<NodeId> {
        self.process(process)?.program.borrow().file.as_ref().map(|file| file.node())
    }

    fn directories(&self, process: Pid) -> Option<(NodeId, NodeId)> {
        let process = self.process(process).filter(|process| !process.has_ended())?;
        let view = process.view.borrow();
        Some((view.directory.node(), view.root.node()))
    }

    fn descriptors(&self, process: Pid) -> Vec<u32> {
        let open = self.process(process).map(|process| descriptors_of(&process).list());
        open.unwrap_or_default().into_iter().filter_map(|descriptor| u32::try_from(descriptor).ok()).collect()
    }

    fn descriptor(&self, process: Pid, descriptor: u32) -> Option<DescriptorFacts> {
        let descriptors = descriptors_of(&*self.process(process)?);
        let description = descriptors.get(i32::try_from(descriptor).ok()?).ok()?;
        let node = description.opened_as();
        let label = if node.is_some() { Vec::new() } else { description.label() };
        let (position, flags) = (description.position.get(), description.flags.get());
        Some(DescriptorFacts { node, label, position, flags })
    }

    fn locks(&self) -> Vec<(NodeId, LockTable, Lock)> {
        self.locks.held()
    }

    fn machine(&self) -> MachineFacts {
        const NS_IN_S: u64 = 1_000_000_000;
        let board = nom_sys::start::board();
        let (memory, free) = memory_bytes();
        let uptime_ns = nom_sys::time::now_ns();
        let hz = board.clock.tsc_hz.load(Relaxed).max(1);
        // Those that it does not hold idle, too.
        let idle_cycles: u64 =
            board.cores[..processors() as usize].iter().map(|core| core.idle_cycles.load(Relaxed)).sum();
        let idle_ns = u128::from(idle_cycles) * u128::from(NS_IN_S) / u128::from(hz);
        MachineFacts {
            host: HOST.into(),
            cores: processors(),
            memory_bytes: memory,
            free_bytes: free + self.spaces.idle_bytes(),
            large_bytes: self.spaces.large_bytes(),
            uptime_ns,
            idle_ns: idle_ns as u64,
            booted_seconds: nom_sys::time::unix_ns().saturating_sub(uptime_ns) / NS_IN_S,
            frequency_khz: hz / 1000,
            model: model(),
            vendor: registers(&[0], &[1, 3, 2]),
            flags: flags(),
            boot_id: self.boot_id,
        }
    }
}

fn descriptors_of(process: &Process) -> Rc<Descriptors> {
    process.descriptors.borrow().clone()
}

/// Each with a zero behind it.
fn strings(strings: &[Vec<u8>]) -> Vec<u8> {
    strings.iter().flat_map(|string| string.iter().copied().chain([0])).collect()
}

fn facts(process: &Process) -> ProcessFacts {
    let view = process.view.borrow();
    let (users, owned) = (view.users(), view.groups());
    let all = |of: Identities, whose| {
        let for_files = process.for_files.get(process.id, whose);
        [of.real, of.effective, of.saved, for_files.unwrap_or(of.effective)]
    };
    let tasks = process.tasks();
    // What wakes its waits is not known to all: whoever asks of itself runs.
    let state = match (process.has_ended(), process.stops.is_stopped()) {
        (true, _) => 'Z',
        (false, true) => 'T',
        (false, false) => 'R',
    };
    let (virtual_bytes, resident_bytes) = if process.has_ended() { (0, 0) } else { process.memory().bytes() };
    let (ignored, caught) = process.actions.borrow().sets();
    let blocked = tasks.first().map_or(0, |task| task.blocked().0);
    ProcessFacts {
        name: process.name(),
        state,
        parent: process.parent(),
        group: process.group.get(),
        session: process.session.get(),
        users: all(users, Whose::User),
        user_groups: all(owned, Whose::Group),
        groups: view.credentials.groups.clone(),
        threads: tasks.iter().map(|task| task.id).collect(),
        virtual_bytes,
        resident_bytes,
        started_ns: process.started_ns,
        ran_ns: process.ran_ns(),
        signals: [process.pending_set().0, blocked, ignored.0, caught.0],
        umask: view.umask,
        limits: process.limits.borrow().all(),
        affinity: tasks.first().map_or(Affinity::all(), |task| task.affinity.get()).0,
    }
}

fn mapped(range: Range<u64>, region: &MappedRegion) -> Mapped {
    let may = |right, letter| if region.rights.has(right) { letter } else { b'-' };
    let shared = if region.sharing == Sharing::Shared { b's' } else { b'p' };
    let permissions = [may(Rights::READ, b'r'), may(Rights::WRITE, b'w'), may(Rights::EXECUTE, b'x'), shared];
    let (offset, node) = match &region.backing {
        Backing::Zero => (0, None),
        Backing::File(part) => (part.offset, part.contents.node()),
        Backing::Shared(part) => (part.offset, part.pages.file().and_then(|file| file.node())),
    };
    let label: &[u8] = match region.purpose {
        Purpose::Mapping => b"",
        Purpose::Heap => b"[heap]",
        Purpose::Stack => b"[stack]",
        Purpose::Vdso => b"[vdso]",
    };
    Mapped { start: range.start, end: range.end, permissions, offset, node, label: label.into() }
}

/// The bytes that these leaves of CPUID have in these registers.
fn registers(leaves: &[u32], order: &[usize]) -> Vec<u8> {
    let of = |leaf: &u32| {
        let found = __cpuid(*leaf);
        let all = [found.eax, found.ebx, found.ecx, found.edx];
        order.iter().flat_map(move |index| all[*index].to_le_bytes()).collect::<Vec<u8>>()
    };
    leaves.iter().flat_map(of).filter(|byte| *byte != 0).collect()
}

fn model() -> Vec<u8> {
    const LEAVES: [u32; 3] = [0x8000_0002, 0x8000_0003, 0x8000_0004];
    match __cpuid(0x8000_0000).eax {
        last if last < LEAVES[2] => b"unknown".to_vec(),
        _ => registers(&LEAVES, &[0, 1, 2, 3]).trim_ascii().to_vec(),
    }
}

fn flags() -> Vec<u8> {
    let last = [__cpuid(0).eax, __cpuid(0x8000_0000).eax];
    let has = |leaf: u32, register: usize, bit: u32| {
        let is_there = leaf <= last[usize::from(leaf >= 0x8000_0000)];
        let found = __cpuid(leaf);
        is_there && [found.eax, found.ebx, found.ecx, found.edx][register] & 1 << bit != 0
    };
    let names = FEATURES.iter().filter(|(leaf, register, bit, _)| has(*leaf, *register, *bit));
    let names: Vec<&str> = names.map(|(.., name)| *name).collect();
    String::into_bytes(names.join(" "))
}
