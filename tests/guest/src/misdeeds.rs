//! Everything that must end a program, one function each.
//!
//! They are not `unsafe` to call only because none of them returns: on a kernel that works the processor
//! stops the program in the middle. One that returns has found a hole.

use core::arch::asm;
use core::hint::black_box;
use nom_sys::memory::Pages;
use nom_sys::region::Region;
use nom_sys::{PageSize, Protection, abi, start, upcall};

/// The misdeeds by name.
pub const ALL: &[(&str, fn())] = &[
    ("read-null", || read(0)),
    ("write-null", || write(8)),
    ("read-unmapped", || read(abi::layout::USER_START)),
    ("write-code", || write(read_null_address())),
    ("write-board", || write(start::info().board)),
    ("write-prices", || write(start::info().board + abi::board::PRICES_OFFSET as u64)),
    ("write-start-page", || write(&raw const *start::info() as u64)),
    ("read-kernel-image", || read(abi::layout::KERNEL_IMAGE + abi::layout::KERNEL_LOAD)),
    ("write-kernel-image", || write(abi::layout::KERNEL_IMAGE + abi::layout::KERNEL_LOAD)),
    ("read-direct-map", || read(abi::layout::DIRECT_MAP)),
    ("write-direct-map", || write(abi::layout::DIRECT_MAP + abi::layout::KERNEL_LOAD)),
    ("read-device-map", || read(abi::layout::DEVICE_MAP + 0xfee0_0000)),
    ("read-non-canonical", || read(0x8000_0000_0000)),
    ("write-last-byte", || write(u64::MAX - 7)),
    ("jump-null", || jump(0)),
    ("jump-kernel", || jump(abi::layout::KERNEL_IMAGE + abi::layout::KERNEL_LOAD)),
    ("jump-non-canonical", || jump(0xdead_beef_dead_beef)),
    ("execute-stack", execute_stack),
    ("execute-data", execute_data),
    ("write-read-only", || write_mapped(Protection::Read)),
    ("read-guard", || write_mapped(Protection::None)),
    ("stack-overflow", || _ = black_box(recurse(0))),
    ("below-stack", || read(start::info().stack_base - 8)),
    ("above-stack", || read(start::info().stack_base + start::info().stack_bytes)),
    ("undefined-instruction", || instruction(Instruction::Undefined)),
    ("divide-by-zero", || instruction(Instruction::Divide)),
    ("halt", || instruction(Instruction::Halt)),
    ("interrupts-off", || instruction(Instruction::InterruptsOff)),
    ("port-input", || instruction(Instruction::PortInput)),
    ("load-page-tables", || instruction(Instruction::LoadPageTables)),
    ("read-model-register", || instruction(Instruction::ReadModelRegister)),
    ("swap-gs", || instruction(Instruction::SwapGs)),
    ("return-to-kernel", || instruction(Instruction::ReturnToKernel)),
    ("breakpoint", || instruction(Instruction::Breakpoint)),
    ("software-interrupt", || instruction(Instruction::SoftwareInterrupt)),
    ("misaligned-vector", || instruction(Instruction::MisalignedVector)),
    ("fault-in-handler", fault_in_handler),
    ("handler-without-stack", handler_without_stack),
];

fn read(address: u64) {
    // SAFETY: none; the access faults.
    black_box(unsafe { (black_box(address) as *const u64).read_volatile() });
}

fn write(address: u64) {
    // SAFETY: none; the access faults.
    unsafe { (black_box(address) as *mut u64).write_volatile(0) };
}

fn jump(address: u64) {
    // SAFETY: none; there is nothing that can be executed.
    unsafe { asm!("call {}", in(reg) address, clobber_abi("C")) };
}

fn read_null_address() -> u64 {
    read as fn(u64) as usize as u64
}

fn execute_stack() {
    let code = [0xc3_u8; 16];
    jump(&raw const code as u64);
    black_box(code);
}

fn execute_data() {
    let mut pages = Pages::new(PageSize::Small, 1).expect("memory for a page");
    pages[0] = 0xc3;
    jump(pages.address());
}

fn write_mapped(protection: Protection) {
    let grant = nom_sys::memory::Grant::new(PageSize::Small, 1).expect("memory for a page");
    let region = Region::reserve(grant.bytes(), PageSize::Small).expect("addresses for a page");
    region.map(0, &grant, protection).expect("a mapping");
    write(region.address());
}

#[allow(unconditional_recursion, reason = "until the stack ends")]
fn recurse(depth: u64) -> u64 {
    let padding = black_box([depth; 64]);
    recurse(depth + 1) + padding[depth as usize % 64]
}

/// Instructions that ring 3 cannot carry out, or that stop it.
enum Instruction {
    Undefined,
    Divide,
    Halt,
    InterruptsOff,
    PortInput,
    LoadPageTables,
    ReadModelRegister,
    SwapGs,
    ReturnToKernel,
    Breakpoint,
    SoftwareInterrupt,
    MisalignedVector,
}

fn instruction(which: Instruction) {
    // SAFETY: none; each of them raises an exception.
    unsafe {
        match which {
            Instruction::Undefined => asm!("ud2"),
            Instruction::Divide => {
                asm!("div {:r}", in(reg) 0_u64, inout("rax") 1_u64 => _, inout("rdx") 0_u64 => _)
            }
            Instruction::Halt => asm!("hlt"),
            Instruction::InterruptsOff => asm!("cli"),
            Instruction::PortInput => asm!("in al, 0x64", out("al") _),
            Instruction::LoadPageTables => asm!("mov cr3, {}", in(reg) 0_u64),
            Instruction::ReadModelRegister => {
                asm!("rdmsr", in("ecx") 0xc000_0080_u32, out("eax") _, out("edx") _)
            }
            Instruction::SwapGs => asm!("swapgs"),
            Instruction::ReturnToKernel => asm!(
                "mov {old}, rsp", "push 0x10", "push {old}", "push 0x202", "push 0x08", "lea {new}, [rip]",
                "push {new}", "iretq", old = out(reg) _, new = out(reg) _),
            Instruction::Breakpoint => asm!("int3"),
            Instruction::SoftwareInterrupt => asm!("int 0x80"),
            Instruction::MisalignedVector => {
                let bytes = [0_u64; 4];
                let misaligned = (&raw const bytes).byte_add(8 - (&raw const bytes as usize & 8));
                asm!("movaps xmm0, [{}]", in(reg) misaligned, out("xmm0") _);
            }
        }
    }
}

fn fault_in_handler() {
    upcall::register(|_| read(0)).expect("an upcall handler");
    instruction(Instruction::Undefined);
}

fn handler_without_stack() {
    // SAFETY: none; the stack is not mapped, so no upcall can be delivered.
    let registered =
        unsafe { nom_sys::raw::upcall_register(read_null_address(), abi::layout::USER_START + 4096) };
    registered.expect("the kernel looks at the stack only when it delivers");
    instruction(Instruction::Undefined);
}
