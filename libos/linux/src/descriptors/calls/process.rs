//! Processes by descriptors: pidfd_open(2), pidfd_send_signal(2).

use super::get;
use super::make::{add, of_stream};
use crate::call::Call;
use crate::calls::signals::may_signal;
use crate::descriptors::open::Description;
use crate::descriptors::process::ProcessDescriptor;
use crate::process::Process;
use crate::signals::{Info, Signal};
use crate::table::SystemCall;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use nom_fs::proc::ProcNode;
use nom_fs::{Errno, NodeId};

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_pidfd_open, "pidfd_open", &["process", "flags"], open),
    SystemCall::partial(
        abi::__NR_pidfd_send_signal,
        "pidfd_send_signal",
        &["descriptor", "signal", "info", "flags"],
        send_signal,
        "as kill",
    ),
];

fn open(call: &Call<'_>) -> Result<u64, Errno> {
    let (id, flags) = (call.int(0), call.arguments[1] as u32);
    if id <= 0 || flags & !abi::O_NONBLOCK != 0 {
        return Err(Errno::EINVAL);
    }
    let Some(process) = call.family().process(id as u32) else {
        // A thread is none of its own.
        let thread = call.family().task(id as u32);
        return Err(if thread.is_some() { Errno::EINVAL } else { Errno::ESRCH });
    };
    of_process(call, process, flags).map(|descriptor| descriptor as u64)
}

/// A descriptor of a process, which a new program does not get.
///
/// # Errors
/// `EMFILE`.
pub(crate) fn of_process(call: &Call<'_>, process: Rc<Process>, flags: u32) -> Result<i32, Errno> {
    let stream = ProcessDescriptor::new(process);
    add(call, of_stream(stream, abi::O_RDWR | flags & abi::O_NONBLOCK), abi::O_CLOEXEC)
}

/// What a descriptor of a process says: the identifier that it has or had, and whether nobody waits by it.
///
/// # Errors
/// `EBADF` if it is none.
pub(crate) fn named_by(call: &Call<'_>, descriptor: i32) -> Result<(u32, bool), Errno> {
    let description = get(call, descriptor)?;
    Ok((named(&description)?.id(), description.is_nonblocking()))
}

/// The process that a description is one of. Errors: `EBADF` if it is of something else.
fn named(description: &Description) -> Result<&ProcessDescriptor, Errno> {
    description.stream().and_then(|stream| stream.process()).ok_or(Errno::EBADF)
}

/// Whom a signal is for, by its identifier and as long as it is there: the process that the first argument is
/// a descriptor of, or whose directory in `/proc` it leads to.
fn addressee(call: &Call<'_>) -> Result<(u32, Result<Rc<Process>, Errno>), Errno> {
    let description = get(call, call.int(0))?;
    if let Some(NodeId::Proc(ProcNode::Process(id))) = description.node().map(|node| node.node) {
        return Ok((id, call.family().process(id).ok_or(Errno::ESRCH)));
    }
    let named = named(&description)?;
    Ok((named.id(), named.process()))
}

fn send_signal(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, signal, info, flags, ..] = call.arguments;
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let (id, process) = addressee(call)?;
    let own = call.process();
    let info = match info {
        0 => Info::sent_by(signal, abi::SI_USER as i32, own.id, own.user())?,
        at => {
            let given: Info = call.memory().read_value(at)?;
            if given.signal != signal as u32 {
                return Err(Errno::EINVAL);
            }
            if id != own.id && (given.code >= 0 || given.code == abi::SI_TKILL) {
                return Err(Errno::EPERM);
            }
            (given.signal != 0).then(|| Signal::new(signal).map(|_| given)).transpose()?
        }
    };
    let process = process?;
    if !may_signal(call, &process, info.and_then(|info| info.signal())) {
        return Err(Errno::EPERM);
    }
    if let Some(info) = info {
        process.send(call.family(), info);
    }
    Ok(0)
}
