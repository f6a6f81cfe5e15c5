//! Barriers on all cores that run a process: membarrier(2), for programs whose readers have none of their
//! own, and for those that make code.

use crate::call::Call;
use crate::table::SystemCall;
use linux_raw_sys::general as abi;
use linux_raw_sys::general::membarrier_cmd as command;
use nom_fs::Errno;

/// This call.
pub const ROWS: &[SystemCall] = &[SystemCall::partial(
    abi::__NR_membarrier,
    "membarrier",
    &["command", "flags", "processor"],
    barrier,
    "all but those of restartable sequences, which are EINVAL",
)];

const QUERY: u64 = command::MEMBARRIER_CMD_QUERY as u64;
const GLOBAL: u64 = command::MEMBARRIER_CMD_GLOBAL as u64;
const GLOBAL_EXPEDITED: u64 = command::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u64;
const REGISTER_GLOBAL: u64 = command::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u64;
const PRIVATE: u64 = command::MEMBARRIER_CMD_PRIVATE_EXPEDITED as u64;
const REGISTER_PRIVATE: u64 = command::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as u64;
const PRIVATE_CORE: u64 = command::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE as u64;
const REGISTER_PRIVATE_CORE: u64 = command::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE as u64;
/// All that there are.
const COMMANDS: u64 = GLOBAL
    | GLOBAL_EXPEDITED
    | REGISTER_GLOBAL
    | PRIVATE
    | REGISTER_PRIVATE
    | PRIVATE_CORE
    | REGISTER_PRIVATE_CORE;

/// A core that runs a program for another one, or none, has a barrier by making way: it is interrupted.
fn barrier(call: &Call<'_>) -> Result<u64, Errno> {
    let (command, flags) = (u64::from(call.arguments[0] as u32), call.arguments[1] as u32);
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let registered = &call.process().controls.barriers;
    match command {
        QUERY => return Ok(COMMANDS),
        GLOBAL | GLOBAL_EXPEDITED => call.family().runners.recall(|_| true),
        REGISTER_GLOBAL | REGISTER_PRIVATE | REGISTER_PRIVATE_CORE => {
            registered.update(|before| before | command);
        }
        PRIVATE | PRIVATE_CORE => {
            // The bit above each is that of who asked for it.
            if registered.get() & command << 1 == 0 {
                return Err(Errno::EPERM);
            }
            call.memory().stop_others();
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}
