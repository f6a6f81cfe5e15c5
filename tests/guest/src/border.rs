//! Crossing the border with registers in states that no compiler leaves them in.

use core::arch::asm;
use nom_sys::Protection;
use nom_sys::abi::error::decode;
use nom_sys::abi::{Error, Upcall};
use nom_sys::devices::Device;
use nom_sys::memory::Grant;
use nom_sys::region::Region;
use nom_sys::upcall::Delivery;

/// Number of no system call.
const NO_CALL: u64 = u64::MAX;
const TRAP_FLAG: u64 = 1 << 8;

/// Makes an unknown system call: in and out of the kernel, and nothing else.
pub fn call_unknown() -> Result<u64, Error> {
    // SAFETY: it does nothing.
    unsafe { nom_sys::raw::call(NO_CALL, [0; 6]) }
}

/// Maps the first registers of a device's BAR, as many as the region has room for, and touches none.
///
/// # Errors
/// Those of `device_map`.
pub fn map_registers(device: &Device, bar: u64, region: &Region) -> Result<(), Error> {
    // SAFETY: the region is its owner's, who has no reference into it, and registers that nobody touches do
    // nothing.
    unsafe { nom_sys::raw::device_map(device.index() as u64, bar, 0, region.address(), region.bytes()) }?;
    Ok(())
}

/// A MiB below a border between two entries of the root table that all spaces of an application
/// have: no region is there, which are placed at random in 56 TiB.
const ACROSS: u64 = (3 << 40) - (1 << 20);

/// Maps a grant of at most 2 MiB across two entries of the root table.
///
/// # Errors
/// Those of `memory_map`.
pub fn map_across(grant: &Grant) -> Result<(), Error> {
    let (size, protection) = (grant.page_size() as u64, Protection::ReadWrite as u64);
    // SAFETY: nothing else is mapped there, and nobody refers to what is.
    unsafe { nom_sys::raw::memory_map(ACROSS, grant.frame(), size, grant.count(), protection) }?;
    Ok(())
}

/// Takes it out again.
///
/// # Errors
/// Those of `memory_unmap`.
pub fn unmap_across(grant: &Grant) -> Result<(), Error> {
    // SAFETY: nobody refers to what is there.
    unsafe { nom_sys::raw::memory_unmap(ACROSS, grant.bytes()) }?;
    Ok(())
}

/// Makes a call by an instruction that the program does not note that it has, as injected code would.
pub fn smuggled_call(number: u64, argument: u64) -> Result<u64, Error> {
    let (code, value): (u64, u64);
    // SAFETY: a call with one argument that is no address changes no memory of this program.
    unsafe {
        asm!(
            "syscall",
            in("rdi") argument,
            inlateout("rax") number => code,
            lateout("rdx") value,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    decode(code, value)
}

/// Makes an unknown system call with these flags set in RFLAGS, clears them again, and returns the answer.
/// A trap flag is set by the very instruction before the call.
pub fn call_with_flags(flags: u64) -> Result<u64, Error> {
    let (code, value): (u64, u64);
    // SAFETY: the call does nothing; the flags are put back before compiled code goes on.
    unsafe {
        asm!(
            "pushfq",
            "pushfq",
            "or [rsp], {flags}",
            "popfq",
            "syscall",
            "popfq",
            flags = in(reg) flags,
            inlateout("rax") NO_CALL => code,
            lateout("rdx") value,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    decode(code, value)
}

/// As [`call_with_flags`] with the trap flag: the debug exception that follows the call is one of ring 3.
pub fn call_single_stepping() -> Result<u64, Error> {
    call_with_flags(TRAP_FLAG)
}

/// Loads a null selector into every data segment register, and calls.
pub fn call_with_null_segments() -> Result<u64, Error> {
    let (code, value): (u64, u64);
    // SAFETY: the flat segments are not used in 64-bit mode, nor is FS by this program; GS, whose base
    // loading would clear, is left alone.
    unsafe {
        asm!(
            "mov ds, {zero:x}",
            "mov es, {zero:x}",
            "mov fs, {zero:x}",
            "syscall",
            zero = in(reg) 0_u64,
            inlateout("rax") NO_CALL => code,
            lateout("rdx") value,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    decode(code, value)
}

/// Calls with a stack pointer that points nowhere: the kernel has its own.
pub fn call_without_stack(stack_pointer: u64) -> Result<u64, Error> {
    let (code, value): (u64, u64);
    // SAFETY: the stack pointer is back before compiled code goes on, and no handler is registered that
    // would need it.
    unsafe {
        asm!(
            "mov {old}, rsp",
            "mov rsp, {new}",
            "syscall",
            "mov rsp, {old}",
            old = out(reg) _,
            new = in(reg) stack_pointer,
            inlateout("rax") NO_CALL => code,
            lateout("rdx") value,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    decode(code, value)
}

/// What RBX, RSI, RDI, R8, R9, R10 and R12 to R15 hold behind a call before which each held `mark` plus its
/// place in this list: the call must keep them.
pub fn registers_after_call(mark: u64) -> [u64; 10] {
    let mut held = [0; 10];
    let at = &raw mut held;
    // SAFETY: the block saves RBX, which the compiler may not give away, and writes only `held`.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "push rcx",
            "mov rbx, rdx",
            "lea rsi, [rdx + 1]",
            "lea rdi, [rdx + 2]",
            "lea r8, [rdx + 3]",
            "lea r9, [rdx + 4]",
            "lea r10, [rdx + 5]",
            "lea r12, [rdx + 6]",
            "lea r13, [rdx + 7]",
            "lea r14, [rdx + 8]",
            "lea r15, [rdx + 9]",
            "syscall",
            "pop rcx",
            "mov [rcx], rbx",
            "mov [rcx + 8], rsi",
            "mov [rcx + 16], rdi",
            "mov [rcx + 24], r8",
            "mov [rcx + 32], r9",
            "mov [rcx + 40], r10",
            "mov [rcx + 48], r12",
            "mov [rcx + 56], r13",
            "mov [rcx + 64], r14",
            "mov [rcx + 72], r15",
            "pop rbp",
            "pop rbx",
            inlateout("rax") NO_CALL => _,
            inlateout("rdx") mark => _,
            inlateout("rcx") at => _,
            out("rsi") _, out("rdi") _, out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
        );
    }
    held
}

/// Reads the word at `address`, which faults, while every vector register holds a mark of its own, and
/// returns whether they all still do behind the upcall.
pub fn vectors_survive_fault(address: u64) -> bool {
    let mut marks = [[0_u64; 2]; 16];
    for (number, mark) in marks.iter_mut().enumerate() {
        *mark = [number as u64 + 1, !(number as u64)];
    }
    let mut held = [[0_u64; 2]; 16];
    // SAFETY: reads `marks`, writes `held`, touches `address`, which the handler maps.
    unsafe {
        asm!(
            "movups xmm0, [{m}]", "movups xmm1, [{m} + 16]", "movups xmm2, [{m} + 32]",
            "movups xmm3, [{m} + 48]", "movups xmm4, [{m} + 64]", "movups xmm5, [{m} + 80]",
            "movups xmm6, [{m} + 96]", "movups xmm7, [{m} + 112]", "movups xmm8, [{m} + 128]",
            "movups xmm9, [{m} + 144]", "movups xmm10, [{m} + 160]", "movups xmm11, [{m} + 176]",
            "movups xmm12, [{m} + 192]", "movups xmm13, [{m} + 208]", "movups xmm14, [{m} + 224]",
            "movups xmm15, [{m} + 240]",
            "mov {a}, [{a}]",
            "movups [{h}], xmm0", "movups [{h} + 16], xmm1", "movups [{h} + 32], xmm2",
            "movups [{h} + 48], xmm3", "movups [{h} + 64], xmm4", "movups [{h} + 80], xmm5",
            "movups [{h} + 96], xmm6", "movups [{h} + 112], xmm7", "movups [{h} + 128], xmm8",
            "movups [{h} + 144], xmm9", "movups [{h} + 160], xmm10", "movups [{h} + 176], xmm11",
            "movups [{h} + 192], xmm12", "movups [{h} + 208], xmm13", "movups [{h} + 224], xmm14",
            "movups [{h} + 240], xmm15",
            m = in(reg) &raw const marks, h = in(reg) &raw mut held, a = inout(reg) address => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
        );
    }
    held == marks
}

/// How floating-point numbers are rounded and their exceptions masked: MXCSR's control bits, and the x87
/// unit's control word.
pub fn float_control() -> (u32, u16) {
    /// MXCSR's lowest bits say which exceptions there were.
    const EXCEPTIONS: u32 = 0x3f;
    let (mut vector, mut x87) = (0_u32, 0_u16);
    // SAFETY: both instructions only write where they are told.
    unsafe {
        asm!("stmxcsr [{v}]", "fnstcw [{x}]", v = in(reg) &raw mut vector, x = in(reg) &raw mut x87);
    }
    (vector & !EXCEPTIONS, x87)
}

/// Sets what [`float_control`] reads. Both must mask all exceptions.
pub fn set_float_control((vector, x87): (u32, u16)) {
    // SAFETY: rounding differs from what the compiler assumes; nothing is computed with it.
    unsafe {
        asm!("ldmxcsr [{v}]", "fldcw [{x}]", v = in(reg) &raw const vector, x = in(reg) &raw const x87);
    }
}

/// Raises an invalid-opcode exception, from which a handler goes on by [`skip_undefined`].
pub fn raise_undefined() {
    // SAFETY: the handler skips the instruction, which has no effect but to call the handler.
    unsafe { asm!("ud2") };
}

/// Vector of the exception that [`raise_undefined`] raises.
pub const UNDEFINED_VECTOR: u64 = 6;
/// Length of its instruction.
const UNDEFINED_BYTES: u64 = 2;

/// Goes on behind the instruction of [`raise_undefined`], if that is why the handler was entered.
pub fn skip_undefined(upcall: &mut Delivery) {
    let events = upcall.events();
    if events.has(Upcall::Exception) && events.fault_address == UNDEFINED_VECTOR {
        // SAFETY: the instruction has no effect, so behind it the state is what the compiler expects.
        unsafe { upcall.registers_mut() }.rip += UNDEFINED_BYTES;
    }
}

/// Keeps a value of its own in each register that compiled code may use, for some time, and the red zone
/// full. Whether all are as they were, the carry, too.
pub fn registers_survive(seed: u64) -> bool {
    let differences: u64;
    // SAFETY: changes the registers that it names, and memory below the stack pointer, where compiled code of
    // a guest, which has no red zone, has nothing.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "mov rbx, rdx",
            "lea rbp, [rdx + 1]",
            "lea r8, [rdx + 2]",
            "lea r9, [rdx + 3]",
            "lea r10, [rdx + 4]",
            "lea r11, [rdx + 5]",
            "lea rdi, [rdx + 6]",
            "lea rsi, [rdx + 7]",
            "movq xmm0, rbx",
            "movq xmm15, rbp",
            "mov [rsp - 8], r8",
            "mov [rsp - 128], r9",
            "mov ecx, 2000",
            "xor eax, eax",
            "stc",
            "2:",
            // LOOP changes no flag; the carry stays set.
            "loop 2b",
            "sbb rax, 0",
            "inc rax",
            "xor rbx, rdx",
            "sub rbp, rdx",
            "sub r8, rdx",
            "sub r9, rdx",
            "sub r10, rdx",
            "sub r11, rdx",
            "sub rdi, rdx",
            "sub rsi, rdx",
            "or rax, rbx",
            "lea rax, [rax + rbp - 1]",
            "lea rcx, [r8 + r9 - 5]",
            "or rax, rcx",
            "lea rcx, [r10 + r11 - 9]",
            "or rax, rcx",
            "lea rcx, [rdi + rsi - 13]",
            "or rax, rcx",
            "movq rcx, xmm0",
            "sub rcx, rdx",
            "or rax, rcx",
            "movq rcx, xmm15",
            "sub rcx, rdx",
            "dec rcx",
            "or rax, rcx",
            "mov rcx, [rsp - 8]",
            "sub rcx, rdx",
            "sub rcx, 2",
            "or rax, rcx",
            "mov rcx, [rsp - 128]",
            "sub rcx, rdx",
            "sub rcx, 3",
            "or rax, rcx",
            "pop rbp",
            "pop rbx",
            in("rdx") seed,
            out("rax") differences,
            out("rcx") _, out("rdi") _, out("rsi") _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            out("xmm0") _, out("xmm15") _,
        );
    }
    differences == 0
}

/// Makes a call with two arguments by an instruction that the program does not note that it has.
pub fn call_with_two(number: u64, first: u64, second: u64) -> Result<u64, Error> {
    // SAFETY: what is called so registers nothing that lasts: each of its callers gives a bad argument.
    unsafe { nom_sys::raw::call(number, [first, second, 0, 0, 0, 0]) }
}

/// As [`call_with_two`], with three.
pub fn call_with_three(number: u64, [first, second, third]: [u64; 3]) -> Result<u64, Error> {
    // SAFETY: as in `call_with_two`.
    unsafe { nom_sys::raw::call(number, [first, second, third, 0, 0, 0]) }
}
