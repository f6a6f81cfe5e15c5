//! Segments, the task state and the interrupt descriptor table of each core (Intel SDM vol. 3A, 3.5, 6.14,
//! 7.7).

use crate::cpu::{self, msr};
use core::arch::asm;
use core::cell::UnsafeCell;
use nom_abi::layout::CORES_MAX;

pub const KERNEL_CODE: u16 = 0x08;
pub const USER_DATA: u16 = 0x18 | 3;
pub const USER_CODE: u16 = 0x20 | 3;
const TASK_STATE: u16 = 0x28;
/// SYSRET loads SS from this selector plus 8 and CS from it plus 16, the privilege of ring 3 in both. (It
/// would load CS from the selector itself for 32-bit code, which the kernel never returns to: there is no
/// segment for it, and so no way into compatibility mode.)
const SYSRET_BASE: u64 = 0x10 | 3;
/// Flags that SYSCALL clears: all that have a meaning but the one that is always set.
const FLAGS_CLEARED: u64 = 0x25_7fd5;
/// Flags that ring 3 may have: all but I/O privilege, nested task and virtual-8086 mode.
pub const FLAGS_ALLOWED: u64 = 0x25_0fd7;

/// Exceptions that get a stack of their own, because they come in places where the stack is still the
/// application's or itself the trouble, and the number of that stack. Double fault and machine check share
/// one: neither returns.
pub const OWN_STACK: [(usize, u64); 4] = [(8, 1), (18, 1), (2, 2), (1, 3)];

#[repr(C, packed(4))]
struct TaskState {
    none: u32,
    stack: [u64; 3],
    none_2: u64,
    interrupt_stack: [u64; 7],
    none_3: [u16; 5],
    io_bitmap: u16,
}

#[repr(C, align(64))]
struct CoreTables {
    segments: [u64; 7],
    task_state: TaskState,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Gate {
    low: u64,
    high: u64,
}

#[repr(C, packed)]
struct TablePointer {
    limit: u16,
    base: u64,
}

struct PerCore(UnsafeCell<[CoreTables; CORES_MAX]>);
// SAFETY: each core writes its own element once, in `load`.
unsafe impl Sync for PerCore {}

struct Gates(UnsafeCell<[Gate; 256]>);
// SAFETY: written once by the first processor before any other runs.
unsafe impl Sync for Gates {}

const NO_TASK: TaskState =
    TaskState { none: 0, stack: [0; 3], none_2: 0, interrupt_stack: [0; 7], none_3: [0; 5], io_bitmap: 0 };
static TABLES: PerCore =
    PerCore(UnsafeCell::new([const { CoreTables { segments: [0; 7], task_state: NO_TASK } }; CORES_MAX]));
static GATES: Gates = Gates(UnsafeCell::new([Gate { low: 0, high: 0 }; 256]));

unsafe extern "C" {
    static trap_stubs: u8;
    fn syscall_entry();
    fn compatibility_entry();
}

/// Fills the interrupt descriptor table: 256 interrupt gates, which turn interrupts off.
pub fn init_gates() {
    // SAFETY: the first processor, alone.
    let gates = unsafe { &mut *GATES.0.get() };
    for (vector, gate) in gates.iter_mut().enumerate() {
        let stub = &raw const trap_stubs as u64 + 16 * vector as u64;
        let stack = OWN_STACK.iter().find(|(own, _)| *own == vector).map_or(0, |(_, stack)| *stack);
        gate.low = stub & 0xffff
            | u64::from(KERNEL_CODE) << 16
            | stack << 32
            | 0x8e << 40
            | (stub >> 16 & 0xffff) << 48;
        gate.high = stub >> 32;
    }
}

/// Loads this core's segments, task state and gates, and tells SYSCALL where to go.
pub fn load(core: usize, stack_top: u64, own_stack_tops: [u64; 3]) {
    assert!(core < CORES_MAX);
    // SAFETY: 1. `core` is in bounds and only this core touches its element. 2. The descriptors describe flat
    // segments and this element's own task state, which live for good.
    unsafe {
        let tables = &mut *TABLES.0.get().cast::<CoreTables>().add(core);
        tables.task_state.stack[0] = stack_top;
        for (index, top) in own_stack_tops.into_iter().enumerate() {
            tables.task_state.interrupt_stack[index] = top;
        }
        tables.task_state.io_bitmap = size_of::<TaskState>() as u16;
        let base = &raw const tables.task_state as u64;
        tables.segments = [
            0,
            0x00af_9a00_0000_ffff,
            0x00cf_9200_0000_ffff,
            0x00cf_f200_0000_ffff,
            0x00af_fa00_0000_ffff,
            (size_of::<TaskState>() as u64 - 1)
                | (base & 0xff_ffff) << 16
                | 0x89 << 40
                | (base >> 24 & 0xff) << 56,
            base >> 32,
        ];
        let pointer = TablePointer {
            limit: size_of_val(&tables.segments) as u16 - 1,
            base: tables.segments.as_ptr() as u64,
        };
        asm!("lgdt [{}]", in(reg) &raw const pointer, options(nostack));
        asm!("push {code}", "lea {t}, [rip + 2f]", "push {t}", "retfq", "2:",
            code = in(reg) u64::from(KERNEL_CODE), t = out(reg) _);
        asm!("mov ds, {d:x}", "mov es, {d:x}", "mov ss, {d:x}", "ltr {t:x}", d = in(reg) 0x10u32,
            t = in(reg) u32::from(TASK_STATE), options(nostack));
        let pointer = TablePointer { limit: 4095, base: GATES.0.get() as u64 };
        asm!("lidt [{}]", "lldt {:x}", in(reg) &raw const pointer, in(reg) 0, options(nostack));
        cpu::wrmsr(msr::STAR, SYSRET_BASE << 48 | u64::from(KERNEL_CODE) << 32);
        cpu::wrmsr(msr::LSTAR, syscall_entry as *const () as u64);
        cpu::wrmsr(msr::CSTAR, compatibility_entry as *const () as u64);
        // No code segment: SYSENTER is a general protection fault.
        cpu::wrmsr(msr::SYSENTER_CS, 0);
        cpu::wrmsr(msr::SFMASK, FLAGS_CLEARED);
    }
    cpu::no_breakpoints();
}

/// Resets the machine, by a fault that cannot be delivered.
pub fn triple_fault() {
    let pointer = TablePointer { limit: 0, base: 0 };
    // SAFETY: this is the end; nothing runs afterwards.
    unsafe { asm!("lidt [{}]", "int3", in(reg) &raw const pointer, options(nostack)) };
}
