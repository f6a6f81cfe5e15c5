//! What is said when an application faults: what it did, its registers, and the calls that led there.

use crate::contexts::events::{Fault, PAGE_FAULT};
use crate::ids::{AppId, CoreId};
use crate::kernel::Kernel;
use crate::machine::{Level, Machine, UserAddr};
use crate::symbols::Call;
use core::fmt;
use nom_abi::layout::{STACK_WINDOW, WINDOW_BYTES};
use nom_abi::memory::FRAME_BYTES;
use nom_abi::upcall::Registers;

/// Most calls that a backtrace shows.
const DEPTH_MAX: usize = 24;

/// Bytes of a report, about.
pub(crate) const REPORT_BYTES: u64 = 2048;

/// Bit of a page fault's error code: the page is mapped.
const PRESENT: u64 = 1;

/// Names of the exceptions that applications can raise (Intel SDM vol. 3A, table 6-1).
const EXCEPTIONS: &str = "divide error,debug exception,non-maskable interrupt,breakpoint,overflow,\
    bound range exceeded,invalid opcode,no coprocessor,double fault,coprocessor segment overrun,\
    invalid task state,segment not present,stack fault,general protection,page fault,reserved exception,\
    x87 error,alignment check,machine check,SIMD error";

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.vector == PAGE_FAULT {
            let access = match self.code {
                code if code & 0x10 != 0 => "execution of",
                code if code & 0x02 != 0 => "write to",
                _ => "read of",
            };
            let why = if self.code & PRESENT == 0 { "not mapped" } else { "not allowed" };
            return write!(out, "{access} {:#x}, which is {why}", self.address);
        }
        let name = EXCEPTIONS.split(',').nth(self.vector as usize).unwrap_or("exception");
        write!(out, "{name} (vector {}, code {:#x})", self.vector, self.code)
    }
}

impl Fault {
    /// If it overflowed a stack, that and what to do about it. Below every stack is a page that is never
    /// mapped, and code touches each page of its frame in order (stack probes): so who leaves a stack touches
    /// an address within a page of the stack pointer.
    fn overflow(&self, registers: &Registers) -> &'static str {
        let is_absent = self.vector == PAGE_FAULT && self.code & PRESENT == 0;
        if !is_absent || registers.rsp.abs_diff(self.address) > FRAME_BYTES {
            return "";
        }
        match (STACK_WINDOW..STACK_WINDOW + WINDOW_BYTES).contains(&self.address) {
            true => "stack overflow: raise `stack`",
            false => "stack overflow: raise `stack`, or what this thread was given",
        }
    }
}

impl<M: Machine> Kernel<'_, M> {
    /// Writes the report of a fault that ends an application.
    pub(crate) fn report_fault(&mut self, app: AppId, core: CoreId, registers: &Registers, fault: &Fault) {
        let record = self.record(app);
        if !self.may_say(app, REPORT_BYTES) {
            return;
        }
        let name = crate::bundle::name(&record);
        let (overflow, number) = (fault.overflow(registers), core.index());
        let [open, close] = if overflow.is_empty() { [""; 2] } else { [" (", ")"] };
        self.error(format_args!("{name} faulted on core {number}: {overflow}{open}{fault}{close}"));
        // In the order of `Registers`.
        let names = ["rax rbx rcx rdx", "rsi rdi rbp rsp", "r8  r9  r10 r11", "r12 r13 r14 r15", "rip flags"];
        let words: [u64; Registers::WORDS] = zerocopy::transmute!(*registers);
        for (names, words) in names.iter().zip(words.chunks(4)) {
            self.error(format_args!("  {names}  {words:016x?}"));
        }
        self.backtrace(app, core, registers);
    }

    fn error(&mut self, text: fmt::Arguments<'_>) {
        self.machine.log(Level::Error, text);
    }

    /// Follows frame pointers through the application's own memory, which may hold anything, in the space in
    /// which its core is.
    pub(crate) fn backtrace(&mut self, app: AppId, core: CoreId, registers: &Registers) {
        let Ok(space) = self.space_of(core, app) else { return };
        let (mut address, mut frame) = (registers.rip, registers.rbp);
        for depth in 0..DEPTH_MAX {
            let (base, table) =
                (self.applications[app].place.image, self.bundle.run(self.record(app).symbols));
            self.error(format_args!("{}", Call { depth, address, base, table }));
            let mut words = [0; 16];
            let place = UserAddr::pointer(frame);
            let read = place.and_then(|place| space.read_user(&self.machine, place, &mut words));
            if !frame.is_multiple_of(8) || read.is_err() {
                return;
            }
            let [next, caller] =
                [0, 8].map(|at| u64::from_le_bytes(words[at..at + 8].try_into().unwrap_or_default()));
            if caller == 0 || next != 0 && next <= frame {
                return;
            }
            (address, frame) = (caller, next);
        }
    }
}
