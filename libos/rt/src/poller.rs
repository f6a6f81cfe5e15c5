//! Sources of work that are looked at again and again, or waited for with interrupts.

use crate::meter::Activity;
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::RefCell;

/// What a poller did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Pieces of work that it found and did, such as packets; 0 if there were none.
    pub worked: u32,
    /// When it must be polled again even if no interrupt comes.
    pub deadline_ns: Option<u64>,
}

/// A source of work, such as a queue pair of a network interface with the stack behind it.
pub trait Poller {
    /// Does what is there to do, run to completion, but no more than a batch: other sources wait meanwhile.
    fn poll(&mut self, now_ns: u64) -> Progress;

    /// Asks for an interrupt that ends this core's sleep when there is work. `false` if there is already:
    /// the loop polls again.
    fn arm(&mut self) -> bool;

    /// Asks for no more interrupts, if it did ask.
    fn disarm(&mut self);
}

/// A poller that the application shares with its callbacks.
impl<P: Poller + ?Sized> Poller for Rc<RefCell<P>> {
    fn poll(&mut self, now_ns: u64) -> Progress {
        self.borrow_mut().poll(now_ns)
    }

    fn arm(&mut self) -> bool {
        self.borrow_mut().arm()
    }

    fn disarm(&mut self) {
        self.borrow_mut().disarm();
    }
}

/// Names a poller of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollerId(pub(crate) u64);

/// A poller and what the loop knows about it.
pub(crate) struct Registered {
    pub id: PollerId,
    /// Who pays for its work, unless it says otherwise by `Handle::charge`.
    pub activity: Activity,
    pub poller: Box<dyn Poller>,
    pub deadline_ns: Option<u64>,
}

/// What the loop does to its list of pollers before the next turn; events run while it is in use.
pub(crate) enum Change {
    Add(Registered),
    Remove(PollerId),
}
