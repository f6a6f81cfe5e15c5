//! Waiting for what the kernel has to say.

use crate::{local, raw};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_abi::Events;

/// Sleeps until an event is pending on this core, or the board's clock reaches `deadline_ns`, and takes the
/// events. None are pending in the result at the deadline; `None` waits for ever.
pub fn wait(deadline_ns: Option<u64>) -> Events {
    wait_by(deadline_ns, wait_now)
}

/// As [`wait`], by a call of the kernel that waits.
pub(crate) fn wait_by(deadline_ns: Option<u64>, wait_now: impl FnOnce(Option<u64>) -> Events) -> Events {
    // What a rest was told comes first, with what is pending now.
    let kept = local::current().kept.take();
    if kept.pending == 0 { wait_now(deadline_ns) } else { merge(kept, wait_now(Some(0))) }
}

/// Sleeps for at most `duration_ns` in the middle of something: events end the sleep and stay for the next
/// [`wait`].
pub(crate) fn rest(duration_ns: u64) {
    let local = local::current();
    if !local.handler.load(Relaxed).is_null() || local.kept.pending() {
        // Events are the handler's, or would end each sleep at once.
        return yield_core();
    }
    local.kept.put(wait_now(Some(crate::time::now_ns().saturating_add(duration_ns))));
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

/// Events that a core took and has not heard of.
#[derive(Debug, Default)]
pub(crate) struct Kept([AtomicU64; 6]);

impl Kept {
    pub const fn new() -> Kept {
        Kept([const { AtomicU64::new(0) }; 6])
    }

    fn pending(&self) -> bool {
        self.0[0].load(Relaxed) != 0
    }

    fn put(&self, events: Events) {
        let Events { pending, fault_address, fault_code, interrupts, messages, revoke_deadline_ns } = events;
        let words = [pending, fault_address, fault_code, interrupts, messages, revoke_deadline_ns];
        self.0.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
    }

    fn take(&self) -> Events {
        if !self.pending() {
            return Events::default();
        }
        let [pending, fault_address, fault_code, interrupts, messages, revoke_deadline_ns] =
            [0, 1, 2, 3, 4, 5].map(|index: usize| self.0[index].swap(0, Relaxed));
        Events { pending, fault_address, fault_code, interrupts, messages, revoke_deadline_ns }
    }
}

fn wait_now(deadline_ns: Option<u64>) -> Events {
    let mut events = Events::default();
    let address = &raw mut events as u64;
    // SAFETY: the call writes one `Events` there. It fails only for an address that cannot be written.
    let _ = unsafe { raw::core_wait(deadline_ns.unwrap_or(u64::MAX), address) };
    events
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
    fn what_was_kept_is_heard_of_once_with_what_came_since() {
        let kept = Kept::new();
        assert_eq!(kept.take(), Events::default());
        let events =
            |pending, interrupts, messages| Events { pending, interrupts, messages, ..Events::default() };
        kept.put(events(0b0100, 0b01, 0));
        assert!(kept.pending());
        let heard = merge(kept.take(), events(0b1100, 0b10, 0b100));
        assert_eq!(heard, events(0b1100, 0b11, 0b100));
        assert!(!kept.pending());
    }
}
