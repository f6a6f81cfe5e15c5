//! Waiting for what the kernel has to say.

use crate::{local, raw};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_abi::error::{Error, Result};
use nom_abi::{Events, Upcall};

/// Events that end a wait, also if an upcall told the handler of them: whoever is about to wait has not seen
/// what they are about. What the handler alone can mend, a fault or the loss of the core, is not among them.
pub(crate) const WAITED_FOR: u64 = {
    use Upcall::{
        CoreNotified, DeviceArrived, DeviceLeft, DmaBlocked, Interrupt, Message, PeerChanged, Shutdown,
    };
    let all =
        [Interrupt, Message, CoreNotified, PeerChanged, DeviceArrived, DeviceLeft, DmaBlocked, Shutdown];
    let (mut mask, mut index) = (0, 0);
    while index < all.len() {
        mask |= all[index].mask();
        index += 1;
    }
    mask
};

/// Sleeps until an event is pending on this core, or the board's clock reaches `deadline_ns`, and takes the
/// events. None are pending in the result at the deadline; `None` waits for ever. What the core's upcall
/// handler was told since the last wait, and a wait would have been, is told again.
///
/// # Panics
/// If the manifest's `calls` do not allow it: nobody who waits could go on.
pub fn wait(deadline_ns: Option<u64>) -> Events {
    wait_by(deadline_ns, core_wait)
}

/// As [`wait`], by a call of the kernel that waits, for which it gets deadline and place of the events.
pub(crate) fn wait_by(deadline_ns: Option<u64>, call: impl FnOnce(u64, u64) -> Result<u64>) -> Events {
    let kept = &local::current().kept;
    if let Err(error) = call(deadline_ns.unwrap_or(u64::MAX), kept.address()) {
        refused(error);
    }
    kept.take()
}

fn core_wait(deadline_ns: u64, events: u64) -> Result<u64> {
    // SAFETY: the call writes one `Events` there, where `wait_by` has the core's own.
    unsafe { raw::core_wait(deadline_ns, events) }
}

#[cold]
fn refused(error: Error) -> ! {
    panic!("the kernel refuses to let the program wait ({error:?}): see `calls` in its manifest")
}

/// Sleeps for at most `duration_ns` in the middle of something: events end the sleep and stay for the next
/// [`wait`].
pub(crate) fn rest(duration_ns: u64) {
    let local = local::current();
    if !local.handler.load(Relaxed).is_null() || local.kept.pending() {
        // Events are the handler's, or would end each sleep at once.
        return yield_core();
    }
    if let Err(error) = core_wait(crate::time::now_ns().saturating_add(duration_ns), local.kept.address()) {
        refused(error);
    }
}

/// All of two deliveries; of what only one can be told, the later.
fn merge(first: Events, then: Events) -> Events {
    let later = |first: u64, then: u64| if then == 0 { first } else { then };
    Events {
        pending: first.pending | then.pending,
        fault_address: later(first.fault_address, then.fault_address),
        fault_code: later(first.fault_code, then.fault_code),
        interrupts: first.interrupts | then.interrupts,
        messages: first.messages | then.messages,
        revoke_deadline_ns: later(first.revoke_deadline_ns, then.revoke_deadline_ns),
    }
}

/// Events that a core was told of while it did not wait, laid out as [`Events`]: the kernel looks there
/// before it lets the core sleep, and writes there what ends the sleep.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Kept([AtomicU64; Events::BYTES / 8]);

impl Kept {
    pub const fn new() -> Kept {
        Kept([const { AtomicU64::new(0) }; 6])
    }

    fn address(&self) -> u64 {
        &raw const *self as u64
    }

    fn pending(&self) -> bool {
        self.0[0].load(Relaxed) != 0
    }

    /// Keeps what an upcall tells, from its handler: the rest of the core's code stands still.
    #[inline]
    pub fn note(&self, events: &Events) {
        if events.pending & WAITED_FOR != 0 {
            self.add(events);
        }
    }

    #[cold]
    fn add(&self, events: &Events) {
        let after = merge(
            self.each(|word| word.load(Relaxed)),
            Events { pending: events.pending & WAITED_FOR, ..*events },
        );
        let Events { pending, fault_address, fault_code, interrupts, messages, revoke_deadline_ns } = after;
        let words = [pending, fault_address, fault_code, interrupts, messages, revoke_deadline_ns];
        self.0.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
    }

    /// Takes all, word by word; if an upcall comes in between, what it tells is among it as a whole.
    fn take(&self) -> Events {
        let mut taken = Events::default();
        while self.pending() {
            // Most words are zero, and to see that locks no memory. What an upcall writes there meanwhile is
            // taken in the next round, since it is pending then.
            let take = |word: &AtomicU64| match word.load(Relaxed) {
                0 => 0,
                _ => word.swap(0, Relaxed),
            };
            taken = merge(taken, self.each(take));
        }
        taken
    }

    fn each(&self, get: impl Fn(&AtomicU64) -> u64) -> Events {
        let [pending, fault_address, fault_code, interrupts, messages, revoke_deadline_ns] =
            core::array::from_fn(|index| get(&self.0[index]));
        Events { pending, fault_address, fault_code, interrupts, messages, revoke_deadline_ns }
    }
}

/// Sleeps for `duration_ns`, and takes no notice of events that end the sleep early but to return them.
pub fn sleep(duration_ns: u64) -> Events {
    wait(Some(crate::time::now_ns().saturating_add(duration_ns)))
}

/// Lets other applications that share this core go first.
pub fn yield_core() {
    // SAFETY: the call has no arguments and touches no memory of this program.
    let _ = unsafe { raw::core_yield() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_by_upcall_is_heard_of_once_with_what_came_since() {
        let kept = Kept::new();
        assert_eq!(kept.take(), Events::default());
        let events =
            |pending, interrupts, messages| Events { pending, interrupts, messages, ..Events::default() };
        let (interrupt, message) = (Upcall::Interrupt.mask(), Upcall::Message.mask());
        kept.note(&events(Upcall::PageFault.mask() | Upcall::CoreRevoking.mask(), 0, 0));
        assert!(!kept.pending(), "that is the handler's");
        kept.note(&events(interrupt | Upcall::CoreGranted.mask(), 0b01, 0));
        kept.note(&events(interrupt | message, 0b10, 0b100));
        assert!(kept.pending());
        assert_eq!(kept.take(), events(interrupt | message, 0b11, 0b100));
        assert_eq!((kept.pending(), kept.take()), (false, Events::default()));
    }
}
