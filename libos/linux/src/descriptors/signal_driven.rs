//! Signal-driven I/O (fcntl(2), "Managing signals"): who is told by a signal that something is ready.

use super::open::{Description, Happened};
use super::ready::{Events, Waiters};
use crate::calls::identities::Identities;
use crate::family::ProcessFamily;
use crate::process::Process;
use crate::signals::{Info, Signal};
use alloc::rc::{Rc, Weak};
use core::cell::Cell;
use core::future::poll_fn;
use core::task::Poll;
use linux_raw_sys::general as abi;
use nom_fs::NodeType;

/// Who is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SignalOwner {
    /// Nobody.
    #[default]
    Nobody,
    /// A thread.
    Thread(u32),
    /// A process.
    Process(u32),
    /// All processes of a group.
    Group(u32),
}

/// What is seen of a description.
#[derive(Clone, Copy, Debug)]
struct Seen {
    ready: Events,
    happened: Happened,
}

impl Seen {
    fn of(description: &Description) -> Seen {
        let happened = description.stream().map(|stream| stream.happened()).unwrap_or_default();
        Seen { ready: description.ready(), happened }
    }

    /// What it is ready for, and was not before, or has not been at all times since: nobody hears of it when
    /// it is filled.
    fn since(self, before: Seen) -> Events {
        let was_full = Events::OUT.when(self.happened.fills != before.happened.fills);
        let has_come = Events::IN.when(self.happened.arrived != before.happened.arrived);
        self.ready.without(before.ready.without(was_full.with(has_come)))
    }
}

/// Why somebody is told, and the conditions that this stands for (linux/fs/fcntl.c: `band_table`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reason {
    code: u32,
    band: u32,
}

const IN: Reason = Reason { code: abi::POLL_IN, band: abi::POLLIN | abi::POLLRDNORM };
const OUT: Reason = Reason { code: abi::POLL_OUT, band: abi::POLLOUT | abi::POLLWRNORM | abi::POLLWRBAND };
const ERROR: Reason = Reason { code: abi::POLL_ERR, band: abi::POLLERR };
const HANG_UP: Reason = Reason { code: abi::POLL_HUP, band: abi::POLLHUP | abi::POLLERR };

/// What is said of one description.
#[derive(Debug, Default)]
pub(crate) struct SignalDriven {
    /// Who is told.
    pub owner: Cell<SignalOwner>,
    /// The users of who said so: with their rights signals are sent.
    pub by: Cell<Identities>,
    /// By which signal that says more, if not by SIGIO, which does not.
    pub signal: Cell<Option<Signal>>,
    /// The descriptor that signals name.
    pub descriptor: Cell<i32>,
    /// What is said now is not what was said before.
    setting: Cell<u64>,
    settings: Waiters,
}

impl SignalDriven {
    /// Somebody with the rights of `by` says who is told.
    pub fn own(&self, owner: SignalOwner, by: Identities) {
        self.owner.set(owner);
        self.by.set(by);
    }

    /// Tells nobody any more.
    pub fn stop(&self) {
        self.setting.update(|setting| setting + 1);
        self.settings.wake();
    }

    /// Tells from now on what was said to be told, if anything.
    pub fn begin(self: &Rc<Self>, family: &Rc<ProcessFamily>, description: &Rc<Description>) {
        self.stop();
        let is_wanted = is_driven(description) || description.socket().is_ok();
        if is_wanted && self.owner.get() != SignalOwner::Nobody {
            // When it is first asked something else may be said already.
            let said = (self.setting.get(), Seen::of(description));
            let telling = self.clone().watch(Rc::downgrade(description), Rc::downgrade(family), said);
            drop(family.handle.clone().spawn(telling));
        }
    }

    /// Tells of a description that was ready for `before`, until something else is said.
    async fn watch(
        self: Rc<Self>,
        description: Weak<Description>,
        family: Weak<ProcessFamily>,
        (setting, mut before): (u64, Seen),
    ) {
        loop {
            let mut is_asked = false;
            let woken = poll_fn(|context| {
                let there = description.upgrade().filter(|_| self.setting.get() == setting);
                let Some(there) = there else { return Poll::Ready(None) };
                // Something may have come before anybody was asked.
                if is_asked || !Seen::of(&there).since(before).is_none() {
                    return Poll::Ready(Some(there));
                }
                is_asked = true;
                self.settings.add(context.waker());
                there.wake(context.waker());
                Poll::Pending
            });
            let (Some(there), Some(family)) = (woken.await, family.upgrade()) else { return };
            let seen = Seen::of(&there);
            self.tell(&family, &there, seen.ready, seen.since(before));
            before = seen;
        }
    }

    /// Something has come, or there is room again.
    fn tell(&self, family: &ProcessFamily, description: &Description, ready: Events, new: Events) {
        let kernel = |signal: u32| Signal::new(signal.into()).map(Info::by_kernel).ok();
        if !new.of(Events::URGENT).is_none() {
            self.send(family, kernel(abi::SIGURG));
        }
        let Some(reason) = reason(description, ready, new).filter(|_| is_driven(description)) else { return };
        let info = match self.signal.get() {
            None => kernel(abi::SIGIO),
            Some(signal) => {
                let mut info = Info::sent(signal, reason.code as i32, reason.band, 0);
                info.fields[2] = self.descriptor.get() as u32;
                Some(info)
            }
        };
        self.send(family, info);
    }

    fn send(&self, family: &ProcessFamily, info: Option<Info>) {
        let Some(info) = info else { return };
        let may = |process: &Process| self.by.get().may_signal(process.view.borrow().users());
        match self.owner.get() {
            SignalOwner::Nobody => {}
            SignalOwner::Thread(id) => {
                let found = family.task(id).filter(|task| may(&task.process));
                found.into_iter().for_each(|task| task.send(info));
            }
            owner => {
                let is_owner = |process: &Rc<Process>| match owner {
                    SignalOwner::Group(group) => process.group.get() == group,
                    owner => owner == SignalOwner::Process(process.id),
                };
                let all = family.processes().into_iter().filter(|process| is_owner(process) && may(process));
                all.for_each(|process| process.send(family, info));
            }
        }
    }
}

/// Whether its owner is told of all that happens (`O_ASYNC`).
fn is_driven(description: &Description) -> bool {
    description.flags.get() & abi::FASYNC != 0
}

/// Why the owner of a description is told that it is ready, and for `new` as it was not before: of what came
/// each time, since its reader may have read all before.
fn reason(description: &Description, ready: Events, new: Events) -> Option<Reason> {
    let has = |events: Events, which: Events| !events.of(which).is_none();
    // The end of a pipe that is closed is told of as bytes, or room, would be.
    let is_pipe = description.stream().is_some_and(|stream| stream.kind() == NodeType::Fifo);
    if has(new, Events::HANG_UP) {
        Some(if is_pipe { IN } else { HANG_UP })
    } else if has(ready, Events::IN) {
        Some(IN)
    } else if has(new, Events::ERROR) {
        Some(if is_pipe { OUT } else { ERROR })
    } else {
        has(new, Events::OUT).then_some(OUT)
    }
}
