//! Pseudoterminals (pty(7)): pairs of ends between which the [line discipline](discipline) stands. Who opens
//! `/dev/ptmx` has the master, a terminal's user as it were; programs find the slave at `/dev/pts/N`.

mod access;
pub(crate) mod control;
mod discipline;
mod packets;

use crate::descriptors::Stream;
use crate::descriptors::buffer::take_first;
use crate::descriptors::node::OpenNode;
use crate::descriptors::ready::{Events, Waiters};
use crate::family::ProcessFamily;
use crate::process::{Process, file_time};
use crate::signals::{Info, Signal};
pub(crate) use access::Wish;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, RefCell};
use core::fmt;
use core::task::Waker;
use discipline::{KeySignal, LineDiscipline};
use linux_raw_sys::general as abi;
use nom_fs::{Caller, Credentials, Errno, NodeId, NodeType, Ownership, Scope, Vfs};
use packets::{PacketStatus, Packets};

/// Bytes that programs wrote and nobody read, after which they wait.
const OUTPUT_MAX: usize = 1 << 14;
/// Most pseudoterminals: so many numbers of devices are theirs.
const TERMINALS_MAX: u32 = 2048;
const READABLE: Events = Events(Events::IN.0 | abi::POLLRDNORM);
const WRITABLE: Events = Events(Events::OUT.0 | abi::POLLWRNORM);

/// The pseudoterminals that there are, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Terminals(RefCell<BTreeMap<u32, Weak<Terminal>>>);

/// What both ends of a pseudoterminal share.
pub(crate) struct Terminal {
    /// Its number: that of its name in `/dev/pts`.
    number: u32,
    family: Weak<ProcessFamily>,
    discipline: RefCell<LineDiscipline>,
    /// What the master reads.
    output: RefCell<VecDeque<u8>>,
    /// Rows, columns, and what both are in pixels.
    window: Cell<[u16; 4]>,
    /// Nobody may open the slave (unlockpt(3)).
    is_locked: Cell<bool>,
    /// The session whose controlling terminal it is, and the process group that has it.
    session: Cell<Option<u32>>,
    foreground: Cell<u32>,
    /// How often the slave is open, if it was ever.
    slaves: Cell<Option<usize>>,
    is_hung_up: Cell<bool>,
    /// What the master is told beside bytes.
    packets: Packets,
    waiters: Waiters,
}

impl fmt::Debug for Terminal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Terminal({})", self.number)
    }
}

impl Terminals {
    /// A new one, whose slave `user` may open once it is unlocked.
    ///
    /// # Errors
    /// `ENOSPC` if there are too many; as [`Vfs::make_node`] for its name.
    pub fn create(
        &self,
        family: &Rc<ProcessFamily>,
        user: u32,
        held: OpenNode,
    ) -> Result<TerminalEnd, Errno> {
        let mut terminals = self.0.borrow_mut();
        let number =
            (0..TERMINALS_MAX).find(|number| !terminals.contains_key(number)).ok_or(Errno::ENOSPC)?;
        with_files(family, |vfs, caller| {
            vfs.add_terminal(caller, number, Ownership { user: Some(user), group: None })
        })?;
        let terminal = Rc::new(Terminal::new(number, Rc::downgrade(family)));
        terminals.insert(number, Rc::downgrade(&terminal));
        Ok(TerminalEnd { terminal, side: Side::Master, held })
    }

    /// The slave of this number.
    ///
    /// # Errors
    /// `ENXIO` if there is none; `EIO` if it is locked.
    pub fn open(&self, number: u32, held: OpenNode) -> Result<TerminalEnd, Errno> {
        let found = self.0.borrow().get(&number).and_then(Weak::upgrade);
        let terminal = found.ok_or(Errno::ENXIO)?;
        if terminal.is_locked.get() {
            return Err(Errno::EIO);
        }
        Ok(TerminalEnd::slave(terminal, held))
    }

    /// The controlling terminal of a session.
    pub fn of_session(&self, session: u32) -> Option<Rc<Terminal>> {
        let terminals = self.0.borrow();
        terminals.values().filter_map(Weak::upgrade).find(|terminal| terminal.session.get() == Some(session))
    }

    /// A process ends: if it leads a session, that has no terminal any more, and who had that is told.
    pub fn leader_ends(&self, leader: &Process) {
        if leader.session.get() == leader.id
            && let Some(terminal) = self.of_session(leader.id)
        {
            terminal.leave_session();
        }
    }
}

/// Does something with the files as the system itself.
pub(crate) fn with_files<R>(family: &ProcessFamily, act: impl FnOnce(&mut Vfs, &Caller<'_>) -> R) -> R {
    let root = family.vfs.borrow().root();
    let caller = Caller {
        credentials: &Credentials::default(),
        root,
        directory: root,
        umask: 0,
        process: 1,
        thread: 1,
        now: file_time(),
        processes: family,
        scope: Scope::default(),
    };
    family.vfs.borrow_mut().in_one_call(|vfs| act(vfs, &caller))
}

impl Terminal {
    /// One that is locked, and nobody's.
    fn new(number: u32, family: Weak<ProcessFamily>) -> Terminal {
        Terminal {
            number,
            family,
            discipline: RefCell::default(),
            output: RefCell::default(),
            window: Cell::new([0; 4]),
            is_locked: Cell::new(true),
            session: Cell::new(None),
            foreground: Cell::new(0),
            slaves: Cell::new(None),
            is_hung_up: Cell::new(false),
            packets: Packets::default(),
            waiters: Waiters::default(),
        }
    }

    /// Signals all processes of a group.
    fn signal(&self, group: u32, signal: Signal) {
        let Some(family) = self.family.upgrade() else { return };
        for process in family.processes().iter().filter(|process| process.group.get() == group) {
            process.send(&family, Info::by_kernel(signal));
        }
    }

    /// Signals who has the terminal.
    fn signal_foreground(&self, signal: Signal) {
        if self.foreground.get() != 0 {
            self.signal(self.foreground.get(), signal);
        }
    }

    /// The controlling terminal of this session from now on, which `group` has.
    fn become_of(&self, session: u32, group: u32) {
        self.session.set(Some(session));
        self.foreground.set(group);
    }

    /// No session's any more. Who had it is told, as of a line that was cut.
    fn leave_session(&self) {
        self.session.set(None);
        self.signal_foreground(Signal::HUP);
        self.signal_foreground(Signal::CONT);
        self.foreground.set(0);
    }

    /// Its master is gone.
    fn hang_up(&self) {
        self.is_hung_up.set(true);
        if let Some(family) = self.family.upgrade() {
            family.terminals.0.borrow_mut().remove(&self.number);
            // Somebody may have removed the name.
            let _ = with_files(&family, |vfs, caller| vfs.remove_terminal(caller, self.number));
            let session = self.session.get();
            let leader = session.and_then(|session| family.process(session));
            if let Some(leader) = leader.filter(|leader| leader.group.get() != self.foreground.get()) {
                self.signal(leader.group.get(), Signal::HUP);
                self.signal(leader.group.get(), Signal::CONT);
            }
            if session.is_some() {
                self.leave_session();
            }
        }
        self.waiters.wake();
    }

    /// Takes what is typed, as much as there is room for.
    fn type_in(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut count = 0;
        for byte in bytes {
            if !self.discipline.borrow().has_room() {
                break;
            }
            let signal = self.change(|discipline| discipline.type_byte(*byte));
            let echo = self.discipline.borrow_mut().take_echo();
            let mut output = self.output.borrow_mut();
            // Who types and reads nothing does not take all memory: what finds no room is not shown, as on
            // Linux.
            if output.len() < OUTPUT_MAX {
                output.extend(echo);
            }
            drop(output);
            if let Some(key) = signal {
                self.key_pressed(key);
            }
            count += 1;
        }
        self.waiters.wake();
        if count == 0 && !bytes.is_empty() { Err(Errno::EAGAIN) } else { Ok(count) }
    }

    /// A key that sends a signal was pressed.
    fn key_pressed(&self, key: KeySignal) {
        if self.discipline.borrow().modes().signals_flush() {
            self.packets.tell(PacketStatus::FLUSH_READ);
            self.packets.tell(PacketStatus::FLUSH_WRITE);
        }
        self.signal_foreground(match key {
            KeySignal::Interrupt => Signal::INT,
            KeySignal::Quit => Signal::QUIT,
            KeySignal::Suspend => Signal::TSTP,
        });
    }

    /// Changes the discipline; the master is told if output waits from now on, or no more.
    fn change<R>(&self, act: impl FnOnce(&mut LineDiscipline) -> R) -> R {
        let mut discipline = self.discipline.borrow_mut();
        let was_held = discipline.is_held();
        let result = act(&mut discipline);
        match (was_held, discipline.is_held()) {
            (false, true) => self.packets.tell(PacketStatus::STOP),
            (true, false) => self.packets.tell(PacketStatus::START),
            _ => {}
        }
        result
    }

    /// Gives the master what was shown, or, in packet mode, what happened.
    fn read_output(&self, target: &mut [u8]) -> Result<usize, Errno> {
        let Some((first, rest)) = target.split_first_mut() else { return Ok(0) };
        if let Some(status) = self.packets.take() {
            *first = status;
            return Ok(1);
        }
        let mut output = self.output.borrow_mut();
        if output.is_empty() {
            let nobody = self.slaves.get() == Some(0);
            return Err(if nobody { Errno::EIO } else { Errno::EAGAIN });
        }
        let count = if self.packets.are_on() {
            *first = packets::DATA;
            1 + take_first(&mut output, rest)
        } else {
            take_first(&mut output, target)
        };
        drop(output);
        self.waiters.wake();
        Ok(count)
    }

    /// Gives a program what was typed.
    fn read_input(&self, target: &mut [u8]) -> Result<usize, Errno> {
        if self.is_hung_up.get() {
            return Ok(0);
        }
        let count = self.discipline.borrow_mut().read(target).ok_or(Errno::EAGAIN)?;
        self.waiters.wake();
        Ok(count)
    }

    /// Takes what a program writes, as much as there is room for.
    fn put_out(&self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.is_hung_up.get() {
            return Err(Errno::EIO);
        }
        let discipline = self.discipline.borrow();
        let mut output = self.output.borrow_mut();
        let room = OUTPUT_MAX.saturating_sub(output.len());
        let count = if discipline.is_held() { 0 } else { bytes.len().min(room) };
        if count == 0 && !bytes.is_empty() {
            return Err(Errno::EAGAIN);
        }
        output.extend(discipline.shown(&bytes[..count]));
        drop((discipline, output));
        self.waiters.wake();
        Ok(count)
    }

    fn has_room_for_output(&self) -> bool {
        !self.discipline.borrow().is_held() && self.output.borrow().len() < OUTPUT_MAX
    }
}

/// Which end of a pseudoterminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// That of who is the terminal's user.
    Master,
    /// That of programs.
    Slave,
}

/// An end of a pseudoterminal that is open.
pub(crate) struct TerminalEnd {
    terminal: Rc<Terminal>,
    side: Side,
    held: OpenNode,
}

impl TerminalEnd {
    /// Opens the slave once more, as this name.
    pub fn slave(terminal: Rc<Terminal>, held: OpenNode) -> TerminalEnd {
        terminal.slaves.set(Some(terminal.slaves.get().unwrap_or(0) + 1));
        terminal.waiters.wake();
        TerminalEnd { terminal, side: Side::Slave, held }
    }

    /// The slave is opened by a process: one that leads a session without a terminal has it from now on.
    pub fn opened_by(&self, process: &Process) {
        let (session, terminal) = (process.session.get(), &self.terminal);
        let has_one = process.family.terminals.of_session(session).is_some();
        if session == process.id && !has_one && terminal.session.get().is_none() {
            terminal.become_of(session, process.group.get());
        }
    }
}

impl Drop for TerminalEnd {
    fn drop(&mut self) {
        let terminal = &self.terminal;
        match self.side {
            Side::Master => terminal.hang_up(),
            Side::Slave => {
                terminal.slaves.set(terminal.slaves.get().map(|count| count - 1));
                terminal.waiters.wake();
            }
        }
    }
}

impl Stream for TerminalEnd {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        match self.side {
            Side::Master => self.terminal.read_output(target),
            Side::Slave => self.terminal.read_input(target),
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.side {
            Side::Master => self.terminal.type_in(bytes),
            Side::Slave => self.terminal.put_out(bytes),
        }
    }

    fn ready(&self) -> Events {
        let terminal = &self.terminal;
        let has_status = terminal.packets.has_status();
        match self.side {
            Side::Master => READABLE
                .when(has_status || !terminal.output.borrow().is_empty())
                .with(Events::URGENT.when(has_status))
                .with(WRITABLE.when(terminal.discipline.borrow().has_room()))
                .with(Events::HANG_UP.when(terminal.slaves.get() == Some(0))),
            Side::Slave if terminal.is_hung_up.get() => {
                Events::ALWAYS.with(Events::ERROR).with(Events::HANG_UP)
            }
            Side::Slave => READABLE
                .when(terminal.discipline.borrow().is_readable())
                .with(WRITABLE.when(terminal.has_room_for_output())),
        }
    }

    fn wake(&self, waker: &Waker) {
        self.terminal.waiters.add(waker);
    }

    fn kind(&self) -> NodeType {
        NodeType::Character
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.held.node)
    }

    fn unread(&self) -> Option<usize> {
        Some(match self.side {
            Side::Master => self.terminal.output.borrow().len(),
            Side::Slave => self.terminal.discipline.borrow().unread(),
        })
    }

    fn terminal(&self) -> Option<&TerminalEnd> {
        Some(self)
    }
}

/// The name of a slave.
fn name(number: u32) -> alloc::string::String {
    format!("/dev/pts/{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_reads_of_an_echo_takes_no_more_memory() {
        let terminal = Terminal::new(0, Weak::new());
        terminal.type_in(&[b'x'; 4000]).unwrap();
        // Each asks to see all of the line again.
        for _ in 0..100 {
            assert_eq!(terminal.type_in(b"\x12"), Ok(1));
        }
        let shown = terminal.output.borrow().len();
        assert!((OUTPUT_MAX..OUTPUT_MAX + 4096).contains(&shown), "{shown} bytes");
        terminal.output.borrow_mut().clear();
        terminal.type_in(b"y").unwrap();
        assert_eq!(*terminal.output.borrow(), b"y", "it goes on");
    }
}
