//! What crossing the border costs, in cycles of the time-stamp counter: lines `figure name=.. cycles=..`,
//! each the median of many batches.
//!
//! Arguments: `measure ECHO` measures on several processors, with the application ECHO at the other end of
//! the channel; `measure YIELD ECHO` on one, which all share; `echo` answers, `yield` only yields. `lives
//! HOLDER FAULTER` measures on one processor what it takes to start and to end an application: `holder` takes
//! all memory that it can have, `fault` faults at once. `registers` measures what it takes to map those of
//! QEMU's `ivshmem-plain`, `spaces` what it takes to map and unmap where as many address spaces show the same
//! as an application can have.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_app::alloc::vec::Vec;
use nom_app::devices::{self, Device};
use nom_app::memory::{Grant, Region};
use nom_app::{Error, PageSize, Protection, applications, args, board, events, println, time, upcall};
use nom_guest_tests::line::{Line, Patience};
use nom_guest_tests::{Check, Failure, border, expect, run};
use nom_port::world::Preemption as _;
use nom_sys::port::Interrupter;
use nom_sys::program::ProgramSpace;

nom_app::main!(main);

const BATCHES: usize = 101;
/// As many pages as a call takes.
const PAGES: u64 = 512;
/// Repetitions in one batch: enough to make reading the counter cheap beside them.
const REPETITIONS: u64 = 100;

fn main() -> u8 {
    match args().next() {
        Some("echo") => run(&[("echo", echo)]),
        Some("yield") => loop {
            events::yield_core();
        },
        Some("holder") => hold(),
        Some("fault") => {
            border::raise_undefined();
            0
        }
        Some("lives") => run(&[("lives", lives)]),
        Some("registers") => run(&[("registers", registers)]),
        Some("spaces") => run(&[("spaces", spaces)]),
        _ => run(&[("measure", measure)]),
    }
}

fn measure() -> Check {
    figure("system_call", 1, || _ = border::call_unknown());
    upcall::register(border::skip_undefined)?;
    figure("upcall_round_trip", 1, border::raise_undefined);
    holds()?;
    search()?;
    figure("board_clock", 1, || _ = core::hint::black_box(time::now_ns()));
    if board().machine.cores.load(Relaxed) > 1 {
        return with_peer(1, |_| messages());
    }
    with_peer(1, switches)?;
    with_peer(2, |_| messages_on_one_processor())
}

/// Does `work` while the application runs that the argument `number` names.
fn with_peer(number: usize, work: impl FnOnce(usize) -> Check) -> Check {
    let peer = applications::find(args().nth(number).ok_or("expected the peer's name")?)?;
    applications::start(peer)?;
    let result = work(peer);
    applications::kill(peer)?;
    result
}

/// Prints the median cost of `work`, which does what is measured `per_call` times.
fn figure(name: &str, per_call: u64, work: impl FnMut()) {
    figure_of(REPETITIONS, name, per_call, work);
}

/// As [`figure`], with so many repetitions in a batch: a tenth of them where one takes long.
fn figure_of(repetitions: u64, name: &str, per_call: u64, mut work: impl FnMut()) {
    let mut batches: Vec<u64> = (0..BATCHES)
        .map(|_| {
            let start = time::cycles();
            (0..repetitions).for_each(|_| work());
            time::cycles() - start
        })
        .collect();
    batches.sort_unstable();
    println!("figure name={name} cycles={}", batches[BATCHES / 2] / (repetitions * per_call));
}

/// What takes longest of all that is done at one go, while nobody else has the kernel.
fn holds() -> Check {
    let mut worst = [0; 5];
    for _ in 0..BATCHES {
        let region = Region::reserve(PAGES * PageSize::Small.bytes(), PageSize::Small)?;
        let grant = Grant::new(PageSize::Small, PAGES)?;
        let start = time::cycles();
        region.map(0, &grant, Protection::ReadWrite)?;
        let mapped = time::cycles();
        region.protect(0, region.bytes(), Protection::Read)?;
        let protected = time::cycles();
        region.unmap(0, region.bytes())?;
        let unmapped = time::cycles();
        grant.release()?;
        let released = time::cycles();
        // As much as is zeroed at a time.
        Grant::new(PageSize::Small, 16)?;
        let marks = [start, mapped, protected, unmapped, released, time::cycles()];
        worst
            .iter_mut()
            .zip(marks.windows(2))
            .for_each(|(worst, mark)| *worst = (mark[1] - mark[0]).max(*worst));
    }
    for (name, cycles) in ["map", "protect", "unmap", "release", "grant_and_release_16"].iter().zip(worst) {
        println!("figure name=longest_{name} cycles={cycles}");
    }
    Ok(())
}

/// What one piece of a search takes, for two pages in a row, in memory with every other page free: as much as
/// two pieces look at.
fn search() -> Check {
    let mut singles: Vec<Option<Grant>> =
        core::iter::from_fn(|| Grant::new(PageSize::Small, 1).ok()).take(8 * 512).map(Some).collect();
    let held: Vec<Grant> = singles.iter_mut().step_by(2).filter_map(Option::take).collect();
    drop(singles);
    let mut worst = 0;
    for _ in 0..BATCHES {
        let start = time::cycles();
        let pair = Grant::new(PageSize::Small, 2)?;
        worst = worst.max(time::cycles() - start);
        pair.release()?;
    }
    println!("figure name=longest_search cycles={}", worst / 2);
    expect("pages that are held", held.len(), 4 * 512)
}

/// Takes all memory that it can have, page by page and mapped, and keeps it until it is ended.
fn hold() -> ! {
    let take = || {
        let grant = Grant::new(PageSize::Small, PAGES)?;
        let region = Region::reserve(grant.bytes(), PageSize::Small)?;
        region.map(0, &grant, Protection::ReadWrite)?;
        Ok::<_, Error>((grant, region))
    };
    let held: Vec<_> = core::iter::from_fn(|| take().ok()).collect();
    println!("holder has {} KiB", held.len() as u64 * PAGES * PageSize::Small.bytes() / 1024);
    loop {
        events::wait(None);
    }
}

/// Maps as many registers of a device as a call takes, at as many places as there may be, then once more,
/// which looks through all of them in vain, and gives the device back, which takes one place after the other.
fn registers() -> Check {
    let device = Device::acquire(devices::find(|vendor, device| (vendor, device) == (0x1af4, 0x1110))?)?;
    let mut regions = Vec::new();
    let mut worst = 0;
    let refused = loop {
        let region = Region::reserve(PAGES * PageSize::Small.bytes(), PageSize::Small)?;
        let start = time::cycles();
        let mapped = border::map_registers(&device, 2, &region);
        let took = time::cycles() - start;
        match mapped {
            Ok(()) => regions.push(region),
            Err(error) => break (error, took / regions.len() as u64),
        }
        worst = worst.max(took);
    };
    expect("why there are no more places", refused.0, Error::TableFull)?;
    // One look, and a place is found.
    println!("figure name=longest_device_map cycles={} look={}", worst + refused.1, refused.1);
    let start = time::cycles();
    drop(device);
    println!("figure name=longest_device_release cycles={}", (time::cycles() - start) / regions.len() as u64);
    Ok(())
}

/// Maps and unmaps as many pages as a call takes across two entries of the root table, which lead to no table
/// before and behind: both are written in every space that there can be.
fn spaces() -> Check {
    let spaces: Vec<_> = core::iter::from_fn(|| ProgramSpace::new().ok()).collect();
    let grant = Grant::new(PageSize::Small, PAGES)?;
    let mut worst = [0; 2];
    for _ in 0..10 {
        let start = time::cycles();
        border::map_across(&grant)?;
        let mapped = time::cycles();
        border::unmap_across(&grant)?;
        let cycles = [mapped - start, time::cycles() - mapped];
        worst.iter_mut().zip(cycles).for_each(|(worst, cycles)| *worst = cycles.max(*worst));
    }
    for (name, cycles) in ["map", "unmap"].iter().zip(worst) {
        println!("figure name=longest_{name}_in_all_spaces cycles={cycles}");
    }
    expect("spaces beside the first", spaces.len(), 511)
}

/// Frames of which a piece of an end takes the owner away (`kernel/pure/src/applications.rs`).
const TAKEN_BACK: u64 = 4 * 512;

/// What an application's start, and one piece of its end, have the kernel do in one go. A fault's figure
/// contains the short life of who faults.
fn lives() -> Check {
    let peer =
        |number| applications::find(args().nth(number).ok_or("expected two peers")?).map_err(Failure::from);
    let (holder, faulter) = (peer(1)?, peer(2)?);
    let start = time::cycles();
    applications::start(holder)?;
    let all = time::cycles() - start;
    let start = time::cycles();
    applications::kill(holder)?;
    let shortest = time::cycles() - start;
    let mut result = Ok(());
    let (longest, pieces) = longest_piece(&mut || result = applications::start(holder));
    result?;
    expect("whether it is started in pieces", pieces > 1, true)?;
    println!("figure name=longest_start cycles={longest} pieces={pieces} all={all}");
    let frames = || applications::usage(holder).frames.load(Relaxed);
    let mut before = 0;
    while frames() > before {
        before = frames();
        events::sleep(100_000_000);
    }
    let start = time::cycles();
    applications::kill(holder)?;
    let longest = time::cycles() - start;
    let piece = shortest + (longest - shortest) * TAKEN_BACK / before;
    println!("figure name=longest_end cycles={piece} all={longest} KiB={}", before * 4);
    applications::start(faulter)?;
    let start = time::cycles();
    while applications::is_running(faulter) {
        events::yield_core();
    }
    println!("figure name=longest_fault cycles={}", time::cycles() - start);
    Ok(())
}

/// A call that the kernel carries out in pieces is interrupted behind each. Cycles of the longest, with the
/// interruption, and how many there were.
fn longest_piece(call: &mut (dyn FnMut() + Send)) -> (u64, u64) {
    /// Longer than it takes to come back from an interruption, shorter than a piece.
    const AHEAD_NS: u64 = 5_000;
    let (begin, longest, pieces) = (AtomicU64::new(time::cycles()), AtomicU64::new(0), AtomicU64::new(0));
    let interrupted = || {
        longest.fetch_max(time::cycles() - begin.load(Relaxed), Relaxed);
        pieces.fetch_add(1, Relaxed);
        Interrupter.set_alarm(Some(time::now_ns() + AHEAD_NS));
        begin.store(time::cycles(), Relaxed);
    };
    Interrupter.set_alarm(Some(time::now_ns() + AHEAD_NS));
    Interrupter.preemptible(call, &interrupted);
    Interrupter.set_alarm(None);
    (longest.load(Relaxed), pieces.load(Relaxed))
}

/// One yield is a switch to the peer and one back.
fn switches(peer: usize) -> Check {
    let cycles = || applications::usage(peer).cycles.load(Relaxed);
    events::sleep(10_000_000);
    let before = cycles();
    figure("address_space_switch", 2, events::yield_core);
    expect("whether the peer ran", cycles() > before, true)
}

/// The shortest message there and back, both ends awake, then both asleep until they are notified.
fn messages() -> Check {
    let mut line = Line::open()?;
    round_trips(&mut line, "ipc_round_trip_awake", Patience::Awake)?;
    round_trips(&mut line, "ipc_round_trip_asleep", Patience::Asleep)
}

/// The shortest message there and back, where only one end can be awake.
fn messages_on_one_processor() -> Check {
    round_trips(&mut Line::open()?, "ipc_round_trip_one_processor", Patience::Asleep)
}

fn round_trips(line: &mut Line, name: &str, patience: Patience) -> Check {
    exchange(line, patience)?;
    let mut result = Ok(());
    let repetitions = if patience == Patience::Asleep { REPETITIONS / 10 } else { REPETITIONS };
    figure_of(repetitions, name, 1, || {
        if result.is_ok() {
            result = exchange(line, patience);
        }
    });
    result
}

/// The message tells the peer how to wait for the next one.
fn exchange(line: &mut Line, patience: Patience) -> Check {
    let mut answer = [0; 8];
    let message = [u8::from(patience == Patience::Asleep); 8];
    if patience == Patience::Asleep {
        return line.exchange(&message, &mut answer).map(|_| ());
    }
    line.send(&message)?;
    line.receive(&mut answer, patience).map(|_| ())
}

fn echo() -> Check {
    let mut line = Line::open()?;
    let mut message = [0; 8];
    line.receive(&mut message, Patience::Awake)?;
    loop {
        if message[0] == 0 {
            line.send(&message)?;
            line.receive(&mut message, Patience::Awake)?;
        } else {
            let answer = message;
            line.exchange(&answer, &mut message)?;
        }
    }
}
