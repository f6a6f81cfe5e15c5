//! The memory of other processes: process_vm_readv(2), for debuggers and collectors of crashes.

use crate::call::Call;
use crate::descriptors::calls::io::pieces;
use crate::process::OwnMemory;
use crate::table::SystemCall;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use nom_fs::Errno;

const ARGUMENTS: &[&str] = &["process", "local", "local_count", "remote", "remote_count", "flags"];

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_process_vm_readv, "process_vm_readv", ARGUMENTS, |call| {
        copy(call, |own, local, other, remote, bytes| {
            other.read(remote, bytes)?;
            own.write(local, bytes)
        })
    }),
    SystemCall::complete(abi::__NR_process_vm_writev, "process_vm_writev", ARGUMENTS, |call| {
        copy(call, |own, local, other, remote, bytes| {
            own.read(local, bytes)?;
            other.write(remote, bytes)
        })
    }),
];

/// The memory of the process that the first argument names. Errors: `ESRCH`; `EPERM` for who is neither root
/// nor of the same user.
fn subject(call: &Call<'_>) -> Result<Rc<OwnMemory>, Errno> {
    let id = u32::try_from(call.int(0)).map_err(|_| Errno::ESRCH)?;
    let process = match call.family().task(id) {
        Some(task) => task.process.clone(),
        None => return Err(Errno::ESRCH),
    };
    let (by, to) = (call.process().view.borrow().users(), process.view.borrow().users());
    let is_allowed = by.effective == 0 || [to.real, to.effective, to.saved] == [by.real; 3];
    if is_allowed { Ok(process.memory()) } else { Err(Errno::EPERM) }
}

/// Copies between pieces here and pieces there, as far as both go, and as far as both are there: a piece at a
/// time, none of which is on two pages of either side.
fn copy(
    call: &Call<'_>,
    between: impl Fn(&OwnMemory, u64, &OwnMemory, u64, &mut [u8]) -> Result<(), Errno>,
) -> Result<u64, Errno> {
    const PAGE: u64 = crate::memory::PAGE;
    let [_, local, local_count, remote, remote_count, flags] = call.arguments;
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let (local, remote) = (pieces(call, local, local_count)?, pieces(call, remote, remote_count)?);
    let other = subject(call)?;
    let own = call.process().memory();
    let (mut here, mut there) = (Cursor::of(&local), Cursor::of(&remote));
    let (mut done, mut bytes) = (0, [0; PAGE as usize]);
    while let (Some((local, left_here)), Some((remote, left_there))) = (here.place(), there.place()) {
        let count = left_here.min(left_there).min(PAGE - local % PAGE).min(PAGE - remote % PAGE);
        match between(&own, local, &other, remote, &mut bytes[..count as usize]) {
            Ok(()) => {}
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        here.advance(count);
        there.advance(count);
        done += count;
    }
    Ok(done)
}

/// A place in a list of pieces.
struct Cursor<'p> {
    pieces: &'p [(u64, u64)],
    passed: u64,
}

impl<'p> Cursor<'p> {
    fn of(pieces: &'p [(u64, u64)]) -> Cursor<'p> {
        Cursor { pieces, passed: 0 }
    }

    /// Its address, and how many bytes are left in its piece.
    fn place(&mut self) -> Option<(u64, u64)> {
        while let [(_, len), rest @ ..] = self.pieces
            && *len == self.passed
        {
            (self.pieces, self.passed) = (rest, 0);
        }
        let (address, len) = *self.pieces.first()?;
        Some((address.wrapping_add(self.passed), len - self.passed))
    }

    fn advance(&mut self, bytes: u64) {
        self.passed += bytes;
    }
}
