//! Control and model-specific registers of every processor (Intel SDM vol. 3A, 2.5; vol. 4).
//!
//! The others are asked by an NMI, which reaches them though their interrupts are off: for that time the gate
//! of that vector leads to [`take_snapshot`].

use crate::pages;
use crate::report::Report;
use core::arch::x86_64::__cpuid_count as cpuid;
use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use nom_abi::layout::{CORES_MAX, DEVICE_MAP};

global_asm!(include_str!("asm/nmi.S"), snapshot = sym take_snapshot, options(att_syntax));

unsafe extern "C" {
    fn selfcheck_nmi();
}

/// A descriptor table's register, as SGDT and SIDT store it.
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub struct Table {
    /// Offset of its last byte.
    pub limit: u16,
    /// Its first byte.
    pub base: u64,
}

/// One processor's registers.
#[derive(Clone, Copy)]
pub struct Snapshot {
    cr0: u64,
    cr3: u64,
    cr4: u64,
    efer: u64,
    star: u64,
    lstar: u64,
    cstar: u64,
    sfmask: u64,
    sysenter_cs: u64,
    xcr0: u64,
    dr7: u64,
    /// GDT register.
    pub gdt: Table,
    /// IDT register.
    pub idt: Table,
    /// Selector of the local descriptor table.
    pub local: u16,
    /// Selector of the task state.
    pub task: u16,
}

impl Snapshot {
    const NONE: Snapshot = Snapshot {
        cr0: 0,
        cr3: 0,
        cr4: 0,
        efer: 0,
        star: 0,
        lstar: 0,
        cstar: 0,
        sfmask: 0,
        sysenter_cs: 0,
        xcr0: 0,
        dr7: 0,
        gdt: Table { limit: 0, base: 0 },
        idt: Table { limit: 0, base: 0 },
        local: 0,
        task: 0,
    };

    /// This processor's.
    fn take() -> Snapshot {
        let (cr0, cr3, cr4, dr7): (u64, u64, u64, u64);
        let (mut gdt, mut idt) = (Snapshot::NONE.gdt, Snapshot::NONE.idt);
        let (local, task): (u16, u16);
        // SAFETY: reads registers; the two tables are stored where this function keeps them.
        unsafe {
            asm!("mov {}, cr0", "mov {}, cr3", "mov {}, cr4", "mov {}, dr7", out(reg) cr0, out(reg) cr3,
                out(reg) cr4, out(reg) dr7, options(nomem, nostack));
            asm!("sgdt [{}]", "sidt [{}]", in(reg) &raw mut gdt, in(reg) &raw mut idt, options(nostack));
            asm!("sldt {:x}", "str {:x}", out(reg) local, out(reg) task, options(nomem, nostack));
        }
        Snapshot {
            cr0,
            cr3,
            cr4,
            efer: rdmsr(0xc000_0080),
            star: rdmsr(0xc000_0081),
            lstar: rdmsr(0xc000_0082),
            cstar: rdmsr(0xc000_0083),
            sfmask: rdmsr(0xc000_0084),
            sysenter_cs: rdmsr(0x174),
            xcr0: if cr4 & cr4_bits::OSXSAVE != 0 { xgetbv() } else { 0 },
            dr7,
            gdt,
            idt,
            local,
            task,
        }
    }
}

mod cr4_bits {
    pub const PAE: u64 = 1 << 5;
    pub const MCE: u64 = 1 << 6;
    pub const PGE: u64 = 1 << 7;
    pub const OSFXSR: u64 = 1 << 9;
    pub const OSXMMEXCPT: u64 = 1 << 10;
    pub const UMIP: u64 = 1 << 11;
    pub const FSGSBASE: u64 = 1 << 16;
    pub const OSXSAVE: u64 = 1 << 18;
    pub const SMEP: u64 = 1 << 20;
    pub const SMAP: u64 = 1 << 21;
}

fn rdmsr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a register that every processor with long mode has.
    unsafe { asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

fn xgetbv() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a register; OSXSAVE is on.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Physical address of the page tables' root, as this processor has it.
pub fn page_table_root() -> u64 {
    Snapshot::take().cr3
}

struct Snapshots(UnsafeCell<[Snapshot; CORES_MAX]>);

// SAFETY: each processor writes the element whose number `TAKEN` gave it, and all are read after all are
// written.
unsafe impl Sync for Snapshots {}

static SNAPSHOTS: Snapshots = Snapshots(UnsafeCell::new([Snapshot::NONE; CORES_MAX]));
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static STORED: AtomicUsize = AtomicUsize::new(0);

/// Stores this processor's registers.
extern "C" fn take_snapshot() {
    let place = TAKEN.fetch_add(1, SeqCst);
    if place < CORES_MAX {
        let snapshot = Snapshot::take();
        // SAFETY: the number was given to this processor alone, and is in bounds.
        unsafe { SNAPSHOTS.0.get().cast::<Snapshot>().add(place).write(snapshot) };
        STORED.fetch_add(1, SeqCst);
    }
}

/// Registers of this processor and, behind it, of as many of the `cores` as answer soon.
pub fn snapshots(cores: usize) -> &'static [Snapshot] {
    const PATIENCE_CYCLES: u64 = 20_000_000_000;
    take_snapshot();
    let gates = Snapshot::take().idt.base as *mut [u64; 2];
    // SAFETY: the gates are in the kernel's data; of the vector of NMI nobody else uses the gate meanwhile,
    // and the handler leaves every register as it was.
    unsafe {
        let gate = gates.add(2);
        let before = gate.read_volatile();
        let to = selfcheck_nmi as *const () as u64;
        let kept = before[0] & 0x0000_ffff_ffff_0000;
        gate.write_volatile([kept | to & 0xffff | (to >> 16 & 0xffff) << 48, to >> 32]);
        ask_all_others();
        let start = core::arch::x86_64::_rdtsc();
        while STORED.load(SeqCst) < cores && core::arch::x86_64::_rdtsc() - start < PATIENCE_CYCLES {
            core::hint::spin_loop();
        }
        gate.write_volatile(before);
        core::slice::from_raw_parts(SNAPSHOTS.0.get().cast(), STORED.load(SeqCst).min(CORES_MAX))
    }
}

/// Sends an NMI to every other processor (Intel SDM vol. 3A, 11.6.1).
fn ask_all_others() {
    const NMI_TO_ALL_OTHERS: u32 = 0xc4400;
    const X2APIC_COMMAND: u32 = 0x830;
    const COMMAND: u64 = 0xfee0_0300;
    let is_x2apic = rdmsr(0x1b) & 1 << 10 != 0;
    // SAFETY: the APIC is on, its registers are mapped where it is no x2APIC, and the gate leads to us.
    unsafe {
        if is_x2apic {
            asm!("wrmsr", in("ecx") X2APIC_COMMAND, in("eax") NMI_TO_ALL_OTHERS, in("edx") 0);
        } else {
            ((DEVICE_MAP + COMMAND) as *mut u32).write_volatile(NMI_TO_ALL_OTHERS);
        }
    }
}

/// What CR4 must be on this processor: every protection that it has, and nothing that nobody asked for.
fn expected_cr4() -> u64 {
    use cr4_bits::{FSGSBASE, MCE, OSFXSR, OSXMMEXCPT, OSXSAVE, PAE, PGE, SMAP, SMEP, UMIP};
    let one = cpuid(1, 0);
    let seven = (cpuid(0, 0).eax >= 7).then(|| cpuid(7, 0));
    let (ebx, ecx) = seven.map_or((0, 0), |seven| (seven.ebx, seven.ecx));
    let optional = [
        (one.edx >> 7, MCE),
        (one.ecx >> 26, OSXSAVE),
        (ebx, FSGSBASE),
        (ebx >> 7, SMEP),
        (ebx >> 20, SMAP),
        (ecx >> 2, UMIP),
    ];
    let present = optional.into_iter().filter(|(feature, _)| feature & 1 != 0);
    present.fold(PAE | PGE | OSFXSR | OSXMMEXCPT, |all, (_, bit)| all | bit)
}

/// Compares registers with what they must be.
pub fn check(snapshot: &Snapshot, report: &mut Report) {
    // PE, MP, NE, WP, PG and the constant ET; not EM, TS, NW, CD. AM is of no meaning in ring 0.
    report.equal("CR0 without AM", snapshot.cr0 & !(1 << 18), 0x8001_0033);
    report.equal("CR4", snapshot.cr4, expected_cr4());
    report.equal("EFER", snapshot.efer & !(1 << 14), 0xd01);
    report.equal("XCR0 but for x87, SSE, AVX and AVX-512", snapshot.xcr0 & !0xe7, 0);
    report.equal("DR7", snapshot.dr7, 0x400);
    report.equal("STAR", snapshot.star, 0x13 << 48 | 0x08 << 32);
    report.equal("SYSENTER's code segment", snapshot.sysenter_cs, 0);
    for (name, entry) in [("LSTAR", snapshot.lstar), ("CSTAR", snapshot.cstar)] {
        report.require(pages::is_text(entry), format_args!("{name} {entry:#x} is no code of the kernel"));
    }
    report.require(snapshot.lstar != snapshot.cstar, format_args!("CSTAR leads to the entry of 64-bit code"));
    // TF, IF, DF, IOPL, NT, AC.
    report.equal("flags that SYSCALL leaves", !snapshot.sfmask & 0x4_7700, 0);
}
