//! What each core does next: weighted fair shares, warnings before a core is taken, and no timer that is
//! not needed.

use crate::contexts::Context;
use crate::devices::Vectors;
use crate::ids::{AppId, CoreId};
use crate::kernel::{Kernel, Next};
use crate::machine::Machine;
use crate::space::UserAddr;
use crate::syscalls::{Caller, Reply};
use crate::wfq::Queue;
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::board::{NOBODY, advance};
use nom_abi::error::Result;
use nom_abi::syscall::arguments::CoreYield;
use nom_abi::upcall::{Registers, Upcall};

/// How far ahead of its share an application may get while others wait.
pub(crate) const SLICE_NS: u64 = 2_000_000;
/// How long an application has to park its work after it was told that its core is wanted.
pub(crate) const GRACE_NS: u64 = 200_000;
/// Flags that an application starts with: interrupts on, and the bit that is always one.
pub(crate) const FLAGS_INITIAL: u64 = 0x202;
/// Flags that an application may set itself: the arithmetic ones, direction, overflow, alignment check, ID.
const FLAGS_OWN: u64 = 0x24_0cd5;

/// One core.
#[derive(Clone, Debug, Default)]
pub struct Core {
    /// Those that hold it.
    pub(crate) queue: Queue,
    /// The application whose registers are at the border.
    current: Option<AppId>,
    /// The application whose vector state is in the processor.
    loaded: Option<AppId>,
    /// Time-stamp counter up to which time is accounted for.
    accounted: u64,
    /// Board time at which the current application, having been warned, loses the core.
    revoke_at_ns: Option<u64>,
    /// Whether the current application said that others may go first.
    yielded: bool,
    /// Whether something happened because of which the core may have to do something else. Most entries into
    /// the kernel are system calls that change nothing here, and go back at once.
    disturbed: bool,
    /// What the timer is armed for.
    armed_ns: Option<u64>,
    /// Which of its vectors are whose.
    pub(crate) vectors: Vectors,
}

/// Registers of a context that begins there, with one argument.
pub(crate) fn beginning(at: UserAddr, stack_top: UserAddr, rdi: u64) -> Registers {
    Registers { rip: at.word(), rsp: stack_top.word(), rdi, rflags: FLAGS_INITIAL, ..Registers::default() }
}

impl Core {
    /// Whether it may go on with what it did.
    fn goes_on(&mut self) -> bool {
        !core::mem::take(&mut self.disturbed) && self.current.is_some()
    }

    /// The application whose registers are at the border.
    #[inline(always)]
    pub(crate) fn current(&self) -> Option<AppId> {
        self.current
    }

    /// Has an application hold it no longer.
    pub(crate) fn end(&mut self, app: AppId) {
        self.queue.remove(app);
        self.current = self.current.filter(|current| *current != app);
        self.loaded = self.loaded.filter(|loaded| *loaded != app);
    }

    /// Has nobody's registers at the border any more; returns whose they were.
    #[inline(always)]
    pub(crate) fn park(&mut self) -> Option<AppId> {
        self.current.take()
    }

    /// Has an application's registers and vector state; returns whose vector state it had before.
    #[inline(always)]
    pub(crate) fn unpark(&mut self, app: AppId) -> Option<AppId> {
        self.current = Some(app);
        self.loaded.replace(app)
    }
}

impl<M: Machine> Kernel<'_, M> {
    /// Decides what `core` does now. `registers` are those at the border, and are replaced if another
    /// context runs.
    pub fn next(&mut self, core: CoreId, registers: &mut Registers, after_syscall: bool) -> Next {
        if self.cores[core].goes_on() && self.ending.is_none() {
            return Next::Run { after_syscall };
        }
        self.decide(core, registers, after_syscall)
    }

    /// Decides anew. Apart from [`Kernel::next`], so that its frame costs nothing where nothing is decided.
    #[inline(never)]
    fn decide(&mut self, core: CoreId, registers: &mut Registers, after_syscall: bool) -> Next {
        let mut same = after_syscall;
        self.account(core);
        if self.leaving != 0 && self.ending.is_none() && self.take_back() && self.takes_back() {
            self.cores[core].disturbed = true;
            return Next::Halt;
        }
        self.wake_expired(core);
        loop {
            if let Some(status) = self.ending {
                return Next::End { status };
            }
            let before = self.cores[core].current;
            let Some(app) = self.choose(core) else {
                self.park_current(core, registers);
                self.show_running(core);
                self.arm_timer(core);
                return Next::Halt;
            };
            if before != Some(app) {
                self.park_current(core, registers);
                self.unpark(core, app, registers);
                same = false;
            }
            same &= !self.deliver(core, app, registers);
            if self.cores[core].current.is_some() {
                self.show_running(core);
                self.arm_timer(core);
                return Next::Run { after_syscall: same };
            }
        }
    }

    /// Charges the time since the last accounting to whoever had the core.
    pub(crate) fn account(&mut self, core: CoreId) {
        let cycles = self.unaccounted(core);
        match self.cores[core].current {
            Some(app) => self.charge(core, app, cycles),
            None => advance(&self.board.cores[core].idle_cycles, cycles),
        }
    }

    /// Charges the time since the last accounting, which the kernel spent on `application`'s account, to it
    /// instead of whoever had the core.
    pub(crate) fn account_to(&mut self, core: CoreId, app: AppId) {
        let cycles = self.unaccounted(core);
        self.charge(self.applications[app].first_core().unwrap_or(core), app, cycles);
    }

    /// Cycles since the last accounting, which so is now.
    fn unaccounted(&mut self, core: CoreId) -> u64 {
        let now = self.machine.cycles();
        now.saturating_sub(core::mem::replace(&mut self.cores[core].accounted, now))
    }

    fn charge(&mut self, core: CoreId, app: AppId, cycles: u64) {
        self.cores[core].queue.charge(app, cycles);
        advance(&self.usage[app].cycles, cycles);
    }

    /// Who runs: the current application until its turn is over and its warning has expired.
    fn choose(&mut self, core: CoreId) -> Option<AppId> {
        let current = self.cores[core].current.filter(|app| self.context(core, *app).is_ready());
        let Some(current) = current else {
            self.clear_warning(core);
            return self.cores[core].queue.pick();
        };
        if core::mem::take(&mut self.cores[core].yielded) {
            self.cores[core].queue.yield_to_others(current);
            self.clear_warning(core);
            return self.cores[core].queue.pick();
        }
        if !self.cores[core].queue.should_preempt(current, self.slice) {
            self.clear_warning(core);
            return Some(current);
        }
        self.warn_or_take(core, current)
    }

    /// The turn of `current` is over: it is warned, if it listens, and when the warning expires it is taken
    /// off the core.
    fn warn_or_take(&mut self, core: CoreId, current: AppId) -> Option<AppId> {
        let now = self.machine.now_ns();
        let listens = self.context(core, current).takes_upcalls();
        match self.cores[core].revoke_at_ns {
            Some(deadline) if now < deadline => Some(current),
            None if listens => {
                self.cores[core].revoke_at_ns = Some(now + GRACE_NS);
                self.context(core, current).warn(Some(now + GRACE_NS));
                Some(current)
            }
            _ => {
                self.clear_warning(core);
                self.context(core, current).post(Upcall::CoreGranted);
                self.usage[current].preemptions.fetch_add(1, Relaxed);
                self.cores[core].queue.pick()
            }
        }
    }

    fn clear_warning(&mut self, core: CoreId) {
        if self.cores[core].revoke_at_ns.take().is_some()
            && let Some(current) = self.cores[core].current
        {
            self.context(core, current).warn(None);
        }
    }

    /// Arms the timer for the first thing that only time can bring about. One that is armed for an earlier
    /// time stays so, and another is armed when it fires: to arm it costs more than most sleeps last, and
    /// what they wait for moves on with each.
    pub(crate) fn arm_timer(&mut self, core: CoreId) {
        let now = self.machine.now_ns();
        let turn = self.cores[core].current.and_then(|current| {
            let left = self.cores[core].queue.cycles_left(current, self.slice)?;
            let turn_ns = self.machine.span_ns(left).saturating_add(1);
            Some(self.cores[core].revoke_at_ns.unwrap_or(now.saturating_add(turn_ns)))
        });
        let timer = self.cores[core].current.and_then(|current| self.context(core, current).timer_ns());
        let first = core.index() * self.applications.len();
        let contexts = &self.contexts[first..first + self.applications.len()];
        let waits = contexts.iter().filter_map(Context::wakes_at_ns);
        let platform = (core == CoreId::FIRST).then(|| self.devices.deadline_ns());
        let all = waits.chain(turn).chain(timer).chain(platform);
        let armed_ns = self.cores[core].armed_ns.unwrap_or(u64::MAX);
        if let Some(deadline) = all.min().filter(|deadline| *deadline < armed_ns) {
            self.cores[core].armed_ns = Some(deadline);
            self.machine.set_timer(deadline);
        }
    }

    fn show_running(&mut self, core: CoreId) {
        let running = self.cores[core].current.map_or(NOBODY, |app| app.index() as u32);
        self.board.cores[core].running.store(running, Relaxed);
    }

    /// The timer fired on `core`; what is due is found by [`Kernel::next`].
    pub fn timer(&mut self, core: CoreId) {
        self.cores[core].armed_ns = None;
        self.cores[core].disturbed = true;
        advance(&self.board.machine.timer_interrupts, 1);
        if core == CoreId::FIRST {
            self.poll_platform(core);
        }
    }

    pub(crate) fn core_yield(&mut self, Caller { core, .. }: Caller<'_>, _: CoreYield) -> Result<Reply> {
        self.cores[core].yielded = true;
        self.disturb(core);
        Ok(Reply::DONE)
    }

    /// Makes a core decide anew: when it next leaves the kernel, and that soon.
    pub(crate) fn disturb(&mut self, core: CoreId) {
        self.cores[core].disturbed = true;
        self.machine.kick(core);
    }

    /// Cleans flags that an application gave.
    pub(crate) fn user_flags(flags: u64) -> u64 {
        flags & FLAGS_OWN | FLAGS_INITIAL
    }
}

/// What tests look at and change.
#[cfg(test)]
mod seen {
    impl super::Core {
        pub(crate) fn disturbed(&mut self) -> &mut bool {
            &mut self.disturbed
        }
    }
}
