//! The machine is asked to end: its power button was pressed, which is to a machine what SIGTERM is to a
//! process.

use crate::{raw, start};
use core::sync::atomic::Ordering::Relaxed;

/// From now on the program is asked to end ([`is_requested`]), and not ended, when the machine is to end. The
/// first core's sleep ends with [`nom_abi::Upcall::Shutdown`] then.
pub fn handle() {
    // SAFETY: the call has no arguments and touches no memory of this program. It cannot fail.
    let _ = unsafe { raw::shutdown_handle() };
}

/// Whether the machine was asked to end.
#[inline]
pub fn is_requested() -> bool {
    start::board().machine.shutdown_ns.load(Relaxed) != 0
}
