//! Who is told by signals that a description is ready: the commands of fcntl(2) and ioctl(2) for that.

use crate::call::Call;
use crate::descriptors::open::Description;
use crate::descriptors::signal_driven::SignalOwner;
use crate::process::Process;
use crate::signals::Signal;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use linux_raw_sys::ioctl::{FIOSETOWN, SIOCGPGRP};
use nom_fs::Errno;

/// asm-generic/sockios.h: the other names of the same.
const SIOCSPGRP: u32 = 0x8902;
const FIOGETOWN: u32 = 0x8903;
/// asm-generic/fcntl.h: the users of who named the owner.
const F_GETOWNER_UIDS: u32 = 17;

/// Whether a command of fcntl(2) is one of these.
pub(super) fn is_command(command: u32) -> bool {
    let ones = [abi::F_SETOWN, abi::F_GETOWN, abi::F_SETSIG, abi::F_GETSIG, abi::F_SETOWN_EX];
    ones.contains(&command) || [abi::F_GETOWN_EX, F_GETOWNER_UIDS].contains(&command)
}

/// Answers one of these.
pub(super) fn answer(call: &Call<'_>, description: &Rc<Description>, command: u32) -> Result<u64, Errno> {
    let argument = call.arguments[2];
    match command {
        abi::F_SETOWN => own(call, description, named(argument as i32)?),
        abi::F_GETOWN => Ok(number(call, description) as i64 as u64),
        abi::F_SETOWN_EX => {
            let [kind, id]: [u32; 2] = call.memory().read_value(argument)?;
            let owner = match kind {
                abi::F_OWNER_TID..=abi::F_OWNER_PGRP if id == 0 => SignalOwner::Nobody,
                abi::F_OWNER_TID => SignalOwner::Thread(id),
                abi::F_OWNER_PID => SignalOwner::Process(id),
                abi::F_OWNER_PGRP => SignalOwner::Group(id),
                _ => return Err(Errno::EINVAL),
            };
            own(call, description, owner)
        }
        abi::F_GETOWN_EX => {
            let (kind, id) = match living(call, description) {
                SignalOwner::Nobody => (abi::F_OWNER_TID, 0),
                SignalOwner::Thread(id) => (abi::F_OWNER_TID, id),
                SignalOwner::Process(id) => (abi::F_OWNER_PID, id),
                SignalOwner::Group(id) => (abi::F_OWNER_PGRP, id),
            };
            call.memory().write_value(argument, &[kind, id]).map(|()| 0)
        }
        F_GETOWNER_UIDS => {
            let by = description.signal_driven().by.get();
            call.memory().write_value(argument, &[by.real, by.effective]).map(|()| 0)
        }
        abi::F_SETSIG => {
            let signal = if argument == 0 { None } else { Some(Signal::new(argument)?) };
            description.signal_driven().signal.set(signal);
            Ok(0)
        }
        _ => Ok(description.signal_driven().signal.get().map_or(0, Signal::number).into()),
    }
}

/// Answers an ioctl(2) of a socket's owner; nothing if it is none.
pub(super) fn request(
    call: &Call<'_>,
    description: &Rc<Description>,
    request: u32,
) -> Option<Result<u64, Errno>> {
    let at = call.arguments[2];
    let set = || {
        let owner = named(call.memory().read_value(at)?)?;
        own(call, description, owner)
    };
    match request {
        FIOSETOWN | SIOCSPGRP => Some(set()),
        FIOGETOWN | SIOCGPGRP => Some(call.memory().write_value(at, &number(call, description)).map(|()| 0)),
        _ => None,
    }
}

/// The flag `O_ASYNC` of a description is another than before.
pub(super) fn driven_changed(call: &Call<'_>, description: &Rc<Description>) {
    let driven = description.signal_driven();
    driven.descriptor.set(call.int(0));
    // As on Linux, a terminal tells who first wants it to if nobody was named.
    if description.is_terminal && driven.owner.get() == SignalOwner::Nobody {
        driven.own(SignalOwner::Process(call.process().id), call.process().view.borrow().users());
    }
    driven.begin(call.family(), description);
}

/// The owner that a number names: a process, or a group by its number below zero.
fn named(number: i32) -> Result<SignalOwner, Errno> {
    match number {
        0 => Ok(SignalOwner::Nobody),
        i32::MIN => Err(Errno::EINVAL),
        number if number < 0 => Ok(SignalOwner::Group(number.unsigned_abs())),
        number => Ok(SignalOwner::Process(number as u32)),
    }
}

fn own(call: &Call<'_>, description: &Rc<Description>, owner: SignalOwner) -> Result<u64, Errno> {
    if owner != SignalOwner::Nobody && !is_there(call, owner) {
        return Err(Errno::ESRCH);
    }
    let driven = description.signal_driven();
    driven.own(owner, call.process().view.borrow().users());
    driven.begin(call.family(), description);
    Ok(0)
}

fn is_there(call: &Call<'_>, owner: SignalOwner) -> bool {
    let family = call.family();
    match owner {
        SignalOwner::Nobody => false,
        SignalOwner::Thread(id) => family.task(id).is_some(),
        SignalOwner::Process(id) => family.process(id).is_some(),
        SignalOwner::Group(group) => {
            family.processes().iter().any(|process: &Rc<Process>| process.group.get() == group)
        }
    }
}

/// Who is told, if that one has not ended.
fn living(call: &Call<'_>, description: &Description) -> SignalOwner {
    let owner = description.signal_driven().owner.get();
    if is_there(call, owner) { owner } else { SignalOwner::Nobody }
}

/// The number that names the owner of a description.
fn number(call: &Call<'_>, description: &Description) -> i32 {
    match living(call, description) {
        SignalOwner::Nobody => 0,
        SignalOwner::Thread(id) | SignalOwner::Process(id) => id as i32,
        SignalOwner::Group(group) => -(group as i32),
    }
}
