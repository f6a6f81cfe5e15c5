//! System calls and upcalls with the processor in unusual states: the kernel minds none of them, and leaves
//! every register as it was.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_app::memory::{Grant, Region};
use nom_app::sync::Mutex;
use nom_app::{Error, PageSize, Protection, Upcall, cores, events, time, upcall};
use nom_guest_tests::{Check, border, expect, expect_that, run};
use nom_port::world::Preemption as _;
use nom_sys::port::Interrupter;
use nom_sys::thread_pointer;

nom_app::main!(main);

fn main() -> u8 {
    run(&[
        ("unknown-call", || expect("the answer", border::call_with_flags(0), Err(Error::UnknownSyscall))),
        ("strange-flags", strange_flags),
        ("null-segments", || {
            expect("the answer", border::call_with_null_segments(), Err(Error::UnknownSyscall))
        }),
        ("strange-stacks", strange_stacks),
        ("registers-kept", registers_kept),
        ("exception-upcall", exception_upcall),
        ("single-step", single_step),
        ("vectors-kept", vectors_kept),
        ("told-before-a-wait", told_before_a_wait),
        ("timer-told", timer_told),
        ("computation-interrupted", computation_interrupted),
        ("thread-pointer-kept", thread_pointer_kept),
        ("no-code", no_code),
    ])
}

/// Direction, nested task, alignment check, identification, and the arithmetic ones.
fn strange_flags() -> Check {
    for flags in [1 << 10, 1 << 14, 1 << 18, 1 << 21, 0x8d5, 0x24_4cd5] {
        expect("the answer", border::call_with_flags(flags), Err(Error::UnknownSyscall))?;
    }
    Ok(())
}

fn strange_stacks() -> Check {
    for pointer in [0, 1, 0x8000_0000_0000, nom_sys::abi::layout::DIRECT_MAP, u64::MAX, u64::MAX - 7] {
        expect("the answer", border::call_without_stack(pointer), Err(Error::UnknownSyscall))?;
    }
    Ok(())
}

fn registers_kept() -> Check {
    let mark = 0x1234_5678_9abc_0000;
    expect(
        "the registers",
        border::registers_after_call(mark),
        core::array::from_fn(|place| mark + place as u64),
    )
}

static EXCEPTIONS: AtomicU64 = AtomicU64::new(0);
static LAST_VECTOR: AtomicU64 = AtomicU64::new(0);

fn on_exception(upcall: &mut upcall::Delivery) {
    let (count, vector) = (upcall.events().has(Upcall::Exception), upcall.events().fault_address);
    EXCEPTIONS.fetch_add(count.into(), Relaxed);
    LAST_VECTOR.store(vector, Relaxed);
    border::skip_undefined(upcall);
}

fn exception_upcall() -> Check {
    upcall::register(on_exception)?;
    for round in 1..=1000 {
        border::raise_undefined();
        expect("exceptions", EXCEPTIONS.load(Relaxed), round)?;
        expect("the vector", LAST_VECTOR.load(Relaxed), border::UNDEFINED_VECTOR)?;
    }
    Ok(())
}

/// The debug exception comes behind the call, as this program's own.
fn single_step() -> Check {
    upcall::register(on_exception)?;
    let before = EXCEPTIONS.load(Relaxed);
    expect("the answer", border::call_single_stepping(), Err(Error::UnknownSyscall))?;
    expect_that("there was an exception", EXCEPTIONS.load(Relaxed) > before)?;
    expect("the vector", LAST_VECTOR.load(Relaxed), 1)
}

static DEMAND: Mutex<Option<(Region, Grant)>> = Mutex::new(None);

/// Maps the page, after using vector registers itself.
fn on_page_fault(_: &mut upcall::Delivery) {
    let noise = core::hint::black_box([1.5_f64; 32]).iter().product::<f64>();
    core::hint::black_box(noise);
    if let Some((region, grant)) = &*DEMAND.try_lock().expect("only the handler holds it") {
        region.map(0, grant, Protection::Read).expect("it was not mapped");
    }
}

fn vectors_kept() -> Check {
    upcall::register(on_page_fault)?;
    let grant = Grant::new(PageSize::Small, 1)?;
    let region = Region::reserve(grant.bytes(), PageSize::Small)?;
    let address = region.address();
    *DEMAND.lock() = Some((region, grant));
    expect_that("every vector register is as before", border::vectors_survive_fault(address))
}

static TOLD: AtomicU64 = AtomicU64::new(0);

/// What comes after a look at what there is to do, and before the wait for more, ends that wait, though an
/// upcall told it already.
fn told_before_a_wait() -> Check {
    upcall::register(|upcall| _ = TOLD.fetch_add(upcall.events().has(Upcall::CoreNotified).into(), Relaxed))?;
    cores::notify(cores::current())?;
    expect("upcalls", TOLD.load(Relaxed), 1)?;
    let events = events::wait(Some(time::now_ns() + 1_000_000_000));
    expect_that("the wait hears of it", events.has(Upcall::CoreNotified))?;
    expect("what is told again", events::wait(Some(time::now_ns() + 1_000_000)).pending, 0)
}

static TIMERS: AtomicU64 = AtomicU64::new(0);

/// A timer is told once, at its time, while the program computes.
fn timer_told() -> Check {
    upcall::register(|upcall| _ = TIMERS.fetch_add(upcall.events().has(Upcall::Timer).into(), Relaxed))?;
    for round in 1..=20 {
        let deadline_ns = time::now_ns() + 300_000;
        Interrupter.set_alarm(Some(deadline_ns));
        while TIMERS.load(Relaxed) < round {
            expect_that("it comes", time::now_ns() < deadline_ns + 10_000_000_000)?;
        }
        expect_that("it is not early", time::now_ns() >= deadline_ns)?;
    }
    Interrupter.set_alarm(Some(time::now_ns() + 1_000_000));
    Interrupter.set_alarm(None);
    let end_ns = time::now_ns() + 5_000_000;
    while time::now_ns() < end_ns {}
    expect("timers", TIMERS.load(Relaxed), 20)
}

/// What computes is interrupted on its own stack wherever it is, by whatever uses all registers, and knows
/// nothing of it.
fn computation_interrupted() -> Check {
    let interruptions = AtomicU64::new(0);
    let interrupted = || {
        let noise = core::hint::black_box([1.5_f64; 32]).iter().product::<f64>();
        core::hint::black_box(noise);
        thread_pointer::set(0x7777_0000);
        interruptions.fetch_add(1, Relaxed);
        // Time to go on a little, whatever the machine takes for this.
        Interrupter.set_alarm(Some(time::now_ns() + 50_000));
    };
    thread_pointer::set(0x1234_0000);
    let mut faults = 0;
    let end_ns = time::now_ns() + 200_000_000;
    // It may come before the computation begins.
    Interrupter.set_alarm(Some(time::now_ns()));
    Interrupter.preemptible(
        &mut || {
            let mut round = 0;
            while time::now_ns() < end_ns || interruptions.load(Relaxed) < 20 {
                faults += u64::from(!border::registers_survive(round)) + u64::from(held_up(round));
                round += 1;
            }
        },
        &interrupted,
    );
    let before = interruptions.load(Relaxed);
    let wait_ns = time::now_ns() + 5_000_000;
    while time::now_ns() < wait_ns {}
    expect("what is not as it was", faults, 0)?;
    expect("the thread's pointer", thread_pointer::get(), 0x1234_0000)?;
    expect("interruptions afterwards", interruptions.load(Relaxed), before)
}

/// Uses heap and a lock in ways that whoever interrupts would find half done. Whether anything went wrong.
fn held_up(round: u64) -> bool {
    static SUM: Mutex<u64> = Mutex::new(0);
    let list: nom_app::alloc::vec::Vec<u64> = (0..round % 60).map(|n| n * round).collect();
    let sum = list.iter().sum::<u64>();
    let mut guard = SUM.lock();
    *guard = sum;
    core::hint::black_box(&mut *guard);
    *guard != (round % 60) * (round % 60).saturating_sub(1) / 2 * round
}

/// FS is the program's own, on each core.
fn thread_pointer_kept() -> Check {
    for address in [0x10_0000, 0, 0x5555_0000] {
        thread_pointer::set(address);
        nom_app::events::yield_core();
        events::sleep(1_000_000);
        expect("the pointer", thread_pointer::get(), address)?;
    }
    thread_pointer::set(nom_sys::abi::layout::KERNEL_IMAGE);
    expect("the pointer", thread_pointer::get(), 0x5555_0000)
}

/// Memory that was written cannot be executed, neither where it was written nor by another address: the
/// manifest does not say that this program makes code.
fn no_code() -> Check {
    let grant = Grant::new(PageSize::Small, 1)?;
    let region = Region::reserve(2 * grant.bytes(), PageSize::Small)?;
    region.map(0, &grant, Protection::ReadWrite)?;
    let alias = region.map(grant.bytes(), &grant, Protection::ReadExecute);
    expect("the answer to an alias", alias, Err(Error::NotPermitted))?;
    let same = region.protect(0, grant.bytes(), Protection::ReadExecute);
    expect("the answer to a change of protection", same, Err(Error::NotPermitted))
}
