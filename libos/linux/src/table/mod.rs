//! Every system call of Linux on x86-64: what there is of it, and who answers it. `docs/linux.md` is made
//! from this.

mod refused;
mod unanswered;

use crate::call::Call;
use crate::{calls, descriptors};
use alloc::vec::Vec;
use nom_fs::Errno;

/// What there is of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All that programs rely on.
    Complete,
    /// Not all: what is different. A machine, which tells nobody, has no room for that.
    Partial(&'static str),
    /// Nothing, on purpose: why, or what programs do instead.
    Refused(&'static str),
}

/// What answers a call.
pub type CallHandler = fn(&Call<'_>) -> Result<u64, Errno>;

/// A call.
#[derive(Clone, Copy)]
pub struct SystemCall {
    /// Its number.
    pub number: u16,
    /// Its name.
    pub name: &'static str,
    /// Its arguments, by name, in the order of their registers.
    pub arguments: &'static [&'static str],
    /// What there is of it.
    pub standing: Standing,
    /// Who answers it.
    pub handler: CallHandler,
}

impl core::fmt::Debug for SystemCall {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "{} {}: {:?}", self.number, self.name, self.standing)
    }
}

impl SystemCall {
    /// A call of which everything is there.
    pub const fn complete(
        number: u32,
        name: &'static str,
        arguments: &'static [&'static str],
        handler: CallHandler,
    ) -> SystemCall {
        SystemCall { number: number as u16, name, arguments, standing: Standing::Complete, handler }
    }

    /// A call of which something is different.
    pub const fn partial(
        number: u32,
        name: &'static str,
        arguments: &'static [&'static str],
        handler: CallHandler,
        how: &'static str,
    ) -> SystemCall {
        SystemCall { number: number as u16, name, arguments, standing: Standing::Partial(told(how)), handler }
    }

    /// A call that is refused with `ENOSYS`, and why.
    pub const fn refused(number: u32, name: &'static str, why: &'static str) -> SystemCall {
        let handler: CallHandler = |_| Err(Errno::ENOSYS);
        SystemCall {
            number: number as u16,
            name,
            arguments: &[],
            standing: Standing::Refused(told(why)),
            handler,
        }
    }
}

/// Words that are read on a host alone.
const fn told(words: &'static str) -> &'static str {
    if cfg!(target_os = "none") { "" } else { words }
}

/// The rows of each part.
const PARTS: &[&[SystemCall]] = &[
    calls::barriers::ROWS,
    calls::identities::ROWS,
    calls::for_files::ROWS,
    calls::limits::ROWS,
    calls::mailboxes::ROWS,
    calls::memory::ROWS,
    calls::nodes::ROWS,
    calls::others_memory::ROWS,
    calls::priority::ROWS,
    calls::processes::ROWS,
    calls::scheduling::ROWS,
    calls::segments::ROWS,
    calls::semaphores::ROWS,
    calls::threads::ROWS,
    calls::signals::ROWS,
    calls::time::ROWS,
    calls::timers::ROWS,
    calls::system::ROWS,
    calls::controls::ROWS,
    descriptors::calls::io::ROWS,
    descriptors::calls::locks::ROWS,
    descriptors::calls::flags::ROWS,
    descriptors::calls::paths::ROWS,
    descriptors::calls::process::ROWS,
    descriptors::calls::queues::ROWS,
    descriptors::calls::status::ROWS,
    descriptors::calls::xattr::ROWS,
    descriptors::calls::make::ROWS,
    descriptors::calls::messages::ROWS,
    descriptors::calls::notices::ROWS,
    descriptors::calls::options::ROWS,
    descriptors::calls::ready::ROWS,
    descriptors::calls::sockets::ROWS,
    descriptors::calls::splice::ROWS,
    refused::ROWS,
];

/// All calls.
pub fn all() -> impl Iterator<Item = &'static SystemCall> {
    PARTS.iter().flat_map(|part| part.iter())
}

/// Names of the kinds of calls that a trace can be limited to, as strace has them, and which those are.
const CLASSES: [(&str, &[&[SystemCall]]); 5] = [
    ("memory", &[calls::memory::ROWS]),
    ("process", &[calls::processes::ROWS, calls::threads::ROWS]),
    ("signal", &[calls::signals::ROWS]),
    (
        "network",
        &[
            descriptors::calls::sockets::ROWS,
            descriptors::calls::messages::ROWS,
            descriptors::calls::options::ROWS,
        ],
    ),
    ("ipc", &[calls::segments::ROWS, calls::semaphores::ROWS, calls::mailboxes::ROWS]),
];

/// The calls of a kind, by its name without `%`: those of [`CLASSES`], `file` for those that take a path, and
/// `desc` for those that take a descriptor.
pub fn class(name: &str) -> Option<Vec<&'static SystemCall>> {
    let takes = |what: &'static [&str]| {
        all().filter(|row| row.arguments.iter().any(|argument| what.contains(argument))).collect()
    };
    match name {
        "file" => Some(takes(&["path", "target"])),
        "desc" => Some(takes(&["descriptor", "descriptors", "from", "to"])),
        _ => {
            let (_, parts) = CLASSES.iter().find(|(class, _)| *class == name)?;
            Some(parts.iter().flat_map(|part| part.iter()).collect())
        }
    }
}

/// What Linux calls the call with this number, whether or not it is answered here.
pub fn name_of(number: u32) -> Option<&'static str> {
    let unanswered = unanswered::NAMES.iter().find(|(known, _)| u32::from(*known) == number);
    row(number.into()).map(|row| row.name).or(unanswered.map(|(_, name)| *name))
}

/// The call with this name.
pub fn named(name: &str) -> Option<&'static SystemCall> {
    all().find(|row| row.name == name)
}

/// Behind the last number that there is.
const NUMBERS: usize = 462;

/// For each number its part and its place there, both one more, or zeros.
const PLACES: [(u8, u8); NUMBERS] = places();

const fn places() -> [(u8, u8); NUMBERS] {
    let mut places = [(0, 0); NUMBERS];
    let mut part = 0;
    while part < PARTS.len() {
        let mut row = 0;
        while row < PARTS[part].len() {
            let place = &mut places[PARTS[part][row].number as usize];
            assert!(place.0 == 0, "two rows have one number");
            *place = (part as u8 + 1, row as u8 + 1);
            row += 1;
        }
        part += 1;
    }
    places
}

/// For each number who answers it: what each call asks.
static ANSWERS: [Option<CallHandler>; NUMBERS] = answers();

const fn answers() -> [Option<CallHandler>; NUMBERS] {
    let mut answers = [None; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        let (part, row) = PLACES[number];
        if part > 0 {
            answers[number] = Some(PARTS[part as usize - 1][row as usize - 1].handler);
        }
        number += 1;
    }
    answers
}

/// The call with this number.
pub fn row(number: u64) -> Option<&'static SystemCall> {
    static KNOWN: [(u8, u8); NUMBERS] = PLACES;
    let (part, row) = *KNOWN.get(usize::try_from(number).ok()?)?;
    PARTS.get(usize::from(part).checked_sub(1)?)?.get(usize::from(row).checked_sub(1)?)
}

/// Answers a call. One that is not known is named once, with the program and where it was.
pub(crate) fn answer(call: &Call<'_>, number: u64) -> Result<u64, Errno> {
    match usize::try_from(number).ok().and_then(|number| *ANSWERS.get(number)?) {
        Some(handler) => handler(call),
        None => {
            unknown(call, number);
            Err(Errno::ENOSYS)
        }
    }
}

#[cold]
fn unknown(call: &Call<'_>, number: u64) {
    call.family().unknown(number, || {
        let process = call.process();
        let program = process.program.borrow();
        let name = alloc::string::String::from_utf8_lossy(&program.path);
        let address = call.task().context.borrow().registers().rip;
        nom_app::println!("{name}: system call {number} at {address:#x} is not known: ENOSYS");
    });
}

/// Whether a call that a signal interrupted goes on if nobody handles that: all but those of which signal(7)
/// says otherwise ("Interruption of system calls and library functions by stop signals").
pub(crate) fn goes_on(number: u64) -> bool {
    use linux_raw_sys::general as nr;
    const OVER: &[u32] = &[
        nr::__NR_epoll_wait,
        nr::__NR_epoll_pwait,
        nr::__NR_epoll_pwait2,
        nr::__NR_rt_sigtimedwait,
        nr::__NR_semop,
        nr::__NR_semtimedop,
    ];
    OVER.iter().all(|over| u64::from(*over) != number)
}

/// Whether a call is made again after a signal whose handler wants that (signal(7), "Interruption of system
/// calls").
pub(crate) fn restarts(number: u64) -> bool {
    use linux_raw_sys::general as nr;
    const AGAIN: &[u32] = &[
        nr::__NR_read,
        nr::__NR_readv,
        nr::__NR_write,
        nr::__NR_writev,
        nr::__NR_pread64,
        nr::__NR_pwrite64,
        nr::__NR_ioctl,
        nr::__NR_open,
        nr::__NR_openat,
        nr::__NR_wait4,
        nr::__NR_waitid,
        nr::__NR_accept,
        nr::__NR_accept4,
        nr::__NR_connect,
        nr::__NR_sendto,
        nr::__NR_recvfrom,
        nr::__NR_sendmsg,
        nr::__NR_recvmsg,
        nr::__NR_flock,
        nr::__NR_fcntl,
        nr::__NR_futex,
        nr::__NR_getrandom,
        nr::__NR_preadv,
        nr::__NR_pwritev,
        nr::__NR_preadv2,
        nr::__NR_pwritev2,
        nr::__NR_recvmmsg,
        nr::__NR_sendmmsg,
        nr::__NR_sendfile,
        nr::__NR_mq_timedsend,
        nr::__NR_mq_timedreceive,
        nr::__NR_splice,
        nr::__NR_tee,
        nr::__NR_vmsplice,
    ];
    AGAIN.iter().any(|again| u64::from(*again) == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_number_and_has_a_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for expected in all() {
            let found = row(expected.number.into()).expect("it is there");
            assert_eq!(found.name, expected.name);
            assert!(names.insert(expected.name), "{} is there twice", expected.name);
            assert!(expected.arguments.len() <= 6);
        }
        for (name, is_of, is_not_of) in [
            ("file", &["openat", "rename", "symlink"][..], "splice"),
            ("desc", &["read", "splice", "sendfile"], "rename"),
            ("network", &["bind", "sendto", "getsockopt"], "read"),
        ] {
            let rows = class(name).expect("a class");
            let has = |name: &str| rows.iter().any(|row| row.name == name);
            assert!(is_of.iter().all(|name| has(name)) && !has(is_not_of), "{name}");
        }
        assert!(unanswered::NAMES.iter().all(|(number, _)| row(u64::from(*number)).is_none()));
        assert!(class("x").is_none() && named("x").is_none() && named("read").is_some());
        assert_eq!([name_of(0), name_of(135), name_of(1000)], [Some("read"), Some("personality"), None]);
        assert!(row(u64::MAX).is_none() && row(NUMBERS as u64).is_none());
    }
}
