//! What programs ask of terminals: ioctl_tty(2).

use super::access::Wish;
use super::discipline::TerminalModes;
use super::packets::PacketStatus;
use super::{Side, Terminal, TerminalEnd, name, with_files};
use crate::call::Call;
use crate::descriptors::add_terminal_end;
use crate::descriptors::node::OpenNode;
use crate::signals::Signal;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use linux_raw_sys::ioctl as request;
use nom_fs::{Errno, LastLink};

/// Answers a request to a terminal; nothing if it is none that only terminals know.
pub(crate) fn answer(call: &Call<'_>, end: &TerminalEnd) -> Option<Result<u64, Errno>> {
    let (terminal, asked, argument) = (&end.terminal, call.arguments[1] as u32, call.arguments[2]);
    let memory = call.memory();
    let admitted = if changes(asked) { end.admit(call, Wish::Change) } else { Ok(()) };
    let answer = match asked {
        request::FIONBIO | request::FIONREAD | request::FIOCLEX | request::FIONCLEX | request::FIOASYNC => {
            return None;
        }
        // All that can be said to a line that was cut.
        _ if terminal.is_hung_up.get() => Err(Errno::EIO),
        _ if let Err(errno) = admitted => Err(errno),
        request::TCGETS => memory.write_value(argument, &terminal.discipline.borrow().modes()),
        request::TCSETS | request::TCSETSW | request::TCSETSF => {
            memory.read_value(argument).map(|modes| terminal.set_modes(modes, asked == request::TCSETSF))
        }
        request::TCGETA => memory.write_value(argument, &terminal.discipline.borrow().modes().old()),
        request::TCSETA | request::TCSETAW | request::TCSETAF => memory.read_value(argument).map(|old| {
            let modes = terminal.discipline.borrow().modes().with_old(&old);
            terminal.set_modes(modes, asked == request::TCSETAF);
        }),
        // Which flags nobody may change: none.
        request::TIOCGLCKTRMIOS => memory.write_value(argument, &[0_u8; size_of::<TerminalModes>()]),
        request::TIOCGWINSZ => memory.write_value(argument, &terminal.window.get()),
        request::TIOCSWINSZ => memory.read_value(argument).map(|window| terminal.set_window(window)),
        request::TCFLSH => terminal.flush(end.side, argument as u32),
        request::TCXONC => terminal.hold(argument as u32),
        // Nothing waits to be sent.
        request::TCSBRK | request::TCSBRKP => Ok(()),
        request::TIOCOUTQ => memory.write_value(argument, &0_u32),
        request::TIOCSTI => {
            memory.read_value::<u8>(argument).and_then(|byte| terminal.type_in(&[byte]).map(drop))
        }
        request::TIOCGPTN
        | request::TIOCSPTLCK
        | request::TIOCGPTLCK
        | request::TIOCGPTPEER
        | request::TIOCPKT
        | request::TIOCGPKT
        | request::TIOCSIG => {
            let is_master = end.side == Side::Master;
            return Some(if is_master { of_master(call, terminal) } else { Err(Errno::ENOTTY) });
        }
        request::TIOCSCTTY
        | request::TIOCNOTTY
        | request::TIOCGPGRP
        | request::TIOCSPGRP
        | request::TIOCGSID => of_session(call, end),
        _ => Err(Errno::ENOTTY),
    };
    Some(answer.map(|()| 0))
}

/// Whether a request is for who is in the foreground alone.
fn changes(asked: u32) -> bool {
    const CHANGES: [u32; 10] = [
        request::TCSETS,
        request::TCSETSW,
        request::TCSETSF,
        request::TCSETA,
        request::TCSETAW,
        request::TCSETAF,
        request::TCFLSH,
        request::TCXONC,
        request::TCSBRK,
        request::TCSBRKP,
    ];
    CHANGES.contains(&asked)
}

impl Terminal {
    fn set_modes(&self, modes: TerminalModes, forgets: bool) {
        if forgets {
            self.forget_input();
        }
        let had_flow = self.discipline.borrow().modes().has_usual_flow();
        self.change(|discipline| discipline.set_modes(modes));
        match modes.has_usual_flow() {
            has_flow if has_flow == had_flow => {}
            true => self.packets.tell(PacketStatus::FLOW),
            false => self.packets.tell(PacketStatus::NO_FLOW),
        }
        self.waiters.wake();
    }

    fn forget_input(&self) {
        self.discipline.borrow_mut().forget_input();
        self.packets.tell(PacketStatus::FLUSH_READ);
    }

    fn set_window(&self, window: [u16; 4]) {
        if self.window.replace(window) != window {
            self.signal_foreground(Signal::WINCH);
        }
    }

    fn flush(&self, side: Side, what: u32) -> Result<(), Errno> {
        if what > abi::TCIOFLUSH {
            return Err(Errno::EINVAL);
        }
        // Nothing that was typed is still on its way.
        let (input, output) = match side {
            Side::Master => (false, what != abi::TCOFLUSH),
            Side::Slave => (what != abi::TCOFLUSH, what != abi::TCIFLUSH),
        };
        if input {
            self.forget_input();
        }
        if output {
            self.output.borrow_mut().clear();
        }
        if output && side == Side::Slave {
            self.packets.tell(PacketStatus::FLUSH_WRITE);
        }
        self.waiters.wake();
        Ok(())
    }

    fn hold(&self, what: u32) -> Result<(), Errno> {
        match what {
            abi::TCOOFF => self.change(|discipline| discipline.hold()),
            abi::TCOON => self.change(|discipline| discipline.let_go()),
            abi::TCIOFF | abi::TCION => {}
            _ => return Err(Errno::EINVAL),
        }
        self.waiters.wake();
        Ok(())
    }
}

/// What only who has the master may ask.
fn of_master(call: &Call<'_>, terminal: &Rc<Terminal>) -> Result<u64, Errno> {
    let argument = call.arguments[2];
    match call.arguments[1] as u32 {
        request::TIOCGPTN => call.memory().write_value(argument, &terminal.number)?,
        request::TIOCGPTLCK => call.memory().write_value(argument, &u32::from(terminal.is_locked.get()))?,
        request::TIOCPKT => match call.memory().read_value::<u32>(argument)? {
            0 => terminal.packets.end(),
            _ => terminal.packets.begin(),
        },
        request::TIOCGPKT => call.memory().write_value(argument, &u32::from(terminal.packets.are_on()))?,
        request::TIOCSIG => terminal.signal_foreground(key_signal(argument)?),
        request::TIOCSPTLCK => terminal.is_locked.set(call.memory().read_value::<u32>(argument)? != 0),
        _ => return open_peer(call, terminal, argument as u32),
    }
    Ok(0)
}

/// A signal that a key can send, too.
fn key_signal(number: u64) -> Result<Signal, Errno> {
    let signal = Signal::new(number)?;
    if [Signal::INT, Signal::QUIT, Signal::TSTP].contains(&signal) { Ok(signal) } else { Err(Errno::EINVAL) }
}

/// Opens the slave, whatever the name of it leads to.
fn open_peer(call: &Call<'_>, terminal: &Rc<Terminal>, flags: u32) -> Result<u64, Errno> {
    let family = call.family();
    let node = with_files(family, |vfs, caller| {
        let node = vfs.resolve(caller, caller.root, name(terminal.number).as_bytes(), LastLink::Follow)?;
        vfs.hold(node);
        Ok::<_, Errno>(node)
    })?;
    let slave = TerminalEnd::slave(terminal.clone(), OpenNode::held(family, node, None));
    if flags & abi::O_NOCTTY == 0 {
        slave.opened_by(call.process());
    }
    add_terminal_end(call, Rc::new(slave), flags)
}

/// What is asked of a session's terminal.
fn of_session(call: &Call<'_>, end: &TerminalEnd) -> Result<(), Errno> {
    let (terminal, process, argument) = (&end.terminal, call.process(), call.arguments[2]);
    let session = process.session.get();
    let is_own = terminal.session.get() == Some(session);
    let (leads, is_master) = (session == process.id, end.side == Side::Master);
    match call.arguments[1] as u32 {
        request::TIOCSCTTY => {
            let has_one = call.family().terminals.of_session(session).is_some();
            let is_stolen = argument == 1 && process.view.borrow().credentials.is_root();
            match terminal.session.get() {
                _ if is_own && leads => Ok(()),
                _ if !leads || has_one => Err(Errno::EPERM),
                Some(_) if !is_stolen => Err(Errno::EPERM),
                _ => {
                    terminal.become_of(session, process.group.get());
                    Ok(())
                }
            }
        }
        request::TIOCNOTTY if is_own && leads => {
            terminal.leave_session();
            Ok(())
        }
        request::TIOCNOTTY if is_own => Ok(()),
        request::TIOCGPGRP if is_own || is_master => {
            call.memory().write_value(argument, &terminal.foreground.get())
        }
        request::TIOCGSID if is_own || is_master => match terminal.session.get() {
            Some(session) => call.memory().write_value(argument, &session),
            None => Err(Errno::ENOTTY),
        },
        request::TIOCSPGRP if is_own => {
            let admitted = end.admit(call, Wish::Change);
            admitted.map_err(|errno| if errno == Errno::EIO { Errno::ENOTTY } else { errno })?;
            set_foreground(call, terminal, session)
        }
        _ => Err(Errno::ENOTTY),
    }
}

fn set_foreground(call: &Call<'_>, terminal: &Terminal, session: u32) -> Result<(), Errno> {
    let group = call.memory().read_value::<i32>(call.arguments[2])?;
    let group = u32::try_from(group).map_err(|_| Errno::EINVAL)?;
    let processes = call.family().processes();
    let mut members = processes.iter().filter(|process| process.group.get() == group);
    match members.next() {
        None => Err(Errno::ESRCH),
        Some(member) if member.session.get() != session => Err(Errno::EPERM),
        Some(_) => {
            terminal.foreground.set(group);
            Ok(())
        }
    }
}
