//! Faults and events on their way to an application's upcall handler.

use crate::contexts::State;
use crate::cores::FLAGS_INITIAL;
use crate::ids::{AppId, CoreId};
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::space::UserAddr;
use crate::syscalls::{Caller, Reply};
use core::mem::offset_of;
use nom_abi::board::ApplicationState;
use nom_abi::error::{Error, Result};
use nom_abi::syscall::arguments::*;
use nom_abi::upcall::{Events, Registers, Upcall, UpcallFrame};
use zerocopy::IntoBytes;

/// Vector of the page fault.
pub const PAGE_FAULT: u64 = 14;
/// Status of an application that faulted: as a shell shows SIGSEGV.
pub const FAULTED_STATUS: u8 = 139;
/// Room that the stack's red zone and the return address need below `stack_top`.
const STACK_RESERVE: u64 = 16;

/// An exception that an application's instruction raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Exception vector (Intel SDM vol. 3A, table 6-1).
    pub vector: u64,
    /// Error code, 0 if the exception has none.
    pub code: u64,
    /// For a page fault the address that was touched (CR2), else 0.
    pub address: u64,
}

impl<M: Machine> Kernel<'_, M> {
    /// An instruction of `core`'s current application faulted. Its handler is told, or it ends.
    pub fn fault(&mut self, core: CoreId, registers: &mut Registers, fault: Fault) {
        let Some(app) = self.cores[core].current() else {
            return; // It ended on another core while this one was on its way here.
        };
        let context = self.context(core, app);
        if !context.takes_upcalls() {
            return self.end_by_fault(core, app, registers, &fault);
        }
        let is_page_fault = fault.vector == PAGE_FAULT;
        context.events.fault_address = if is_page_fault { fault.address } else { fault.vector };
        context.post(if is_page_fault { Upcall::PageFault } else { Upcall::Exception });
        context.events.fault_code = fault.code;
        // Nothing else has changed; if its stack cannot be written, it has ended, and the core is disturbed.
        self.enter_handler(core, app, registers);
    }

    /// Enters the handler of `core`'s current application if there is something to tell it; returns whether
    /// it did. The application may have ended, because its upcall stack cannot be written.
    pub(crate) fn deliver(&mut self, core: CoreId, app: AppId, registers: &mut Registers) -> bool {
        if let Some(timer_ns) = self.context(core, app).timer_ns
            && timer_ns <= self.machine.now_ns()
        {
            let context = self.context(core, app);
            context.timer_ns = None;
            context.post(Upcall::Timer);
        }
        let context = self.context(core, app);
        let is_due = context.events.pending != 0 && context.takes_upcalls();
        if is_due {
            self.enter_handler(core, app, registers);
        }
        is_due
    }

    /// Enters the handler of `core`'s current application, which takes upcalls, and tells it everything, or
    /// ends the application because its upcall stack cannot be written.
    fn enter_handler(&mut self, core: CoreId, app: AppId, registers: &mut Registers) {
        let context = self.context(core, app);
        let (entry, stack_top) = context.handler.expect("it takes upcalls");
        let frame = UpcallFrame { events: context.take_events(), registers: *registers };
        context.upcalls_wait = true;
        let space = context.space.expect("it is running");
        let address = stack_top.word() - UpcallFrame::BYTES as u64;
        let place = UserAddr::pointer(address);
        if place.and_then(|place| space.write_user(&mut self.machine, place, frame.as_bytes())).is_err() {
            let fault = Fault { vector: PAGE_FAULT, code: 0b110, address };
            return self.end_by_fault(core, app, registers, &fault);
        }
        // As after a call: the stack is 16-byte aligned but for the return address, which is absent.
        (registers.rip, registers.rsp, registers.rbp) = (entry.word(), address - STACK_RESERVE - 8, 0);
        (registers.rdi, registers.rflags) = (address, FLAGS_INITIAL);
    }

    fn end_by_fault(&mut self, core: CoreId, app: AppId, registers: &Registers, fault: &Fault) {
        self.report_fault(app, core, registers, fault);
        self.end_application(app, ApplicationState::Faulted, FAULTED_STATUS);
    }

    pub(crate) fn upcall_register(&mut self, caller: Caller<'_>, asked: UpcallRegister) -> Result<Reply> {
        let (Caller { core, app, .. }, UpcallRegister { entry, stack_top }) = (caller, asked);
        let place = || Ok((UserAddr::code(entry)?, UserAddr::stack(stack_top)?));
        let handler = if entry == 0 { None } else { Some(place()?) };
        let context = self.context(core, app);
        (context.handler, context.upcalls_wait) = (handler, false);
        self.disturb(core);
        Ok(Reply::DONE)
    }

    /// Resumes the computation in the frame; on success the registers at the border are its own.
    pub(crate) fn upcall_return(&mut self, caller: Caller<'_>, asked: UpcallReturn) -> Result<Reply> {
        let (Caller { core, app, registers }, UpcallReturn { frame }) = (caller, asked);
        let context = self.context(core, app);
        if context.handler.is_none() || !context.upcalls_wait {
            return Err(Error::WrongContext);
        }
        let space = context.space.ok_or(Error::WrongState)?;
        let place = UserAddr::pointer(frame.saturating_add(offset_of!(UpcallFrame, registers) as u64))?;
        let callers = *registers;
        space.read_user(&self.machine, place, registers.as_mut_bytes())?;
        UserAddr::code(registers.rip).inspect_err(|_| *registers = callers)?;
        registers.rflags = Self::user_flags(registers.rflags);
        let context = self.context(core, app);
        context.upcalls_wait = false;
        if context.events.pending != 0 {
            self.disturb(core);
        }
        Ok(Reply::Elsewhere)
    }

    /// Sleeps until there is an event or the deadline. Answers the pending bits if there is one already; what
    /// the application noted itself, when an upcall told it, counts as such, and is left for it to take.
    pub(crate) fn core_wait(&mut self, caller: Caller<'_>, asked: CoreWait) -> Result<Reply> {
        let (Caller { core, app, registers }, CoreWait { deadline_ns, events: address }) = (caller, asked);
        let (space, address) = (self.space_of(core, app)?, UserAddr::pointer(address)?);
        space.check_writable(&self.machine, address, Events::BYTES as u64)?;
        let mut noted = 0_u64;
        space.read_user(&self.machine, address, noted.as_mut_bytes())?;
        if noted != 0 {
            return Ok(Reply::Value(0));
        }
        let context = self.context(core, app);
        if context.events.pending != 0 {
            let events = context.take_events();
            self.write_events(core, app, address, &events)?;
            return Ok(Reply::Value(events.pending));
        }
        context.state = State::Waiting { deadline_ns, events: address };
        self.account(core);
        self.park_current(core, registers);
        self.cores[core].queue.sleep(app);
        Ok(Reply::Elsewhere)
    }

    /// Wakes another core of the application.
    pub(crate) fn core_notify(&mut self, caller: Caller<'_>, asked: CoreNotify) -> Result<Reply> {
        let core = CoreId::in_set(asked.core, self.applications[caller.app].cores()).ok_or(Error::NoCore)?;
        self.tell_on(core, caller.app, Upcall::CoreNotified, |_| {});
        Ok(Reply::DONE)
    }

    /// Tells an application, on the first core that it holds.
    pub(crate) fn tell(&mut self, app: AppId, upcall: Upcall, change: impl FnOnce(&mut Events)) {
        if let Some(core) = self.applications[app].first_core() {
            self.tell_on(core, app, upcall, change);
        }
    }

    /// Tells an application what a core that it has given up was not told, as far as that concerns no core
    /// in particular.
    pub(crate) fn pass_on(&mut self, app: AppId, untold: &Events) {
        use Upcall::{DeviceArrived, DeviceLeft, DmaBlocked, Message, PeerChanged, Shutdown};
        let of_no_core = [DeviceArrived, DeviceLeft, DmaBlocked, Message, PeerChanged, Shutdown];
        for upcall in of_no_core.into_iter().filter(|upcall| untold.has(*upcall)) {
            self.tell(app, upcall, |events| match upcall {
                DmaBlocked => events.fault_address = untold.fault_address,
                _ => events.messages |= untold.messages,
            });
        }
    }

    /// Tells an application on a core that it holds.
    pub(crate) fn tell_on(&mut self, core: CoreId, app: AppId, what: Upcall, note: impl FnOnce(&mut Events)) {
        let context = self.context(core, app);
        note(&mut context.events);
        context.post(what);
        self.wake(core, app);
    }

    /// Makes a sleeping context ready and gives it its events; one that does not sleep is told by upcall.
    pub(crate) fn wake(&mut self, core: CoreId, app: AppId) {
        let is_current = self.cores[core].current() == Some(app);
        let context = self.context(core, app);
        match context.state {
            State::Absent => {}
            // Where another one runs, this one is told when it has its turn: nobody is interrupted for it.
            State::Ready if !is_current || context.upcalls_wait => {}
            State::Ready => self.disturb(core),
            State::Waiting { events: address, .. } => {
                let events = context.take_events();
                context.state = State::Ready;
                // A pointer that was good when the call was made may have been unmapped since.
                let result = self.write_events(core, app, address, &events).map(|()| events.pending);
                let context = self.context(core, app);
                (context.registers.rax, context.registers.rdx) = nom_abi::error::encode(result);
                self.account(core);
                self.cores[core].queue.wake(app);
                self.disturb(core);
            }
        }
    }

    fn write_events(&mut self, core: CoreId, app: AppId, at: UserAddr, events: &Events) -> Result<()> {
        let space = self.space_of(core, app)?;
        space.write_user(&mut self.machine, at, events.as_bytes())
    }
}
