//! A process: memory, descriptors, what it does with signals, its threads, and how it ends.

use crate::calls::controls::Controls;
use crate::calls::for_files::ForFiles;
use crate::calls::identities::Whose;
use crate::calls::limits::Limits;
use crate::calls::timers::{IntervalTimers, SignalTimer};
use crate::descriptors::Descriptors;
use crate::descriptors::ready::Waiters;
use crate::family::ProcessFamily;
use crate::held::HeldDirectory;
use crate::load::{Loaded, Opened};
use crate::memory::{PLACE, ProcessMemory};
use crate::processor_time::SpentTime;
use crate::signals::{Actions, Info, Pending, Signal, SignalSet};
use crate::stops::Stops;
use crate::task::Task;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use linux_raw_sys::general::{CLD_DUMPED, CLD_EXITED, CLD_KILLED, SA_NOCLDWAIT};
use nom_fs::{Caller, Credentials, Errno, FileTime, LastLink, Scope, Vfs};
use nom_rt::WaitQueue;
use nom_sys::program::SpaceNumber;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Status(u8),
    /// By a signal.
    Signal(Signal),
}

impl Exit {
    /// As `wait4` tells it.
    pub fn wait_status(self) -> u32 {
        const DUMPED: u32 = 0x80;
        match self {
            Exit::Status(status) => u32::from(status) << 8,
            Exit::Signal(signal) => signal.number() | if signal.dumps() { DUMPED } else { 0 },
        }
    }

    /// As a shell shows it.
    pub fn machine_status(self) -> i32 {
        match self {
            Exit::Status(status) => status.into(),
            Exit::Signal(signal) => 128 + signal.number() as i32,
        }
    }

    /// `CLD_*` and the status, as `SIGCHLD` says them.
    pub fn child_code(self) -> (u32, u32) {
        match self {
            Exit::Status(status) => (CLD_EXITED, status.into()),
            Exit::Signal(signal) if signal.dumps() => (CLD_DUMPED, signal.number()),
            Exit::Signal(signal) => (CLD_KILLED, signal.number()),
        }
    }
}

/// A process's memory. Whoever has made a `vfork` shares it with its child.
#[derive(Debug)]
pub struct OwnMemory {
    memory: ProcessMemory,
    /// Whether mlockall(2) was called for it.
    pub(crate) is_locked: Cell<bool>,
}

impl core::ops::Deref for OwnMemory {
    type Target = ProcessMemory;
    fn deref(&self) -> &ProcessMemory {
        &self.memory
    }
}

impl OwnMemory {
    /// None yet, in an address space of its own, if there is memory for that.
    pub(crate) fn new(family: &ProcessFamily) -> Option<Rc<OwnMemory>> {
        let memory = ProcessMemory::new(family.spaces.create()?, PLACE);
        Some(Rc::new(OwnMemory { memory, is_locked: Cell::new(false) }))
    }

    /// A copy, in an address space of its own.
    pub(crate) fn duplicate(&self) -> Result<Rc<OwnMemory>, Errno> {
        let memory = self.memory.duplicate()?;
        Ok(Rc::new(OwnMemory { memory, is_locked: Cell::new(false) }))
    }
}

/// What a process knows of the tree of files.
#[derive(Clone, Debug)]
pub struct View {
    /// Its rights.
    pub credentials: Credentials,
    /// The real and the saved user, beside the effective one.
    pub(crate) other_users: (u32, u32),
    /// The real and the saved group.
    pub(crate) other_groups: (u32, u32),
    /// Where absolute paths begin.
    pub root: HeldDirectory,
    /// Where others begin.
    pub directory: HeldDirectory,
    /// Permissions that what it makes does not get.
    pub umask: u32,
}

impl View {
    /// That of the first process, which is root's and begins at the root of the tree.
    pub(crate) fn first(root: HeldDirectory) -> View {
        View {
            credentials: Credentials::default(),
            other_users: (0, 0),
            other_groups: (0, 0),
            directory: root.clone(),
            root,
            umask: 0o022,
        }
    }

    /// Leaves the directories that it was in: there is nobody any more who goes by them.
    pub(crate) fn leave(&mut self) {
        let root = self.root.top();
        (self.directory, self.root) = (root.clone(), root);
    }
}

/// The program that a process runs, as it began.
#[derive(Clone, Debug, Default)]
pub struct RunningProgram {
    /// Its path.
    pub path: Vec<u8>,
    /// Its file, once there is one.
    pub file: Option<Rc<Opened>>,
    /// Its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// Its environment.
    pub environment: Vec<Vec<u8>>,
    /// Its auxiliary vector, as it lies on the stack.
    pub auxiliary: Vec<u8>,
}

/// A process.
pub struct Process {
    /// Its identifier, which is that of its first thread.
    pub id: u32,
    /// What it shares with all others.
    pub family: Rc<ProcessFamily>,
    pub(crate) parent: Cell<u32>,
    /// Its process group and its session.
    pub group: Cell<u32>,
    /// Its session.
    pub session: Cell<u32>,
    /// Its memory.
    memory: RefCell<Rc<OwnMemory>>,
    /// Where that was when one of its threads went on last.
    space: Cell<SpaceNumber>,
    /// Its descriptors.
    pub(crate) descriptors: RefCell<Rc<Descriptors>>,
    /// What it knows of the tree of files.
    pub view: Rc<RefCell<View>>,
    pub(crate) actions: RefCell<Actions>,
    pub(crate) pending: RefCell<Pending>,
    pub(crate) tasks: RefCell<BTreeMap<u32, Rc<Task>>>,
    /// How it ends, once that is decided.
    pub(crate) ending: Cell<Option<Exit>>,
    has_ended: Cell<bool>,
    /// Whoever waits for its children.
    pub(crate) child_ended: WaitQueue,
    /// Whoever waits for its threads.
    pub(crate) thread_ended: WaitQueue,
    /// Whoever reads signals by a descriptor.
    pub(crate) signal_waiters: Waiters,
    /// Whoever watches by a descriptor whether it has ended.
    pub(crate) end_waiters: Waiters,
    /// Whoever waits until it has its own memory, or none: its parent, after a `vfork`.
    pub(crate) released: WaitQueue,
    pub(crate) has_own_memory: Cell<bool>,
    /// Whether it is stopped.
    pub(crate) stops: Stops,
    /// How long it had the core.
    pub(crate) spent: SpentTime,
    /// Its timers of setitimer(2), which stay over execve(2), and those of timer_create(2), which do not.
    pub(crate) interval_timers: IntervalTimers,
    pub(crate) timers: RefCell<BTreeMap<i32, Rc<SignalTimer>>>,
    /// When it began, since boot.
    pub(crate) started_ns: u64,
    /// The program that it runs.
    pub program: RefCell<RunningProgram>,
    /// How nice it is.
    pub(crate) niceness: Cell<i32>,
    /// The signal that tells its parent of its end, or none: `SIGCHLD`, unless clone(2) was told otherwise.
    pub(crate) end_signal: Cell<Option<Signal>>,
    /// Who its threads are for files.
    pub(crate) for_files: ForFiles,
    /// What it asked for with prctl(2).
    pub(crate) controls: Controls,
    /// Its limits.
    pub(crate) limits: RefCell<Limits>,
    /// How often its limits of processor time were set.
    pub(crate) time_limits_set: Cell<u64>,
}

impl fmt::Debug for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Process({}, {} threads)", self.id, self.tasks.borrow().len())
    }
}

impl Process {
    /// The first of a family.
    pub(crate) fn first(family: &Rc<ProcessFamily>) -> Option<Rc<Process>> {
        let id = family.take_id();
        let view = View::first(HeldDirectory::root_of(&family.vfs));
        let memory = OwnMemory::new(family)?;
        let process = Rc::new(Process {
            id,
            family: family.clone(),
            parent: Cell::new(0),
            group: Cell::new(id),
            session: Cell::new(id),
            memory: RefCell::new(memory),
            space: Cell::new(SpaceNumber::NONE),
            descriptors: RefCell::new(Rc::new(Descriptors::first(id))),
            view: Rc::new(RefCell::new(view)),
            actions: RefCell::default(),
            pending: RefCell::default(),
            tasks: RefCell::default(),
            ending: Cell::new(None),
            has_ended: Cell::new(false),
            child_ended: WaitQueue::new(),
            thread_ended: WaitQueue::new(),
            signal_waiters: Waiters::default(),
            end_waiters: Waiters::default(),
            released: WaitQueue::new(),
            has_own_memory: Cell::new(true),
            stops: Stops::default(),
            spent: SpentTime::default(),
            interval_timers: IntervalTimers::default(),
            timers: RefCell::default(),
            started_ns: nom_sys::time::now_ns(),
            program: RefCell::default(),
            niceness: Cell::new(0),
            end_signal: Cell::new(Some(Signal::CHLD)),
            for_files: ForFiles::default(),
            controls: Controls::default(),
            limits: RefCell::default(),
            time_limits_set: Cell::new(0),
        });
        family.add(process.clone());
        Some(process)
    }

    /// A child with a memory of its own, or with the same memory until it has its own.
    pub(crate) fn child(&self, own: Option<Rc<OwnMemory>>) -> Rc<Process> {
        let id = self.family.take_id();
        let process = Rc::new(Process {
            id,
            family: self.family.clone(),
            parent: Cell::new(self.id),
            group: self.group.clone(),
            session: self.session.clone(),
            has_own_memory: Cell::new(own.is_some()),
            stops: Stops::default(),
            memory: RefCell::new(own.unwrap_or_else(|| self.memory())),
            space: Cell::new(SpaceNumber::NONE),
            descriptors: RefCell::new(Rc::new(self.descriptors.borrow().duplicate(id))),
            view: Rc::new(RefCell::new(self.view.borrow().clone())),
            actions: RefCell::new(self.actions.borrow().clone()),
            pending: RefCell::default(),
            tasks: RefCell::default(),
            ending: Cell::new(None),
            has_ended: Cell::new(false),
            child_ended: WaitQueue::new(),
            thread_ended: WaitQueue::new(),
            signal_waiters: Waiters::default(),
            end_waiters: Waiters::default(),
            released: WaitQueue::new(),
            spent: SpentTime::default(),
            interval_timers: IntervalTimers::default(),
            timers: RefCell::default(),
            started_ns: nom_sys::time::now_ns(),
            program: self.program.clone(),
            niceness: self.niceness.clone(),
            end_signal: Cell::new(Some(Signal::CHLD)),
            for_files: ForFiles::default(),
            controls: self.controls.of_child(),
            limits: self.limits.clone(),
            time_limits_set: Cell::new(0),
        });
        self.family.add(process.clone());
        crate::calls::limits::watch_processor_time(&process);
        process
    }

    /// Its memory.
    #[inline]
    pub fn memory(&self) -> Rc<OwnMemory> {
        self.memory.borrow().clone()
    }

    /// Has the running core be where its memory is.
    #[inline]
    pub(crate) fn enter_memory(&self) {
        // Nearly always it is there.
        if SpaceNumber::running() != self.space.get() {
            self.memory.borrow().enter();
            self.space.set(SpaceNumber::running());
        }
    }

    /// Its parent's identifier.
    pub fn parent(&self) -> u32 {
        self.parent.get()
    }

    /// The user whose rights it has.
    pub fn user(&self) -> u32 {
        self.view.borrow().credentials.user
    }

    /// Whether it has ended, and waits for its parent to hear of it.
    pub fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Its threads, by their identifiers.
    pub fn tasks(&self) -> Vec<Rc<Task>> {
        self.tasks.borrow().values().cloned().collect()
    }

    /// The name of its first thread: what that says, or else its program's.
    pub fn name(&self) -> Vec<u8> {
        const NAME_MAX: usize = 15;
        let own = self.tasks.borrow().first_key_value().map_or([0; 16], |(_, task)| task.name.get());
        if own[0] != 0 {
            return own.into_iter().take_while(|byte| *byte != 0).collect();
        }
        let program = self.program.borrow();
        let name = program.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        name[..name.len().min(NAME_MAX)].to_vec()
    }

    /// Does something with the tree of files, as its thread `thread`.
    pub fn with_vfs<R>(&self, thread: u32, act: impl FnOnce(&mut Vfs, &Caller<'_>) -> R) -> R {
        let (mut act, mut result) = (Some(act), None);
        self.call_with_vfs(thread, &mut |vfs, caller| result = act.take().map(|act| act(vfs, caller)));
        result.expect("it was done")
    }

    /// The same, once in an image, and not for each call that there is.
    #[inline(never)]
    fn call_with_vfs(&self, thread: u32, act: &mut dyn FnMut(&mut Vfs, &Caller<'_>)) {
        let view = self.view.borrow();
        let for_files = self.for_files.credentials(thread, &view.credentials);
        let caller = Caller {
            credentials: for_files.as_ref().unwrap_or(&view.credentials),
            root: view.root.node(),
            directory: view.directory.node(),
            umask: view.umask,
            process: self.id,
            thread,
            now: file_time(),
            processes: &*self.family,
            scope: Scope::default(),
        };
        self.family.vfs.borrow_mut().in_one_call(|vfs| act(vfs, &caller));
    }

    /// Has relative paths begin in a directory.
    pub(crate) fn begin_in(&self, directory: &[u8]) -> Result<(), Errno> {
        let node = self.with_vfs(self.id, |vfs, caller| {
            let node = vfs.resolve(caller, caller.root, directory, LastLink::Follow)?;
            if !vfs.kind(node).is_directory() {
                return Err(Errno::ENOTDIR);
            }
            vfs.hold(node);
            Ok(node)
        })?;
        self.view.borrow_mut().directory = HeldDirectory::of(&self.family.vfs, node);
        Ok(())
    }

    /// Has another program from now on.
    pub(crate) fn become_program(&self, loaded: &Loaded) {
        *self.memory.borrow_mut() = loaded.memory.clone();
        self.space.set(SpaceNumber::NONE);
        let before = self.program.replace(loaded.program.clone());
        drop(before);
        self.actions.borrow_mut().forget_handlers();
        {
            let mut view = self.view.borrow_mut();
            view.set_users(loaded.users);
            view.set_groups(loaded.groups);
        }
        [Whose::User, Whose::Group].into_iter().for_each(|whose| self.for_files.forget(whose));
        self.end_signal.set(Some(Signal::CHLD));
        self.controls.begin_program();
        self.forget_timers();
        let descriptors = self.descriptors.borrow().clone();
        descriptors.close_on_exec();
        self.release();
    }

    fn forget_timers(&self) {
        self.timers.take().values().for_each(|timer| timer.stop());
    }

    /// It does not use its parent's memory any more.
    fn release(&self) {
        self.has_own_memory.set(true);
        self.released.wake_all();
    }

    /// Sends it a signal.
    pub fn send(&self, _: &ProcessFamily, info: Info) {
        let tasks = self.tasks();
        if let Some(signal) = info.signal() {
            let is_blocked = tasks.iter().all(|task| task.blocked().has(signal));
            if self.settle_at_once(signal, is_blocked) {
                return;
            }
        }
        // What is blocked waits, even if it is ignored at present (signal(7)).
        let is_kept = |signal: &Signal| {
            let first = tasks.iter().min_by_key(|task| task.id);
            !self.actions.borrow().ignores(*signal) || first.is_some_and(|task| task.blocked().has(*signal))
        };
        let Some(signal) = info.signal().filter(is_kept) else { return };
        self.pending.borrow_mut().add(info);
        self.signal_waiters.wake();
        // One that does not block it is enough, but who takes it is known only when it does.
        tasks.iter().filter(|task| !task.blocked().has(signal)).for_each(|task| task.interrupt());
        tasks.iter().for_each(|task| task.signal_came.wake_all());
    }

    /// Decides how it ends: all its threads end.
    pub(crate) fn end(&self, exit: Exit) {
        if self.ending.get().is_none() {
            self.ending.set(Some(exit));
        }
        self.stops.release();
        self.tasks().iter().for_each(|task| task.interrupt());
    }

    /// Its last thread has ended.
    pub(crate) fn finish(self: &Rc<Process>) {
        let exit = self.ending.get().unwrap_or(Exit::Status(0));
        self.ending.set(Some(exit));
        self.has_ended.set(true);
        self.interval_timers.stop();
        self.forget_timers();
        self.descriptors.borrow().close_all();
        self.view.borrow_mut().leave();
        self.family.semaphores.undo_of(self);
        if self.has_own_memory.get() {
            self.memory().clear();
        }
        self.release();
        self.family.ended(self, exit);
        self.runs_no_more();
        self.end_waiters.wake();
    }

    /// Whether its parent hears of its end as of most.
    pub(crate) fn ends_by_sigchld(&self) -> bool {
        self.end_signal.get() == Some(Signal::CHLD)
    }

    /// Whether its children stay until it asks for them.
    pub(crate) fn keeps_ended_children(&self) -> bool {
        !self.ignores_children() && !self.actions.borrow().get(Signal::CHLD).has(SA_NOCLDWAIT)
    }

    /// Whether it is not told of their ends, either: `SIGCHLD` is not even kept where it is blocked.
    pub(crate) fn ignores_children(&self) -> bool {
        self.actions.borrow().get(Signal::CHLD).handler == crate::signals::IGNORE
    }

    /// Takes a signal that waits for it, or for its first thread.
    pub(crate) fn take_signal(&self, wanted: SignalSet) -> Option<Info> {
        let own = self.pending.borrow_mut().take(wanted);
        own.or_else(|| self.tasks().iter().find_map(|task| task.take_blocked(wanted)))
    }

    /// Signals that [`Process::take_signal`] finds.
    pub(crate) fn signals_waiting(&self) -> SignalSet {
        self.tasks().iter().fold(self.pending_set(), |set, task| set.with(task.blocked_signals()))
    }

    /// Signals that wait for any of its threads.
    #[inline]
    pub(crate) fn pending_set(&self) -> SignalSet {
        self.pending.borrow().set()
    }
}

/// Now, as files have it.
pub(crate) fn file_time() -> FileTime {
    const NS_IN_S: u64 = 1_000_000_000;
    let now = nom_sys::time::unix_ns();
    FileTime { seconds: (now / NS_IN_S) as i64, nanoseconds: (now % NS_IN_S) as u32 }
}
