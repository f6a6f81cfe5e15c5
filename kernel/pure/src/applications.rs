//! Applications: what they are charged, which cores they have, and their end, without a trace.

pub(crate) mod build;
mod family;
pub(crate) mod report;

use crate::console::Bucket;
use crate::contexts::Context;
use crate::cores::beginning;
use crate::frames::Owner;
use crate::ids::{AppId, CoreId};
use crate::kernel::Kernel;
use crate::machine::{Level, Machine, PhysAddr};
use crate::means::Means;
use crate::space::{Space, UserAddr};
use crate::syscalls::{Caller, Reply};
use build::Placement;
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::PageSize;
use nom_abi::board::ApplicationState;
use nom_abi::error::{Error, Result};
use nom_abi::image::{ApplicationRecord, flag};
use nom_abi::syscall::arguments::{
    ApplicationKill, ApplicationStart, CoreAcquire, CoreRelease, ShutdownHandle,
};
use nom_abi::upcall::{Registers, Upcall};

/// Blocks of single frames that are taken back at a time.
const BLOCKS_AT_A_TIME: usize = 4;

/// Blocked accesses after which the devices of an application are silenced, and it is given no other.
pub const FAULTS_MAX: u32 = 64;

/// Status of an application that its manager ended: as a shell shows SIGKILL.
const KILLED_STATUS: u8 = 137;

/// Status of a machine that cannot start an application.
pub const CANNOT_START_STATUS: u8 = 126;

/// Status of an application that was ended because the machine is to end: as a shell shows SIGTERM.
pub const SHUT_DOWN_STATUS: u8 = 143;

/// An application of the bundle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Application {
    /// Its first address space, while it runs, and while it is built: then it has no core.
    space: Option<Space>,
    /// What names all of them, if it may have several.
    family: Option<PhysAddr>,
    /// Cores that it holds, one bit each.
    cores: u64,
    /// Where its parts were placed.
    place: Placement,
    /// Who has it built; if that ends first, it is not started.
    starter: Option<AppId>,
    /// Whether it ends by itself when the machine is to end.
    handles_shutdown: bool,
    /// DMA of its devices that was blocked since it started.
    blocked: u32,
    /// How far it is built, or what it had is taken back if it ended: the step, and where that goes on.
    progress: (usize, usize),
    /// How often it may interrupt those at the other ends of its channels.
    messages: Bucket,
    /// System calls that it may make, one bit each, without those that may wait for a unit.
    calls: u32,
    /// Board time before which it makes no call that waits for a device or the remapping unit.
    rests_until_ns: u64,
}

impl Application {
    /// The core on which it is told what concerns no core in particular.
    pub(crate) fn first_core(&self) -> Option<CoreId> {
        (self.cores != 0).then(|| CoreId::new(self.cores.trailing_zeros() as usize))
    }

    /// Cores that it holds, one bit each.
    pub(crate) fn cores(&self) -> u64 {
        self.cores
    }

    /// Its first address space. Errors: WrongState (it does not run).
    pub(crate) fn space(&self) -> Result<Space> {
        self.space.ok_or(Error::WrongState)
    }

    /// Whether it may make the system call with this number, which exists and waits for no unit.
    pub(crate) fn may_call(&self, number: u64) -> bool {
        self.calls & 1 << number != 0
    }

    /// How often it may interrupt those at the other ends of its channels.
    pub(crate) fn messages(&mut self) -> &mut Bucket {
        &mut self.messages
    }

    /// Board time before which it makes no call that waits for a device or the remapping unit.
    pub(crate) fn rests_until_ns(&mut self) -> &mut u64 {
        &mut self.rests_until_ns
    }

    /// Whether too much of its devices' DMA was blocked.
    pub(crate) fn is_bad(&self) -> bool {
        self.blocked >= FAULTS_MAX
    }

    /// Counts one more blocked access of its devices; returns whether that is too many.
    pub(crate) fn blame(&mut self) -> bool {
        self.blocked += 1;
        self.is_bad()
    }
}

impl<'m, M: Machine> Kernel<'m, M> {
    pub(crate) fn record(&self, app: AppId) -> ApplicationRecord {
        self.bundle.application(app.index()).expect("an application of the bundle")
    }

    /// Frames charged to an application.
    pub(crate) fn charged(&self, app: AppId) -> u64 {
        let owners = [Owner::grants, Owner::program, Owner::tables, Owner::dma];
        owners.into_iter().map(|owner| self.frames.held(owner(app))).sum()
    }

    /// Frames that an application may still be charged.
    pub(crate) fn allowance(&self, app: AppId) -> u64 {
        self.record(app).frames_max.saturating_sub(self.charged(app))
    }

    /// Memory for which an application pays, as far as it may.
    pub(crate) fn means(&mut self, app: AppId, owner: fn(AppId) -> Owner) -> Means<'_, 'm, M> {
        let (owner, at_most) = (owner(app), self.allowance(app));
        Means { machine: &mut self.machine, frames: &mut self.frames, owner, at_most }
    }

    /// The core with the least weight on it among those in `candidates`.
    pub(crate) fn least_loaded(&self, candidates: u64) -> Option<CoreId> {
        let load = |core: &CoreId| {
            let holders = self.all_applications().filter(|app| self.cores[*core].queue.contains(*app));
            holders.map(|app| self.record(app).weight).sum::<u32>()
        };
        self.all_cores().filter(|core| candidates & core.bit() != 0).min_by_key(load)
    }

    /// Makes an application hold a core and begin there. `rsi` becomes the core's number. Errors:
    /// OutOfMemory, OverMemoryCap.
    pub(crate) fn begin_context(&mut self, core: CoreId, app: AppId, mut registers: Registers) -> Result<()> {
        let frame = self.means(app, Owner::program).take(1)?.frame();
        self.machine.reset_state(frame);
        registers.rsi = core.index() as u64;
        *self.context(core, app) = Context::begin(registers, self.applications[app].space, frame);
        self.applications[app].cores |= core.bit();
        let weight = self.record(app).weight;
        self.account(core);
        self.cores[core].queue.insert(app, weight);
        self.cores[core].queue.wake(app);
        self.publish_cores(app);
        self.disturb(core);
        Ok(())
    }

    /// Takes a core from an application and frees what it held for it.
    pub(crate) fn end_context(&mut self, core: CoreId, app: AppId) {
        self.account(core);
        self.end_reflection(core, app);
        let frame = self.context(core, app).end();
        self.cores[core].end(app);
        self.applications[app].cores &= !core.bit();
        self.frames
            .release(Owner::program(app), frame, PageSize::Small, 1)
            .expect("a context holds its state's frame");
        self.publish_cores(app);
        self.disturb(core);
    }

    /// Ends an application: nobody runs it any more when this returns, and all it held is free.
    pub(crate) fn end_application(&mut self, app: AppId, state: ApplicationState, status: u8) {
        let tsc = self.machine.cycles();
        if self.applications[app].cores == 0 {
            return;
        }
        self.for_spaces_in_use(app, M::leave_space);
        for core in self.all_cores() {
            if self.applications[app].cores & core.bit() != 0 {
                self.end_context(core, app);
            }
        }
        self.leave(app);
        for other in self.all_applications() {
            if self.applications[other].starter == Some(app) {
                self.leave(other);
            }
        }
        self.publish_application(app, state, status);
        let record = self.record(app);
        let name = crate::bundle::name(&record);
        let word = if state == ApplicationState::Exited { "exited" } else { "faulted" };
        self.machine.log(Level::Info, format_args!("{name} {word} with status {status}"));
        self.machine.control(format_args!("{word} app={name} status={status} tsc={tsc}"));
        let is_shutting_down = self.board.machine.shutdown_ns.load(Relaxed) != 0;
        if record.flags & flag::ESSENTIAL != 0 && !is_shutting_down {
            self.ending.get_or_insert(status);
        }
        self.tell_peers(app);
        self.end_if_idle();
    }

    /// The machine is to end: those who handle that are told, once, and the others end.
    pub fn shut_down(&mut self) {
        let asked = &self.board.machine.shutdown_ns;
        if asked.load(Relaxed) != 0 {
            return;
        }
        asked.store(self.machine.now_ns().max(1), Relaxed);
        self.machine.log(Level::Info, format_args!("the machine is asked to end"));
        for app in self.all_applications() {
            if self.applications[app].handles_shutdown {
                self.tell(app, Upcall::Shutdown, |_| {});
            } else {
                self.end_application(app, ApplicationState::Exited, SHUT_DOWN_STATUS);
            }
        }
    }

    /// What an application had is taken back from here on, in pieces, by whichever core looks next.
    pub(crate) fn leave(&mut self, app: AppId) {
        self.applications[app] = Application::default();
        self.leaving |= app.bit();
    }

    /// Whether there is something to take back: then a core that is to halt asks again instead, and others
    /// have the lock in between.
    pub fn takes_back(&self) -> bool {
        self.leaving != 0
    }

    /// Takes back a piece of what an application had that ended: a device, or frames of a few blocks. Returns
    /// whether there was any.
    #[inline(never)]
    pub(crate) fn take_back(&mut self) -> bool {
        let Some(app) = self.all_applications().find(|app| self.leaving & app.bit() != 0) else {
            return false;
        };
        let (mut step, from) = self.applications[app].progress;
        // What a device may still reach is given to nobody.
        let end = if step > 2 && self.devices.is_reached(app) { 3 } else { 5 };
        let next = match step {
            0 => self.release_device(app, from),
            1..5 if step < end => {
                let owners = [Owner::program, Owner::tables, Owner::dma, Owner::grants];
                self.frames.release_some(owners[step - 1](app), from, BLOCKS_AT_A_TIME)
            }
            _ => {
                self.leaving &= !app.bit();
                self.publish_memory(app);
                None
            }
        };
        step += usize::from(next.is_none());
        self.applications[app].progress = (step, next.unwrap_or(0));
        true
    }

    /// With nobody left to run, the machine ends with the status of the bundle's first application.
    pub(crate) fn end_if_idle(&mut self) {
        if self.applications.iter().all(|app| app.cores == 0) {
            let status = self.board.applications[0].status.load(Relaxed) as u8;
            self.ending.get_or_insert(status);
        }
    }

    pub(crate) fn tell_peers(&mut self, app: AppId) {
        for channel in self.channels_of(app) {
            self.tell(channel.peer, Upcall::PeerChanged, |_| {});
        }
    }

    pub(crate) fn core_acquire(&mut self, Caller { app, .. }: Caller<'_>, of: CoreAcquire) -> Result<Reply> {
        let CoreAcquire { entry, stack_top, argument, hint } = of;
        let (entry, stack_top) = (UserAddr::code(entry)?, UserAddr::stack(stack_top)?);
        let held = self.applications[app].cores;
        let all = u64::MAX >> (64 - self.cores.len());
        if held.count_ones() >= self.record(app).cores_max || held == all {
            return Err(Error::NoCore);
        }
        let hinted = CoreId::in_set(hint, all & !held);
        let free = hinted.filter(|core| self.board.cores[*core].holders.load(Relaxed) == 0);
        let core = free.or_else(|| self.least_loaded(all & !held)).ok_or(Error::NoCore)?;
        self.begin_context(core, app, beginning(entry, stack_top, argument))?;
        self.publish_memory(app);
        Ok(Reply::Value(core.index() as u64))
    }

    pub(crate) fn core_release(&mut self, caller: Caller<'_>, _: CoreRelease) -> Result<Reply> {
        let Caller { core, app, .. } = caller;
        if self.applications[app].cores.count_ones() == 1 {
            return Err(Error::LastCore);
        }
        let untold = self.context(core, app).take_events();
        self.unbind_core(core, app);
        self.end_context(core, app);
        // Nobody else is kept from ending the space that this core was in.
        self.machine.load_space(None);
        self.publish_memory(app);
        self.pass_on(app, &untold);
        Ok(Reply::Elsewhere)
    }

    /// The application with this number, if `manager` may start and end it. Errors: NoApplication,
    /// NotPermitted.
    fn managed(&self, manager: AppId, app: u64) -> Result<AppId> {
        if app >= self.applications.len() as u64 {
            return Err(Error::NoApplication);
        }
        AppId::in_set(app, self.record(manager).manages).ok_or(Error::NotPermitted)
    }

    pub(crate) fn application_start(&mut self, caller: Caller<'_>, asked: ApplicationStart) -> Result<Reply> {
        let app = self.managed(caller.app, asked.application)?;
        let begins = self.applications[app].space.is_none();
        if self.take_back() || begins && !self.may_start(caller.app) {
            return Ok(Reply::Unfinished);
        }
        let is_running = self.go_on_starting(app, Some(caller.app))?;
        Ok(if is_running { Reply::DONE } else { Reply::Unfinished })
    }

    pub(crate) fn application_kill(&mut self, caller: Caller<'_>, asked: ApplicationKill) -> Result<Reply> {
        let app = self.managed(caller.app, asked.application)?;
        if self.applications[app].cores == 0 {
            return Err(Error::WrongState);
        }
        self.end_application(app, ApplicationState::Faulted, KILLED_STATUS);
        Ok(if app == caller.app { Reply::Elsewhere } else { Reply::DONE })
    }

    pub(crate) fn shutdown_handle(&mut self, caller: Caller<'_>, _: ShutdownHandle) -> Result<Reply> {
        self.applications[caller.app].handles_shutdown = true;
        Ok(Reply::DONE)
    }
}

/// What tests look at.
#[cfg(test)]
mod seen {
    use super::{Application, PhysAddr};

    impl Application {
        pub(crate) fn family(&self) -> Option<PhysAddr> {
            self.family
        }

        pub(crate) fn image(&self) -> u64 {
            self.place.image
        }
    }
}
