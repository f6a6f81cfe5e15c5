//! A thread of a program: a thread of the runtime, which runs the program until it wants something, does
//! that, looks for signals, and goes on.

use crate::call::{BrokenOff, Call, NO_LIMIT_NS};
use crate::calls::nodes::MemoryPolicy;
use crate::calls::scheduling::Scheduling;
use crate::family::ProcessFamily;
use crate::futex::{FutexKey, FutexWaiter};
use crate::memory::{Bad, Touch};
use crate::pressure::CALLS_RESERVE_BYTES;
use crate::process::{Exit, Process};
use crate::processor_time::RunWaiters;
use crate::runners::{Affinity, HOME, TimeElsewhere};
use crate::signals::{
    Action, Alternate, Effect, Frame, IGNORE, Info, Interrupted, Pending, Signal, SignalSet,
};
use crate::table;
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::{Cell, OnceCell, RefCell};
use core::fmt;
use core::future::poll_fn;
use core::num::NonZeroU32;
use core::ops::ControlFlow;
use core::pin::pin;
use core::task::Poll;
use linux_raw_sys::general as abi;
use nom_app::sockets::{NoStack, Thread};
use nom_rt::WaitQueue;
use nom_sys::abi::layout::APPLICATION_END;
use nom_sys::abi::upcall::Registers;
use nom_sys::memory::obtainable;
use nom_sys::program::{ProgramContext, Trap};

/// Bytes of the stack that a thread's calls run on.
pub(crate) const STACK_BYTES: usize = 128 << 10;
/// Bytes of the instruction `syscall`.
const SYSCALL_BYTES: u64 = 2;

/// The exception of who may not do something, and the bit of its code that says that this is to raise another
/// exception (Intel SDM 3A, 6.13). Which one stands above it, which QEMU's translator shifts once too often.
const GENERAL_PROTECTION: u64 = 13;
const OF_GATE: u64 = 2;

/// A thread of a program.
pub struct Task {
    /// Its identifier.
    pub id: u32,
    /// The process that it is of.
    pub process: Rc<Process>,
    pub(crate) context: RefCell<Box<ProgramContext>>,
    blocked: Cell<SignalSet>,
    /// What is blocked again when the handler of the signal that ends a wait has returned.
    blocked_after: Cell<Option<SignalSet>>,
    pub(crate) pending: RefCell<Pending>,
    pub(crate) alternate: Cell<Alternate>,
    /// Where a zero goes when it ends, and who waits there is woken.
    pub(crate) clear_at_end: Cell<u64>,
    /// Where its list of robust futexes is.
    pub(crate) robust: Cell<u64>,
    /// It alone ends.
    is_ending: Cell<bool>,
    /// Something may have happened that it has to see to before its program goes on: see [`Task::attend`].
    attends: Cell<bool>,
    /// The call that a signal ended early, until that is delivered.
    broken_off: Cell<Option<BrokenOff>>,
    /// Until when the next call waits, if it is one that goes on after a signal that nobody handled.
    pub(crate) kept_limit_ns: Cell<u64>,
    /// Itself as it waits, once it lives.
    waiter: OnceCell<Rc<FutexWaiter>>,
    /// It was interrupted, and has not gone on here since.
    pub(crate) computes: Cell<bool>,
    /// Processors that it may compute on, and the one that it ran on last.
    pub(crate) affinity: Cell<Affinity>,
    pub(crate) processor: Cell<u32>,
    /// How long it had other cores.
    pub(crate) elsewhere: TimeElsewhere,
    /// Who waits until it has the core again.
    pub(crate) run_waiters: RunWaiters,
    /// A signal came, blocked or not.
    pub(crate) signal_came: WaitQueue,
    /// Its name.
    pub(crate) name: Cell<[u8; 16]>,
    /// What it asked of the scheduler.
    pub(crate) scheduling: Cell<Scheduling>,
    /// What it asked of nodes of memory.
    pub(crate) memory_policy: Cell<MemoryPolicy>,
}

impl fmt::Debug for Task {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Task({} of {:?})", self.id, self.process)
    }
}

impl Task {
    /// One that begins with these registers.
    pub(crate) fn new(id: u32, process: Rc<Process>, registers: Registers) -> Rc<Task> {
        Task::with(id, process, ProgramContext::new(registers))
    }

    /// One that goes on in a context.
    pub(crate) fn with(id: u32, process: Rc<Process>, context: Box<ProgramContext>) -> Rc<Task> {
        let task = Rc::new(Task {
            id,
            process: process.clone(),
            context: RefCell::new(context),
            blocked: Cell::default(),
            blocked_after: Cell::new(None),
            pending: RefCell::default(),
            alternate: Cell::new(Alternate::NONE),
            clear_at_end: Cell::new(0),
            robust: Cell::new(0),
            is_ending: Cell::new(false),
            attends: Cell::new(true),
            broken_off: Cell::new(None),
            kept_limit_ns: Cell::new(NO_LIMIT_NS),
            waiter: OnceCell::new(),
            computes: Cell::new(false),
            affinity: Cell::new(Affinity::all()),
            processor: Cell::new(HOME),
            elsewhere: TimeElsewhere::default(),
            run_waiters: RunWaiters::default(),
            signal_came: WaitQueue::new(),
            name: Cell::new([0; 16]),
            scheduling: Cell::default(),
            memory_policy: Cell::default(),
        });
        process.tasks.borrow_mut().insert(id, task.clone());
        task
    }

    /// Starts it as a thread of the runtime.
    ///
    /// # Errors
    /// If there is no stack for it; then it is no thread of its process any more.
    pub(crate) fn start(self: &Rc<Task>, family: &Rc<ProcessFamily>) -> Result<(), NoStack> {
        let (task, of) = (self.clone(), family.clone());
        let started = family.threads.spawn(NonZeroU32::MIN, move |thread| task.live(&of, thread));
        if let Err(error) = started {
            self.process.tasks.borrow_mut().remove(&self.id);
            return Err(error);
        }
        Ok(())
    }

    fn live(self: Rc<Task>, family: &Rc<ProcessFamily>, thread: &Thread<'_>) {
        self.waiter.get_or_init(|| FutexWaiter::new(thread.core_waker()));
        thread.take_turn();
        loop {
            // Others had their turn: what they sent is seen to before it runs. Nearly always it is nothing.
            if self.attends.get() && self.see_to_others(thread).is_break() {
                break;
            }
            match self.run(thread) {
                Trap::Syscall => self.make_call(family, thread),
                Trap::PageFault { address, code } => self.fault(thread, address, code),
                Trap::Exception { vector, code } => self.raise_exception(vector, code),
                Trap::Interrupted => {
                    self.make_way(thread);
                    continue;
                }
            }
            thread.take_turn();
        }
        self.finish();
    }

    /// Has it look around before its program goes on: a signal came that it does not block, it blocks others
    /// from now on, it or its process is stopped or is to end, or somebody waits until it runs. Whoever does
    /// any of that says so here: so what hardly ever happens is one question of each call, not one of each
    /// of them.
    pub(crate) fn attend(&self) {
        self.attends.set(true);
    }

    /// Does what is to be done before the program goes on, unless it ends.
    #[inline(never)]
    fn see_to_others(&self, thread: &Thread<'_>) -> ControlFlow<()> {
        loop {
            self.stand_still(thread);
            self.attends.set(false);
            self.deliver_signals();
            if self.ends() {
                return ControlFlow::Break(());
            }
            if !self.process.stops.is_stopped() {
                self.goes_on();
                return ControlFlow::Continue(());
            }
        }
    }

    /// Goes on with the program until it wants something, here or where it computes.
    #[inline(always)]
    fn run(&self, thread: &Thread<'_>) -> Trap {
        if self.computes.get()
            && let Some(trap) = self.run_elsewhere(thread)
        {
            return trap;
        }
        self.process.enter_memory();
        self.context.borrow_mut().run()
    }

    /// It was interrupted, here or where it computes: others have their turn.
    #[cold]
    #[inline(never)]
    fn make_way(&self, thread: &Thread<'_>) {
        self.computes.set(true);
        match self.processor.get() {
            HOME => thread.take_turn_computing(),
            // Whoever wanted that core has it, then.
            _ => thread.yield_now(),
        }
    }

    /// Waits while its process is stopped.
    fn stand_still(&self, thread: &Thread<'_>) {
        let stops = &self.process.stops;
        if stops.is_stopped() {
            thread.block_on(poll_fn(|context| {
                if !stops.is_stopped() || self.ends() {
                    return Poll::Ready(());
                }
                stops.wake(context.waker());
                Poll::Pending
            }));
        }
    }

    /// Has it end, alone.
    pub(crate) fn end(&self) {
        self.is_ending.set(true);
        self.interrupt();
    }

    pub(crate) fn ends(&self) -> bool {
        self.is_ending.get() || self.process.ending.get().is_some()
    }

    /// Makes the call that is in its registers.
    fn make_call(self: &Rc<Task>, family: &Rc<ProcessFamily>, thread: &Thread<'_>) {
        if obtainable() < CALLS_RESERVE_BYTES {
            family.relieve_calls(thread, || self.ends());
            if self.ends() {
                return;
            }
        }
        let Registers { rax, rdi, rsi, rdx, r10, r8, r9, .. } = *self.context.borrow().registers();
        let call = Call::new(family, self, thread, [rdi, rsi, rdx, r10, r8, r9]);
        let result = match &family.tracer {
            None => table::answer(&call, rax),
            Some(tracer) => tracer.answer(&call, rax),
        };
        let value = match result {
            Ok(value) => value,
            Err(errno) => (-i64::from(errno.code())) as u64,
        };
        self.context.borrow_mut().registers_mut().rax = value;
        if let Some(call) = call.broken_off(rax, result) {
            // Whoever interrupted it had it attend, too.
            self.broken_off.set(Some(call));
        }
    }

    /// Makes a touch possible. Who finds no memory while heaps are asked for some waits until they have
    /// answered, but for those themselves.
    fn touch(&self, thread: &Thread<'_>, address: u64, touch: Touch) -> Result<(), Bad> {
        let (memory, heaps) = (self.process.memory(), &self.process.family.heaps);
        let touched = memory.try_touch(address, touch);
        if touched != Err(Bad::NoMemory) {
            return touched;
        }
        if heaps.are_asked() && !self.process.is_java() {
            let mut answer = pin!(heaps.answer());
            thread.block_on(poll_fn(|context| match self.ends() {
                true => Poll::Ready(()),
                false => answer.as_mut().poll(context),
            }));
        }
        memory.touch(address, touch)
    }

    fn fault(&self, thread: &Thread<'_>, address: u64, code: u64) {
        let touched = self.touch(thread, address, Touch::from_code(code));
        let (signal, reason) = match touched {
            Ok(()) => return,
            // Its memory was wanted for others.
            Err(_) if self.ends() => return,
            Err(Bad::NoRegion) => (Signal::SEGV, abi::SEGV_MAPERR),
            Err(Bad::NotAllowed) => (Signal::SEGV, abi::SEGV_ACCERR),
            Err(Bad::BehindFile) => (Signal::BUS, abi::BUS_ADRERR),
            Err(Bad::NoMemory) => {
                nom_app::println!("{:?}: no memory for a page at {address:#x}", self.process);
                return self.process.end(Exit::Signal(Signal::KILL));
            }
        };
        const PAGE_FAULT: u64 = 14;
        self.force(Info::fault(signal, reason as i32, address), [PAGE_FAULT, code, address]);
    }

    fn raise_exception(&self, vector: u64, code: u64) {
        let rip = self.context.borrow().registers().rip;
        if vector == GENERAL_PROTECTION
            && code & OF_GATE != 0
            && let Some(bytes) = self.breakpoint_at(rip)
        {
            self.context.borrow_mut().registers_mut().rip += bytes;
            return self.force(Info::fault(Signal::TRAP, abi::SI_KERNEL as i32, 0), [vector, code, 0]);
        }
        let (signal, reason, address) = match vector {
            0 => (Signal::FPE, abi::FPE_INTDIV, rip),
            1 => (Signal::TRAP, abi::TRAP_TRACE, rip),
            3 => (Signal::TRAP, abi::SI_KERNEL, 0),
            6 => (Signal::ILL, abi::ILL_ILLOPN, rip),
            16 | 19 => (Signal::FPE, abi::FPE_FLTINV, rip),
            17 => (Signal::BUS, abi::BUS_ADRALN, 0),
            _ => (Signal::SEGV, abi::SI_KERNEL, 0),
        };
        self.force(Info::fault(signal, reason as i32, address), [vector, code, 0]);
    }

    /// The bytes of the instruction at an address if that is `int3`: a fault, since the kernel lets nobody
    /// raise that exception. As on Linux the program is told of it behind the instruction.
    fn breakpoint_at(&self, address: u64) -> Option<u64> {
        const SHORT: u8 = 0xcc;
        const LONG: [u8; 2] = [0xcd, 3];
        let memory = self.process.memory();
        if memory.read_value::<u8>(address) == Ok(SHORT) {
            return Some(1);
        }
        (memory.read_value::<[u8; 2]>(address) == Ok(LONG)).then_some(2)
    }

    /// Has a signal come that its own instruction raised: who blocks or ignores it ends.
    fn force(&self, info: Info, fault: [u64; 3]) {
        let Some(signal) = info.signal() else { return };
        self.process.family.tracer.iter().for_each(|tracer| tracer.signal(self.id, &info));
        let action = self.process.actions.borrow().get(signal);
        if action.handler <= IGNORE || self.blocked.get().has(signal) {
            let registers = *self.context.borrow().registers();
            nom_app::println!(
                "process {} ({}) thread {} ends by signal {} at {:#x}, address {:#x}",
                self.process.id,
                alloc::string::String::from_utf8_lossy(&self.process.program.borrow().path),
                self.id,
                signal.number(),
                registers.rip,
                fault[2]
            );
            return self.process.end(Exit::Signal(signal));
        }
        self.enter_handler(&action, &info, fault);
    }

    /// Signals that are to be done something about now.
    fn deliverable(&self) -> SignalSet {
        let all = self.pending.borrow().set().with(self.process.pending_set());
        all.without(self.blocked.get())
    }

    /// Whether a wait is to be given up.
    pub(crate) fn is_interrupted(&self) -> bool {
        if self.ends() {
            return true;
        }
        !self.deliverable().is_empty()
    }

    /// Blocks these signals, and no others; which it did before.
    pub(crate) fn block(&self, signals: SignalSet) -> SignalSet {
        // What came and was blocked may be deliverable.
        self.attend();
        self.blocked.replace(signals)
    }

    /// Signals that it blocks.
    pub(crate) fn blocked(&self) -> SignalSet {
        self.blocked.get()
    }

    /// Blocks these signals until a signal ends the call that it makes, or that ends by itself.
    pub(crate) fn block_for_call(&self, signals: SignalSet) {
        let before = self.block(signals);
        self.blocked_after.set(Some(before));
    }

    /// Has it look whether its wait is to be given up.
    pub(crate) fn interrupt(&self) {
        self.attend();
        // Before it lives it does not wait.
        self.waiter.get().into_iter().for_each(|waiter| waiter.wake());
    }

    /// Itself, as it waits for futexes.
    pub(crate) fn waiter(&self) -> &Rc<FutexWaiter> {
        self.waiter.get().expect("whoever makes a call lives")
    }

    /// The same, if it lives already.
    pub(crate) fn lived_waiter(&self) -> Option<&Rc<FutexWaiter>> {
        self.waiter.get()
    }

    /// Sends this thread a signal.
    pub(crate) fn send(&self, info: Info) {
        let is_kept = |signal: &Signal| {
            !self.process.actions.borrow().ignores(*signal) || self.blocked.get().has(*signal)
        };
        if let Some(signal) = info.signal()
            && self.process.settle_at_once(signal, self.blocked.get().has(signal))
        {
            return;
        }
        let Some(signal) = info.signal().filter(is_kept) else { return };
        self.pending.borrow_mut().add(info);
        self.process.signal_waiters.wake();
        if !self.blocked.get().has(signal) {
            self.interrupt();
        }
        self.signal_came.wake_all();
    }

    /// Takes a signal that was sent to it alone and that it blocks.
    pub(crate) fn take_blocked(&self, wanted: SignalSet) -> Option<Info> {
        self.pending.borrow_mut().take(SignalSet(wanted.0 & self.blocked.get().0))
    }

    /// Signals that [`Task::take_blocked`] finds.
    pub(crate) fn blocked_signals(&self) -> SignalSet {
        SignalSet(self.pending.borrow().set().0 & self.blocked.get().0)
    }

    pub(crate) fn take_signal(&self, wanted: SignalSet) -> Option<Info> {
        let own = self.pending.borrow_mut().take(wanted);
        own.or_else(|| self.process.pending.borrow_mut().take(wanted))
    }

    /// Does what is to be done about signals before the program goes on.
    fn deliver_signals(&self) {
        let mut broken_off = self.broken_off.take();
        while !self.ends() {
            let Some(info) = self.take_signal(SignalSet(!self.blocked.get().0)) else { break };
            let Some(signal) = info.signal() else { continue };
            self.process.family.tracer.iter().for_each(|tracer| tracer.signal(self.id, &info));
            let action = self.process.actions.borrow().get(signal);
            match action.handler {
                IGNORE => {}
                0 => match signal.default_effect() {
                    Effect::End => self.process.end(Exit::Signal(signal)),
                    Effect::Stop => {
                        self.process.stop(signal);
                        if self.process.stops.is_stopped() {
                            break;
                        }
                    }
                    Effect::Continue | Effect::None => {}
                },
                _ => {
                    if let Some(call) = broken_off.take()
                        && action.has(abi::SA_RESTART)
                        && call.restarts()
                    {
                        self.make_again(call.number);
                    }
                    self.enter_handler(&action, &info, [0; 3]);
                }
            }
        }
        // Nobody handled what interrupted it.
        if let Some(call) = broken_off.filter(|_| !self.ends())
            && let Some(limit_ns) = call.goes_on()
        {
            self.kept_limit_ns.set(limit_ns);
            self.make_again(call.number);
        }
        if let Some(mask) = self.blocked_after.take() {
            self.block(mask);
        }
    }

    fn make_again(&self, number: u64) {
        let mut context = self.context.borrow_mut();
        let registers = context.registers_mut();
        (registers.rax, registers.rip) = (number, registers.rip - SYSCALL_BYTES);
    }

    /// Has the program go on in a handler, which returns to where it is now.
    fn enter_handler(&self, action: &Action, info: &Info, fault: [u64; 3]) {
        let mask = self.blocked_after.take().unwrap_or_else(|| self.blocked.get());
        let (registers, vector) = {
            let mut context = self.context.borrow_mut();
            (*context.registers(), context.vector_area())
        };
        let stack = self.alternate.get();
        let frame = Frame::build(action, info, &Interrupted { registers, mask, stack, vector, fault });
        // The library's code is no handler.
        let is_elsewhere = action.handler >= APPLICATION_END;
        if is_elsewhere || self.process.memory().write(frame.pointer, &frame.bytes).is_err() {
            return self.process.end(Exit::Signal(Signal::SEGV));
        }
        *self.context.borrow_mut().registers_mut() = frame.registers;
        let Some(signal) = info.signal() else { return };
        let own = if action.has(abi::SA_NODEFER) { SignalSet::default() } else { SignalSet::of(signal) };
        self.block(self.blocked.get().with(action.mask).with(own));
        if action.has(abi::SA_RESETHAND) {
            // What was set once can be set again.
            let _ = self.process.actions.borrow_mut().set(signal, Action::default());
        }
    }

    /// It has ended: others hear of it.
    fn finish(&self) {
        let (memory, family) = (self.process.memory(), self.process.family.clone());
        crate::futex::leave_robust(&family.futexes, &memory, self.robust.get(), self.id);
        let clear = self.clear_at_end.get();
        let others = self.process.tasks.borrow().len() > 1;
        if clear != 0 && others && memory.write_value(clear, &0_u32).is_ok() {
            family.futexes.wake(FutexKey::shared(&memory, clear), 1, u32::MAX);
        }
        self.process.keep_time_of(self);
        self.process.for_files.end(self.id);
        self.process.tasks.borrow_mut().remove(&self.id);
        self.process.thread_ended.wake_all();
        nom_rt::retire();
        self.runs_no_more();
        if self.process.tasks.borrow().is_empty() {
            self.process.finish();
        }
    }
}
