//! The machine: uname(2), getrandom(2), what it has and what was used of it.

use crate::call::Call;
use crate::table::SystemCall;
use linux_raw_sys::general as abi;
use nom_fs::Errno;

const USAGE: &str = "all time is the user's; the present resident size; a process's page faults; zeros else";

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_uname, "uname", &["names"], names),
    SystemCall::complete(abi::__NR_getrandom, "getrandom", &["buffer", "length", "flags"], random),
    SystemCall::partial(abi::__NR_sysinfo, "sysinfo", &["info"], info, "no load, no swap"),
    SystemCall::partial(abi::__NR_times, "times", &["times"], times, "all time is the user's"),
    SystemCall::partial(abi::__NR_getrusage, "getrusage", &["who", "usage"], usage, USAGE),
    SystemCall::complete(abi::__NR_getcpu, "getcpu", &["processor", "node"], processor),
    SystemCall::partial(
        abi::__NR_capget,
        "capget",
        &["header", "data"],
        capabilities,
        "root has all, others none",
    ),
    SystemCall::partial(abi::__NR_capset, "capset", &["header", "data"], |_| Ok(0), "not taken"),
    SystemCall::partial(abi::__NR_personality, "personality", &["kind"], |_| Ok(0), "Linux's"),
];

/// Bytes of each name that `uname` tells.
const NAME_BYTES: usize = 65;
/// The release of Linux that programs are told; glibc refuses old ones.
const RELEASE: &str = "6.1.0-nom";

fn names(call: &Call<'_>) -> Result<u64, Errno> {
    let mut bytes = [0; 6 * NAME_BYTES];
    let names = ["Linux", crate::facts::HOST, RELEASE, "#1 nom", "x86_64", "(none)"];
    for (place, name) in bytes.chunks_exact_mut(NAME_BYTES).zip(names) {
        place[..name.len()].copy_from_slice(name.as_bytes());
    }
    call.memory().write(call.arguments[0], &bytes).map(|()| 0)
}

fn random(call: &Call<'_>) -> Result<u64, Errno> {
    use nom_app::port::world::Entropy as _;
    let [buffer, length, flags, ..] = call.arguments;
    if flags as u32 & !(abi::GRND_NONBLOCK | abi::GRND_RANDOM | abi::GRND_INSECURE) != 0 {
        return Err(Errno::EINVAL);
    }
    let length = length.min(i32::MAX as u64);
    let mut piece = [0; 256];
    let mut done = 0;
    while done < length {
        let count = (length - done).min(piece.len() as u64) as usize;
        call.family().entropy.borrow_mut().fill(&mut piece[..count]);
        call.memory().write(buffer + done, &piece[..count])?;
        done += count as u64;
    }
    Ok(length)
}

fn info(call: &Call<'_>) -> Result<u64, Errno> {
    let (all, free) = memory_bytes();
    let free = free + call.family().spaces.idle_bytes();
    let uptime = call.now().1 / 1_000_000_000;
    let processes = call.family().processes().len() as u64;
    // Uptime; three loads; memory: all, free, shared, buffers; swap: all, free; processes; high memory: all,
    // free; unit.
    let words = [uptime, 0, 0, 0, all, free, 0, 0, 0, 0, processes, 0, 0, 1];
    call.memory().write_value(call.arguments[0], &words).map(|()| 0)
}

/// Bytes of memory that the application may have, and of those that are free.
pub(crate) fn memory_bytes() -> (u64, u64) {
    use core::sync::atomic::Ordering::Relaxed;
    const FRAME: u64 = nom_sys::abi::memory::FRAME_BYTES;
    let total = nom_sys::start::board().machine.frames_total.load(Relaxed);
    let all = nom_sys::start::info().frames_max.min(total) * FRAME;
    (all, nom_sys::memory::obtainable())
}

fn times(call: &Call<'_>) -> Result<u64, Errno> {
    const TICK_NS: u64 = 10_000_000;
    if call.arguments[0] != 0 {
        let process = call.process();
        let words = [process.ran_ns() / TICK_NS, 0, process.children_ran_ns() / TICK_NS, 0];
        call.memory().write_value(call.arguments[0], &words)?;
    }
    Ok(call.now().1 / TICK_NS)
}

fn usage(call: &Call<'_>) -> Result<u64, Errno> {
    const OWN: i32 = 0;
    const CHILDREN: i32 = -1;
    const THREAD: i32 = 1;
    let resident_bytes = call.memory().bytes().1;
    let mut words = match call.int(0) {
        OWN => usage_words(call.process().ran_ns(), resident_bytes),
        THREAD => usage_words(call.task().ran_ns(), resident_bytes),
        CHILDREN => usage_words(call.process().children_ran_ns(), 0),
        _ => return Err(Errno::EINVAL),
    };
    if call.int(0) == OWN {
        words[MINOR_FAULTS] = call.memory().faults();
    }
    call.memory().write_value(call.arguments[1], &words).map(|()| 0)
}

/// Where a `struct rusage` has how many page faults read nothing from a disk.
const MINOR_FAULTS: usize = 8;

/// Linux's `struct rusage`: the user's time, and the largest resident size in KiB, of which the present one
/// is told; all else is zero.
pub(super) fn usage_words(ran_ns: u64, resident_bytes: u64) -> [u64; 18] {
    let mut words = [0; 18];
    (words[0], words[1]) = (ran_ns / 1_000_000_000, ran_ns % 1_000_000_000 / 1000);
    words[4] = resident_bytes / 1024;
    words
}

fn processor(call: &Call<'_>) -> Result<u64, Errno> {
    // There is one node.
    let numbers = [call.task().processor.get(), 0];
    for (address, number) in call.arguments.iter().zip(numbers).filter(|(address, _)| **address != 0) {
        call.memory().write_value(*address, &number)?;
    }
    Ok(0)
}

fn capabilities(call: &Call<'_>) -> Result<u64, Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    let [header, data, ..] = call.arguments;
    let version = call.memory().read_value::<u32>(header)?;
    if version != VERSION_3 {
        call.memory().write_value(header, &VERSION_3)?;
        return if data == 0 { Ok(0) } else { Err(Errno::EINVAL) };
    }
    let set = if call.process().user() == 0 { u32::MAX } else { 0 };
    if data != 0 {
        call.memory().write_value(data, &[set, set, 0, set, set, 0])?;
    }
    Ok(0)
}
