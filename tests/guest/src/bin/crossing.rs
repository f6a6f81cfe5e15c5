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
