//! A page of code that is made at run time: any instruction, tried in any segment, and what came of it.
//!
//! Whatever an instruction does ends in an exception, at the latest that of the undefined opcode behind it,
//! and the upcall handler goes on behind the jump to it.

use core::arch::{asm, naked_asm};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_sys::abi::syscall::Segment;
use nom_sys::abi::{Syscall, Upcall};
use nom_sys::memory::{Grant, Pages};
use nom_sys::{Error, PageSize, Protection, raw, upcall};

/// The selector of this program's own code segment is read from CS.
pub fn own_selector() -> u16 {
    let selector: u16;
    // SAFETY: reads a register.
    unsafe { asm!("mov {:x}, cs", out(reg) selector, options(nomem, nostack, preserves_flags)) };
    selector
}

/// Where the page is: below 4 GiB, where 32-bit code could run.
const ADDRESS: u64 = 0x1000_0000;
/// An undefined opcode.
const UNDEFINED: [u8; 2] = [0x0f, 0x0b];
const STACK_SLOTS: u64 = 64;

/// What ended an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The exception's vector.
    pub vector: u64,
    /// Its error code.
    pub code: u64,
    /// Where it was raised, counted from the attempt's first byte; some large number if that is elsewhere.
    pub offset: u64,
    /// The flags at that moment.
    pub flags: u64,
}

/// The core's block, which GS leads to but for what an attempt does.
static BLOCK_AT: AtomicU64 = AtomicU64::new(0);
static RESUME_AT: AtomicU64 = AtomicU64::new(0);
static STACK_AT: AtomicU64 = AtomicU64::new(0);
static SEEN: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

/// The page.
#[derive(Debug)]
pub struct Workshop {
    _grant: Grant,
    _stack: Pages,
}

impl Workshop {
    /// Takes a page for code. The application's manifest must say `makes_code`.
    ///
    /// # Errors
    /// As for memory.
    pub fn open() -> Result<Workshop, Error> {
        let grant = Grant::new(PageSize::Small, 1)?;
        let read_write = Protection::ReadWrite as u64;
        // SAFETY: nothing else is mapped or kept at the address, which no region is given: regions are placed
        // at random in 56 TiB.
        unsafe { raw::memory_map(ADDRESS, grant.frame(), PageSize::Small as u64, 1, read_write) }?;
        let stack = Pages::new(PageSize::Small, 4)?;
        let block: u64;
        // SAFETY: the first word of the core's block, behind GS, is its address; nothing is changed.
        unsafe { asm!("mov {}, gs:0", out(reg) block, options(nostack, readonly, preserves_flags)) };
        BLOCK_AT.store(block, Relaxed);
        // SAFETY: `come_back` is made for the kernel's way to enter it; the stack is this value's.
        unsafe {
            let top = stack.address() + stack.len() as u64;
            raw::upcall_register(come_back as *const () as u64, top)?;
        }
        Ok(Workshop { _grant: grant, _stack: stack })
    }

    /// Jumps to `code` by a far jump to the segment `selector`.
    ///
    /// # Errors
    /// As for protections.
    pub fn attempt(&self, selector: u16, code: &[u8]) -> Result<Outcome, Error> {
        self.attempt_with_flags(selector, code, 0)
    }

    /// As [`Workshop::attempt`], with these flags set too.
    ///
    /// # Errors
    /// As for protections.
    pub fn attempt_with_flags(&self, selector: u16, code: &[u8], flags: u64) -> Result<Outcome, Error> {
        let bytes = PageSize::Small.bytes();
        // SAFETY: the page is this value's own, and nobody refers to it.
        unsafe {
            raw::memory_protect(ADDRESS, bytes, Protection::ReadWrite as u64)?;
            let page = ADDRESS as *mut u8;
            page.copy_from_nonoverlapping(code.as_ptr(), code.len());
            page.add(code.len()).copy_from_nonoverlapping(UNDEFINED.as_ptr(), UNDEFINED.len());
            raw::memory_protect(ADDRESS, bytes, Protection::ReadExecute as u64)?;
            SEEN[4].store(0, Relaxed);
            enter(selector, flags);
        }
        let [vector, code, rip, flags, _] = SEEN.each_ref().map(|word| word.load(Relaxed));
        Ok(Outcome { vector, code, offset: rip.wrapping_sub(ADDRESS), flags })
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // SAFETY: as in `open`; nobody refers to the page, and no upcall to the stack any more.
        let _ = unsafe { raw::upcall_register(0, 0) };
        // SAFETY: as above.
        let unmapped = unsafe { raw::memory_unmap(ADDRESS, PageSize::Small.bytes()) };
        unmapped.expect("it was mapped");
    }
}

/// Far jump into the page; [`go_on`] comes back.
///
/// # Safety
/// The page must hold code that ends in an exception, and leaves what compiled code needs but for registers.
unsafe fn enter(selector: u16, flags: u64) {
    // SAFETY: by the contract; RBX and RBP are saved here, every other register is given up. The stack below
    // is left alone by a jump over more than the code could push.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "mov [rip + {stack}], rsp",
            "lea rcx, [rip + 2f]",
            "mov [rip + {resume}], rcx",
            "sub rsp, {slots}",
            "shl rax, 32",
            "or rax, {address}",
            "push rax",
            "pushfq",
            "or [rsp], rdx",
            "popfq",
            "jmp fword ptr [rsp]",
            "2:",
            "cld",
            "pop rbp",
            "pop rbx",
            stack = sym STACK_AT, resume = sym RESUME_AT, slots = const 8 * STACK_SLOTS,
            address = const ADDRESS as i32,
            inlateout("rax") u64::from(selector) => _,
            inlateout("rdx") flags => _,
            out("rcx") _, out("rsi") _, out("rdi") _, out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _, clobber_abi("sysv64"),
        );
    }
}

/// Where the kernel enters after an attempt, with GS as that left it: puts it back, and has [`go_on`] decide.
///
/// # Safety
/// Only the kernel may enter here.
#[unsafe(naked)]
unsafe extern "C" fn come_back() {
    naked_asm!(
        "mov rbx, rdi",
        "mov edi, {core}",
        "mov rsi, [rip + {block}]",
        "mov eax, {segment_base}",
        "syscall",
        "mov rdi, rbx",
        "lea rsp, [rbx - 256]",
        "and rsp, -16",
        "cld",
        "call {go_on}",
        "mov rdi, rbx",
        "mov eax, {upcall_return}",
        "syscall",
        "ud2",
        core = const Segment::Core as u32,
        block = sym BLOCK_AT,
        segment_base = const Syscall::SegmentBase as u32,
        go_on = sym go_on,
        upcall_return = const Syscall::UpcallReturn as u32,
    )
}

extern "C" fn go_on(delivery: &mut upcall::Delivery) {
    let (events, registers) = (*delivery.events(), *delivery.registers());
    let is_exception = events.has(Upcall::Exception);
    if !is_exception && !events.has(Upcall::PageFault) {
        return;
    }
    let vector = if is_exception { events.fault_address } else { 14 };
    // A single step is told before what ends the attempt; the first exception counts.
    if SEEN[4].swap(1, Relaxed) == 0 {
        for (word, value) in SEEN.iter().zip([vector, events.fault_code, registers.rip, registers.rflags]) {
            word.store(value, Relaxed);
        }
    }
    // SAFETY: `enter` gives every register up, and saved what it needs on the stack that is restored here.
    let registers = unsafe { delivery.registers_mut() };
    registers.rip = RESUME_AT.load(Relaxed);
    registers.rsp = STACK_AT.load(Relaxed);
}
