//! Segments, task state and gates of a processor (Intel SDM vol. 3A, 3.4.5, 6.14, 7.7).

use crate::pages::{self, Map};
use crate::processor::Snapshot;
use crate::report::Report;

/// Where the accessed bit is, which the processor sets.
const ACCESSED: u64 = 1 << 40;
/// What there must be: nothing, 64-bit code and data of ring 0, data and 64-bit code of ring 3. A segment of
/// 32-bit code in ring 3 would be a way into the kernel by another entry.
const SEGMENTS: [u64; 5] =
    [0, 0x00af_9a00_0000_ffff, 0x00cf_9200_0000_ffff, 0x00cf_f200_0000_ffff, 0x00af_fa00_0000_ffff];
const KERNEL_CODE: u64 = 8;
const TASK_STATE: u64 = 0x28;
const TASK_STATE_BYTES: u64 = 104;
/// Exceptions that have stacks of their own, and their numbers in the task state.
const OWN_STACK: [(u64, u64); 4] = [(1, 3), (2, 2), (8, 1), (18, 1)];

fn word(address: u64) -> u64 {
    // SAFETY: a word of a table that the processor uses, which is mapped.
    unsafe { (address as *const u64).read_unaligned() }
}

/// Compares a processor's tables with what they must be.
pub fn check(snapshot: &Snapshot, map: &Map, report: &mut Report) {
    let (gdt, idt) = (snapshot.gdt, snapshot.idt);
    report.equal("limit of the GDT", gdt.limit.into(), 7 * 8 - 1);
    report.equal("limit of the IDT", idt.limit.into(), 256 * 16 - 1);
    report.equal("selector of the LDT", snapshot.local.into(), 0);
    report.equal("selector of the task state", snapshot.task.into(), TASK_STATE);
    for (index, expected) in SEGMENTS.into_iter().enumerate() {
        let segment = word(gdt.base + 8 * index as u64);
        let what = format_args!("segment {:#x} is {segment:#x}, expected {expected:#x}", index * 8);
        report.require(segment & !ACCESSED == expected, what);
    }
    let [low, high] = [0, 8].map(|offset| word(gdt.base + TASK_STATE + offset));
    report.equal("kind of the task state", low >> 40 & 0xff, 0x8b);
    report.equal("limit of the task state", low & 0xffff | low >> 32 & 0xf_0000, TASK_STATE_BYTES - 1);
    let base = low >> 16 & 0xff_ffff | low >> 32 & 0xff00_0000 | high << 32;
    report.require(map.is_writable(base), format_args!("the task state at {base:#x} is no variable"));
    check_task_state(base, report);
    check_gates(idt.base, report);
}

/// The stacks are stacks, and no port is ring 3's.
fn check_task_state(base: u64, report: &mut Report) {
    for (name, offset) in [("RSP0", 4), ("IST1", 36), ("IST2", 44), ("IST3", 52)] {
        let top = word(base + offset);
        report.require(pages::is_stack_top(top), format_args!("{name} {top:#x} is no top of a stack"));
    }
    let ports = word(base + 96) >> 48;
    report.require(ports >= TASK_STATE_BYTES, format_args!("ring 3 has ports: their map is at {ports:#x}"));
}

/// All are interrupt gates that ring 3 cannot call, 16 bytes of code apart.
fn check_gates(base: u64, report: &mut Report) {
    let entry = |vector: u64| {
        let [low, high] = [0, 8].map(|offset| word(base + 16 * vector + offset));
        (low, low & 0xffff | low >> 32 & 0xffff_0000 | high << 32)
    };
    let first = entry(0).1;
    for vector in 0..256 {
        let (low, target) = entry(vector);
        let stack = OWN_STACK.iter().find(|(own, _)| *own == vector).map_or(0, |(_, stack)| *stack);
        let expected = KERNEL_CODE | stack << 16 | 0x8e << 24;
        let actual = low >> 16 & 0xffff_ffff;
        report.require(
            actual == expected && target == first + 16 * vector && pages::is_text(target),
            format_args!("gate {vector} says {actual:#x} and leads to {target:#x}, expected {expected:#x}"),
        );
    }
}
