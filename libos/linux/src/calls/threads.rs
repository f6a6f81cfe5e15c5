//! Threads: clone(2), futex(2), and what a thread says of itself.

mod owned;

use crate::call::Call;
use crate::descriptors::calls::process::of_process;
use crate::futex::FutexKey;
use crate::memory::ProcessMemory;
use crate::process::Exit;
use crate::signals::Signal;
use crate::table::SystemCall;
use crate::task::Task;
use core::cell::Cell;
use linux_raw_sys::general as abi;
use nom_app::sockets::NoStack;
use nom_fs::Errno;
use nom_sys::abi::layout::APPLICATION_END;

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        abi::__NR_clone,
        "clone",
        &["flags", "stack", "parent_thread", "child_thread", "thread_pointer"],
        clone,
        "threads, children with a copy of their parent's memory (fork), and those that share it until they \
         have a program of their own or end (CLONE_VFORK); processes that share it longer are ENOSYS, \
         namespaces are EINVAL",
    ),
    SystemCall::complete(abi::__NR_vfork, "vfork", &[], vfork),
    SystemCall::complete(abi::__NR_fork, "fork", &[], fork),
    SystemCall::complete(abi::__NR_exit, "exit", &["status"], exit),
    SystemCall::complete(abi::__NR_exit_group, "exit_group", &["status"], exit_group),
    SystemCall::complete(abi::__NR_gettid, "gettid", &[], |call| Ok(call.task().id.into())),
    SystemCall::complete(abi::__NR_set_tid_address, "set_tid_address", &["address"], set_clear_at_end),
    SystemCall::complete(abi::__NR_set_robust_list, "set_robust_list", &["head", "length"], set_robust),
    SystemCall::complete(
        abi::__NR_get_robust_list,
        "get_robust_list",
        &["thread", "head", "length"],
        robust_of,
    ),
    SystemCall::partial(
        abi::__NR_futex,
        "futex",
        &["address", "operation", "value", "timeout", "second_address", "third_value"],
        futex,
        "WAIT, WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_BITSET, WAKE_BITSET, LOCK_PI, LOCK_PI2, TRYLOCK_PI, \
         UNLOCK_PI, without priorities to inherit; requeueing to those is ENOSYS",
    ),
    SystemCall::partial(
        abi::__NR_arch_prctl,
        "arch_prctl",
        &["code", "address"],
        arch_prctl,
        "FS alone: GS is the library's",
    ),
    SystemCall::complete(abi::__NR_sched_yield, "sched_yield", &[], |call| {
        call.thread().yield_now();
        Ok(0)
    }),
];

/// Whether there are children and threads of that kind.
fn check_flags(flags: u32) -> Result<(), Errno> {
    const NAMESPACES: u32 = abi::CLONE_NEWNS
        | abi::CLONE_NEWUTS
        | abi::CLONE_NEWIPC
        | abi::CLONE_NEWUSER
        | abi::CLONE_NEWPID
        | abi::CLONE_NEWNET
        | abi::CLONE_NEWCGROUP;
    let of_thread = abi::CLONE_VM | abi::CLONE_SIGHAND;
    let is_thread = flags & abi::CLONE_THREAD != 0;
    if flags & NAMESPACES != 0 || is_thread && flags & of_thread != of_thread {
        return Err(Errno::EINVAL);
    }
    if !is_thread && flags & (abi::CLONE_VM | abi::CLONE_VFORK) == abi::CLONE_VM {
        return Err(Errno::ENOSYS);
    }
    // What tells of the child's descriptor lies where its identifier would.
    let has_descriptor = flags & abi::CLONE_PIDFD != 0;
    if has_descriptor && (is_thread || flags & abi::CLONE_PARENT_SETTID != 0) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

fn clone(call: &Call<'_>) -> Result<u64, Errno> {
    let [flags, stack, parent_thread, child_thread, thread_pointer, _] = call.arguments;
    let flags = flags as u32;
    let is_thread = flags & abi::CLONE_THREAD != 0;
    check_flags(flags)?;
    // A number that is no signal's is none, as on Linux.
    let end_signal = Signal::new(u64::from(flags & abi::CSIGNAL)).ok();
    let copies = flags & abi::CLONE_VM == 0;
    let own = if copies { Some(call.memory().duplicate()?) } else { None };
    let process = if is_thread { call.process().clone() } else { call.process().child(own) };
    let id = if is_thread { call.family().take_id() } else { process.id };
    if !is_thread {
        process.end_signal.set(end_signal);
    }
    let made = Cell::new(None);
    let started = start(call, &process, id, |task| {
        let mut context = task.context.borrow_mut();
        if stack != 0 {
            context.registers_mut().rsp = stack;
        }
        if flags & abi::CLONE_SETTLS != 0 {
            context.set_thread_pointer(thread_pointer);
        }
        if flags & abi::CLONE_CHILD_CLEARTID != 0 {
            task.clear_at_end.set(child_thread);
        }
        if flags & abi::CLONE_PARENT_SETTID != 0 {
            call.memory().write_value(parent_thread, &id)?;
        }
        if flags & abi::CLONE_PIDFD != 0 {
            let descriptor = of_process(call, process.clone(), 0)?;
            made.set(Some(descriptor));
            call.memory().write_value(parent_thread, &descriptor)?;
        }
        if copies {
            task.alternate.set(call.task().alternate.get());
        }
        if flags & abi::CLONE_CHILD_SETTID != 0 {
            process.memory().write_value(child_thread, &id)?;
        }
        Ok(())
    });
    if let Err(errno) = started {
        if !is_thread {
            call.family().remove(process.id);
        }
        let descriptors = call.process().descriptors.borrow().clone();
        made.get().map_or(Ok(()), |descriptor| descriptors.close(descriptor))?;
        return Err(errno);
    }
    if !is_thread {
        // Until the child has a program of its own, or has ended, its parent's memory is the child's.
        call.thread().block_on(process.released.until(|| process.has_own_memory.get().then_some(())));
    }
    Ok(id.into())
}

/// Starts a thread that goes on where the caller is, with what `change` makes of it.
fn start(
    call: &Call<'_>,
    process: &alloc::rc::Rc<crate::process::Process>,
    id: u32,
    change: impl FnOnce(&Task) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let context = call.task().context.borrow_mut().duplicate();
    let task = Task::with(id, process.clone(), context);
    task.context.borrow_mut().registers_mut().rax = 0;
    task.block(call.task().blocked());
    task.name.set(call.task().name.get());
    task.scheduling.set(call.task().scheduling.get().of_child());
    task.memory_policy.set(call.task().memory_policy.get());
    task.affinity.set(call.task().affinity.get());
    process.for_files.inherit(id, &call.process().for_files, call.task().id);
    let started = change(&task).and_then(|()| task.start(call.family()).map_err(|NoStack| Errno::EAGAIN));
    if started.is_err() {
        process.tasks.borrow_mut().remove(&id);
    }
    started
}

fn vfork(call: &Call<'_>) -> Result<u64, Errno> {
    let process = call.process().child(None);
    start(call, &process, process.id, |_| Ok(())).inspect_err(|_| call.family().remove(process.id))?;
    call.thread().block_on(process.released.until(|| process.has_own_memory.get().then_some(())));
    Ok(process.id.into())
}

fn fork(call: &Call<'_>) -> Result<u64, Errno> {
    let process = call.process().child(Some(call.memory().duplicate()?));
    let started = start(call, &process, process.id, |task| {
        task.alternate.set(call.task().alternate.get());
        Ok(())
    });
    started.inspect_err(|_| call.family().remove(process.id))?;
    Ok(process.id.into())
}

fn exit(call: &Call<'_>) -> Result<u64, Errno> {
    if call.process().tasks().len() == 1 {
        return exit_group(call);
    }
    call.task().end();
    Ok(0)
}

fn exit_group(call: &Call<'_>) -> Result<u64, Errno> {
    call.process().end(Exit::Status(call.arguments[0] as u8));
    Ok(0)
}

fn set_clear_at_end(call: &Call<'_>) -> Result<u64, Errno> {
    call.task().clear_at_end.set(call.arguments[0]);
    Ok(call.task().id.into())
}

/// Bytes of `struct robust_list_head`.
const ROBUST_BYTES: u64 = 24;

fn set_robust(call: &Call<'_>) -> Result<u64, Errno> {
    if call.arguments[1] != ROBUST_BYTES {
        return Err(Errno::EINVAL);
    }
    call.task().robust.set(call.arguments[0]);
    Ok(0)
}

fn robust_of(call: &Call<'_>) -> Result<u64, Errno> {
    let [thread, head, length, ..] = call.arguments;
    let found = match thread as u32 {
        0 => Some(call.task().clone()),
        id => call.family().task(id),
    };
    let task = found.ok_or(Errno::ESRCH)?;
    call.memory().write_value(length, &ROBUST_BYTES)?;
    call.memory().write_value(head, &task.robust.get()).map(|()| 0)
}

fn arch_prctl(call: &Call<'_>) -> Result<u64, Errno> {
    const SET_GS: i32 = 0x1001;
    const SET_FS: i32 = 0x1002;
    const GET_FS: i32 = 0x1003;
    const GET_GS: i32 = 0x1004;
    let address = call.arguments[1];
    match call.int(0) {
        SET_FS if address < APPLICATION_END => {
            call.task().context.borrow_mut().set_thread_pointer(address);
            Ok(0)
        }
        SET_FS | SET_GS => Err(Errno::EPERM),
        GET_FS => {
            let base = call.task().context.borrow().thread_pointer();
            call.memory().write_value(address, &base).map(|()| 0)
        }
        GET_GS => call.memory().write_value(address, &0_u64).map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

/// Who takes a lock that nobody has makes no call at all, so what is asked here is nearly always to wait or
/// to wake: those are told apart first.
fn futex(call: &Call<'_>) -> Result<u64, Errno> {
    let [address, operation, value, timeout, _, bits] = call.arguments;
    let (operation, value, bits) = (operation as u32, value as u32, bits as u32);
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    let key = key_of(call.memory(), address, operation);
    match operation & !(abi::FUTEX_PRIVATE_FLAG | abi::FUTEX_CLOCK_REALTIME) {
        abi::FUTEX_WAKE => Ok(call.family().futexes.wake(key, value, u32::MAX).into()),
        abi::FUTEX_WAIT_BITSET if bits != 0 => {
            let is_realtime = operation & abi::FUTEX_CLOCK_REALTIME != 0;
            let deadline = super::time::deadline_at(call, timeout, is_realtime)?;
            wait(call, key, address, value, bits, deadline)
        }
        abi::FUTEX_WAIT => {
            let deadline = super::time::deadline_after(call, timeout)?;
            wait(call, key, address, value, u32::MAX, deadline)
        }
        rare => ask_rarely(call, rare, key),
    }
}

/// Where the futex at an address is, as the operation says.
#[inline]
fn key_of(memory: &ProcessMemory, address: u64, operation: u32) -> FutexKey {
    match operation & abi::FUTEX_PRIVATE_FLAG {
        0 => FutexKey::shared(memory, address),
        _ => FutexKey::private(memory, address),
    }
}

/// The other operations, without flags.
#[inline(never)]
fn ask_rarely(call: &Call<'_>, operation: u32, key: FutexKey) -> Result<u64, Errno> {
    let [address, flags, value, timeout, second, third] = call.arguments;
    let (value, third) = (value as u32, third as u32);
    let (memory, futexes) = (call.memory(), &call.family().futexes);
    let second_key = || key_of(memory, second, flags as u32);
    let deadline = |is_realtime| super::time::deadline_at(call, timeout, is_realtime);
    match operation {
        abi::FUTEX_WAIT_BITSET => Err(Errno::EINVAL),
        abi::FUTEX_WAKE_BITSET if third == 0 => Err(Errno::EINVAL),
        abi::FUTEX_WAKE_BITSET => Ok(futexes.wake(key, value, third).into()),
        abi::FUTEX_CMP_REQUEUE if memory.load_word(address)? != third => Err(Errno::EAGAIN),
        abi::FUTEX_REQUEUE | abi::FUTEX_CMP_REQUEUE => {
            let count = futexes.wake(key, value, u32::MAX);
            Ok((count + futexes.move_waiters(key, second_key(), timeout as u32)).into())
        }
        abi::FUTEX_WAKE_OP => {
            let is_met = wake_operation(call, second, third)?;
            let mut count = futexes.wake(key, value, u32::MAX);
            if is_met {
                count += futexes.wake(second_key(), timeout as u32, u32::MAX);
            }
            Ok(count.into())
        }
        abi::FUTEX_LOCK_PI => owned::lock(call, key, address, Some(deadline(true)?)),
        abi::FUTEX_LOCK_PI2 => {
            let is_realtime = flags as u32 & abi::FUTEX_CLOCK_REALTIME != 0;
            owned::lock(call, key, address, Some(deadline(is_realtime)?))
        }
        abi::FUTEX_TRYLOCK_PI => owned::lock(call, key, address, None),
        abi::FUTEX_UNLOCK_PI => owned::unlock(call, key, address),
        _ => Err(Errno::ENOSYS),
    }
}

/// Waits at `key`, where `address` leads, for one of `bits`, if the word there is `value`.
fn wait(
    call: &Call<'_>,
    key: FutexKey,
    address: u64,
    value: u32,
    bits: u32,
    deadline: Option<u64>,
) -> Result<u64, Errno> {
    if call.memory().load_word(address)? != value {
        return Err(Errno::EAGAIN);
    }
    let wait = call.family().futexes.wait(key, bits, call.task().waiter());
    match call.block_until(deadline, wait)? {
        Some(()) => Ok(0),
        None => Err(Errno::ETIMEDOUT),
    }
}

/// Changes the word at `address` as `FUTEX_WAKE_OP` says, and whether what was there met its condition.
fn wake_operation(call: &Call<'_>, address: u64, operation: u32) -> Result<bool, Errno> {
    const SHIFT: u32 = 8;
    let signed = |bits: u32| ((bits << 20) as i32) >> 20;
    let (mut operand, compared) = (signed(operation >> 12 & 0xfff), signed(operation & 0xfff));
    let (kind, condition) = (operation >> 28, operation >> 24 & 0xf);
    if kind & SHIFT != 0 {
        operand = 1_i32.wrapping_shl(operand as u32);
    }
    let change = |old: i32| match kind & !SHIFT {
        abi::FUTEX_OP_SET => Some(operand),
        abi::FUTEX_OP_ADD => Some(old.wrapping_add(operand)),
        abi::FUTEX_OP_OR => Some(old | operand),
        abi::FUTEX_OP_ANDN => Some(old & !operand),
        abi::FUTEX_OP_XOR => Some(old ^ operand),
        _ => None,
    };
    if change(0).is_none() {
        return Err(Errno::ENOSYS);
    }
    let old = call.memory().change_word(address, |old| change(old as i32).map(|new| new as u32))? as i32;
    match condition {
        abi::FUTEX_OP_CMP_EQ => Ok(old == compared),
        abi::FUTEX_OP_CMP_NE => Ok(old != compared),
        abi::FUTEX_OP_CMP_LT => Ok(old < compared),
        abi::FUTEX_OP_CMP_LE => Ok(old <= compared),
        abi::FUTEX_OP_CMP_GT => Ok(old > compared),
        abi::FUTEX_OP_CMP_GE => Ok(old >= compared),
        _ => Err(Errno::ENOSYS),
    }
}
