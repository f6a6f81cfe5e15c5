//! Futexes that know who has them (futex(2), "Priority-inheritance futexes"): the word is the thread's
//! identifier. There is no priority to inherit, since all threads get the same of the core.

use crate::call::Call;
use crate::futex::FutexKey;
use linux_raw_sys::general::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS};
use nom_fs::Errno;

/// Takes the lock at an address, when it is free, until a deadline, if there is one; at once or not at all
/// without `limit`.
///
/// # Errors
/// `EDEADLK` if the caller has it; `EAGAIN` if others do and it does not wait; `ESRCH` if its owner is
/// nobody; `ETIMEDOUT`.
pub(super) fn lock(
    call: &Call<'_>,
    key: FutexKey,
    address: u64,
    limit: Option<Option<u64>>,
) -> Result<u64, Errno> {
    let (memory, own) = (call.memory(), call.task().id);
    let mut has_waited = false;
    loop {
        let word: u32 = memory.read_value(address)?;
        let owner = word & FUTEX_TID_MASK;
        if owner == 0 {
            // Others may wait as well: then who unlocks it has to say so.
            let waiters = if has_waited { FUTEX_WAITERS } else { word & FUTEX_WAITERS };
            memory.write_value(address, &(own | waiters | word & FUTEX_OWNER_DIED))?;
            return Ok(0);
        }
        if owner == own {
            return Err(Errno::EDEADLK);
        }
        let Some(deadline_ns) = limit else { return Err(Errno::EAGAIN) };
        if call.family().task(owner).is_none() {
            return Err(Errno::ESRCH);
        }
        memory.write_value(address, &(word | FUTEX_WAITERS))?;
        let wait = call.family().futexes.wait(key, u32::MAX, call.task().waiter());
        call.block_until(deadline_ns, wait)?.ok_or(Errno::ETIMEDOUT)?;
        has_waited = true;
    }
}

/// Gives the lock back, and wakes one who waits for it.
///
/// # Errors
/// `EPERM` if the caller does not have it.
pub(super) fn unlock(call: &Call<'_>, key: FutexKey, address: u64) -> Result<u64, Errno> {
    let word: u32 = call.memory().read_value(address)?;
    if word & FUTEX_TID_MASK != call.task().id {
        return Err(Errno::EPERM);
    }
    call.memory().write_value(address, &0_u32)?;
    call.family().futexes.wake(key, 1, u32::MAX);
    Ok(0)
}
