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
        let owner = |word: u32| word & FUTEX_TID_MASK;
        let word = memory.load_word(address)?;
        if owner(word) == own {
            return Err(Errno::EDEADLK);
        }
        if owner(word) != 0 && limit.is_some() && call.family().task(owner(word)).is_none() {
            return Err(Errno::ESRCH);
        }
        // Others may wait as well: then who unlocks it has to say so.
        let waiters = |word| if has_waited { FUTEX_WAITERS } else { word & FUTEX_WAITERS };
        let take = |word| match owner(word) {
            0 => Some(own | waiters(word) | word & FUTEX_OWNER_DIED),
            _ => limit.map(|_| word | FUTEX_WAITERS),
        };
        // It may have been given back since.
        let found = memory.change_word(address, take)?;
        if owner(found) == 0 {
            return Ok(0);
        }
        let Some(deadline_ns) = limit else { return Err(Errno::EAGAIN) };
        if owner(found) != owner(word) {
            continue;
        }
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
    let own = |word: u32| word & FUTEX_TID_MASK == call.task().id;
    let word = call.memory().change_word(address, |word| own(word).then_some(0))?;
    if !own(word) {
        return Err(Errno::EPERM);
    }
    call.family().futexes.wake(key, 1, u32::MAX);
    Ok(0)
}
