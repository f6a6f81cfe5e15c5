//! What something open is ready for, and who waits for that.

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Poll, Waker};
use linux_raw_sys::general as abi;
use nom_fs::Errno;
use nom_rt::Sweep;

/// A set of conditions, by the bits of poll(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events(pub u32);

impl Events {
    /// None.
    pub const NONE: Events = Events(0);
    /// Something can be read, be it the end.
    pub const IN: Events = Events(abi::POLLIN);
    /// An urgent byte can be received.
    pub const URGENT: Events = Events(abi::POLLPRI);
    /// Something can be written, or would fail at once.
    pub const OUT: Events = Events(abi::POLLOUT);
    /// It failed.
    pub const ERROR: Events = Events(abi::POLLERR);
    /// The other end is gone.
    pub const HANG_UP: Events = Events(abi::POLLHUP);
    /// The other end will write no more.
    pub const READ_HANG_UP: Events = Events(abi::POLLRDHUP);
    /// What is told whether anybody asks or not.
    pub const ALWAYS_TOLD: Events = Events(abi::POLLERR | abi::POLLHUP);
    /// Of what never waits.
    pub const ALWAYS: Events = Events(abi::POLLIN | abi::POLLOUT | abi::POLLRDNORM | abi::POLLWRNORM);

    /// Those of both.
    #[must_use]
    pub fn with(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }

    /// Those that are in both.
    #[must_use]
    pub fn of(self, other: Events) -> Events {
        Events(self.0 & other.0)
    }

    /// Those that are not in `other`.
    #[must_use]
    pub fn without(self, other: Events) -> Events {
        Events(self.0 & !other.0)
    }

    /// These if `condition` holds.
    #[must_use]
    pub(crate) fn when(self, condition: bool) -> Events {
        if condition { self } else { Events::NONE }
    }

    /// Whether there is none.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Those who wait until something changes; each is woken once, and now and then for nothing.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: RefCell<Vec<Waker>>,
    sweep: Cell<Sweep>,
}

impl Waiters {
    /// One more.
    pub fn add(&self, waker: &Waker) {
        if self.waiting.borrow().iter().any(|other| other.will_wake(waker)) {
            return;
        }
        let mut sweep = self.sweep.get();
        if sweep.is_due(self.waiting.borrow().len()) {
            self.wake();
        }
        self.sweep.set(sweep);
        self.waiting.borrow_mut().push(waker.clone());
    }

    /// Something changed.
    pub fn wake(&self) {
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// What `act` says, asked again whenever `wake` wakes, as long as that is that it would block.
pub(crate) async fn until_ready<T>(
    mut act: impl FnMut() -> Result<T, Errno>,
    wake: impl Fn(&Waker),
) -> Result<T, Errno> {
    poll_fn(|context| match act() {
        Err(Errno::EAGAIN) => {
            wake(context.waker());
            Poll::Pending
        }
        result => Poll::Ready(result),
    })
    .await
}
