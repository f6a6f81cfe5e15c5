//! Messages of System V: msgget(2), msgsnd(2), msgrcv(2), msgctl(2).

use super::ipc::{ALTER, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, Keyed, Objects, Permissions, READ, now};
use crate::call::Call;
use crate::descriptors::ready::{Waiters, until_ready};
use crate::table::SystemCall;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use linux_raw_sys::general as abi;
use nom_fs::Errno;

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_msgget, "msgget", &["key", "flags"], get),
    SystemCall::complete(abi::__NR_msgsnd, "msgsnd", &["queue", "message", "length", "flags"], send),
    SystemCall::partial(
        abi::__NR_msgrcv,
        "msgrcv",
        &["queue", "message", "length", "type", "flags"],
        receive,
        "without MSG_COPY",
    ),
    SystemCall::partial(
        abi::__NR_msgctl,
        "msgctl",
        &["queue", "command", "argument"],
        control,
        "without IPC_INFO, MSG_INFO and MSG_STAT",
    ),
];

/// Most bytes of a message, and of all that wait unless that is changed (Linux's MSGMAX and MSGMNB).
const BYTES_MAX: u64 = 8192;
const ALL_BYTES: u64 = 16_384;
/// Most queues (MSGMNI, of which Linux has 32,000), and what the library keeps for the messages of all.
const QUEUES_MAX: usize = 256;
const HELD_MAX: u64 = 4 << 20;
/// What it keeps of one beside its bytes.
const HEAD: u64 = 64;
/// Flags of msgrcv(2).
const MSG_NOERROR: u32 = 0o10_000;
const MSG_EXCEPT: u32 = 0o20_000;
const MSG_COPY: u32 = 0o40_000;
/// Bytes of a message's type, which stands in front of it.
const TYPE_BYTES: u64 = 8;

/// A queue.
#[derive(Debug)]
struct Mailbox {
    permissions: Cell<Permissions>,
    /// Types and what they say.
    messages: RefCell<VecDeque<(i64, Vec<u8>)>>,
    bytes_max: Cell<u64>,
    /// What the library keeps for the messages.
    held: Cell<u64>,
    /// When somebody sent, received and changed it last, in seconds since 1970.
    times: Cell<[u64; 3]>,
    /// Who sent and received last.
    processes: Cell<[u32; 2]>,
    waiters: Waiters,
    is_removed: Cell<bool>,
}

impl Keyed for Mailbox {
    const MOST: usize = QUEUES_MAX;

    fn permissions(&self) -> &Cell<Permissions> {
        &self.permissions
    }
}

impl Mailbox {
    /// An empty one, made at this time.
    fn new(permissions: Permissions, now: u64) -> Mailbox {
        Mailbox {
            permissions: Cell::new(permissions),
            messages: RefCell::default(),
            bytes_max: Cell::new(ALL_BYTES),
            held: Cell::default(),
            times: Cell::new([0, 0, now]),
            processes: Cell::default(),
            waiters: Waiters::default(),
            is_removed: Cell::new(false),
        }
    }

    fn bytes(&self) -> u64 {
        self.held.get() - HEAD * self.messages.borrow().len() as u64
    }

    fn check(&self) -> Result<(), Errno> {
        if self.is_removed.get() { Err(Errno::EIDRM) } else { Ok(()) }
    }

    /// Errors: EAGAIN if there is no room; EIDRM.
    fn put(&self, kind: i64, bytes: &[u8]) -> Result<(), Errno> {
        self.check()?;
        let most = self.bytes_max.get();
        if self.bytes() + bytes.len() as u64 > most || self.messages.borrow().len() as u64 >= most {
            return Err(Errno::EAGAIN);
        }
        self.messages.borrow_mut().push_back((kind, bytes.to_vec()));
        self.held.update(|held| held + bytes.len() as u64 + HEAD);
        self.waiters.wake();
        Ok(())
    }

    /// The first message that is wanted. Errors: EAGAIN if there is none; E2BIG if it is longer than `most`;
    /// EIDRM.
    fn take(&self, wanted: i64, flags: u32, most: u64) -> Result<(i64, Vec<u8>), Errno> {
        self.check()?;
        let mut messages = self.messages.borrow_mut();
        let all = messages.iter().enumerate();
        let found = match wanted {
            0 => all.map(|(index, _)| index).next(),
            wanted if wanted > 0 => {
                let is_other = flags & MSG_EXCEPT != 0;
                all.filter(|(_, (kind, _))| (*kind == wanted) != is_other).map(|(index, _)| index).next()
            }
            // The lowest type that is no higher.
            wanted => {
                let most = wanted.unsigned_abs();
                let low = all.filter(|(_, (kind, _))| kind.unsigned_abs() <= most);
                low.min_by_key(|(index, (kind, _))| (*kind, *index)).map(|(index, _)| index)
            }
        };
        let index = found.ok_or(Errno::EAGAIN)?;
        if messages[index].1.len() as u64 > most && flags & MSG_NOERROR == 0 {
            return Err(Errno::E2BIG);
        }
        let (kind, bytes) = messages.remove(index).ok_or(Errno::EAGAIN)?;
        self.held.update(|held| held - bytes.len() as u64 - HEAD);
        self.waiters.wake();
        Ok((kind, bytes))
    }

    /// `struct msqid64_ds`.
    fn status(&self) -> [u64; 15] {
        let ([sent, received, changed], [sender, receiver]) = (self.times.get(), self.processes.get());
        let mut words = [0; 15];
        words[..6].copy_from_slice(&self.permissions.get().words());
        words[6..13].copy_from_slice(&[
            sent,
            received,
            changed,
            self.bytes(),
            self.messages.borrow().len() as u64,
            self.bytes_max.get(),
            u64::from(sender) | u64::from(receiver) << 32,
        ]);
        words
    }
}

/// All queues.
#[derive(Debug, Default)]
pub(crate) struct Mailboxes(Objects<Mailbox>);

impl Mailboxes {
    /// Errors: ENOMEM if too much waits in all queues for one more message of so many bytes.
    fn check_room(&self, bytes: u64) -> Result<(), Errno> {
        let held: u64 = self.0.list().iter().map(|mailbox| mailbox.held.get()).sum();
        if held + bytes + HEAD > HELD_MAX { Err(Errno::ENOMEM) } else { Ok(()) }
    }
}

fn get(call: &Call<'_>) -> Result<u64, Errno> {
    let (key, flags) = (call.int(0), call.arguments[1] as u32);
    call.family().mailboxes.0.find_or_make(
        call,
        (key, flags),
        |_| Ok(()),
        |permissions| Ok(Mailbox::new(permissions, now(call))),
    )
}

fn send(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, message, length, flags, ..] = call.arguments;
    let kind: i64 = call.memory().read_value(message)?;
    if length > BYTES_MAX || kind < 1 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = vec![0; length as usize];
    call.memory().read(message.wrapping_add(TYPE_BYTES), &mut bytes)?;
    let mailbox = call.family().mailboxes.0.get(call.int(0))?;
    mailbox.permissions.get().check(call, ALTER)?;
    let put = || {
        call.family().mailboxes.check_room(length)?;
        mailbox.put(kind, &bytes)
    };
    match put() {
        Err(Errno::EAGAIN) if flags as u32 & IPC_NOWAIT == 0 => {
            call.block_on(until_ready(put, |waker| mailbox.waiters.add(waker)))?
        }
        result => result,
    }?;
    let ([_, received, changed], [_, receiver]) = (mailbox.times.get(), mailbox.processes.get());
    mailbox.times.set([now(call), received, changed]);
    mailbox.processes.set([call.process().id, receiver]);
    Ok(0)
}

fn receive(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, message, length, kind, flags, _] = call.arguments;
    let (wanted, flags) = (kind as i64, flags as u32);
    if (length as i64) < 0 || flags & MSG_COPY != 0 {
        return Err(Errno::EINVAL);
    }
    let mailbox = call.family().mailboxes.0.get(call.int(0))?;
    mailbox.permissions.get().check(call, READ)?;
    let take = || mailbox.take(wanted, flags, length);
    let (kind, bytes) = match take() {
        Err(Errno::EAGAIN) if flags & IPC_NOWAIT != 0 => Err(Errno::ENOMSG),
        Err(Errno::EAGAIN) => call.block_on(until_ready(take, |waker| mailbox.waiters.add(waker)))?,
        result => result,
    }?;
    let ([sent, _, changed], [sender, _]) = (mailbox.times.get(), mailbox.processes.get());
    mailbox.times.set([sent, now(call), changed]);
    mailbox.processes.set([sender, call.process().id]);
    let count = bytes.len().min(length as usize);
    call.memory().write_value(message, &kind)?;
    call.memory().write(message.wrapping_add(TYPE_BYTES), &bytes[..count])?;
    Ok(count as u64)
}

fn control(call: &Call<'_>) -> Result<u64, Errno> {
    let (id, command, argument) = (call.int(0), call.arguments[1] as u32, call.arguments[2]);
    let mailboxes = &call.family().mailboxes.0;
    let mailbox = mailboxes.get(id)?;
    let permissions = mailbox.permissions.get();
    match command {
        IPC_STAT => {
            permissions.check(call, READ)?;
            call.memory().write_value(argument, &mailbox.status()).map(|()| 0)
        }
        IPC_SET => {
            permissions.check_owner(call)?;
            // Where `struct msqid64_ds` has the most bytes.
            let most: u64 = call.memory().read_value(argument.wrapping_add(88))?;
            if most > ALL_BYTES && call.process().user() != 0 {
                return Err(Errno::EPERM);
            }
            let mut changed = permissions;
            changed.set(call, argument)?;
            mailbox.permissions.set(changed);
            mailbox.bytes_max.set(most);
            let [sent, received, _] = mailbox.times.get();
            mailbox.times.set([sent, received, now(call)]);
            mailbox.waiters.wake();
            Ok(0)
        }
        IPC_RMID => {
            mailboxes.remove(call, id)?.is_removed.set(true);
            mailbox.waiters.wake();
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_queues_hold_no_more_than_the_library_bears_however_short_messages_are() {
        let queues = Mailboxes::default();
        let send = |queue: i32| {
            queues.check_room(0)?;
            queues.0.get(queue)?.put(1, b"")
        };
        for queue in 0..8 {
            assert_eq!(queues.0.add(|| Ok(Mailbox::new(Permissions::default(), 0))), Ok(queue));
        }
        let sent =
            (0..8).map(|queue| core::iter::repeat_with(|| send(queue)).take_while(Result::is_ok).count());
        assert_eq!(sent.sum::<usize>() as u64, HELD_MAX / HEAD);
        assert_eq!((send(0), send(7)), (Err(Errno::ENOMEM), Err(Errno::ENOMEM)));
        assert_eq!(queues.0.get(0).and_then(|queue| queue.take(0, 0, 9)), Ok((1, Vec::new())));
        assert_eq!(send(7), Ok(()), "what was received makes room");
    }
}
