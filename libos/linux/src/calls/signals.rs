//! Signals: rt_sigaction(2), rt_sigprocmask(2), kill(2) and their like.

use crate::call::Call;
use crate::process::Process;
use crate::signals::{Action, Alternate, Info, RETURN_BYTES, Signal, SignalSet, on_return};
use crate::table::SystemCall;
use crate::task::Task;
use alloc::rc::Rc;
use alloc::vec;
use linux_raw_sys::general as abi;
use nom_fs::Errno;
use nom_sys::abi::layout::APPLICATION_END;

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::complete(
        abi::__NR_rt_sigaction,
        "rt_sigaction",
        &["signal", "new", "old", "set_bytes"],
        action,
    ),
    SystemCall::complete(
        abi::__NR_rt_sigprocmask,
        "rt_sigprocmask",
        &["how", "new", "old", "set_bytes"],
        mask,
    ),
    SystemCall::complete(abi::__NR_rt_sigreturn, "rt_sigreturn", &[], return_from_handler),
    SystemCall::complete(abi::__NR_rt_sigpending, "rt_sigpending", &["set", "set_bytes"], pending),
    SystemCall::complete(abi::__NR_rt_sigsuspend, "rt_sigsuspend", &["set", "set_bytes"], suspend),
    SystemCall::complete(
        abi::__NR_rt_sigtimedwait,
        "rt_sigtimedwait",
        &["set", "info", "timeout", "set_bytes"],
        wait_for,
    ),
    SystemCall::complete(abi::__NR_sigaltstack, "sigaltstack", &["new", "old"], alternate),
    SystemCall::partial(
        abi::__NR_kill,
        "kill",
        &["process", "signal"],
        kill,
        "the first process is never stopped",
    ),
    SystemCall::partial(abi::__NR_tkill, "tkill", &["thread", "signal"], thread_kill, "as kill"),
    SystemCall::partial(
        abi::__NR_tgkill,
        "tgkill",
        &["process", "thread", "signal"],
        thread_kill_in,
        "as kill",
    ),
    SystemCall::partial(
        abi::__NR_rt_sigqueueinfo,
        "rt_sigqueueinfo",
        &["process", "signal", "info"],
        queue,
        "as kill; 256 of one number wait at most",
    ),
    SystemCall::partial(
        abi::__NR_rt_tgsigqueueinfo,
        "rt_tgsigqueueinfo",
        &["process", "thread", "signal", "info"],
        queue_to_thread,
        "as rt_sigqueueinfo",
    ),
    SystemCall::complete(abi::__NR_pause, "pause", &[], |call| {
        call.block_on(core::future::pending::<()>()).map(|()| 0)
    }),
];

const SET_BYTES: u64 = size_of::<SignalSet>() as u64;

fn check_set(bytes: u64) -> Result<(), Errno> {
    if bytes == SET_BYTES { Ok(()) } else { Err(Errno::EINVAL) }
}

fn action(call: &Call<'_>) -> Result<u64, Errno> {
    let [signal, new, old, bytes, ..] = call.arguments;
    check_set(bytes)?;
    let signal = Signal::new(signal)?;
    let before = call.process().actions.borrow().get(signal);
    if new != 0 {
        let action: Action = call.memory().read_value(new)?;
        call.process().actions.borrow_mut().set(signal, action)?;
        if call.process().actions.borrow().ignores(signal) {
            let ignored = SignalSet::of(signal);
            call.process().pending.borrow_mut().forget(ignored);
            call.process().tasks().iter().for_each(|task| task.pending.borrow_mut().forget(ignored));
        }
    }
    if old != 0 {
        call.memory().write_value(old, &before)?;
    }
    Ok(0)
}

fn mask(call: &Call<'_>) -> Result<u64, Errno> {
    let [how, new, old, bytes, ..] = call.arguments;
    check_set(bytes)?;
    let before = call.task().blocked();
    if new != 0 {
        let set: SignalSet = call.memory().read_value(new)?;
        let after = match how as u32 {
            abi::SIG_BLOCK => before.with(set),
            abi::SIG_UNBLOCK => before.without(set),
            abi::SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL),
        };
        call.task().block(after.blockable());
    }
    if old != 0 {
        call.memory().write_value(old, &before)?;
    }
    Ok(0)
}

fn return_from_handler(call: &Call<'_>) -> Result<u64, Errno> {
    let task = call.task();
    let at = task.context.borrow().registers().rsp;
    let mut bytes = [0; RETURN_BYTES];
    let read = call.memory().read(at, &mut bytes);
    let back = on_return(&bytes);
    if read.is_err() || back.registers.rip >= APPLICATION_END {
        task.send(Info::fault(Signal::SEGV, abi::SI_KERNEL as i32, 0));
        return Ok(0);
    }
    let mut context = task.context.borrow_mut();
    let mut area = vec![0; context.vector_area().len()];
    if back.vector != 0 && call.memory().read(back.vector, &mut area).is_ok() {
        context.set_vector_area(&area);
    }
    *context.registers_mut() = back.registers;
    task.block(back.mask);
    let flags = back.stack.flags & !abi::SS_ONSTACK;
    task.alternate.set(Alternate { flags, ..back.stack });
    Ok(back.registers.rax)
}

fn pending(call: &Call<'_>) -> Result<u64, Errno> {
    check_set(call.arguments[1])?;
    let all = call.task().pending.borrow().set().with(call.process().pending_set());
    let blocked = SignalSet(all.0 & call.task().blocked().0);
    call.memory().write_value(call.arguments[0], &blocked).map(|()| 0)
}

fn suspend(call: &Call<'_>) -> Result<u64, Errno> {
    check_set(call.arguments[1])?;
    let set: SignalSet = call.memory().read_value(call.arguments[0])?;
    call.task().block_for_call(set.blockable());
    call.block_on(core::future::pending::<()>()).map(|()| 0)
}

fn wait_for(call: &Call<'_>) -> Result<u64, Errno> {
    let [set, info, timeout, bytes, ..] = call.arguments;
    check_set(bytes)?;
    let wanted = call.memory().read_value::<SignalSet>(set)?.blockable();
    let deadline = super::time::deadline_after(call, timeout)?;
    let task = call.task();
    let came = task.signal_came.until(|| task.take_signal(wanted));
    let taken = call.block_until(deadline, came)?.ok_or(Errno::EAGAIN)?;
    if info != 0 {
        call.memory().write_value(info, &taken)?;
    }
    Ok(taken.signal.into())
}

fn alternate(call: &Call<'_>) -> Result<u64, Errno> {
    const LEAST: u64 = abi::MINSIGSTKSZ as u64;
    let [new, old, ..] = call.arguments;
    let task = call.task();
    let before = task.alternate.get();
    let is_on = before.holds(task.context.borrow().registers().rsp);
    let shown = Alternate { flags: if is_on { abi::SS_ONSTACK } else { before.flags }, ..before };
    if new != 0 {
        let wanted: Alternate = call.memory().read_value(new)?;
        if is_on {
            return Err(Errno::EPERM);
        }
        let after = match wanted.flags & !abi::SS_AUTODISARM {
            abi::SS_DISABLE => Alternate::NONE,
            0 | abi::SS_ONSTACK if wanted.bytes < LEAST => return Err(Errno::ENOMEM),
            0 | abi::SS_ONSTACK => Alternate { flags: 0, ..wanted },
            _ => return Err(Errno::EINVAL),
        };
        task.alternate.set(after);
    }
    if old != 0 {
        call.memory().write_value(old, &shown)?;
    }
    Ok(0)
}

/// What a signal that a process sends says; nothing for signal 0, which only asks.
fn sent(call: &Call<'_>, signal: u64, code: i32) -> Result<Option<Info>, Errno> {
    Info::sent_by(signal, code, call.process().id, call.process().user())
}

fn kill(call: &Call<'_>) -> Result<u64, Errno> {
    let (target, family) = (call.int(0), call.family());
    let info = sent(call, call.arguments[1], abi::SI_USER as i32)?;
    let is_meant = |process: &Rc<Process>| match target {
        0 => process.group.get() == call.process().group.get(),
        -1 => process.id > 1 && process.id != call.process().id,
        target if target < 0 => process.group.get() == target.unsigned_abs(),
        target => process.id == target as u32,
    };
    let meant: alloc::vec::Vec<_> = family.processes().into_iter().filter(is_meant).collect();
    if meant.is_empty() {
        return Err(Errno::ESRCH);
    }
    let may = |process: &&Rc<Process>| may_signal(call, process, info.and_then(|info| info.signal()));
    let allowed: alloc::vec::Vec<_> = meant.iter().filter(may).collect();
    if allowed.is_empty() {
        return Err(Errno::EPERM);
    }
    if let Some(info) = info {
        allowed.iter().for_each(|process| process.send(family, info));
    }
    Ok(0)
}

/// Whether who asks may send a process that signal, or ask whether it is there (kill(2)): one of its own
/// user's, any as root; and everybody of a session may have the others go on.
pub(crate) fn may_signal(call: &Call<'_>, process: &Process, signal: Option<Signal>) -> bool {
    let own = call.process();
    let (by, to) = (own.view.borrow().users(), process.view.borrow().users());
    by.may_signal(to) || signal == Some(Signal::CONT) && process.session.get() == own.session.get()
}

/// What the caller wants a signal to say of itself. Errors: EINVAL; EPERM if it says that the kernel, or a
/// `kill`, sent it to somebody else.
fn queued(call: &Call<'_>, signal: u64, to: u32, address: u64) -> Result<Option<Info>, Errno> {
    let mut given: Info = call.memory().read_value(address)?;
    if (given.code >= 0 || given.code == abi::SI_TKILL) && to != call.process().id {
        return Err(Errno::EPERM);
    }
    if signal as u32 == 0 {
        return Ok(None);
    }
    given.signal = Signal::new(u64::from(signal as u32))?.number();
    Ok(Some(given))
}

fn queue(call: &Call<'_>) -> Result<u64, Errno> {
    let [process, signal, info, ..] = call.arguments;
    let info = queued(call, signal, process as u32, info)?;
    let found = call.family().process(process as u32).ok_or(Errno::ESRCH)?;
    if !may_signal(call, &found, info.and_then(|info| info.signal())) {
        return Err(Errno::EPERM);
    }
    if let Some(info) = info {
        if found.pending.borrow().is_full_of(&info) {
            return Err(Errno::EAGAIN);
        }
        found.send(call.family(), info);
    }
    Ok(0)
}

fn queue_to_thread(call: &Call<'_>) -> Result<u64, Errno> {
    let [process, _, signal, info, ..] = call.arguments;
    let info = queued(call, signal, process as u32, info)?;
    give_thread(call, Some(call.int(0)), call.int(1), info)
}

fn thread_kill(call: &Call<'_>) -> Result<u64, Errno> {
    to_thread(call, None, call.int(0), call.arguments[1])
}

fn thread_kill_in(call: &Call<'_>) -> Result<u64, Errno> {
    to_thread(call, Some(call.int(0)), call.int(1), call.arguments[2])
}

fn to_thread(call: &Call<'_>, process: Option<i32>, thread: i32, signal: u64) -> Result<u64, Errno> {
    give_thread(call, process, thread, sent(call, signal, abi::SI_TKILL)?)
}

/// Sends a thread a signal, if it is in that process.
fn give_thread(call: &Call<'_>, process: Option<i32>, thread: i32, info: Option<Info>) -> Result<u64, Errno> {
    if thread <= 0 || process.is_some_and(|process| process <= 0) {
        return Err(Errno::EINVAL);
    }
    let is_in = |task: &Rc<Task>| process.is_none_or(|process| task.process.id == process as u32);
    let found = call.family().task(thread as u32).filter(is_in).ok_or(Errno::ESRCH)?;
    if !may_signal(call, &found.process, info.and_then(|info| info.signal())) {
        return Err(Errno::EPERM);
    }
    if let Some(info) = info {
        found.send(info);
    }
    Ok(0)
}
