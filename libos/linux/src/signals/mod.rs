//! Signals (signal(7)), without a machine: sets, actions, what is pending, and what a handler finds on its
//! stack.

mod frame;

pub use frame::{Alternate, Frame, Interrupted, RETURN_BYTES, Return, on_return};

use alloc::vec::Vec;
use linux_raw_sys::general as abi;
use nom_fs::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Signals that there are.
pub const SIGNALS: u32 = 64;

/// One signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signal(u32);

macro_rules! signals {
    ($($name:ident)*) => {
        impl Signal {
            $(#[doc = concat!("`SIG", stringify!($name), "`.")]
            pub const $name: Signal = Signal(signal_number!($name));)*
        }
    };
}
macro_rules! signal_number {
    (KILL) => {
        abi::SIGKILL
    };
    (STOP) => {
        abi::SIGSTOP
    };
    (SEGV) => {
        abi::SIGSEGV
    };
    (BUS) => {
        abi::SIGBUS
    };
    (FPE) => {
        abi::SIGFPE
    };
    (ILL) => {
        abi::SIGILL
    };
    (TRAP) => {
        abi::SIGTRAP
    };
    (CHLD) => {
        abi::SIGCHLD
    };
    (PIPE) => {
        abi::SIGPIPE
    };
    (ALRM) => {
        abi::SIGALRM
    };
    (TERM) => {
        abi::SIGTERM
    };
    (CONT) => {
        abi::SIGCONT
    };
    (PROF) => {
        abi::SIGPROF
    };
    (VTALRM) => {
        abi::SIGVTALRM
    };
    (HUP) => {
        abi::SIGHUP
    };
    (INT) => {
        abi::SIGINT
    };
    (QUIT) => {
        abi::SIGQUIT
    };
    (TSTP) => {
        abi::SIGTSTP
    };
    (TTIN) => {
        abi::SIGTTIN
    };
    (TTOU) => {
        abi::SIGTTOU
    };
    (XCPU) => {
        abi::SIGXCPU
    };
    (WINCH) => {
        abi::SIGWINCH
    };
}
signals! {
    KILL STOP SEGV BUS FPE ILL TRAP CHLD PIPE ALRM TERM CONT PROF VTALRM HUP INT QUIT TSTP TTIN TTOU WINCH
    XCPU
}

impl Signal {
    /// Errors: `EINVAL`, for numbers that are no signal's.
    pub fn new(number: u64) -> Result<Signal, Errno> {
        let number = u32::try_from(number).map_err(|_| Errno::EINVAL)?;
        if (1..=SIGNALS).contains(&number) { Ok(Signal(number)) } else { Err(Errno::EINVAL) }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// What it does to a process that has said nothing of it.
    pub fn default_effect(self) -> Effect {
        match self.0 {
            abi::SIGCHLD | abi::SIGURG | abi::SIGWINCH => Effect::None,
            abi::SIGCONT => Effect::Continue,
            abi::SIGSTOP | abi::SIGTSTP | abi::SIGTTIN | abi::SIGTTOU => Effect::Stop,
            _ => Effect::End,
        }
    }

    /// Whether a process that it ends says so in its status as one that left a dump of its memory.
    pub fn dumps(self) -> bool {
        let dumping = [
            abi::SIGQUIT,
            abi::SIGILL,
            abi::SIGTRAP,
            abi::SIGABRT,
            abi::SIGBUS,
            abi::SIGFPE,
            abi::SIGSEGV,
            abi::SIGXCPU,
            abi::SIGXFSZ,
            abi::SIGSYS,
        ];
        dumping.contains(&self.0)
    }
}

/// What a signal does that has no handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// It ends the process.
    End,
    /// It stops the process.
    Stop,
    /// It lets a stopped process go on.
    Continue,
}

/// A set of signals, as `sigset_t` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct SignalSet(pub u64);

impl SignalSet {
    /// The set with one signal.
    pub fn of(signal: Signal) -> SignalSet {
        SignalSet(1 << (signal.0 - 1))
    }

    /// Whether a signal is in it.
    pub fn has(self, signal: Signal) -> bool {
        self.0 & SignalSet::of(signal).0 != 0
    }

    /// Those of both.
    #[must_use]
    pub fn with(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 | other.0)
    }

    /// Those that are not in the other.
    #[must_use]
    pub fn without(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 & !other.0)
    }

    /// What can be blocked of it: `SIGKILL` and `SIGSTOP` cannot.
    #[must_use]
    pub fn blockable(self) -> SignalSet {
        self.without(SignalSet::of(Signal::KILL).with(SignalSet::of(Signal::STOP)))
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What a process does with a signal, as `rt_sigaction` takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Action {
    /// `SIG_DFL` (0), `SIG_IGN` (1), or where its handler begins.
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// What is blocked meanwhile.
    pub mask: SignalSet,
}

/// `SIG_IGN`.
pub const IGNORE: u64 = 1;

impl Action {
    /// Whether it has one of these `SA_*`.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }
}

/// What a process does with each signal.
#[derive(Clone, Debug)]
pub struct Actions([Action; SIGNALS as usize]);

impl Default for Actions {
    fn default() -> Actions {
        Actions([Action::default(); SIGNALS as usize])
    }
}

impl Actions {
    /// What is done with a signal.
    pub fn get(&self, signal: Signal) -> Action {
        self.0[signal.0 as usize - 1]
    }

    /// Says what is done with a signal.
    ///
    /// # Errors
    /// `EINVAL` for `SIGKILL` and `SIGSTOP`.
    pub fn set(&mut self, signal: Signal, action: Action) -> Result<(), Errno> {
        if signal == Signal::KILL || signal == Signal::STOP {
            return Err(Errno::EINVAL);
        }
        self.0[signal.0 as usize - 1] = Action { mask: action.mask.blockable(), ..action };
        Ok(())
    }

    /// As a new program begins: what has a handler has none.
    pub fn forget_handlers(&mut self) {
        for action in self.0.iter_mut().filter(|action| action.handler > IGNORE) {
            *action = Action::default();
        }
    }

    /// Those that are ignored because the process says so, and those that have handlers.
    pub fn sets(&self) -> (SignalSet, SignalSet) {
        let of = |is_meant: fn(u64) -> bool| {
            let all = (0..).zip(&self.0).filter(|(_, action)| is_meant(action.handler));
            SignalSet(all.fold(0, |set, (index, _)| set | 1 << index))
        };
        (of(|handler| handler == IGNORE), of(|handler| handler > IGNORE))
    }

    /// Whether a signal does nothing at all.
    pub fn ignores(&self, signal: Signal) -> bool {
        match self.get(signal).handler {
            IGNORE => true,
            0 => matches!(signal.default_effect(), Effect::None | Effect::Continue),
            _ => false,
        }
    }
}

/// What a signal says of itself: `siginfo_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Info {
    /// The signal.
    pub signal: u32,
    /// Zero.
    pub errno: i32,
    /// Where it comes from.
    pub code: i32,
    padding: u32,
    /// What the code says: of `kill`, process and user; of a fault, the address; of a child, process, user,
    /// status.
    pub fields: [u32; 28],
}

impl Info {
    /// Of a process that sent it.
    pub fn sent(signal: Signal, code: i32, process: u32, user: u32) -> Info {
        let mut fields = [0; 28];
        (fields[0], fields[1]) = (process, user);
        Info { signal: signal.0, errno: 0, code, padding: 0, fields }
    }

    /// Of the system itself.
    pub fn by_kernel(signal: Signal) -> Info {
        Info::sent(signal, abi::SI_KERNEL as i32, 0, 0)
    }

    /// [`Info::sent`] of a signal's number; nothing for 0, which only asks whether anybody is there.
    ///
    /// # Errors
    /// `EINVAL` if there is no such signal.
    pub fn sent_by(signal: u64, code: i32, process: u32, user: u32) -> Result<Option<Info>, Errno> {
        if signal as u32 == 0 {
            return Ok(None);
        }
        let signal = Signal::new(u64::from(signal as u32))?;
        Ok(Some(Info::sent(signal, code, process, user)))
    }

    /// Of a fault at an address.
    pub fn fault(signal: Signal, code: i32, address: u64) -> Info {
        Info::sent(signal, code, address as u32, (address >> 32) as u32)
    }

    /// By which a parent hears of a child: `CLD_*` and its status.
    pub fn child(signal: Signal, code: u32, process: u32, user: u32, status: u32) -> Info {
        let mut info = Info::sent(signal, code as i32, process, user);
        info.fields[2] = status;
        info
    }

    /// Which signal it is of.
    pub fn signal(&self) -> Option<Signal> {
        Signal::new(self.signal.into()).ok()
    }
}

/// Signals that are on their way to a thread, or to a process.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// In the order in which they came.
    queue: Vec<Info>,
}

/// The first of those that queue.
const REAL_TIME: u32 = 32;
/// Most signals of one number that wait, of those that queue.
const QUEUED_MAX: usize = 256;

impl Pending {
    /// Adds one. Of those below the real-time ones, one waits at most.
    pub fn add(&mut self, info: Info) {
        if self.has_room_for(&info) {
            self.queue.push(info);
        }
    }

    fn has_room_for(&self, info: &Info) -> bool {
        let same = self.queue.iter().filter(|other| other.signal == info.signal).count();
        same < if info.signal >= REAL_TIME { QUEUED_MAX } else { 1 }
    }

    /// Whether one more like this would not be kept, though it is of those that queue.
    pub fn is_full_of(&self, info: &Info) -> bool {
        info.signal >= REAL_TIME && !self.has_room_for(info)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Which wait.
    pub fn set(&self) -> SignalSet {
        let all = self.queue.iter().filter_map(Info::signal);
        all.fold(SignalSet::default(), |set, signal| set.with(SignalSet::of(signal)))
    }

    /// Takes the one with the lowest number that is in `wanted`; of those the first that came.
    pub fn take(&mut self, wanted: SignalSet) -> Option<Info> {
        let is_wanted = |info: &Info| info.signal().is_some_and(|signal| wanted.has(signal));
        let all = self.queue.iter().enumerate().filter(|(_, info)| is_wanted(info));
        let (index, _) = all.min_by_key(|(index, info)| (info.signal, *index))?;
        Some(self.queue.remove(index))
    }

    /// Forgets those that are in `which`.
    pub fn forget(&mut self, which: SignalSet) {
        self.queue.retain(|info| !info.signal().is_some_and(|signal| which.has(signal)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn signal(number: u64) -> Signal {
        Signal::new(number).expect("a signal")
    }

    #[test]
    fn numbers_of_no_signal_are_refused() {
        assert!([0, 65, u64::MAX].into_iter().all(|number| Signal::new(number) == Err(Errno::EINVAL)));
    }

    #[test]
    fn what_cannot_be_caught_or_blocked_is_not() {
        let mut actions = Actions::default();
        let handled = Action { handler: 0x1000, mask: SignalSet(u64::MAX), ..Action::default() };
        for uncatchable in [Signal::KILL, Signal::STOP] {
            assert_eq!(actions.set(uncatchable, handled), Err(Errno::EINVAL));
        }
        actions.set(Signal::SEGV, handled).expect("it can be caught");
        let mask = actions.get(Signal::SEGV).mask;
        assert!(!mask.has(Signal::KILL) && !mask.has(Signal::STOP) && mask.has(Signal::TERM));
        actions.set(Signal::PIPE, Action { handler: IGNORE, ..handled }).expect("it can be ignored");
        assert_eq!(actions.sets(), (SignalSet::of(Signal::PIPE), SignalSet::of(Signal::SEGV)));
        actions.forget_handlers();
        assert_eq!(actions.get(Signal::SEGV), Action::default());
        assert!(
            actions.ignores(Signal::PIPE) && actions.ignores(Signal::CHLD) && !actions.ignores(Signal::TERM)
        );
    }

    proptest! {
        /// Against a list: the lowest number first, the first that came of those; below 32 one of each.
        #[test]
        fn signals_are_taken_in_order(
            numbers in proptest::collection::vec(1..=64u64, 0..40),
            wanted in any::<u64>(),
        ) {
            let (mut pending, mut model) = (Pending::default(), Vec::new());
            for (count, number) in numbers.into_iter().enumerate() {
                pending.add(Info::sent(signal(number), 0, count as u32, 0));
                if number >= 32 || !model.iter().any(|(other, _)| *other == number) {
                    model.push((number, count as u32));
                }
            }
            let wanted = SignalSet(wanted);
            model.sort();
            let is_wanted = |number: u64| wanted.has(signal(number));
            let expected: Vec<_> = model.into_iter().filter(|(number, _)| is_wanted(*number)).collect();
            let mut taken = Vec::new();
            while let Some(info) = pending.take(wanted) {
                taken.push((u64::from(info.signal), info.fields[0]));
            }
            prop_assert_eq!(taken, expected);
            prop_assert!(pending.set().without(wanted) == pending.set());
        }
    }
}
