//! Waiting for what the kernel has to say.

use crate::raw;
use nom_abi::Events;

/// Sleeps until an event is pending on this core, or the board's clock reaches `deadline_ns`, and takes the
/// events. None are pending in the result at the deadline; `None` waits for ever.
pub fn wait(deadline_ns: Option<u64>) -> Events {
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
