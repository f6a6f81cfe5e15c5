//! What all processes of the application share.

use crate::buffers::CallBuffers;
use crate::calls::identities::Identities;
use crate::futex::Futexes;
use crate::heaps::JavaHeaps;
use crate::load::LoadError;
use crate::machine::Spaces;
use crate::process::{Exit, Process};
use crate::runners::Runners;
use crate::signals::Info;
use crate::task::Task;
use crate::trace::Tracer;
use crate::vdso::VdsoImage;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use nom_app::sockets::{Network, Threads};
use nom_fs::Vfs;
use nom_rt::handle::Handle;
use nom_sys::port::Entropy;

/// The first process, with which the machine ends.
const FIRST: u32 = 1;

/// What a family is made of.
pub struct FamilyParts {
    /// The files.
    pub vfs: Vfs,
    /// The network, if there is any.
    pub network: Option<Network>,
    /// The loop that it runs on.
    pub handle: Handle,
    /// Threads of that loop.
    pub threads: Threads,
    /// Who notes calls, if somebody wants that.
    pub tracer: Option<Tracer>,
}

/// How the first process begins.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// In which directory.
    pub directory: &'a [u8],
    /// As which user and which group.
    pub user: (u32, u32),
    /// With these arguments, of which the first is its name.
    pub arguments: &'a [Vec<u8>],
    /// And these variables.
    pub environment: &'a [Vec<u8>],
}

fn printable(process: &Process) -> String {
    String::from_utf8_lossy(&process.name()).into_owned()
}

/// All processes, and what they share.
pub struct ProcessFamily {
    /// The files.
    pub vfs: Rc<RefCell<Vfs>>,
    /// The network, if there is any.
    pub network: Option<Network>,
    /// The loop that everything runs on.
    pub handle: Handle,
    pub(crate) threads: Threads,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) spaces: Spaces,
    /// Cores beside this one.
    pub(crate) runners: Runners,
    /// Heaps that can give memory back.
    pub(crate) heaps: JavaHeaps,
    /// All memory that there may be.
    pub(crate) memory_bytes: u64,
    pub(crate) entropy: RefCell<Entropy>,
    pub(crate) futexes: Futexes,
    /// Where local sockets are found.
    pub(crate) sockets: Rc<crate::descriptors::places::Places>,
    /// Pipes that have names.
    pub(crate) fifos: crate::descriptors::fifo::Fifos,
    /// Descriptors on their way.
    pub(crate) flights: Rc<crate::descriptors::flight::Flights>,
    /// Pseudoterminals.
    pub(crate) terminals: crate::terminal::Terminals,
    /// The locks of files.
    pub(crate) locks: Rc<crate::descriptors::locks::FileLocks>,
    /// What processes have mapped shared of files.
    pub(crate) mapped: Rc<crate::descriptors::mapped::MappedFiles>,
    /// Queues of messages that have names.
    pub(crate) queues: crate::descriptors::queue::MessageQueues,
    /// Semaphores and messages of System V.
    pub(crate) semaphores: crate::calls::semaphores::SemaphoreSets,
    pub(crate) mailboxes: crate::calls::mailboxes::Mailboxes,
    /// Segments of shared memory.
    pub(crate) segments: crate::calls::segments::Segments,
    /// Buffers of calls.
    pub(crate) buffers: Rc<CallBuffers>,
    /// What each process finds in its memory.
    pub(crate) vdso: Rc<VdsoImage>,
    processes: RefCell<BTreeMap<u32, Rc<Process>>>,
    next_id: Cell<u32>,
    /// Tells this boot from others.
    pub(crate) boot_id: [u8; 16],
    /// Calls that nobody knows, and have been said.
    unknown: RefCell<BTreeSet<u64>>,
}

impl fmt::Debug for ProcessFamily {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ProcessFamily({} processes)", self.processes.borrow().len())
    }
}

impl ProcessFamily {
    /// A family without processes.
    pub fn new(setup: FamilyParts) -> Rc<ProcessFamily> {
        use nom_app::port::world::Entropy as _;
        let FamilyParts { mut vfs, network, handle, threads, tracer } = setup;
        let spaces = Spaces::default();
        vfs.set_room(Box::new(spaces.clone()));
        let (mut entropy, mut boot_id) = (Entropy::new(), [0; 16]);
        entropy.fill(&mut boot_id);
        let family = Rc::new(ProcessFamily {
            vfs: Rc::new(RefCell::new(vfs)),
            network,
            handle,
            threads,
            tracer,
            spaces,
            runners: Runners::default(),
            heaps: JavaHeaps::default(),
            memory_bytes: crate::calls::system::memory_bytes().0,
            entropy: RefCell::new(entropy),
            futexes: Futexes::default(),
            sockets: Rc::default(),
            fifos: Default::default(),
            flights: Rc::default(),
            terminals: Default::default(),
            locks: Rc::default(),
            mapped: Rc::default(),
            queues: Default::default(),
            semaphores: Default::default(),
            mailboxes: Default::default(),
            segments: Default::default(),
            buffers: Rc::default(),
            vdso: VdsoImage::new(),
            processes: RefCell::default(),
            next_id: Cell::new(1),
            boot_id,
            unknown: RefCell::default(),
        });
        family.spaces.serve(&family);
        family
    }

    /// Starts the first process, whose end is the machine's.
    ///
    /// # Errors
    /// Why the program cannot be run.
    pub fn start(self: &Rc<ProcessFamily>, path: &[u8], begin: &Beginning<'_>) -> Result<(), LoadError> {
        let process = Process::first(self).ok_or(LoadError::NoMemory)?;
        process
            .begin_in(begin.directory)
            .map_err(|errno| LoadError::File(begin.directory.to_vec(), errno))?;
        {
            let mut view = process.view.borrow_mut();
            view.set_users(Identities::all(begin.user.0));
            view.set_groups(Identities::all(begin.user.1));
        }
        let loaded = crate::load::load(&process, process.id, path, begin.arguments, begin.environment)?;
        process.become_program(&loaded);
        let task = Task::new(process.id, process.clone(), loaded.registers);
        task.start(self).map_err(|_| LoadError::NoMemory)?;
        Ok(())
    }

    /// The processes, by their identifiers.
    pub fn processes(&self) -> Vec<Rc<Process>> {
        self.processes.borrow().values().cloned().collect()
    }

    /// The process with this identifier.
    pub fn process(&self, id: u32) -> Option<Rc<Process>> {
        self.processes.borrow().get(&id).cloned()
    }

    /// The process with which the machine ends.
    pub(crate) fn first(&self) -> Option<Rc<Process>> {
        self.process(FIRST)
    }

    /// The thread with this identifier, of whatever process.
    pub(crate) fn task(&self, id: u32) -> Option<Rc<Task>> {
        self.processes.borrow().values().find_map(|process| process.tasks.borrow().get(&id).cloned())
    }

    pub(crate) fn add(&self, process: Rc<Process>) {
        self.processes.borrow_mut().insert(process.id, process);
    }

    pub(crate) fn remove(&self, process: u32) {
        self.processes.borrow_mut().remove(&process);
    }

    /// An identifier that no process and no thread has.
    pub(crate) fn take_id(&self) -> u32 {
        self.next_id.replace(self.next_id.get() + 1)
    }

    /// A random number below `end`.
    pub(crate) fn random(&self, end: u64) -> u64 {
        use nom_app::port::world::Entropy as _;
        let mut bytes = [0; 8];
        self.entropy.borrow_mut().fill(&mut bytes);
        u64::from_le_bytes(bytes) % end
    }

    /// Says once that a program makes a call that is not there.
    pub(crate) fn unknown(&self, number: u64, say: impl FnOnce()) {
        if self.unknown.borrow_mut().insert(number) {
            say();
        }
    }

    /// The machine ends with its first process, as a container does: whoever is left is named, since a server
    /// that went into the background was meant to stay.
    fn name_those_left(&self, first: &Process) {
        let all = self.processes();
        let left = all.iter().filter(|process| !process.has_ended() && process.id != first.id);
        let names: Vec<_> = left.map(|process| format!("{} ({})", process.id, printable(process))).collect();
        if !names.is_empty() {
            nom_app::println!(
                "the first process ({}) has ended, and the machine with it, as a container would; processes \
                 that were left: {}; a server is to stay in the foreground",
                printable(first),
                names.join(", ")
            );
        }
    }

    /// A process has ended: its parent is told, its children have another parent; the machine ends with the
    /// first.
    pub(crate) fn ended(&self, process: &Rc<Process>, exit: Exit) {
        self.tracer.iter().for_each(|tracer| tracer.ended(process, exit));
        self.terminals.leader_ends(process);
        if process.id == FIRST {
            self.name_those_left(process);
            return self.handle.stop(exit.machine_status());
        }
        let next = self.subreaper_over(process);
        for child in self.processes().iter().filter(|child| child.parent.get() == process.id) {
            child.parent.set(next.unwrap_or(FIRST));
            match child.ending.get().filter(|_| child.has_ended()) {
                // Who did not ask for them is not asked to wait for them.
                Some(_) if next.is_none() => self.remove(child.id),
                Some(exit) => self.tell_parent(child, exit),
                None => {
                    child.controls.death_signal(process).into_iter().for_each(|info| child.send(self, info));
                }
            }
        }
        self.tell_parent(process, exit);
    }

    /// Whose children those of a process are when it ends: the nearest ancestor's that asked for them, if one
    /// did.
    fn subreaper_over(&self, process: &Process) -> Option<u32> {
        let mut above = self.process(process.parent.get());
        while let Some(ancestor) = above {
            if ancestor.controls.is_subreaper() && !ancestor.has_ended() {
                return Some(ancestor.id);
            }
            above = self.process(ancestor.parent.get());
        }
        None
    }

    fn tell_parent(&self, process: &Rc<Process>, exit: Exit) {
        let parent = self.process(process.parent.get()).filter(|parent| !parent.has_ended());
        let Some(parent) = parent else { return self.remove(process.id) };
        let is_usual = process.ends_by_sigchld();
        if is_usual && !parent.keeps_ended_children() {
            self.remove(process.id);
        }
        // Who waits for any of them learns that there is none left, too.
        parent.child_ended.wake_all();
        if let Some(signal) = process.end_signal.get().filter(|_| !is_usual || !parent.ignores_children()) {
            let (code, status) = exit.child_code();
            parent.send(self, Info::child(signal, code, process.id, process.user(), status));
        }
    }
}
